//! Line buffering of standard output for tasks of `pvm run`, even if standard output is a pipe.
use std::ffi::{c_char, c_int};
use std::ptr;

/// The variable that the daemon sets for tasks of `pvm run` whose standard output is a pipe.
const LINES: &std::ffi::CStr = c"PVMLINES";
/// `_IOLBF`.
const BY_LINE: c_int = 1;

unsafe extern "C" {
    static mut stdout: *mut libc::FILE;
}

/// A pointer to a function that runs before `main`, so that a program can still change the buffering.
#[used]
#[unsafe(link_section = ".init_array")]
pub static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // SAFETY: no other thread changes the environment or uses the stream before `main`. With a null buffer, the C
    // library allocates one.
    unsafe {
        if !libc::getenv(LINES.as_ptr()).is_null() {
            libc::setvbuf(stdout, ptr::null_mut::<c_char>(), BY_LINE, 0);
        }
    }
}
