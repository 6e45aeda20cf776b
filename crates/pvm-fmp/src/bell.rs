//! Who sleeps and who rings: the handshake that loses no wake-up.
//!
//! The sleeper says so, fences, and polls once more; the sender publishes its message, fences, and
//! looks whether the peer sleeps. Whatever the order, one of them sees the other.
use crate::sync::{AtomicU32, Ordering, fence};

/// The sleeper: senders ring from now on. Poll after this, then sleep.
pub fn lie_down(waiting: &AtomicU32, nap: u32) {
    waiting.store(nap, Ordering::Relaxed);
    // Pairs with the fence in `sleeper`.
    fence(Ordering::SeqCst);
}

/// The sender, after it has published: the nap from which the peer must be woken, if it sleeps.
#[inline]
pub fn sleeper(waiting: &AtomicU32) -> Option<u32> {
    // Pairs with the fence in `lie_down`.
    fence(Ordering::SeqCst);
    match waiting.load(Ordering::Relaxed) {
        0 => None,
        nap => Some(nap),
    }
}
