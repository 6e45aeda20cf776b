//! Output of children (contract 2.8).
use crate::callbacks::{self, write};
use crate::errors::call;
use std::ffi::c_int;

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
            guard.state().callbacks = Some(callbacks::run);
            guard.state().choose_path();
            guard.task().catch_output();
        }
        guard.publish_settings();
        Ok(0)
    })
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
