//! Invariant: each multicast arrives exactly once, in order, and with its whole body, at every living receiver, on
//! whichever way its body travels.
use super::{Checks, Unsettled};
use crate::ids::TaskId;
use crate::world::World;
use pvm_core::flows::multicast::BodyKey;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

/// All multicasts.
#[derive(Default)]
pub struct Multicasts {
    /// The number of the last multicast.
    last: u64,
    /// The multicasts that have not arrived yet, by receiver and sender, in the order in which they were sent.
    due: HashMap<(Tid, Tid), VecDeque<u64>>,
    /// The ranges of each announced body that have arrived at a host, by their starts.
    bodies: HashMap<(Tid, BodyKey), BTreeMap<usize, usize>>,
}

impl Multicasts {
    /// Returns the number of bytes from the start of a body that have arrived without a gap.
    fn arrived(&self, host: Tid, key: BodyKey) -> usize {
        let ranges = self.bodies.get(&(host, key)).into_iter().flatten();
        ranges.fold(0, |end, (from, to)| if *from <= end { end.max(*to) } else { end })
    }
}

impl Checks {
    /// Notes that a task has sent a message to several receivers. Returns the number of this multicast.
    pub fn multicast(&mut self, src: Tid, dsts: &[Tid]) -> u64 {
        let multicasts = &mut self.multicasts;
        multicasts.last += 1;
        dsts.iter().for_each(|dst| multicasts.due.entry((*dst, src)).or_default().push_back(multicasts.last));
        multicasts.last
    }

    /// Notes that a multicast has arrived.
    pub fn multicast_arrived(&mut self, src: Tid, dst: Tid, number: u64) {
        let wanted = self.multicasts.due.entry((dst, src)).or_default().pop_front();
        if wanted != Some(number) {
            let text = format!("{dst} got multicast {number} of {src} where {wanted:?} was to come");
            self.fail("multicasts", &text, &[src, dst]);
        }
    }

    /// Notes that a part of an announced body was stored at a host.
    pub fn body_part(&mut self, host: Tid, key: BodyKey, range: &Range<usize>) {
        let end = self.multicasts.bodies.entry((host, key)).or_default().entry(range.start).or_default();
        *end = range.end.max(*end);
    }

    /// Notes that a host takes an announced body of that length for complete.
    pub fn body_complete(&mut self, host: Tid, key: BodyKey, bytes: usize) {
        let arrived = self.multicasts.arrived(host, key);
        self.multicasts.bodies.remove(&(host, key));
        if arrived != bytes {
            let text = format!("{host} takes the {key:?} for complete, with {arrived} of {bytes} bytes");
            self.fail("multicasts", &text, &[host, key.origin]);
        }
    }
}

impl World {
    /// Checks that all multicasts have arrived at all living receivers.
    pub fn multicasts_arrived(&self) -> Unsettled {
        let missing = |((dst, src), due): &(&(Tid, Tid), &VecDeque<u64>)| {
            let receives = |task: &TaskId| self.tasks[*task].is_enrolled() && self.in_machine(*task);
            !due.is_empty()
                && self.by_tid.get(dst).is_some_and(receives)
                && self.by_tid.get(src).is_some_and(|task| self.in_machine(*task))
        };
        // Take the least pair, so that all runs with the same seed report the same pair.
        let first = self.checks.multicasts.due.iter().filter(missing).min_by_key(|(pair, _)| **pair);
        let Some(((dst, src), due)) = first else { return Ok(()) };
        Err((format!("{dst} lacks {} multicasts of {src}", due.len()), vec![src.host(), dst.host()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: Tid = Tid(0x40001);
    const DST: Tid = Tid(0x80001);

    #[test]
    fn a_multicast_that_comes_twice_too_early_or_with_a_gap_is_found() {
        let sent = || {
            let mut checks = Checks::default();
            assert_eq!([checks.multicast(SRC, &[DST]), checks.multicast(SRC, &[DST])], [1, 2]);
            checks
        };
        let text_after = |numbers: &[u64]| {
            let mut checks = sent();
            numbers.iter().for_each(|number| checks.multicast_arrived(SRC, DST, *number));
            checks.violation.map(|violation| violation.text)
        };
        assert_eq!(text_after(&[1, 2]), None);
        assert!(text_after(&[1, 1]).is_some_and(|text| text.contains("where Some(2) was to come")));
        assert!(text_after(&[2]).is_some() && text_after(&[1, 2, 2]).is_some());

        let key = BodyKey { origin: SRC.host(), secret: [1; 16] };
        let complete_after = |ranges: &[Range<usize>]| {
            let mut checks = Checks::default();
            ranges.iter().for_each(|range| checks.body_part(DST.host(), key, range));
            checks.body_complete(DST.host(), key, 100);
            checks.violation.is_none()
        };
        assert!(complete_after(&[50..100, 0..50, 20..60]));
        assert!(!complete_after(&[0..50, 51..100]) && !complete_after(&[0..50, 50..99]) && !complete_after(&[]));
    }
}
