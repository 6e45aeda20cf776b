//! What sender and receiver tell each other about the copies of a body.
//!
//! The sender decides how both copies are made (`copy_policy`). The descriptor of the body tells the receiver its part,
//! and whether its time is wanted; the receiver reports the time when it releases the body. Both are only advice: a peer
//! that lies about its times makes copies slower, nothing else.
use crate::copy_policy::{Choice, CopyPolicy, CopyWay, PieceTimes};
use std::time::Duration;

/// In a release: the word that follows the token is the time of the receiver's copy in ns.
pub const WITH_TIME: u32 = 1 << 31;

/// What the sender wishes for the receiver's copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// By non-temporal stores.
    pub is_past: bool,
    /// Measured.
    pub is_timed: bool,
}

impl Wish {
    const PAST: u32 = 1 << 30;
    const TIMED: u32 = 1 << 31;
    /// The bits of a descriptor's word that hold a wish.
    const BITS: u32 = Wish::PAST | Wish::TIMED;

    /// Returns the receiver's part of a choice.
    pub fn of(choice: Choice) -> Wish {
        Wish { is_past: choice.way.is_past_out(), is_timed: choice.is_timed }
    }

    /// Returns a word of a descriptor with the wish in its upper bits.
    pub fn beside(self, word: u32) -> u32 {
        debug_assert!(word & Wish::BITS == 0);
        word | if self.is_past { Wish::PAST } else { 0 } | if self.is_timed { Wish::TIMED } else { 0 }
    }

    /// Splits a word of a descriptor into the wish and the rest.
    pub fn split(word: u32) -> (Wish, u32) {
        let wish = Wish { is_past: word & Wish::PAST != 0, is_timed: word & Wish::TIMED != 0 };
        (wish, word & !Wish::BITS)
    }
}

/// Whose copies a trial belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The two copies overlap: the slower one decides.
    Overlapping,
    /// One copy follows the other: both take their time.
    Following,
}

/// A body that was written in a chosen way, while the receiver's time is not known yet.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// The way.
    pub way: CopyWay,
    /// The length by which the way was chosen, in bytes.
    pub chosen_for: usize,
    /// The length of the body, in bytes.
    pub bytes: usize,
    /// The time of the sender's copy.
    pub into: Duration,
    /// How the two copies follow each other.
    pub order: Order,
}

impl Trial {
    /// Notes the time of both copies.
    pub fn record(&self, policy: &mut CopyPolicy, out: Duration) {
        let time = match self.order {
            Order::Overlapping => self.into.max(out),
            Order::Following => self.into + out,
        };
        // The time counts for the length by which the policy chose; a body that was packed in parts is longer.
        let scaled = time.as_nanos() * self.chosen_for as u128 / self.bytes.max(1) as u128;
        policy.record(self.way, self.chosen_for, Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX)));
    }
}

/// What the receiver has copied out of a body so far, and how long that took.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopiedOut {
    /// The times of the copies.
    pub times: PieceTimes,
    /// The bytes that were timed.
    pub bytes: usize,
}

impl CopiedOut {
    /// Returns the time for a body of `bytes`, in ns, if nearly all of it was timed, and nothing disturbed the copies.
    pub fn time_of(&self, bytes: usize) -> Option<u32> {
        let time = self.times.total().filter(|_| self.bytes >= bytes - bytes / 8)?;
        u32::try_from(time.as_nanos()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_goes_through_a_word() {
        for is_past in [false, true] {
            for is_timed in [false, true] {
                let wish = Wish { is_past, is_timed };
                assert_eq!(Wish::split(wish.beside(30)), (wish, 30));
            }
        }
    }

    #[test]
    fn a_time_counts_only_if_nearly_all_bytes_were_timed() {
        let mut copied = CopiedOut::default();
        assert_eq!(copied.time_of(0), None);
        copied.times.add(Duration::from_nanos(700));
        copied.bytes = 7000;
        assert_eq!(copied.time_of(8000), Some(700));
        assert_eq!(copied.time_of(9000), None);
    }

    #[test]
    fn the_slower_of_two_overlapping_copies_decides() {
        let time_of = |order| {
            let trial = Trial {
                way: CopyWay::PastIn,
                chosen_for: 1 << 20,
                bytes: 2 << 20,
                into: Duration::from_micros(200),
                order,
            };
            let mut policy = CopyPolicy::default();
            (0..2).for_each(|_| trial.record(&mut policy, Duration::from_micros(300)));
            // A way that takes 190 us, or 290, is better only than what takes longer.
            let better = |micros| {
                let mut policy = policy.clone();
                policy.record(CopyWay::Cached, 1 << 20, Duration::from_micros(micros));
                policy.best(1 << 20) == Some(CopyWay::Cached)
            };
            (100..400).rev().find(|micros| better(*micros))
        };
        assert_eq!(time_of(Order::Overlapping), Some(150));
        assert_eq!(time_of(Order::Following), Some(250));
    }
}
