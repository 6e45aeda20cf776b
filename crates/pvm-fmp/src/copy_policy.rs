//! The copy policy: whether short pieces are copied into this task's heap through the caches or by non-temporal stores.
//!
//! A cache line that another core has read must be taken from that core before it can be written again. Where the two
//! cores share a cache, this takes little time, and the reader finds the bytes in that cache. Where they do not, a
//! non-temporal copy is many times as fast, since it waits for no cache line. Only the times of the copies show which
//! case it is, and the answer may change, because a virtual machine's cores can be moved to other processor cores. So
//! the policy measures both kinds of copies on this machine.
//!
//! A piece is a part of a body that another task may already read, or that is packed; nobody measures how long its reader
//! takes. Long bodies have a policy that measures more ([`crate::way_policy`]).
use crate::copy::CopyMode;
use std::time::Duration;

/// The shortest copy for which the policy chooses how to copy, in bytes.
pub const POLICY_BYTES_MIN: usize = 4 << 10;
/// A copy through the caches counts as slow if it takes this many times as long as a non-temporal copy. Where cores share a
/// cache, it takes up to 3.4 times as long (16 KiB, Zen 4), since a non-temporal store does not wait at all; but then the
/// reader finds the bytes in the cache. Where they do not, it takes ten times as long and more.
const SLOW_RATIO: f32 = 5.0;
/// The number of slow copies in a row after which the policy changes to non-temporal copies: a single copy may be slow
/// because of an interruption or of new pages.
const SLOW_COPIES: u32 = 3;
/// The number of bytes that are copied through the caches between two timed copies.
const CACHED_BYTES: usize = 128 << 10;
/// Non-temporal copies are timed in rows of this number. The quickest one of a row counts.
const TRIES: u32 = 4;
/// The number of bytes between two such rows, at first and at most: the first copies go to new pages. While copies are
/// non-temporal, one copy through the caches is timed each time `AGAIN_BYTES_MAX` were copied.
const AGAIN_BYTES_FIRST: usize = 256 << 10;
const AGAIN_BYTES_MAX: usize = 8 << 20;

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub mode: CopyMode,
    /// Whether the caller measures the time and passes it to [`CopyPolicy::record`].
    pub is_timed: bool,
}

/// Chooses how to copy next, from the times of earlier copies.
#[derive(Debug)]
pub struct CopyPolicy {
    /// The number of slow copies through the caches since the last quick one.
    slow: u32,
    /// Bytes copied since the last timed copy through the caches.
    untimed_bytes: usize,
    /// The time of a non-temporal copy in ns a byte; infinite before one was measured.
    past_cost: f32,
    /// The same for the row of copies that is being measured, and how many more copies the row has.
    row_cost: f32,
    tries: u32,
    /// Bytes copied since the last row, and the number after which the next one begins.
    since_row: usize,
    again_bytes: usize,
}

impl Default for CopyPolicy {
    fn default() -> CopyPolicy {
        CopyPolicy {
            slow: 0,
            untimed_bytes: 0,
            past_cost: f32::INFINITY,
            row_cost: f32::INFINITY,
            tries: TRIES,
            since_row: 0,
            again_bytes: AGAIN_BYTES_FIRST,
        }
    }
}

impl CopyPolicy {
    fn is_past(&self) -> bool {
        self.slow >= SLOW_COPIES
    }

    /// Returns how to copy the next `bytes` bytes.
    pub fn choose(&mut self, bytes: usize) -> Choice {
        self.since_row += bytes;
        if self.since_row >= self.again_bytes {
            (self.since_row, self.again_bytes) = (0, (2 * self.again_bytes).min(AGAIN_BYTES_MAX));
            (self.tries, self.row_cost) = (TRIES, f32::INFINITY);
        }
        if self.tries > 0 {
            return Choice { mode: CopyMode::Past, is_timed: true };
        }
        let limit = if self.is_past() { AGAIN_BYTES_MAX } else { CACHED_BYTES };
        if (self.slow > 0 && !self.is_past()) || self.untimed_bytes >= limit {
            return Choice { mode: CopyMode::Cached, is_timed: true };
        }
        self.untimed_bytes += bytes;
        Choice { mode: if self.is_past() { CopyMode::Past } else { CopyMode::Cached }, is_timed: false }
    }

