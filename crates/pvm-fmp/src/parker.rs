//! Who sleeps and who rings: the handshake that loses no wake-up.
//!
//! The sleeper says so, fences, and polls once more; the sender publishes its message, fences, and
//! looks whether the peer sleeps. Whatever the order, one of them sees the other.
use crate::sync::{AtomicU32, Ordering, ReadOnlyLoad, fence};

/// Fences at each message would cost the sender as much as all the rest: it waits until its line
/// has crossed the cores. So while cores are free, and sleeping is rare, the sleeper alone pays:
/// it makes all cores pass a barrier (`membarrier(2)`), and senders need none. While tasks crowd
/// the cores sleeping is frequent, and both sides fence.
#[repr(C)]
pub struct Parker {
    /// Nonzero: the owner sleeps or is about to, so whoever sends must ring.
    park_number: AtomicU32,
    /// Nonzero: the owner passes a barrier on all cores before it sleeps.
    asymmetric: AtomicU32,
}

impl Parker {
    #[cfg(loom)]
    pub fn new() -> Parker {
        Parker { park_number: AtomicU32::new(0), asymmetric: AtomicU32::new(0) }
    }

    /// The owner chooses who pays, before it lies down.
    #[cfg(not(loom))]
    pub fn choose(&self, asymmetric: bool) {
        let before = self.asymmetric.load_relaxed() != 0;
        if before != asymmetric {
            self.asymmetric.store(u32::from(asymmetric), Ordering::Relaxed);
            if before {
                // From here on every sender sees that it has to fence.
                barrier_on_all_cores();
            }
        }
    }

    /// The sleeper: senders ring from now on. Poll after this, then sleep.
    pub fn prepare_park(&self, park_number: u32) {
        self.park_number.store(park_number, Ordering::Relaxed);
        #[cfg(not(loom))]
        if self.asymmetric.load_relaxed() != 0 {
            return barrier_on_all_cores();
        }
        // Pair `park or ring`: either the sender sees the park_number, or we see what it has published.
        fence(Ordering::SeqCst);
    }

    /// The owner is unpark.
    pub fn unpark(&self) {
        self.park_number.store(0, Ordering::Relaxed);
    }

    /// The sender, after it has published: the park_number from which the peer must be woken, if it
    /// sleeps. `reached` tells whether barriers on all cores reach this process.
    #[inline]
    pub fn parked(&self, reached: bool) -> Option<u32> {
        if reached && self.asymmetric.load_relaxed() != 0 {
            compiler_fence();
        } else {
            // Pair `park or ring`.
            full_fence();
        }
        match self.park_number.load_relaxed() {
            0 => None,
            park_number => Some(park_number),
        }
    }
}

#[inline]
fn compiler_fence() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// A sequentially consistent fence. On x86-64 a locked instruction is one, and cheaper than the
/// `mfence` that the standard library emits.
#[inline]
pub fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        compiler_fence();
        // SAFETY: or with nothing changes no byte of the stack; the instruction orders all loads
        // and stores around it, and the compiler may move none across it.
        unsafe { std::arch::asm!("lock or dword ptr [rsp], 0") };
        compiler_fence();
    }
    // Pair `park or ring`, of the callers.
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
fn barrier_on_all_cores() {
    // SAFETY: the call orders memory accesses and does nothing else. It was registered before.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) };
    // Pair `park or ring`: on this core; the call has done it on the senders'.
    fence(Ordering::SeqCst);
}

/// Asks the system that barriers of other processes reach this one; whether they do, and this
/// one may make them.
#[cfg(not(loom))]
pub fn register() -> bool {
    // SAFETY: a registration touches no memory of ours.
    let registered =
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) };
    registered == 0
}
