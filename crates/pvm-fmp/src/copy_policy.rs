//! The copy policy: learns from the times of its own copies which way of copying is the fastest here.
//!
//! A long body is copied into the sender's heap and out of it again, and either copy can go through the caches or past
//! them (non-temporal stores); or both sides copy it straight from the sender's memory. Which way is the fastest depends
//! on the sizes of the caches, on whether the two cores share one, on the memory and on the length of the body. No
//! constant here names a speed or the size of a cache: the policy tries each way, measures, and keeps to the best.
//!
//! This is a state machine without a clock: callers measure, and pass durations in. Decision 39 has the reasons.
use std::time::Duration;

/// The shortest copy for which the policy chooses how to copy, in bytes. A shorter one takes hardly longer than the
/// readings of the clock around it, so its time says little.
pub const POLICY_BYTES_MIN: usize = 8 << 10;
/// The number of classes of lengths; each class begins at twice the length of the class before.
const CLASSES: usize = 14;
/// The number of the last times that are kept of each way. The shortest of them counts: a copy can be disturbed, but
/// hardly be too fast.
const TIMES: usize = 5;
/// A way with at least this number of times is known well. Others may be tried at a lower price.
const TIMES_ENOUGH: u32 = 3;
/// The share of the time of all copies that may be lost by trying ways that are not the best: one part in this number.
const PRICE_PARTS: u64 = 48;
/// The largest loss that is put down for a try of a way, in copies of the best way: of a way that is not known well,
/// and of any other. The times of such a way may all be those of disturbed copies.
const NEW_PRICE_COPIES_MAX: u64 = 4;
const PRICE_COPIES_MAX: u64 = 16;
/// One in this number of copies is timed where nothing is tried.
const TIMED_ONE_IN: u32 = 32;
/// From this number of pieces on, the time of a copy can show that the copy was disturbed.
const PIECES_MIN: u32 = 8;

/// A way to bring a body from the sender's memory to the receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyWay {
    /// Into the heap and out of it through the caches.
    Cached = 0,
    /// Into the heap by non-temporal stores, out of it through the caches.
    PastIn = 1,
    /// Into the heap and out of it by non-temporal stores.
    PastBoth = 2,
    /// Past the heap: both sides copy from the sender's memory to the receiver's (a rendezvous).
    Together = 3,
}

use CopyWay::{Cached, PastBoth, PastIn, Together};

impl CopyWay {
    /// The number of ways.
    const COUNT: usize = 4;
    /// All ways, in the order in which they are first tried.
    const ALL: [CopyWay; CopyWay::COUNT] = [Cached, PastIn, PastBoth, Together];
    /// The ways through the heap.
    pub const THROUGH_HEAP: &'static [CopyWay] = &[Cached, PastIn, PastBoth];
    /// All ways.
    pub const ANY: &'static [CopyWay] = &CopyWay::ALL;

    /// Returns whether the sender's copy is past the caches.
    pub fn is_past_in(self) -> bool {
        matches!(self, PastIn | PastBoth)
    }

    /// Returns whether the receiver's copy is past the caches.
    pub fn is_past_out(self) -> bool {
        self == PastBoth
    }
}

/// What the policy has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub way: CopyWay,
    /// Whether to measure how long the copy takes, and to pass the time to [`CopyPolicy::record`].
    pub is_timed: bool,
}

/// What is known about one way in one class of lengths. Times are those of 1 MiB, in ns.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    times: [u32; TIMES],
    /// How many times were recorded, and (`tried`) how often the way was chosen in order to learn its time.
    recorded: u32,
    tried: u32,
    /// The shortest of `times`; 0 if nothing was recorded.
    shortest: u32,
}

impl Known {
    fn add(&mut self, time: u32) {
        self.times[self.recorded as usize % TIMES] = time;
        self.recorded = self.recorded.saturating_add(1);
        let count = (self.recorded as usize).min(TIMES);
        self.shortest = self.times[..count].iter().copied().min().unwrap_or(0);
    }
}

/// One class of lengths.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    known: [Known; CopyWay::COUNT],
    copies: u32,
    /// Set once a first copy has filled page tables and caches; its time says nothing.
    is_warm: bool,
    /// What may be lost by further tries, in the same unit as the times.
    credit: u64,
}

impl Class {
    /// Returns the best of these ways. Ways without a recorded time come last.
    fn best(&self, ways: &[CopyWay]) -> CopyWay {
        let time = |way: &CopyWay| self.known[*way as usize].shortest.wrapping_sub(1);
        ways.iter().copied().min_by_key(time).unwrap_or(Cached)
    }

