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
    full_fence();
    match waiting.load(Ordering::Relaxed) {
        0 => None,
        nap => Some(nap),
    }
}

/// A sequentially consistent fence. On x86-64 a locked instruction is one, and cheaper than the
/// `mfence` that the standard library emits.
#[inline]
fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        // SAFETY: or with nothing changes no byte of the stack; the instruction orders all loads
        // and stores around it, and the compiler may move none across it.
        unsafe { std::arch::asm!("lock or dword ptr [rsp], 0") };
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}
