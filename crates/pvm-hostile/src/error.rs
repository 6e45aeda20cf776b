//! Errors of all kinds.

pub type Error = Box<dyn std::error::Error>;
