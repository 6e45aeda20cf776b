//! Who sleeps and who rings: the handshake that loses no wake-up.
//!
//! The sleeper says so, fences, and polls once more; the sender publishes its message, fences, and
//! looks whether the peer sleeps. Whatever the order, one of them sees the other.
use crate::sync::{AtomicU32, Ordering, fence};

/// Fences at each message would cost the sender as much as all the rest: it waits until its line
/// has crossed the cores. So while cores are free, and sleeping is rare, the sleeper alone pays:
/// it makes all cores pass a barrier (`membarrier(2)`), and senders need none. While tasks crowd
/// the cores sleeping is frequent, and both sides fence.
#[repr(C)]
pub struct Waiting {
    /// Nonzero: the owner sleeps or is about to, so whoever sends must ring.
    nap: AtomicU32,
    /// Nonzero: the owner passes a barrier on all cores before it sleeps.
    asymmetric: AtomicU32,
}

impl Waiting {
    #[cfg(loom)]
    pub fn new() -> Waiting {
        Waiting { nap: AtomicU32::new(0), asymmetric: AtomicU32::new(0) }
    }

    /// The owner chooses who pays, before it lies down.
    #[cfg(not(loom))]
    pub fn choose(&self, asymmetric: bool) {
        let before = self.asymmetric.load(Ordering::Relaxed) != 0;
        if before != asymmetric {
            self.asymmetric.store(u32::from(asymmetric), Ordering::Relaxed);
            if before {
                // From here on every sender sees that it has to fence.
                barrier_on_all_cores();
            }
        }
    }

    /// The sleeper: senders ring from now on. Poll after this, then sleep.
    pub fn lie_down(&self, nap: u32) {
        self.nap.store(nap, Ordering::Relaxed);
        #[cfg(not(loom))]
        if self.asymmetric.load(Ordering::Relaxed) != 0 {
            return barrier_on_all_cores();
        }
        // Pairs with the fence in `sleeper`.
        fence(Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn rise(&self) {
        self.nap.store(0, Ordering::Relaxed);
    }

    /// The sender, after it has published: the nap from which the peer must be woken, if it
    /// sleeps. `reached` tells whether barriers on all cores reach this process.
    #[inline]
    pub fn sleeper(&self, reached: bool) -> Option<u32> {
        if reached && self.asymmetric.load(Ordering::Relaxed) != 0 {
            compiler_fence();
        } else {
            // Pairs with the fence in `lie_down`.
            full_fence();
        }
        match self.nap.load(Ordering::Relaxed) {
            0 => None,
            nap => Some(nap),
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
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
fn barrier_on_all_cores() {
    // SAFETY: the call orders memory accesses and does nothing else. It was registered before.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) };
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

/// Whether that is a doorbell. A task could hand out anything: to write to a pipe without a reader
/// would kill the writer, to a file change it. Those have a type; an eventfd has none.
#[cfg(not(loom))]
pub fn is_bell(bell: std::os::fd::BorrowedFd<'_>) -> bool {
    const TYPE_BITS: u32 = 0o170_000;
    rustix::fs::fstat(bell).is_ok_and(|status| status.st_mode & TYPE_BITS == 0)
}

/// Rings a doorbell. Whoever else has it may have made it so that a full counter would hold the ringer
/// up, and that is undone first.
#[cfg(not(loom))]
pub fn pull(bell: std::os::fd::BorrowedFd<'_>) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let Ok(flags) = fcntl_getfl(bell) else { return };
    if !flags.contains(OFlags::NONBLOCK) && fcntl_setfl(bell, flags | OFlags::NONBLOCK).is_err() {
        return;
    }
    // A full counter has rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Empties the own doorbell; never waits, not even when another who has it has emptied it and made it
/// so that reading would.
#[cfg(not(loom))]
pub fn hush(bell: std::os::fd::BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    let mut count = [0u8; 8];
    let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // SAFETY: the kernel writes at most eight bytes to where there are eight.
    let result = unsafe { libc::preadv2(bell.as_raw_fd(), &raw const into, 1, -1, libc::RWF_NOWAIT) };
    if result < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock {
        // Before Linux 5.8 there is no such read of a doorbell.
        let _ = rustix::io::read(bell, &mut count);
    }
}
