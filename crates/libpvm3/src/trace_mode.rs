//! Whether calls are traced.
use pvm_task::Task;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Nothing is traced.
pub const OFF: u8 = 0;

/// Not known: the process is not enrolled, or the settings have changed. The next call finds out.
pub const UNKNOWN: u8 = 1;

/// Something is traced.
pub const ON: u8 = 2;

/// The mode that every call loads. Changed under the process lock, except by `invalidate`.
pub static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns whether anything may be traced.
#[inline(always)]
pub fn may_be_on() -> bool {
    MODE.load(Relaxed) != OFF
}

/// Sets the mode from the task's settings, which may have changed.
pub fn refresh(task: &Task) {
    let mode = match task.is_enrolled() {
        false => UNKNOWN,
        true if task.traces() => ON,
        true => OFF,
    };
    MODE.store(mode, Relaxed);
}

/// Notes that the settings may have changed, or that signals are postponed.
pub fn invalidate() {
    MODE.store(UNKNOWN, Relaxed);
}
