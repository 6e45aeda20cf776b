//! The receiving daemon: the order in which messages of a host become visible, whichever tasks receive them.
//!
//! A message that has begun to arrive, or that the other daemon has marked, is **pending** until it is delivered. Before
//! anything later of the same host becomes visible to any task, the receiver of a pending message gets a **gap** in its queue:
//! what is behind the gap waits until the message is there. So nobody waits for a task that does not read, and pure streams
//! need no gaps.
use super::marks::{MARKS_MAX, MARKS_OF_HOST_MAX};
use super::{MessageHeader, ProtocolViolation};
use crate::tid::Tid;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A gap in the queue of a task, for the next messages that it receives from a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The task.
    pub dst: Tid,
    /// The number of messages.
    pub count: u32,
}

/// Messages of one flow that are not delivered yet, next to each other.
struct Pending {
    /// Their place in the order of the host.
    place: u64,
    count: u32,
    /// Whether the receiver has a gap for them.
    has_gap: bool,
}

#[derive(Default)]
struct FlowArrivals {
    pending: VecDeque<Pending>,
    /// How many messages of each mark have not begun, in order.
    marks: VecDeque<u32>,
    /// For each message that has begun and is not delivered: the place at which it has begun. All that was queued before it
    /// has begun before that, or was marked. This need not be so at the place of its own mark.
    begun: VecDeque<u64>,
    /// How many of the next messages to be delivered have been taken already ([`Arrivals::take`]).
    taken: usize,
}

impl FlowArrivals {
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.marks.is_empty() && self.begun.is_empty() && self.taken == 0
    }

    fn find(&mut self, place: u64) -> Option<&mut Pending> {
        let index = self.pending.binary_search_by_key(&place, |pending| pending.place).ok()?;
        self.pending.get_mut(index)
    }
}

#[derive(Default)]
struct HostArrivals {
    flows: HashMap<Tid, FlowArrivals>,
    /// The pending messages that have no gap, in order; also some that are delivered.
    without_gap: VecDeque<(u64, Tid)>,
    last_place: u64,
    marks: usize,
}

impl HostArrivals {
    fn add(&mut self, place: u64, dst: Tid, count: u32) {
        let flow = self.flows.entry(dst).or_default();
        flow.pending.push_back(Pending { place, count, has_gap: false });
        self.without_gap.push_back((place, dst));
    }

    fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// Notes that the next message of a flow is not pending any more.
    fn advance(&mut self, dst: Tid) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        flow.begun.pop_front();
        let Some(first) = flow.pending.front_mut() else { return };
        first.count -= 1;
        if first.count > 0 {
            return;
        }
        let place = first.place;
        flow.pending.pop_front();
        // The list is short in a stream of messages.
        if self.without_gap.back() == Some(&(place, dst)) {
            self.without_gap.pop_back();
        }
    }

    /// Returns the next gap that is to be made before something with that place becomes visible.
    fn next_gap(&mut self, place: u64) -> Option<Gap> {
        while let Some((first, dst)) = self.without_gap.front().copied().filter(|(first, _)| *first < place) {
            self.without_gap.pop_front();
            let pending = self.flows.get_mut(&dst).and_then(|flow| flow.find(first));
            if let Some(pending) = pending {
                pending.has_gap = true;
                return Some(Gap { dst, count: pending.count });
            }
        }
        None
    }
}

/// The order of what arrives from other hosts.
#[derive(Default)]
pub struct Arrivals {
    hosts: BTreeMap<Tid, HostArrivals>,
}

impl Arrivals {
    /// Notes that a message has begun to arrive.
    pub(super) fn begin(&mut self, from: Tid, header: &MessageHeader) {
        let host = self.hosts.entry(from).or_default();
        let place = host.next_place();
        for dst in header.receivers() {
            let flow = host.flows.entry(dst).or_default();
            flow.begun.push_back(place);
            match flow.marks.front_mut() {
                None => host.add(place, dst, 1),
                Some(1) => {
                    flow.marks.pop_front();
                    host.marks -= 1;
                }
                Some(left) => *left -= 1,
            }
        }
    }

