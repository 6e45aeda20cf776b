//! The copy policy: whether bytes are copied into this task's heap through the caches or by non-temporal stores.
//!
//! A cache line that another core has read must be taken from that core before it can be written again. Where the two
//! cores share a cache, this takes little time, and the reader finds the bytes in that cache. Where they do not, a
//! non-temporal copy is several times as fast, since it waits for no cache line. Only the speed of the copies shows
//! whether reader and writer share a cache, and the answer may change, because a virtual machine's cores can be moved
//! to other processor cores.
use std::time::Duration;

/// The shortest copy for which the policy chooses how to copy, in bytes.
pub const POLICY_BYTES_MIN: usize = 4 << 10;
/// The shortest body of a `psend` through the heap that is always copied by non-temporal stores, in bytes. A cached copy of such a body would displace the data of
/// both programs in the caches, and the caches could not hold the body until all of it has been read (decision 15).
pub const NON_TEMPORAL_BYTES_MIN: usize = 8 << 20;
/// The number of bytes of a long copy after which the policy chooses again.
pub const PIECE_BYTES: usize = 32 << 10;
/// The speed, in bytes a microsecond, below which a cached copy counts as slow. Between two halves of a processor
/// without a common cache the speed is some 2500; with a common cache it is 10000 and more, but only some 4500 for a
/// body that is longer than the cache.
const SLOW_BYTES_PER_MICROSECOND: usize = 3500;
/// The number of slow copies in a row after which the policy changes to non-temporal copies: a single copy may be slow
/// because of an interruption or of new pages.
const SLOW_COPIES: u32 = 3;
/// The number of bytes that are copied through the caches between two timed copies.
const CACHED_BYTES: usize = 128 << 10;
/// The number of bytes that are copied by non-temporal stores before one cached copy is timed again.
const NON_TEMPORAL_BYTES: usize = 8 << 20;

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Through the caches.
    Cached,
    /// Through the caches; the caller measures the time and passes it to [`CopyPolicy::record`].
    Timed,
    /// By non-temporal stores, past the caches.
    NonTemporal,
}

/// Chooses how to copy next, from the speed of earlier copies.
#[derive(Debug, Default)]
pub struct CopyPolicy {
    /// The number of slow copies since the last quick one.
    slow: u32,
    /// Bytes copied since the last timed copy.
    untimed_bytes: usize,
}

impl CopyPolicy {
    fn is_non_temporal(&self) -> bool {
        self.slow >= SLOW_COPIES
    }

    /// Returns how to copy the next `bytes` bytes.
    pub fn mode(&mut self, bytes: usize) -> Choice {
        let limit = if self.is_non_temporal() { NON_TEMPORAL_BYTES } else { CACHED_BYTES };
        if (self.slow > 0 && !self.is_non_temporal()) || self.untimed_bytes >= limit {
            return Choice::Timed;
        }
        self.untimed_bytes += bytes;
        if self.is_non_temporal() { Choice::NonTemporal } else { Choice::Cached }
    }

    /// Notes how long a timed copy took.
    pub fn record(&mut self, bytes: usize, time: Duration) {
        let is_slow = (bytes as u128) * 1000 < time.as_nanos() * SLOW_BYTES_PER_MICROSECOND as u128;
        self.slow = if is_slow { (self.slow + 1).min(SLOW_COPIES) } else { 0 };
        self.untimed_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a copy in pieces, in which cached copies have a speed of `speed` bytes a microsecond. Returns how many
    /// bytes were copied by non-temporal stores, and how many were timed.
    fn copy(copy_policy: &mut CopyPolicy, bytes: usize, speed: usize) -> (usize, usize) {
        let (mut non_temporal, mut timed) = (0, 0);
        for _ in 0..bytes / PIECE_BYTES {
            match copy_policy.mode(PIECE_BYTES) {
                Choice::Cached => {}
                Choice::NonTemporal => non_temporal += PIECE_BYTES,
                Choice::Timed => {
                    timed += PIECE_BYTES;
                    copy_policy.record(PIECE_BYTES, Duration::from_nanos((PIECE_BYTES * 1000 / speed) as u64));
                }
            }
        }
        (non_temporal, timed)
    }

    #[test]
    fn quick_copies_are_cached() {
        let (non_temporal, timed) = copy(&mut CopyPolicy::default(), 64 << 20, 2 * SLOW_BYTES_PER_MICROSECOND);
        assert_eq!(non_temporal, 0);
        assert!((1..=(64 << 20) / 4).contains(&timed), "{timed}");
    }

    #[test]
    fn slow_copies_soon_become_non_temporal_and_are_rarely_timed_again() {
        let mut copy_policy = CopyPolicy::default();
        let (non_temporal, _) = copy(&mut copy_policy, 1 << 20, SLOW_BYTES_PER_MICROSECOND / 2);
        assert!(non_temporal >= (1 << 20) * 3 / 4, "{non_temporal}");
        let (non_temporal, timed) = copy(&mut copy_policy, 64 << 20, SLOW_BYTES_PER_MICROSECOND / 2);
        assert_eq!(non_temporal + timed, 64 << 20);
        assert!(timed > 0 && timed <= (64 << 20) / 100, "{timed}");
    }

    #[test]
    fn one_slow_copy_changes_nothing() {
        let mut copy_policy = CopyPolicy::default();
        while copy_policy.mode(PIECE_BYTES) != Choice::Timed {}
        copy_policy.record(PIECE_BYTES, Duration::from_millis(3));
        assert_eq!(copy_policy.mode(PIECE_BYTES), Choice::Timed);
        copy_policy.record(PIECE_BYTES, Duration::from_micros(1));
        assert_eq!(copy_policy.mode(PIECE_BYTES), Choice::Cached);
    }

    #[test]
    fn cores_that_come_together_are_noticed() {
        let mut copy_policy = CopyPolicy::default();
        copy(&mut copy_policy, 1 << 20, SLOW_BYTES_PER_MICROSECOND / 2);
        let (non_temporal, _) = copy(&mut copy_policy, 64 << 20, 2 * SLOW_BYTES_PER_MICROSECOND);
        assert!(non_temporal <= NON_TEMPORAL_BYTES, "{non_temporal}");
    }
}
