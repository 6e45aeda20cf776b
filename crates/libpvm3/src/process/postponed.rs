//! Signals that are sent a moment later. A signal handler that has interrupted a call of the library cannot use the
//! library, but handlers often end the children of the program (`pvm_kill`). So the library notes what the handler
//! wants, and sends it when it releases its lock, at the end of the interrupted call or before that call sleeps. Calls
//! on the fast path do not look; after such a call, the next call sends.
use super::{Guard, enter, lock};
use crate::trace_mode;
use pvm_core::proto::Request;
use pvm_core::tid::Tid;
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, compiler_fence};

/// The number of signals that can be noted.
///
/// * Filled by: signal handlers of the program
/// * Setting: none, the list must have a fixed size, since a handler cannot allocate memory
/// * Reached: `pvm_kill` and `pvm_sendsig` return `PvmSysErr`, as other calls in such a handler do
/// * Test: `a_handler_that_interrupts_a_call_can_end_tasks`
const SIGNALS_MAX: usize = 256;

/// The signals: the tid in the upper half, the number in the lower half; 0 for none.
static SIGNALS: [AtomicU64; SIGNALS_MAX] = [const { AtomicU64::new(0) }; SIGNALS_MAX];
/// Whether there may be signals.
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes a signal. Returns `false` if there is no room. May be called in every signal handler.
pub fn note(tid: Tid, signal: c_int) -> bool {
    let word = u64::from(tid.0) << 32 | u64::from(signal as u32);
    let noted = SIGNALS.iter().any(|place| place.compare_exchange(0, word, Relaxed, Relaxed).is_ok());
    if noted {
        // Pair `signals noted`: a thread that sees that there are signals sees them.
        ANY.store(true, Release);
        lock::ask_holder_to_send();
        // The next call looks for signals when it finds out whether it is traced.
        trace_mode::invalidate();
    }
    noted
}

/// Sends the signals that have been noted. To be called after the lock is released: a handler that runs later can use
/// the library itself.
#[cold]
#[inline(never)]
pub fn send_after_release() {
    // The compiler must not look before the lock is released.
    compiler_fence(SeqCst);
    if ANY.load(Relaxed) {
        if let Some(mut guard) = enter() {
            send(&mut guard);
        }
    }
}

/// Sends the signals that have been noted.
pub fn send(guard: &mut Guard) {
    // Pair `signals noted`: a thread that sees that there are signals sees them.
    if !ANY.swap(false, Acquire) {
        return;
    }
    for word in SIGNALS.iter().map(|place| place.swap(0, Relaxed)).filter(|word| *word != 0) {
        let (tid, signal) = (Tid((word >> 32) as u32), word as u32 as c_int);
        // Without a daemon there are no tasks.
        let _ = guard.task().send_request(Request::Signal { tid, signal });
    }
}

/// Forgets the signals, which the parent of this process sends.
pub fn forget() {
    SIGNALS.iter().for_each(|place| place.store(0, Relaxed));
}
