//! How the two tasks of a pair agree on the ways of their bodies, and measure them ([`crate::way_policy`]).
//!
//! The sender chooses the way of a body and tells it to the receiver in the queue. One task of a pair decides, the one that
//! has made the cells; the other one answers in the way of the last message that it got: both write the same cells, and
//! a cell that one of them has written past the caches is in no cache of the other one. To measure a message, the sender notes
//! when it begins, and the receiver, if it has waited for the message, when it has copied the body out. The sender looks at
//! that when it sends the next long body.
use crate::clock::monotonic_ns;
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use crate::way_policy::{CLASSES, Way, WayPolicy, class_of};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Where the number of the way lies in the word that tells the receiver what to do, and the number of a measured message.
const WAY_SHIFT: u32 = 1;
const NUMBER_SHIFT: u32 = 8;
/// The bits of the number of a measured message, and those of a time in ns beside it.
const NUMBER_BITS: u32 = 8;
const TIME_MASK: u64 = u64::MAX >> NUMBER_BITS;
/// A message that took longer, in ns, was interrupted, or the two clocks differ.
const NS_MAX: u64 = 10_000_000_000;

/// A message that is being measured.
#[derive(Debug)]
struct Measured {
    number: u8,
    bytes: usize,
    way: Way,
    began_ns: u64,
}

/// The ways of this task's messages to one peer.
#[derive(Debug, Default)]
pub struct Ways {
    policy: WayPolicy,
    /// The ways of the last messages of the peer, by class of lengths; of a task that does not decide.
    answers: [Way; CLASSES],
    measured: Option<Measured>,
    /// The number of the last message that was measured.
    number: u8,
}

impl Ways {
    /// Returns the way of a body of `bytes` bytes, and the word for its receiver. `finished` is the word in which the
    /// receiver answers.
    pub fn order(&mut self, finished: &AtomicU64, bytes: usize) -> (Way, u64) {
        if let Some(measured) = self.measured.take() {
            let answer = finished.load_relaxed();
            let ns = (answer >> NUMBER_BITS).wrapping_sub(measured.began_ns) & TIME_MASK;
            if answer as u8 == measured.number && ns < NS_MAX {
                self.policy.record(measured.bytes, measured.way, ns);
            }
        }
        let (way, is_measured) = self.policy.choose(bytes);
        let mut word = (way.number() as u64) << WAY_SHIFT;
        if is_measured {
            // Zero is the number of a message that is not measured.
            self.number = self.number.checked_add(1).unwrap_or(1);
            word |= u64::from(self.number) << NUMBER_SHIFT;
            self.measured = Some(Measured { number: self.number, bytes, way, began_ns: monotonic_ns() });
        }
        (way, word)
    }

    /// Returns the way that messages of `bytes` bytes go, and its time in ns a byte; `None` before one was measured.
    pub fn best(&self, bytes: usize) -> Option<(Way, f32)> {
        self.policy.best(bytes)
    }

    /// Notes the word of a message of the peer, which decides.
    pub fn note(&mut self, bytes: usize, word: u64) {
        self.answers[class_of(bytes)] = way_of(word);
    }

    /// Does what [`Ways::order`] does, for the task that does not decide.
    pub fn answer(&self, bytes: usize) -> (Way, u64) {
        let way = self.answers[class_of(bytes)];
        (way, (way.number() as u64) << WAY_SHIFT)
    }
}

/// The value of [`last_way`] for a body that its receiver has read from the sender's memory.
pub const BY_RENDEZVOUS: u8 = 6;

/// How the last long body of this process was copied.
static LAST_WAY: AtomicU8 = AtomicU8::new(0);

/// Notes how a body of at least [`crate::way_policy::BYTES_MIN`] bytes is copied.
#[inline]
pub fn note_way(way: Way) {
    LAST_WAY.store(way.number() as u8 + 1, Relaxed);
}

/// Notes that a body is read from this process's memory by its receiver.
pub fn note_rendezvous() {
    LAST_WAY.store(BY_RENDEZVOUS, Relaxed);
}

/// Returns how the last body of 32 KiB or more was copied that this process has sent to a task of its host or packed. 0: there
/// was none; 1: both copies through the caches; 2: the sender's copy past them; 3: the receiver's; 4: both; 5: both by string
/// instructions; [`BY_RENDEZVOUS`]: one copy, by the receiver.
pub fn last_way() -> u8 {
    LAST_WAY.load(Relaxed)
}

/// Returns the way that a sender has chosen.
pub fn way_of(word: u64) -> Way {
    Way::from_number((word >> WAY_SHIFT) as usize)
}

/// Notes for the sender that the receiver, which has waited for the message, has copied the body out.
pub fn finish(finished: &AtomicU64, word: u64) {
    let number = (word >> NUMBER_SHIFT) as u8;
    if number != 0 {
        finished.store(monotonic_ns() << NUMBER_BITS | u64::from(number), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::CopyMode;
    use std::time::{Duration, Instant};

    #[test]
    fn the_quickest_way_is_found_by_the_times_of_whole_messages() {
        let (mut ways, finished) = (Ways::default(), AtomicU64::new(0));
        let bytes = 1 << 20;
        let mut last = Way::default();
        for _ in 0..120 {
            let (way, word) = ways.order(&finished, bytes);
            assert_eq!(way_of(word), way);
            let begun = Instant::now();
            let pause = if way == (Way { copy_in: CopyMode::Past, copy_out: CopyMode::Cached }) { 10 } else { 60 };
            while begun.elapsed() < Duration::from_micros(pause) {}
            finish(&finished, word);
            last = way;
        }
        assert_eq!(last, Way { copy_in: CopyMode::Past, copy_out: CopyMode::Cached });
    }

    #[test]
    fn an_answer_goes_the_way_of_the_last_message_of_its_class() {
        let (mut ours, mut theirs, finished) = (Ways::default(), Ways::default(), AtomicU64::new(0));
        for _ in 0..20 {
            let (way, word) = ours.order(&finished, 1 << 20);
            theirs.note(1 << 20, word);
            assert_eq!(theirs.answer((1 << 20) + 5), (way, (way.number() as u64) << WAY_SHIFT));
            assert_eq!(theirs.answer(4 << 20).0, Way::default());
        }
    }

    #[test]
    fn answers_that_are_missing_old_or_lies_are_not_believed() {
        let (mut ways, finished) = (Ways::default(), AtomicU64::new(0));
        for answer in [0, u64::MAX, 1, 1 << 40 | 5, u64::MAX << 8] {
            while ways.order(&finished, 1 << 20).1 >> NUMBER_SHIFT == 0 {}
            finished.store(answer, Ordering::Relaxed);
        }
        ways.order(&finished, 1 << 20);
        assert_eq!(ways.best(1 << 20), None);
    }
}
