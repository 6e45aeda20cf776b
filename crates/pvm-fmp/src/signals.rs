//! Signals during a two-sided copy.
//!
//! A handler may leave by `siglongjmp`. If it did so in the middle of such a copy, the receiver's buffer would stay
//! open, or the sender's chunk would stay claimed, for ever. So handlers wait until the copy is over.
use std::mem::MaybeUninit;
use std::ptr::null;

/// Signals that an instruction of the thread itself raises: if such a signal is blocked, it ends the process.
const RAISED: [libc::c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// While this value lives, no signal handlers run in this thread.
pub struct HandlersWait {
    before: libc::sigset_t,
}

impl HandlersWait {
    /// Blocks the signals of this thread.
    pub fn new() -> HandlersWait {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: filled just now.
        let mut all = unsafe { all.assume_init() };
        for signal in RAISED {
            // SAFETY: a set and a signal.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        HandlersWait { before: set_mask(&all) }
    }

    /// Unblocks the signals that have no handler: these end the process, stop it, or do nothing. Call it before a long
    /// wait, so that the process can be ended.
    pub fn admit_default_actions(&self) {
        let mut blocked = self.before;
        for signal in 1..=libc::SIGRTMAX() {
            if !RAISED.contains(&signal) && has_handler(signal) {
                // SAFETY: a set and a signal.
                unsafe { libc::sigaddset(&raw mut blocked, signal) };
            }
        }
        set_mask(&blocked);
    }
}

impl Drop for HandlersWait {
    fn drop(&mut self) {
        set_mask(&self.before);
    }
}

fn has_handler(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, and there is room for the answer.
    let asked = unsafe { libc::sigaction(signal, null(), action.as_mut_ptr()) } == 0;
    // SAFETY: zeroes are one, and the system has filled it.
    asked && ![libc::SIG_DFL, libc::SIG_IGN].contains(&unsafe { action.assume_init() }.sa_sigaction)
}

/// Sets the signals that this thread blocks. Returns those that it blocked before.
fn set_mask(blocked: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a set, and room for another one; zeroes are one.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Returns whether this thread blocks a signal.
#[cfg(test)]
pub fn is_blocked(signal: libc::c_int) -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: asks only, and there is room for the answer; zeroes are a set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signal) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn handlers_wait_and_default_actions_need_not() {
        let own = libc::SIGRTMIN() + 3;
        let handler: extern "C" fn(libc::c_int) = handle;
        // SAFETY: the handler adds to an atomic; no other test uses the signal.
        unsafe { libc::signal(own, handler as libc::sighandler_t) };
        let before = [libc::SIGTERM, libc::SIGURG, own].map(is_blocked);
        let wait = HandlersWait::new();
        assert!(is_blocked(own) && is_blocked(libc::SIGTERM) && !is_blocked(libc::SIGSEGV));
        // SAFETY: sends this thread a signal that it handles.
        unsafe { libc::pthread_kill(libc::pthread_self(), own) };
        wait.admit_default_actions();
        assert!(is_blocked(own) && !is_blocked(libc::SIGTERM) && !is_blocked(libc::SIGURG));
        assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
        drop(wait);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
        assert_eq!([libc::SIGTERM, libc::SIGURG, own].map(is_blocked), before);
    }
}
