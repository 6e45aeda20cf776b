//! The end of a process that has not called `pvm_exit`.
//!
//! Every message that a task has sent arrives, but messages for direct links may still be in the memory of the process.
//! The process hands them to the daemon when it ends: after the program's own exit handlers and after those of all
//! libraries that use this one. This code does not run if a signal or `_exit` ends the process, nor in a child of
//! `fork()` that has not called the library.
use crate::process;
use std::time::Duration;

/// How long an ending process waits for another thread that is inside the library.
const OTHER_THREADS_WAIT_MAX: Duration = Duration::from_secs(1);

/// A pointer to a function that the C library calls after `exit()` or the return of `main`.
#[used]
#[unsafe(link_section = ".fini_array")]
pub static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    if let Some(mut guard) = process::enter_timeout(OTHER_THREADS_WAIT_MAX) {
        guard.task().hand_over();
    }
}
