//! The queue of future events, ordered by time. Events of the same time are in the order in which they were planned.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A simulated time or duration, in nanoseconds.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// The time, the sequence number, and the event's place. `Reverse` makes the heap return the earliest entry first.
type Entry = Reverse<(Nanos, u64, usize)>;

/// The future events. The events are stored beside the heap, so that the entries of the heap are small.
pub struct Queue<E> {
    heap: BinaryHeap<Entry>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    last: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), last: 0 }
    }
}

impl<E> Queue<E> {
    /// Plans an event.
    pub fn push(&mut self, at: Nanos, event: E) {
        self.last += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.heap.push(Reverse((at, self.last, place)));
    }

    /// Removes the next event. Returns the event and its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.events[place].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_for_one_moment_happens_in_the_order_of_planning() {
        let mut queue = Queue::default();
        [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')].into_iter().for_each(|(at, event)| queue.push(at, event));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
