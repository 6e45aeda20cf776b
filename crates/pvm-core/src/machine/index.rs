//! Sorted pairs, to find the entries of one task or host without a search through all entries; and counters by tid.
use crate::tid::{LOCAL_MASK, Tid};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// An element of a pair.
pub(super) trait Ordinal: Ord + Copy {
    const LEAST: Self;
    const MOST: Self;
}

impl Ordinal for Tid {
    const LEAST: Tid = Tid(0);
    const MOST: Tid = Tid(u32::MAX);
}
impl Ordinal for u32 {
    const LEAST: u32 = 0;
    const MOST: u32 = u32::MAX;
}
impl Ordinal for u64 {
    const LEAST: u64 = 0;
    const MOST: u64 = u64::MAX;
}

/// A set of pairs that is searched by the first element.
pub(super) struct PairIndex<A, B>(BTreeSet<(A, B)>);

impl<A, B> Default for PairIndex<A, B> {
    fn default() -> Self {
        PairIndex(BTreeSet::new())
    }
}

impl<A: Ordinal, B: Ordinal> PairIndex<A, B> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Adds a pair; returns whether it is new.
    pub fn insert(&mut self, one: A, other: B) -> bool {
        self.0.insert((one, other))
    }
    /// Removes a pair; returns whether it was there.
    pub fn remove(&mut self, one: A, other: B) -> bool {
        self.0.remove(&(one, other))
    }
    /// Returns the second elements of all pairs with that first element.
    pub fn of(&self, one: A) -> impl Iterator<Item = B> + '_ {
        self.0.range(pairs_with(one)).map(|(_, other)| *other)
    }
    /// Removes all pairs with that first element; returns their second elements.
    pub fn take(&mut self, one: A) -> Vec<B> {
        let others: Vec<B> = self.of(one).collect();
        others.iter().for_each(|other| _ = self.remove(one, *other));
        others
    }
}

impl<B: Ordinal> PairIndex<Tid, B> {
    /// Removes all pairs whose first element is a host or one of its tasks, and returns them.
    pub fn take_host(&mut self, host: Tid) -> Vec<(Tid, B)> {
        let pairs: Vec<(Tid, B)> = self.0.range(pairs_with_host(host)).copied().collect();
        pairs.iter().for_each(|(tid, other)| _ = self.remove(*tid, *other));
        pairs
    }
}

/// Counters, by the tid of a task or host.
#[derive(Default)]
pub(super) struct TidCounts(HashMap<Tid, usize>);

impl TidCounts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the count of a tid, 0 if there is none.
    pub fn of(&self, tid: Tid) -> usize {
        self.0.get(&tid).copied().unwrap_or(0)
    }
    pub fn add(&mut self, tid: Tid) {
        *self.0.entry(tid).or_default() += 1;
    }
    /// Subtracts `less` from the count of a tid; the result is at least 0.
    pub fn subtract(&mut self, tid: Tid, less: usize) {
        let Some(count) = self.0.get_mut(&tid) else { return };
        *count = count.saturating_sub(less);
        if *count == 0 {
            self.0.remove(&tid);
        }
    }
    /// Clears the count of a tid and returns it.
    pub fn take(&mut self, tid: Tid) -> usize {
        self.0.remove(&tid).unwrap_or(0)
    }
    /// Clears the counts of all tasks of a host.
    pub fn take_tasks_of(&mut self, host: Tid) {
        self.0.retain(|tid, _| tid.host() != host);
    }
}

/// Returns the range of all pairs with that first element.
pub(super) fn pairs_with<A: Ordinal, B: Ordinal>(one: A) -> RangeInclusive<(A, B)> {
    (one, B::LEAST)..=(one, B::MOST)
}

/// Returns the range of all pairs whose first element is a host or one of its tasks.
pub(super) fn pairs_with_host<B: Ordinal>(host: Tid) -> RangeInclusive<(Tid, B)> {
    let tids = tids_of(host);
    (*tids.start(), B::LEAST)..=(*tids.end(), B::MOST)
}

/// Returns the range of all tids of a host: its daemon's and those of its tasks.
pub(super) fn tids_of(host: Tid) -> RangeInclusive<Tid> {
    host..=Tid(host.0 | LOCAL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_their_first_part_and_by_its_host() {
        let mut index = PairIndex::default();
        let [one, two, far] = [0x40001, 0x40002, 0x80001].map(Tid);
        for (tid, number) in [(one, 7), (two, 8), (one, u32::MAX), (far, 0), (one, 7)] {
            index.insert(tid, number);
        }
        assert_eq!(index.of(one).collect::<Vec<_>>(), [7, u32::MAX]);
        assert_eq!(index.take(one), [7, u32::MAX]);
        assert_eq!(index.take_host(Tid::host_number(1)), [(two, 8)]);
        index.remove(far, 0);
        assert!(index.is_empty());
    }
}
