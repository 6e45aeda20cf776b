//! The end of a process that may not have called `pvm_exit`.
//!
//! What a task has sent comes even so; on direct links a part of it may still be in the process. After
//! the program's own handlers of its end, and after all libraries that use this one, the daemon gets it.
//! Nothing runs at a signal, at `_exit`, or in a child of `fork()` that has not called the library.
use crate::process;
use std::time::Duration;

/// How long the end of the process waits for another thread that is in the library.
const OTHER_THREADS_WAIT_MAX: Duration = Duration::from_secs(1);

/// The C library calls it after `exit()` or the return of `main`.
#[used]
#[unsafe(link_section = ".fini_array")]
pub static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    if let Some(mut guard) = process::enter_timeout(OTHER_THREADS_WAIT_MAX) {
        guard.task().hand_over();
    }
}
