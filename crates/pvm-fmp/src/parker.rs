//! Parking: the handshake between a task that goes to sleep and its senders, in which no wake-up is lost.
//!
//! The sleeper sets its word, passes a fence, and polls once more. The sender publishes its message, passes a fence,
//! and reads the word. In every order at least one of them sees the other.
use crate::sync::{AtomicU32, Ordering, ReadOnlyLoad, fence};
#[cfg(not(loom))]
use std::time::{Duration, Instant};

/// The words by which the owner of a segment publishes whether it sleeps.
///
/// A fence for each message would cost as much as the rest of the send, because at the fence the sender would wait
/// until the cache line of the message has gone from core to core. So while cores are free and sleeps are rare
/// ([`SleepRate`]), only the sleeper pays: it makes all cores pass a barrier (`membarrier(2)`), and senders need no
/// fence. Otherwise both sides pass a fence.
#[repr(C)]
pub struct Parker {
    /// Nonzero: the owner sleeps or is about to, and senders must ring. Each sleep has a different number.
    sleep: AtomicU32,
    /// Nonzero: the owner makes all cores pass a barrier before it sleeps, and senders need no fence.
    asymmetric: AtomicU32,
    /// The core on which the owner was when it last waited, plus one; 0 if that is not known.
    core: AtomicU32,
}

/// A sleeper makes barriers on all cores only if they take less than 1 / `BARRIER_SHARE` of its time.
#[cfg(not(loom))]
const BARRIER_SHARE: u32 = 256;

/// Judges whether the owner of a segment sleeps so seldom that it should pay for barriers on all cores. What such a
/// barrier costs depends on the machine and on what the other cores do, so it is measured.
#[cfg(not(loom))]
#[derive(Default)]
pub struct SleepRate {
    last: Option<Instant>,
    /// The cost of a barrier, averaged over the last ones.
    cost: Duration,
}

#[cfg(not(loom))]
impl SleepRate {
    /// Records a sleep that begins now. Returns whether a barrier costs little, compared with the time since the last
    /// sleep.
    pub fn is_low(&mut self, now: Instant) -> bool {
        let last = self.last.replace(now);
        last.is_none_or(|last| now.saturating_duration_since(last) >= self.cost * BARRIER_SHARE)
    }

    /// Records what a barrier has cost.
    pub fn record_cost(&mut self, cost: Duration) {
        self.cost = if self.cost.is_zero() { cost } else { (self.cost * 7 + cost) / 8 };
    }
}

impl Parker {
    #[cfg(loom)]
    pub fn new() -> Parker {
        Parker { sleep: AtomicU32::new(0), asymmetric: AtomicU32::new(0), core: AtomicU32::new(0) }
    }

    /// Chooses whether the owner alone makes a barrier on all cores, or both sides pass a fence. The owner calls this
    /// before it parks.
    #[cfg(not(loom))]
    pub fn choose(&self, asymmetric: bool) {
        let before = self.asymmetric.load_relaxed() != 0;
        if before != asymmetric {
            self.asymmetric.store(u32::from(asymmetric), Ordering::Relaxed);
            if before {
                // After this barrier every sender sees that it has to pass a fence.
                barrier_on_all_cores();
            }
        }
    }

    /// Makes senders ring from now on. The owner calls this, polls once more, and then sleeps.
    pub fn prepare_park(&self, sleep: u32) {
        self.sleep.store(sleep, Ordering::Relaxed);
        #[cfg(not(loom))]
        if self.asymmetric.load_relaxed() != 0 {
            return barrier_on_all_cores();
        }
        // Pair `park or ring`: either the sender sees the number, or we see what it has published.
        fence(Ordering::SeqCst);
    }

    /// Publishes the core on which the owner waits. This is only a hint.
    #[cfg(not(loom))]
    pub fn note_core(&self, core: u32) {
        if self.core.load_relaxed() != core + 1 {
            self.core.store(core + 1, Ordering::Relaxed);
        }
    }

    /// Publishes that the owner leaves its core.
    #[cfg(not(loom))]
    pub fn leave_core(&self) {
        self.core.store(0, Ordering::Relaxed);
    }

    /// Returns the core on which the owner was when it last waited; `None` if that is not known.
    #[cfg(not(loom))]
    pub fn core(&self) -> Option<u32> {
        self.core.load_relaxed().checked_sub(1)
    }

    /// Returns whether the owner sleeps, or is about to.
    #[cfg(not(loom))]
    pub fn is_parked(&self) -> bool {
        self.sleep.load_relaxed() != 0
    }

    /// Makes senders stop ringing. The owner calls this when it is awake.
    pub fn unpark(&self) {
        self.sleep.store(0, Ordering::Relaxed);
    }

    /// Returns the number of the sleep from which the owner must be woken, if it sleeps. A sender calls this after it
    /// has published its message. `reached`: whether barriers on all cores reach this process.
    #[inline]
    pub fn parked(&self, reached: bool) -> Option<u32> {
        if reached && self.asymmetric.load_relaxed() != 0 {
            compiler_fence();
        } else {
            // Pair `park or ring`.
            full_fence();
        }
        match self.sleep.load_relaxed() {
            0 => None,
            sleep => Some(sleep),
        }
    }
}

#[inline]
fn compiler_fence() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// Passes a sequentially consistent fence. On x86-64 a locked instruction is such a fence, and is cheaper than the
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
    // Pair `park or ring`: a caller needs this fence as its part of the pair.
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
fn barrier_on_all_cores() {
    // SAFETY: the call orders memory accesses and does nothing else. It was registered before.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) };
    // Pair `park or ring`: a fence on this core; the call has made one on the senders' cores.
    fence(Ordering::SeqCst);
}

/// Registers this process for barriers of other processes. Returns whether those barriers reach this process, and
/// whether it may make such barriers itself.
#[cfg(not(loom))]
pub fn register() -> bool {
    // SAFETY: a registration touches no memory of ours.
    let registered =
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) };
    registered == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_made_only_while_they_cost_little_of_the_time() {
        let (start, cost) = (Instant::now(), Duration::from_micros(10));
        let mut rate = SleepRate::default();
        assert!(rate.is_low(start));
        rate.record_cost(cost);
        let soon = start + cost * (BARRIER_SHARE - 1);
        assert!(!rate.is_low(soon));
        assert!(rate.is_low(soon + cost * BARRIER_SHARE));
    }

    #[test]
    fn a_single_slow_barrier_counts_little() {
        let mut rate = SleepRate::default();
        rate.record_cost(Duration::from_micros(8));
        rate.record_cost(Duration::from_micros(80));
        assert_eq!(rate.cost, Duration::from_micros(17));
    }
}
