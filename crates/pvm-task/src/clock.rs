//! The time of a process, as the rules of `pvm-core` take it.
use pvm_core::time::Time;
use std::sync::OnceLock;
use std::time::Instant;

/// Returns the time since this process first asked for it.
pub(crate) fn now() -> Time {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    ZERO.get_or_init(Instant::now).elapsed()
}
