//! What other hosts must acknowledge or answer to the master at once: a change of the host table or of a group, a
//! question for their tasks. Others wait for that. A host that is alive and does not acknowledge would hold
//! them up for ever, so it is removed like one that is silent.
use super::settings::Time;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// How long a host may leave something unacknowledged, in times of the silence that is allowed: what it is asked
/// can stand behind much else on its link.
///
/// * Filled by: each other host
/// * Setting: none, `HPVM_HOST_TIMEOUT` sets how long it may be silent
/// * Reached: the host is removed
/// * Test: `a_host_that_never_says_that_it_knows_the_table_does_not_hold_up_adds`
pub(super) const TIMEOUTS_MAX: u32 = 3;

/// What is to be acknowledged, by the number under which it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ack {
    /// `TableAck`
    Table(u64),
    /// `GroupSeen`
    Group(u64),
    /// The answer to a request for its tasks.
    Tasks(u32),
    /// `BarriersListed`
    Barriers(u32),
}

/// All that is pending, by host and by age.
#[derive(Default)]
pub(super) struct PendingAcks {
    since: BTreeMap<(Tid, Ack), Time>,
    by_age: BTreeSet<(Time, Tid, Ack)>,
}

impl PendingAcks {
    /// From now on the host is expected to acknowledge that.
    pub fn expect(&mut self, host: Tid, ack: Ack, now: Time) {
        if let Some(before) = self.since.insert((host, ack), now) {
            self.by_age.remove(&(before, host, ack));
        }
        self.by_age.insert((now, host, ack));
    }

    /// The host has acknowledged that.
    pub fn received(&mut self, host: Tid, ack: Ack) {
        if let Some(since) = self.since.remove(&(host, ack)) {
            self.by_age.remove(&(since, host, ack));
        }
    }

    /// The host knows the table of that version, and so all before it.
    pub fn received_tables(&mut self, host: Tid, version: u64) {
        let tables = self.since.range((host, Ack::Table(0))..=(host, Ack::Table(version)));
        let received: Vec<Ack> = tables.map(|((_, ack), _)| *ack).collect();
        received.into_iter().for_each(|ack| self.received(host, ack));
    }

    /// The host is no more.
    pub fn forget(&mut self, host: Tid) {
        let all = self.since.range((host, Ack::Table(0))..=(host, Ack::Barriers(u32::MAX)));
        let pending: Vec<Ack> = all.map(|((_, ack), _)| *ack).collect();
        pending.into_iter().for_each(|ack| self.received(host, ack));
    }

    /// Begins all times anew: a daemon that was asleep cannot say how long others took.
    pub fn begin_again(&mut self, now: Time) {
        let pending: Vec<(Tid, Ack)> = self.since.keys().copied().collect();
        pending.into_iter().for_each(|(host, ack)| self.expect(host, ack, now));
    }

    /// The host that has left something unacknowledged for the longest time, and since when.
    pub fn oldest(&self) -> Option<(Time, Tid)> {
        self.by_age.first().map(|(since, host, _)| (*since, *host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_acknowledged_is_not_pending_any_more() {
        let (one, other, at) = (Tid::host_number(2), Tid::host_number(3), Duration::from_secs);
        let mut pending = PendingAcks::default();
        pending.expect(one, Ack::Table(1), at(1));
        pending.expect(one, Ack::Table(2), at(2));
        pending.expect(one, Ack::Tasks(1), at(3));
        pending.expect(other, Ack::Group(u64::MAX), at(4));
        pending.received_tables(one, 1);
        assert_eq!(pending.oldest(), Some((at(2), one)));
        pending.received(one, Ack::Tasks(1));
        pending.received_tables(one, u64::MAX);
        assert_eq!(pending.oldest(), Some((at(4), other)));
        pending.begin_again(at(9));
        assert_eq!(pending.oldest(), Some((at(9), other)));
        pending.forget(other);
        assert!(pending.oldest().is_none() && pending.since.is_empty());
    }
}
