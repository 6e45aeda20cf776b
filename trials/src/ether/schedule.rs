//! The events of a model that are still to come, in the order of their times.

use super::wire::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events of a model. Events of the same time are in the order of their kind, then in the order in which they were
/// added, so a run is the same each time.
#[derive(Debug)]
pub struct Schedule<E> {
    heap: BinaryHeap<Reverse<(Time, u64, E)>>,
    added: u64,
}

impl<E: Ord> Default for Schedule<E> {
    fn default() -> Schedule<E> {
        Schedule { heap: BinaryHeap::new(), added: 0 }
    }
}

/// The number of the low bits of an event's order, which count events; the bits above them hold the kind (`rank`).
const COUNT_BITS: u32 = 56;

impl<E: Ord> Schedule<E> {
    /// Adds an event. Of events at the same time, those with a smaller `rank` come first.
    pub fn add(&mut self, at: Time, rank: u8, event: E) {
        self.heap.push(Reverse((at, u64::from(rank) << COUNT_BITS | self.added, event)));
        self.added += 1;
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Removes the next event if it is due.
    pub fn take_due(&mut self, now: Time) -> Option<(Time, E)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_rank_then_age() {
        let mut schedule = Schedule::default();
        for (at, rank, name) in [(5, 1, "c"), (5, 0, "b"), (9, 0, "e"), (5, 1, "d"), (1, 9, "a")] {
            schedule.add(at, rank, name);
        }
        let taken: Vec<&str> = std::iter::from_fn(|| schedule.take_due(5)).map(|(_, name)| name).collect();
        assert_eq!((taken, schedule.next()), (vec!["a", "b", "c", "d"], Some(9)));
    }
}