    /// Notes that `count` further messages to a task come before everything that follows.
    pub fn marked(&mut self, from: Tid, dst: Tid, count: u32) -> Result<(), ProtocolViolation> {
        let host = self.hosts.entry(from).or_default();
        let marks = &mut host.flows.entry(dst).or_default().marks;
        if count == 0 || marks.len() >= MARKS_MAX || host.marks >= MARKS_OF_HOST_MAX {
            return Err(ProtocolViolation);
        }
        marks.push_back(count);
        host.marks += 1;
        let place = host.next_place();
        host.add(place, dst, count);
        Ok(())
    }

    /// Returns the next gap that is to be made before these tasks, and nobody else, get the next message of their flows at the
    /// same instant.
    pub fn gap_before_next(&mut self, from: Tid, dsts: &[Tid]) -> Option<Gap> {
        let host = self.hosts.get_mut(&from)?;
        let first = |dst| host.flows.get(dst).and_then(|flow| flow.begun.front()).copied().unwrap_or(u64::MAX);
        let place = dsts.iter().map(first).max()?;
        host.next_gap(place)
    }

    /// Returns the next gap that is to be made before something that follows all that has begun becomes visible.
    pub fn gap_before_all(&mut self, from: Tid) -> Option<Gap> {
        self.hosts.get_mut(&from)?.next_gap(u64::MAX)
    }

    /// Notes that the next message of a flow waits for delivery, and that everything made visible from now on waits behind it.
    pub fn take(&mut self, from: Tid, dst: Tid) {
        if let Some(host) = self.hosts.get_mut(&from) {
            host.advance(dst);
            host.flows.entry(dst).or_default().taken += 1;
        }
    }

    /// Notes that the next message of a flow is delivered.
    pub(super) fn done(&mut self, from: Tid, dst: Tid) {
        let Some(host) = self.hosts.get_mut(&from) else { return };
        match host.flows.get_mut(&dst) {
            Some(FlowArrivals { taken: taken @ 1.., .. }) => *taken -= 1,
            _ => host.advance(dst),
        }
    }

    /// Notes that the next message of a flow is dropped: its receiver does not exist.
    pub(super) fn dropped(&mut self, from: Tid, dst: Tid) {
        self.done(from, dst);
        let Some(host) = self.hosts.get_mut(&from) else { return };
        if host.flows.get(&dst).is_some_and(FlowArrivals::is_idle) {
            host.flows.remove(&dst);
        }
        while let Some((place, dst)) = host.without_gap.front().copied() {
            if host.flows.get_mut(&dst).is_some_and(|flow| flow.find(place).is_some()) {
                return;
            }
            host.without_gap.pop_front();
        }
    }

    /// Forgets a host. Returns the tasks that have gaps for its messages.
    pub fn host_gone(&mut self, from: Tid) -> Vec<Tid> {
        let flows = self.hosts.remove(&from).map(|host| host.flows).unwrap_or_default();
        let has_gap = |flow: &FlowArrivals| flow.pending.front().is_some_and(|pending| pending.has_gap);
        let mut tasks: Vec<Tid> = flows.into_iter().filter(|(_, flow)| has_gap(flow)).map(|(dst, _)| dst).collect();
        tasks.sort_unstable();
        tasks
    }

