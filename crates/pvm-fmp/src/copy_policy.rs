//! The copy policy: whether short pieces are copied into this task's heap through the caches or by non-temporal stores.
//!
//! A cache line that another core has read must be taken from that core before it can be written again. Where the two
//! cores share a cache, this takes little time, and the reader finds the bytes in that cache. Where they do not, a
//! non-temporal copy is many times as fast, since it waits for no cache line. Only the times of the copies show which
//! case it is, and the answer may change, because a virtual machine's cores can be moved to other processor cores. So
//! an [`Explorer`] learns it.
//!
//! A piece is a part of a body that another task may already read, or that is packed; nobody measures how long its reader
//! takes. Long bodies have a policy that measures more ([`crate::way_policy`]).
use crate::copy::CopyMode;
use pvm_explorer::{Explorer, Rules};
use std::time::Duration;

/// The shortest copy for which the policy chooses how to copy, in bytes.
pub const POLICY_BYTES_MIN: usize = 4 << 10;
/// How much the time of a non-temporal copy counts. Where cores share a cache, a copy through the caches takes up to 3.4 times as
/// long (16 KiB, Zen 4), since a non-temporal store does not wait at all; but then the reader finds the bytes in the cache.
/// Where they do not, it takes ten times as long and more.
const PAST_WEIGHT: f32 = 5.0;
/// One copy is timed each time they add up to this length, in bytes.
const TIMED_BYTES: usize = 1 << 20;
/// The arms.
const MODES: [CopyMode; 2] = [CopyMode::Cached, CopyMode::Past];

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub mode: CopyMode,
    /// Whether the caller measures the time and passes it to [`CopyPolicy::record`].
    pub is_timed: bool,
}

/// Chooses how to copy next, from the times of earlier copies.
#[derive(Debug)]
pub struct CopyPolicy(Explorer<{ MODES.len() }>);

impl Default for CopyPolicy {
    fn default() -> CopyPolicy {
        CopyPolicy(Explorer::new(&Rules::USUAL))
    }
}

impl CopyPolicy {
    /// Returns how to copy the next `bytes` bytes.
    pub fn choose(&mut self, bytes: usize) -> Choice {
        let one_in = (TIMED_BYTES >> bytes.ilog2()).max(1) as u32;
        let (arm, is_timed) = self.0.choose(MODES.len(), 1, one_in);
        Choice { mode: MODES[arm], is_timed: is_timed || self.0.is_doubted(arm) }
    }

    /// Returns how copies have been the fastest so far.
    #[cfg(test)]
    pub fn best(&self) -> CopyMode {
        MODES[self.0.best(MODES.len())]
    }

    /// Notes how long a timed copy took.
    pub fn record(&mut self, mode: CopyMode, bytes: usize, time: Duration) {
        let arm = usize::from(mode == CopyMode::Past);
        let weight = if mode == CopyMode::Past { PAST_WEIGHT } else { 1.0 };
        self.0.record(arm, time.as_nanos().max(1) as f32 / bytes as f32 * weight);
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
            assert!(past <= 15 * 4 * PIECE_BYTES && timed <= (64 << 20) / 4, "{past} {timed}");
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
            assert_eq!(MODES[policy.0.best(2)], CopyMode::Past);
            copy(&mut policy, 16 << 20, &NEAR[0]);
            assert_eq!(MODES[policy.0.best(2)], CopyMode::Cached);
        }
    }
}
