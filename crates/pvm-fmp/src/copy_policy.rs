//! Whether bytes go into the own heap through the caches or past them.
//!
//! A cache line that another core has read must be taken from it before it can be written again. Where the
//! cores share a cache that is soon done, and the reader finds the bytes near. Where they do not, a copy
//! past the caches is several times as fast, since it waits for no line. What neighbours the readers are
//! only the copies themselves tell, and it may change: a virtual machine's cores move about.
use std::time::Duration;

/// Copies from this size on have a choice, in bytes.
pub const POLICY_BYTES_MIN: usize = 4 << 10;
/// Copies from this size on go past the caches, in bytes. Sent through them, such a body drives the data of
/// both programs out, and is gone itself before all of it has been read (decision 15).
pub const NON_TEMPORAL_BYTES_MIN: usize = 8 << 20;
/// Long copies choose anew after so many bytes.
pub const PIECE_BYTES: usize = 32 << 10;
/// A copy through the caches that moves less is slow, in bytes a microsecond. Between the half_slots of a
/// processor that share no cache it moves some 2500; where they share one, 10000 and more, and some 4500
/// of a body that is longer than the cache.
const SLOW_BYTES_PER_MICROSECOND: usize = 3500;
/// So many slow copies one after another count: one may have been interrupted, or met new pages.
const SLOW_COPIES: u32 = 3;
/// Bytes that go through the caches between two looks at the clock.
const CACHED_BYTES: usize = 128 << 10;
/// Bytes that go past the caches before one copy tries whether that is still right.
const NON_TEMPORAL_BYTES: usize = 8 << 20;

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// Through the caches.
    Cached,
    /// Through the caches; then tell [`CopyPolicy::record`] how long it record.
    Timed,
    /// Past the caches.
    NonTemporal,
}

/// What the copies so far have told.
#[derive(Debug, Default)]
pub struct CopyPolicy {
    /// Slow copies since the last quick one.
    slow: u32,
    /// Bytes copied since the last timed copy.
    untimed_bytes: usize,
}

impl CopyPolicy {
    fn is_non_temporal(&self) -> bool {
        self.slow >= SLOW_COPIES
    }

    /// How to copy so many bytes now.
    pub fn mode(&mut self, bytes: usize) -> CopyMode {
        let limit = if self.is_non_temporal() { NON_TEMPORAL_BYTES } else { CACHED_BYTES };
        if (self.slow > 0 && !self.is_non_temporal()) || self.untimed_bytes >= limit {
            return CopyMode::Timed;
        }
        self.untimed_bytes += bytes;
        if self.is_non_temporal() { CopyMode::NonTemporal } else { CopyMode::Cached }
    }

    /// A timed copy record so long.
    pub fn record(&mut self, bytes: usize, time: Duration) {
        let is_slow = (bytes as u128) * 1000 < time.as_nanos() * SLOW_BYTES_PER_MICROSECOND as u128;
        self.slow = if is_slow { (self.slow + 1).min(SLOW_COPIES) } else { 0 };
        self.untimed_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies in pieces, at so many bytes a microsecond through the caches; gives how many bytes went
    /// past them and how many were timed.
    fn copy(copy_policy: &mut CopyPolicy, bytes: usize, speed: usize) -> (usize, usize) {
        let (mut non_temporal, mut timed) = (0, 0);
        for _ in 0..bytes / PIECE_BYTES {
            match copy_policy.mode(PIECE_BYTES) {
                CopyMode::Cached => {}
                CopyMode::NonTemporal => non_temporal += PIECE_BYTES,
                CopyMode::Timed => {
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
        while copy_policy.mode(PIECE_BYTES) != CopyMode::Timed {}
        copy_policy.record(PIECE_BYTES, Duration::from_millis(3));
        assert_eq!(copy_policy.mode(PIECE_BYTES), CopyMode::Timed);
        copy_policy.record(PIECE_BYTES, Duration::from_micros(1));
        assert_eq!(copy_policy.mode(PIECE_BYTES), CopyMode::Cached);
    }

    #[test]
    fn cores_that_come_together_are_noticed() {
        let mut copy_policy = CopyPolicy::default();
        copy(&mut copy_policy, 1 << 20, SLOW_BYTES_PER_MICROSECOND / 2);
        let (non_temporal, _) = copy(&mut copy_policy, 64 << 20, 2 * SLOW_BYTES_PER_MICROSECOND);
        assert!(non_temporal <= NON_TEMPORAL_BYTES, "{non_temporal}");
    }
}
