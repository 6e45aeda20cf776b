//! What will happen, by time; what was planned first happens first.
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A moment of simulated time, or a span of it, in nanoseconds.
pub type Nanos = u64;

/// A microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// A millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000_000_000;

struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    /// The heap gives the greatest first, which is to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// The events to come.
pub struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    last: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), last: 0 }
    }
}

impl<E> Queue<E> {
    /// Plans an event.
    pub fn push(&mut self, at: Nanos, event: E) {
        self.last += 1;
        self.heap.push(Entry { at, number: self.last, event });
    }

    /// The next event, and when it happens.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
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
