//! What a task of `pvm run` prints comes line by line, also where it goes to a pipe.
use std::ffi::{c_char, c_int};
use std::ptr;

/// Set by the daemon for tasks whose standard output is a pipe that somebody watches.
const LINES: &std::ffi::CStr = c"PVMLINES";
/// `_IOLBF`.
const BY_LINE: c_int = 1;

unsafe extern "C" {
    static mut stdout: *mut libc::FILE;
}

/// Before `main`, so that a program which wants it otherwise has the last word.
#[used]
#[unsafe(link_section = ".init_array")]
pub static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // SAFETY: no other thread changes the environment or uses the stream before `main`; without a buffer the
    // C library takes one of its own.
    unsafe {
        if !libc::getenv(LINES.as_ptr()).is_null() {
            libc::setvbuf(stdout, ptr::null_mut::<c_char>(), BY_LINE, 0);
        }
    }
}