    /// Returns the way that should be tried now: one that was never tried, or the one that was tried least, if the
    /// credit covers what the try is likely to lose.
    fn due(&mut self, ways: &[CopyWay], best: CopyWay) -> Option<CopyWay> {
        if !self.is_warm {
            // If no times arrive, measuring every copy would be in vain.
            return (self.copies < TIMES_ENOUGH || self.copies % TIMED_ONE_IN == 0).then_some(best);
        }
        if let Some(new) = ways.iter().find(|way| self.known[**way as usize].tried == 0) {
            return Some(*new);
        }
        let best_time = u64::from(self.known[best as usize].shortest);
        self.credit = (self.credit + best_time / PRICE_PARTS).min(PRICE_COPIES_MAX * best_time);
        let least_known = |way: &CopyWay| {
            let Known { recorded, tried, .. } = self.known[*way as usize];
            (recorded.min(TIMES_ENOUGH), tried)
        };
        let candidate = ways.iter().copied().filter(|way| *way != best).min_by_key(least_known)?;
        let Known { shortest, recorded, tried, .. } = self.known[candidate as usize];
        // A way whose times never arrive is tried more and more rarely.
        let unknown = if recorded == 0 { u64::from(tried) } else { 1 };
        let loss = u64::from(shortest).saturating_sub(best_time).max(unknown * best_time / 4);
        let copies_max = if recorded < TIMES_ENOUGH { NEW_PRICE_COPIES_MAX } else { PRICE_COPIES_MAX };
        let price = loss.min(copies_max * best_time);
        if best_time == 0 || self.credit < price {
            return None;
        }
        self.credit -= price;
        Some(candidate)
    }
}

/// Chooses how to copy next, from the times of earlier copies.
#[derive(Debug, Clone, Default)]
pub struct CopyPolicy {
    classes: [Class; CLASSES],
}

impl CopyPolicy {
    /// Returns which of `ways` to take for a body of `bytes`.
    pub fn choose(&mut self, bytes: usize, ways: &[CopyWay]) -> Choice {
        let class = &mut self.classes[class_of(bytes)];
        class.copies = class.copies.wrapping_add(1);
        let best = class.best(ways);
        if let Some(way) = class.due(ways, best) {
            let tried = &mut class.known[way as usize].tried;
            *tried = tried.saturating_add(u32::from(class.is_warm));
            return Choice { way, is_timed: true };
        }
        Choice { way: best, is_timed: class.copies % TIMED_ONE_IN == 0 }
    }

    /// Notes how long a copy of `bytes` took in that way.
    pub fn record(&mut self, way: CopyWay, bytes: usize, time: Duration) {
        let class = &mut self.classes[class_of(bytes)];
        if !std::mem::replace(&mut class.is_warm, true) {
            return;
        }
        let time = time.as_nanos() * (1 << 20) / bytes.max(1) as u128;
        class.known[way as usize].add(u32::try_from(time).unwrap_or(u32::MAX).max(1));
    }

    /// Returns the way that is the best for bodies of `bytes` as far as is known; `None` if nothing is known.
    pub fn best(&self, bytes: usize) -> Option<CopyWay> {
        let class = &self.classes[class_of(bytes)];
        let best = class.best(CopyWay::ANY);
        (class.known[best as usize].recorded > 0).then_some(best)
    }

    /// Returns how many times of that way were recorded for bodies of that length.
    #[cfg(test)]
    pub fn times_of(&self, way: CopyWay, bytes: usize) -> u32 {
        self.classes[class_of(bytes)].known[way as usize].recorded
    }

    /// Returns how many times were recorded.
    pub fn recorded(&self) -> u64 {
        self.classes.iter().flat_map(|class| &class.known).map(|known| u64::from(known.recorded)).sum()
    }
}

/// Returns the class of bodies of that length.
fn class_of(bytes: usize) -> usize {
    let doublings = (bytes / POLICY_BYTES_MIN).max(1).ilog2() as usize;
    doublings.min(CLASSES - 1)
}

/// The time of one side's copy, measured piece by piece.
#[derive(Debug, Clone, Copy, Default)]
pub struct PieceTimes {
    total: Duration,
    longest: Duration,
    pieces: u32,
}

impl PieceTimes {
    /// Adds the time of a piece.
    pub fn add(&mut self, time: Duration) {
        self.total += time;
        self.longest = self.longest.max(time);
        self.pieces += 1;
    }

    /// Returns the time of all pieces; `None` if nothing was measured, or if one of many pieces took more than half of
    /// it: then the core did something else meanwhile.
    pub fn total(&self) -> Option<Duration> {
        let is_disturbed = self.pieces >= PIECES_MIN && self.longest > self.total / 2;
        (self.pieces > 0 && !is_disturbed).then_some(self.total)
    }
}

#[cfg(test)]
#[path = "copy_policy_tests.rs"]
mod tests;
