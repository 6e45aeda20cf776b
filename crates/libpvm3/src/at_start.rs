//! What the library does when it is loaded: before `main` if it is linked, so that a program can still change what is set
//! here.
//!
//! Standard output of a task of `pvm run` is buffered by line, even if it is a pipe. A process that a daemon has spawned
//! ignores SIGPIPE and SIGHUP, as in PVM 3.4.6: a task that writes to a closed socket gets an error and goes on. The
//! daemon does not arrange this itself: programs that do not use the library, such as shell scripts, are better off with the
//! default actions. No signal handler is installed.
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// The variable that the daemon sets for tasks of `pvm run` whose standard output is a pipe.
const LINES: &CStr = c"PVMLINES";
/// A variable that the daemon sets for each process that it spawns.
const SPAWNED: &CStr = c"PVMEPID";
/// `_IOLBF`.
const BY_LINE: c_int = 1;
/// The signals that spawned tasks ignore.
const IGNORED: [c_int; 2] = [libc::SIGPIPE, libc::SIGHUP];

unsafe extern "C" {
    static mut stdout: *mut libc::FILE;
}

/// A pointer to a function that runs before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
pub static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    if is_set(LINES) {
        // SAFETY: the call locks the stream. With a null buffer, the C library allocates one.
        unsafe { libc::setvbuf(stdout, ptr::null_mut::<c_char>(), BY_LINE, 0) };
    }
    if is_set(SPAWNED) {
        IGNORED.into_iter().for_each(ignore);
    }
}

fn is_set(variable: &CStr) -> bool {
    // SAFETY: a library is loaded before `main`, or by a call that must not run while another thread changes the environment.
    !unsafe { libc::getenv(variable.as_ptr()) }.is_null()
}

/// Ignores a signal whose action is the default one.
fn ignore(signal: c_int) {
    // SAFETY: the structure is plain data for which zeros are valid, and the calls read and write only this structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
