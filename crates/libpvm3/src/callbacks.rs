//! What the program has asked for when messages arrive: message handlers (contract 2.4), and the output of children
//! (contract 2.8).
use crate::data::{pvmmyctx, pvmshowtaskid};
use crate::messages::print_message;
use crate::process::Guard;
use crate::trace;
use crate::wait::wait;
use pvm_core::codes::Code;
use pvm_core::state_line::Call;
use pvm_task::{OutputEvent, OutputKind};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

/// A user's message handler.
pub type Handler = unsafe extern "C" fn(c_int) -> c_int;

/// Runs the handlers for the messages that have arrived, and prints the output of children that has arrived.
pub fn run(guard: &mut Guard) {
    run_handlers(guard);
    print_output(guard);
}

/// Runs the handlers for the messages that have arrived.
pub fn run_handlers(guard: &mut Guard) {
    while let Some(call) = guard.task().next_handler_call() {
        pvmmyctx.store(guard.task().context(), Relaxed);
        trace::handler_runs(guard, &call);
        // SAFETY: `pvm_addmhf` made the number from such a function.
        let handler: Handler = unsafe { std::mem::transmute::<usize, Handler>(call.function as usize) };
        // SAFETY: the user's function, with the argument that it expects.
        guard.user_code(|| unsafe { handler(call.mid) });
        guard.task().handler_done();
        pvmmyctx.store(guard.task().context(), Relaxed);
    }
}

/// Prints the output of children that has arrived.
fn print_output(guard: &mut Guard) {
    let mut text = Vec::new();
    while let Some(event) = guard.task().next_output() {
        append(&mut text, &event);
    }
    let file = guard.state().output;
    if !text.is_empty() && !file.is_null() {
        // SAFETY: the stream that the user passed to `pvm_catchout`.
        unsafe { write(file, &text) }
    }
}

/// Appends the text of an output event, with the task's tid if `PvmShowTids` is set.
fn append(text: &mut Vec<u8>, event: &OutputEvent) {
    let named = pvmshowtaskid.load(Relaxed) != 0;
    let what: &[u8] = match &event.kind {
        OutputKind::Line(line) | OutputKind::Raw(line) => line,
        _ if !named => return,
        OutputKind::Begin => b"BEGIN",
        OutputKind::End => b"EOF",
    };
    if named {
        text.extend_from_slice(format!("[{}] ", event.task).as_bytes());
    }
    text.extend_from_slice(what);
    text.push(b'\n');
}

/// # Safety
/// An open stream.
pub unsafe fn write(file: *mut libc::FILE, text: &[u8]) {
    // SAFETY: as promised by the caller.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), file);
        libc::fflush(file);
    }
}

/// Waits, before this task leaves the machine, until every task whose output it collects has ended.
pub fn finish_output(guard: &mut Guard) -> Result<(), Code> {
    if guard.state().output.is_null() {
        return Ok(());
    }
    guard.progress();
    print_output(guard);
    if guard.task().collecting() > 0 && pvmshowtaskid.load(Relaxed) != 0 {
        print_message(b"child task(s) still running.  waiting...");
    }
    let ended = wait(guard, Call::Output, None, |guard| match guard.task() {
        task if task.collecting() == 0 => Some(Ok(())),
        task if !task.is_connected() => Some(Err(Code::SysErr)),
        _ => None,
    });
    print_output(guard);
    guard.state().output = std::ptr::null_mut();
    ended.unwrap_or(Ok(()))
}
