//! The time, which is an argument of all rules.
use std::time::Duration;

/// A point in time: the duration since a fixed starting point.
pub type Time = Duration;
