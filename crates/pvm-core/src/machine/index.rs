//! Pairs, sorted: by these, what belongs to a task or a host is found without a look at all that
//! belongs to others. And how many there are of something, by tid.
use crate::tid::{LOCAL_MASK, Tid};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// What can stand in a pair.
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

/// Pairs, found by their first part.
pub(super) struct Index<A, B>(BTreeSet<(A, B)>);

impl<A, B> Default for Index<A, B> {
    fn default() -> Self {
        Index(BTreeSet::new())
    }
}

impl<A: Ordinal, B: Ordinal> Index<A, B> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether it was not there.
    pub fn insert(&mut self, one: A, other: B) -> bool {
        self.0.insert((one, other))
    }
    /// Whether it was there.
    pub fn remove(&mut self, one: A, other: B) -> bool {
        self.0.remove(&(one, other))
    }
    pub fn of(&self, one: A) -> impl Iterator<Item = B> + '_ {
        self.0.range(all_of(one)).map(|(_, other)| *other)
    }
    pub fn take(&mut self, one: A) -> Vec<B> {
        let others: Vec<B> = self.of(one).collect();
        others.iter().for_each(|other| _ = self.remove(one, *other));
        others
    }
}

impl<B: Ordinal> Index<Tid, B> {
    /// What belongs to a host and its tasks.
    pub fn take_host(&mut self, host: Tid) -> Vec<(Tid, B)> {
        let pairs: Vec<(Tid, B)> =
            self.0.range((host, B::LEAST)..=(Tid(host.0 | LOCAL_MASK), B::MOST)).copied().collect();
        pairs.iter().for_each(|(tid, other)| _ = self.remove(*tid, *other));
        pairs
    }
}

/// How many there are of something, by the tid of a task or host.
#[derive(Default)]
pub(super) struct Counts(HashMap<Tid, usize>);

impl Counts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn of(&self, tid: Tid) -> usize {
        self.0.get(&tid).copied().unwrap_or(0)
    }
    pub fn add(&mut self, tid: Tid) {
        *self.0.entry(tid).or_default() += 1;
    }
    /// There are so many less, if there were any.
    pub fn subtract(&mut self, tid: Tid, less: usize) {
        let Some(count) = self.0.get_mut(&tid) else { return };
        *count = count.saturating_sub(less);
        if *count == 0 {
            self.0.remove(&tid);
        }
    }
    pub fn take(&mut self, tid: Tid) -> usize {
        self.0.remove(&tid).unwrap_or(0)
    }
    pub fn take_tasks_of(&mut self, host: Tid) {
        self.0.retain(|tid, _| tid.host() != host);
    }
}

/// All pairs with that first part.
pub(super) fn all_of<A: Ordinal, B: Ordinal>(one: A) -> RangeInclusive<(A, B)> {
    (one, B::LEAST)..=(one, B::MOST)
}

/// All tids of a host: its daemon's and those of its tasks.
pub(super) fn tids_of(host: Tid) -> RangeInclusive<Tid> {
    host..=Tid(host.0 | LOCAL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_their_first_part_and_by_its_host() {
        let mut index = Index::default();
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