    /// Notes how long a timed copy took.
    pub fn record(&mut self, mode: CopyMode, bytes: usize, time: Duration) {
        let cost = time.as_nanos().max(1) as f32 / bytes as f32;
        if mode == CopyMode::Cached {
            let is_slow = cost > SLOW_RATIO * self.past_cost;
            self.slow = if is_slow { (self.slow + 1).min(SLOW_COPIES) } else { 0 };
            self.untimed_bytes = 0;
            return;
        }
        // On some processors, `f32::min` would need the C library's libm in programs.
        if cost < self.row_cost {
            self.row_cost = cost;
        }
        self.tries = self.tries.saturating_sub(1);
        if self.tries == 0 {
            self.past_cost = self.row_cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of the tests, in bytes.
    const PIECE_BYTES: usize = 16 << 10;

    /// A machine: the speeds of copies through the caches and past them, in bytes a ns.
    struct Machine {
        cached: f32,
        past: f32,
    }

    const NEAR: [Machine; 3] = [
        Machine { cached: 9.3, past: 31.5 },
        Machine { cached: 10.0, past: 8.0 },
        // Slow non-temporal stores.
        Machine { cached: 5.0, past: 1.0 },
    ];
    const DISTANT: [Machine; 3] =
        [Machine { cached: 2.5, past: 25.0 }, Machine { cached: 1.8, past: 30.0 }, Machine { cached: 0.4, past: 3.0 }];

    /// Copies in pieces. Returns how many bytes were copied by non-temporal stores, and how many were timed.
    fn copy(policy: &mut CopyPolicy, bytes: usize, machine: &Machine) -> (usize, usize) {
        let (mut past, mut timed) = (0, 0);
        for _ in 0..bytes / PIECE_BYTES {
            let Choice { mode, is_timed } = policy.choose(PIECE_BYTES);
            let speed = if mode == CopyMode::Past { machine.past } else { machine.cached };
            past += if mode == CopyMode::Past { PIECE_BYTES } else { 0 };
            if is_timed {
                timed += PIECE_BYTES;
                policy.record(mode, PIECE_BYTES, Duration::from_nanos((PIECE_BYTES as f32 / speed) as u64));
            }
        }
        (past, timed)
    }

    #[test]
    fn where_cores_share_a_cache_copies_go_through_it() {
        for machine in &NEAR {
            let mut policy = CopyPolicy::default();
            let (past, timed) = copy(&mut policy, 64 << 20, machine);
            // Of 64 MiB, thirteen rows of four pieces.
            assert!(past <= 15 * TRIES as usize * PIECE_BYTES && timed <= (64 << 20) / 4, "{past} {timed}");
        }
    }

    #[test]
    fn between_distant_cores_copies_soon_become_non_temporal_and_the_others_are_rarely_timed_again() {
        for machine in &DISTANT {
            let mut policy = CopyPolicy::default();
            let (past, _) = copy(&mut policy, 2 << 20, machine);
            assert!(past >= (2 << 20) * 3 / 4, "{past}");
            let (past, _) = copy(&mut policy, 64 << 20, machine);
            assert!(((64 << 20) / 100 * 99..64 << 20).contains(&past), "{past}");
        }
    }

    #[test]
    fn one_slow_copy_changes_nothing() {
        let mut policy = CopyPolicy::default();
        copy(&mut policy, 64 << 10, &NEAR[0]);
        while policy.choose(PIECE_BYTES) != (Choice { mode: CopyMode::Cached, is_timed: true }) {}
        policy.record(CopyMode::Cached, PIECE_BYTES, Duration::from_millis(3));
        assert_eq!(policy.choose(PIECE_BYTES), Choice { mode: CopyMode::Cached, is_timed: true });
        policy.record(CopyMode::Cached, PIECE_BYTES, Duration::from_micros(1));
        assert_eq!(policy.choose(PIECE_BYTES), Choice { mode: CopyMode::Cached, is_timed: false });
    }

    #[test]
    fn cores_that_are_moved_are_noticed() {
        let mut policy = CopyPolicy::default();
        for _ in 0..3 {
            copy(&mut policy, 16 << 20, &DISTANT[0]);
            assert!(policy.is_past());
            copy(&mut policy, 16 << 20, &NEAR[0]);
            assert!(!policy.is_past());
        }
    }
}
