//! Leaving the machine.
use crate::data::{self, pvmmyctx};
use crate::process::Guard;
use crate::{callbacks, trace, trace_mode};
use pvm_core::codes::Code;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// Leaves the machine after the tasks have ended whose output this task collects.
pub fn leave(guard: &mut Guard) -> Result<(), Code> {
    if !guard.task().is_enrolled() {
        return Ok(());
    }
    if guard.task().in_handler() {
        return Err(Code::NotImpl);
    }
    let collected = callbacks::finish_output(guard);
    guard.task().begin_leave();
    callbacks::run_handlers(guard);
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(null_mut()) };
    let left = leave_now(guard);
    collected.and(left)
}

/// Leaves the machine at once.
pub fn leave_now(guard: &mut Guard) -> Result<(), Code> {
    trace::finish(guard);
    let left = guard.task().leave();
    trace_mode::refresh(guard.task());
    guard.state().callbacks = None;
    guard.state().registered = Default::default();
    guard.state().watched = None;
    guard.state().choose_path();
    guard.state().lists.siblings = Vec::new();
    data::forget_identity();
    pvmmyctx.store(guard.task().context(), Relaxed);
    left
}