    /// Forgets a task.
    pub(super) fn task_gone(&mut self, dst: Tid) {
        for host in self.hosts.values_mut() {
            if let Some(flow) = host.flows.remove(&dst) {
                host.marks -= flow.marks.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Tid = Tid(0x80000);

    fn task(number: u32) -> Tid {
        Tid(0x40000 | number)
    }

    fn header(dst: u32, others: &[u32]) -> MessageHeader {
        let others = others.iter().map(|number| task(*number)).collect();
        MessageHeader { src: Tid(FROM.0 | 1), dst: task(dst), others, meta: [0; 5], bytes: 1 }
    }

    fn gap(dst: u32, count: u32) -> Option<Gap> {
        Some(Gap { dst: task(dst), count })
    }

    #[test]
    fn a_message_that_is_alone_needs_no_gap() {
        let mut arrivals = Arrivals::default();
        for _ in 0..3 {
            arrivals.begin(FROM, &header(1, &[2]));
            assert_eq!(arrivals.gap_before_next(FROM, &[task(1), task(2)]), None);
            arrivals.done(FROM, task(1));
            arrivals.done(FROM, task(2));
            assert_eq!(arrivals.gap_before_all(FROM), None);
        }
        assert!(arrivals.hosts[&FROM].without_gap.is_empty());
    }

    #[test]
    fn what_began_before_gets_a_gap_and_what_began_later_gets_none() {
        let mut arrivals = Arrivals::default();
        (1..=4).for_each(|dst| arrivals.begin(FROM, &header(dst, &[])));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(3)]), gap(1, 1));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(3)]), gap(2, 1));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(3)]), None);
        arrivals.done(FROM, task(3));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(2)]), None, "the gap is there");
        arrivals.done(FROM, task(2));
        assert_eq!(arrivals.gap_before_all(FROM), gap(4, 1));
        assert_eq!(arrivals.host_gone(FROM), [task(1), task(4)]);
        assert_eq!(arrivals.gap_before_all(FROM), None);
    }

    #[test]
    fn what_was_taken_needs_no_gap() {
        let mut arrivals = Arrivals::default();
        for _ in 0..3 {
            arrivals.begin(FROM, &header(1, &[]));
        }
        arrivals.take(FROM, task(1));
        arrivals.take(FROM, task(1));
        assert_eq!(arrivals.gap_before_all(FROM), gap(1, 1));
        assert_eq!(arrivals.gap_before_all(FROM), None);
        (0..3).for_each(|_| arrivals.done(FROM, task(1)));
        assert_eq!(arrivals.gap_before_all(FROM), None);
        arrivals.begin(FROM, &header(1, &[]));
        assert_eq!(arrivals.gap_before_all(FROM), gap(1, 1));
    }

    #[test]
    fn nothing_is_left_of_messages_to_tasks_that_do_not_exist() {
        let mut arrivals = Arrivals::default();
        (1..=3).for_each(|dst| arrivals.begin(FROM, &header(dst, &[])));
        [2, 1, 3].into_iter().for_each(|dst| arrivals.dropped(FROM, task(dst)));
        let host = &arrivals.hosts[&FROM];
        assert!(host.flows.is_empty() && host.without_gap.is_empty());
    }

    #[test]
    fn marked_messages_are_pending_from_their_mark_on() {
        let mut arrivals = Arrivals::default();
        arrivals.begin(FROM, &header(1, &[]));
        assert_eq!(arrivals.marked(FROM, task(1), 2), Ok(()));
        arrivals.begin(FROM, &header(2, &[]));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(2)]), gap(1, 1));
        assert_eq!(arrivals.gap_before_next(FROM, &[task(2)]), gap(1, 2));
        arrivals.done(FROM, task(2));
        (0..2).for_each(|_| arrivals.done(FROM, task(1)));
        arrivals.begin(FROM, &header(1, &[]));
        arrivals.begin(FROM, &header(3, &[]));
        arrivals.begin(FROM, &header(1, &[]));
        arrivals.begin(FROM, &header(1, &[]));
        // The message before the mark is delivered, one of the marked ones is.
        arrivals.done(FROM, task(1));
        assert_eq!(arrivals.gap_before_all(FROM), gap(3, 1));
        assert_eq!(arrivals.gap_before_all(FROM), gap(1, 1), "it was not marked");
    }

    #[test]
    fn marks_beyond_the_limits_are_a_violation() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.marked(FROM, task(1), 0), Err(ProtocolViolation));
        (0..MARKS_MAX).for_each(|_| assert_eq!(arrivals.marked(FROM, task(1), 1), Ok(())));
        assert_eq!(arrivals.marked(FROM, task(1), 1), Err(ProtocolViolation));
        arrivals.begin(FROM, &header(1, &[]));
        assert_eq!(arrivals.marked(FROM, task(1), 1), Ok(()));
        for number in 2..=(MARKS_OF_HOST_MAX / MARKS_MAX) as u32 {
            (0..MARKS_MAX).for_each(|_| assert_eq!(arrivals.marked(FROM, task(number), 1), Ok(())));
        }
        assert_eq!(arrivals.marked(FROM, task(1000), 1), Err(ProtocolViolation));
        arrivals.task_gone(task(2));
        assert_eq!(arrivals.marked(FROM, task(1000), 1), Ok(()));
    }
}
