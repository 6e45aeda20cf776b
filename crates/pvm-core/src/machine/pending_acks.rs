//! The frames of the master that other hosts must acknowledge or answer at once: changes of the host table or of a
//! group, queries for the tasks of a host or for the members that wait in barriers. Requests of tasks are completed
//! only after these acknowledgements. If a host that is alive never acknowledged, the tasks would wait for ever, so
//! such a host is removed like a silent one.
use crate::tid::Tid;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// How long a host may leave a frame unacknowledged, in multiples of the host timeout. The frame can wait behind many
/// others on the link.
///
/// * Filled by: each other host
/// * Setting: none, `HPVM_HOST_TIMEOUT` sets how long the host may be silent
/// * Reached: the host is removed
/// * Test: `a_host_that_never_says_that_it_knows_the_table_does_not_hold_up_adds`
pub(super) const TIMEOUTS_MAX: u32 = 3;

/// A pending acknowledgement, identified by the number of the frame that must be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ack {
    /// `TableAck`
    Table(u64),
    /// `GroupSeen`
    Group(u64),
    /// `Reply` to a query for the host's tasks
    Tasks(u32),
    /// `BarriersListed`
    Barriers(u32),
    /// `BackupKept` of the last mark
    Backup,
    /// `Deposed`
    Deposed,
    /// `Following`, at a new master
    Following,
}

impl Ack {
    /// Returns whether the frame that leads to it may wait for the deputy.
    fn may_wait(self) -> bool {
        !matches!(self, Ack::Backup | Ack::Deposed | Ack::Following)
    }
}

/// Since when an acknowledgement is awaited whose frame waits for the deputy.
const SUSPENDED: Time = Time::MAX;

/// All pending acknowledgements, by host and by age.
#[derive(Default)]
pub(super) struct PendingAcks {
    since: BTreeMap<(Tid, Ack), Time>,
    by_age: BTreeSet<(Time, Tid, Ack)>,
}

impl PendingAcks {
    /// Records that the host must send that acknowledgement.
    pub fn expect(&mut self, host: Tid, ack: Ack, now: Time) {
        if let Some(before) = self.since.insert((host, ack), now) {
            self.by_age.remove(&(before, host, ack));
        }
        self.by_age.insert((now, host, ack));
    }

    /// Records that the host has sent that acknowledgement.
    pub fn received(&mut self, host: Tid, ack: Ack) {
        if let Some(since) = self.since.remove(&(host, ack)) {
            self.by_age.remove(&(since, host, ack));
        }
    }

    /// Records that the host has acknowledged that version of the table and all before it.
    pub fn received_tables(&mut self, host: Tid, version: u64) {
        let tables = self.since.range((host, Ack::Table(0))..=(host, Ack::Table(version)));
        let received: Vec<Ack> = tables.map(|((_, ack), _)| *ack).collect();
        received.into_iter().for_each(|ack| self.received(host, ack));
    }

    /// Returns whether a host has not acknowledged that version of the table, or one before it.
    pub fn awaits_table(&self, version: u64) -> bool {
        self.since.keys().any(|(_, ack)| matches!(ack, Ack::Table(awaited) if *awaited <= version))
    }

    /// Drops the pending acknowledgements of a removed host.
    pub fn forget(&mut self, host: Tid) {
        let all = self.since.range((host, Ack::Table(0))..=(host, Ack::Following));
        let pending: Vec<Ack> = all.map(|((_, ack), _)| *ack).collect();
        pending.into_iter().for_each(|ack| self.received(host, ack));
    }

    /// Stops the timers of what is awaited since `now` and waits for the deputy, and returns it.
    pub fn suspend(&mut self, now: Time) -> Vec<(Tid, Ack)> {
        let (first, last) = ((now, Tid(0), Ack::Table(0)), (now, Tid(u32::MAX), Ack::Following));
        let awaited = self.by_age.range(first..=last).map(|(_, host, ack)| (*host, *ack));
        let suspended: Vec<(Tid, Ack)> = awaited.filter(|(_, ack)| ack.may_wait()).collect();
        suspended.iter().for_each(|(host, ack)| self.expect(*host, *ack, SUSPENDED));
        suspended
    }

    /// Starts a timer that was stopped, if the acknowledgement is still awaited.
    pub fn resume(&mut self, host: Tid, ack: Ack, now: Time) {
        if self.since.get(&(host, ack)) == Some(&SUSPENDED) {
            self.expect(host, ack, now);
        }
    }

    /// Restarts all timers, because this daemon was suspended and cannot judge how long the other hosts took.
    pub fn restart_timers(&mut self, now: Time) {
        let runs = |(_, since): &(&(Tid, Ack), &Time)| **since != SUSPENDED;
        let pending: Vec<(Tid, Ack)> = self.since.iter().filter(runs).map(|(pending, _)| *pending).collect();
        pending.into_iter().for_each(|(host, ack)| self.expect(host, ack, now));
    }

    /// Returns the oldest pending acknowledgement whose timer runs: since when it is awaited, and from which host.
    pub fn oldest(&self) -> Option<(Time, Tid)> {
        self.by_age.first().map(|(since, host, _)| (*since, *host)).filter(|(since, _)| *since != SUSPENDED)
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
        pending.restart_timers(at(9));
        assert_eq!(pending.oldest(), Some((at(9), other)));
        pending.forget(other);
        assert!(pending.oldest().is_none() && pending.since.is_empty());
    }

    #[test]
    fn a_frame_that_waits_for_the_deputy_need_not_be_acknowledged() {
        let (one, other, at) = (Tid::host_number(2), Tid::host_number(3), Duration::from_secs);
        let mut pending = PendingAcks::default();
        pending.expect(one, Ack::Table(1), at(1));
        pending.expect(one, Ack::Table(2), at(2));
        pending.expect(other, Ack::Backup, at(2));
        assert_eq!(pending.suspend(at(2)), [(one, Ack::Table(2))]);
        pending.received(one, Ack::Table(1));
        assert_eq!(pending.oldest(), Some((at(2), other)));
        pending.received(other, Ack::Backup);
        pending.restart_timers(at(5));
        assert_eq!((pending.oldest(), pending.awaits_table(2)), (None, true));
        pending.resume(one, Ack::Table(2), at(7));
        pending.resume(one, Ack::Table(3), at(7));
        assert_eq!(pending.oldest(), Some((at(7), one)));
        pending.received(one, Ack::Table(2));
        assert!(pending.oldest().is_none() && pending.since.is_empty() && pending.by_age.is_empty());
    }
}
