//! The end of a process that has not called `pvm_exit`.
//!
//! Every message that a task has sent must arrive, but when the process ends, messages for direct links may still be in
//! its memory. So an ending process hands these messages to the daemon, after the exit handlers of the program and of
//! all libraries that use this one have run. This code does not run if a signal or `_exit` ends the process, nor in a
//! child of `fork()` that has not called the library.
use super::{enter_timeout, postponed};
use std::time::Duration;

/// How long an ending process waits for another thread that is inside the library.
const OTHER_THREADS_WAIT_MAX: Duration = Duration::from_secs(1);

/// A pointer to a function that the C library calls after `exit()` or the return of `main`.
#[used]
#[unsafe(link_section = ".fini_array")]
pub static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    if let Some(mut guard) = enter_timeout(OTHER_THREADS_WAIT_MAX) {
        postponed::send(&mut guard);
        guard.task().hand_over();
    }
}
