//! Output of children (contract 2.8).
use crate::data::pvmshowtaskid;
use crate::errors::{call, print_message};
use crate::process::Guard;
use crate::wait::wait;
use pvm_core::codes::Code;
use pvm_task::{OutputEvent, OutputKind};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

#[unsafe(no_mangle)]
pub extern "C" fn pvm_catchout(file: *mut libc::FILE) -> c_int {
    call("pvm_catchout", |guard| {
        if file.is_null() {
            guard.task().stop_catching_output();
            // Further output of children is dropped, and `pvm_exit` does not wait for their end.
            guard.state().output = file;
        } else {
            guard.enrolled()?;
            guard.state().output = file;
            guard.state().has_callbacks = true;
            guard.state().choose_path();
            guard.task().catch_output();
        }
        guard.publish_settings();
        Ok(0)
    })
}

/// Prints the output of children that has arrived.
pub fn print(guard: &mut Guard) {
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
unsafe fn write(file: *mut libc::FILE, text: &[u8]) {
    // SAFETY: as promised by the caller.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), file);
        libc::fflush(file);
    }
}

/// Returns the program's standard output.
pub fn standard_output() -> *mut libc::FILE {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the C library's stream; a program may replace it before it calls.
    unsafe { stdout }
}

/// Prints to the program's standard output.
pub fn print_to_stdout(text: &[u8]) {
    // SAFETY: the C library's stream.
    unsafe { write(standard_output(), text) }
}

/// Waits, before this task leaves the machine, until every task whose output it collects has ended.
pub fn finish(guard: &mut Guard) -> Result<(), Code> {
    if guard.state().output.is_null() {
        return Ok(());
    }
    guard.progress();
    print(guard);
    if guard.task().collecting() > 0 && pvmshowtaskid.load(Relaxed) != 0 {
        print_message(b"child task(s) still running.  waiting...");
    }
    let ended = wait(guard, None, |guard| match guard.task() {
        task if task.collecting() == 0 => Some(Ok(())),
        task if !task.is_connected() => Some(Err(Code::SysErr)),
        _ => None,
    });
    print(guard);
    guard.state().output = std::ptr::null_mut();
    ended.unwrap_or(Ok(()))
}
