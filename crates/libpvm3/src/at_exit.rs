//! The end of a process that has not called `pvm_exit`.
//!
//! Messages that a task has sent arrive in any case, but on direct links some may still be in the process. They go to
//! the daemon after the program's own exit handlers and after those of all libraries that use this one. Nothing runs at
//! a signal, at `_exit`, or in a child of `fork()` that has not called the library.
use crate::process;
use std::time::Duration;

/// How long the end of the process waits for another thread in the library.
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
