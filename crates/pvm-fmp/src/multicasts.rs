//! What a sender publishes about its multicasts ([`crate::endpoint`], `multicast`).
use crate::clock::{fence, is_earlier};
use crate::parker::full_fence;
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};

/// The multicasts of one sender, which alone writes here.
#[repr(C)]
pub struct Multicasts {
    /// The time of the last one that is committed: then all its entries are in the queues.
    committed: AtomicU64,
    /// The time of the one that is being sent; [`STARTING`] before it has a time, 0 for none.
    pending: AtomicU64,
}

/// No time: times have no fields ([`crate::clock`]).
const STARTING: u64 = 1;

impl Multicasts {
    #[cfg(loom)]
    pub fn new() -> Multicasts {
        Multicasts { committed: AtomicU64::new(0), pending: AtomicU64::new(0) }
    }

    /// Announces a multicast, and returns its time. Other tasks take no later multicast until this one is committed.
    pub fn begin(&self, time: impl FnOnce() -> u64) -> u64 {
        self.pending.store(STARTING, Ordering::Relaxed);
        // Pair `multicast pending`: who has found a multicast with a later time sees that this one has begun.
        full_fence();
        fence();
        let time = time();
        self.pending.store(time, Ordering::Release);
        time
    }

    /// Stores what a sender that breaks the rules may store.
    #[cfg(test)]
    pub fn set_pending(&self, time: u64) {
        self.pending.store(time, Ordering::Relaxed);
    }

    /// Lets all receivers see the multicast of that time.
    pub fn commit(&self, time: u64) {
        // Pair `multicast committed`: who sees the time finds the entries in all queues.
        self.committed.store(time, Ordering::Release);
        // Pair `multicast pending`: who sees that there is none finds the entries of the last one.
        self.pending.store(0, Ordering::Release);
    }

    /// Returns the time of the last multicast that is committed.
    pub fn committed(&self) -> u64 {
        // Pair `multicast committed`.
        self.committed.load_acquire()
    }

    /// Returns whether a multicast is being sent that may be earlier than this stamp of another sender's one. One that has
    /// not been committed for long, as `is_recent` tells of its time, does not count.
    pub fn may_precede(&self, stamp: u64, is_recent: impl FnOnce(u64) -> bool) -> bool {
        // Pair `multicast pending`.
        match self.pending.load_acquire() {
            0 => false,
            STARTING => true,
            time => is_earlier(time, stamp) && is_recent(time),
        }
    }
}
