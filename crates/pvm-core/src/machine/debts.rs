//! What other hosts owe the master at once: to say that they know of a change of the table or of a group, and
//! which tasks they have. Others wait for that. A host that shows that it lives and does not pay would hold
//! them up for ever, so it is given up as one that is silent.
use super::{Machine, Time};
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// For how many times as long as it may be silent a host may owe something for which others wait: what it is
/// asked can stand behind much else on its link.
///
/// * Filled by: each other host
/// * Setting: none, `HPVM_HOST_TIMEOUT` sets how long it may be silent
/// * Reached: the host is removed
/// * Test: `a_host_that_never_says_that_it_knows_the_table_does_not_hold_up_adds`
const TIMEOUTS_MAX: u32 = 3;

/// What is owed, by the number under which it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Debt {
    /// `TableAck`
    Table(u64),
    /// `GroupSeen`
    Group(u64),
    /// The answer to a request for its tasks.
    Tasks(u32),
    /// `BarriersListed`
    Barriers(u32),
}

/// All debts, by host and by age.
#[derive(Default)]
pub(super) struct Debts {
    since: BTreeMap<(Tid, Debt), Time>,
    by_age: BTreeSet<(Time, Tid, Debt)>,
}

impl Debts {
    /// From now on the host owes that.
    pub fn owe(&mut self, host: Tid, debt: Debt, now: Time) {
        if let Some(before) = self.since.insert((host, debt), now) {
            self.by_age.remove(&(before, host, debt));
        }
        self.by_age.insert((now, host, debt));
    }

    /// The host has paid.
    pub fn pay(&mut self, host: Tid, debt: Debt) {
        if let Some(since) = self.since.remove(&(host, debt)) {
            self.by_age.remove(&(since, host, debt));
        }
    }

    /// The host knows the table of that version, and so all before it.
    pub fn pay_tables(&mut self, host: Tid, version: u64) {
        let tables = self.since.range((host, Debt::Table(0))..=(host, Debt::Table(version)));
        let paid: Vec<Debt> = tables.map(|((_, debt), _)| *debt).collect();
        paid.into_iter().for_each(|debt| self.pay(host, debt));
    }

    /// The host is no more.
    pub fn forget(&mut self, host: Tid) {
        let all = self.since.range((host, Debt::Table(0))..=(host, Debt::Barriers(u32::MAX)));
        let debts: Vec<Debt> = all.map(|((_, debt), _)| *debt).collect();
        debts.into_iter().for_each(|debt| self.pay(host, debt));
    }

    /// Who has slept cannot say how long others took.
    pub fn begin_again(&mut self, now: Time) {
        let debts: Vec<(Tid, Debt)> = self.since.keys().copied().collect();
        debts.into_iter().for_each(|(host, debt)| self.owe(host, debt, now));
    }

    /// The host that owes something for the longest time, and since when.
    fn oldest(&self) -> Option<(Time, Tid)> {
        self.by_age.first().map(|(since, host, _)| (*since, *host))
    }
}

impl Machine {
    /// When somebody will have owed something for too long.
    pub(super) fn next_overdue(&self) -> Option<Time> {
        self.debts.oldest().map(|(since, _)| since + self.settings.host_timeout * TIMEOUTS_MAX)
    }

    /// Gives up those who do not pay.
    pub(super) fn collect_debts(&mut self) {
        while self.next_overdue().is_some_and(|when| when <= self.now) {
            let Some((since, host)) = self.debts.oldest() else { return };
            self.debts.forget(host);
            let seconds = (self.now - since).as_secs();
            self.lose_host(host, &format!("it has not said for {seconds} s that it knows what it has been told"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_paid_is_not_owed_any_more() {
        let (one, other, at) = (Tid::host_number(2), Tid::host_number(3), Duration::from_secs);
        let mut debts = Debts::default();
        debts.owe(one, Debt::Table(1), at(1));
        debts.owe(one, Debt::Table(2), at(2));
        debts.owe(one, Debt::Tasks(1), at(3));
        debts.owe(other, Debt::Group(u64::MAX), at(4));
        debts.pay_tables(one, 1);
        assert_eq!(debts.oldest(), Some((at(2), one)));
        debts.pay(one, Debt::Tasks(1));
        debts.pay_tables(one, u64::MAX);
        assert_eq!(debts.oldest(), Some((at(4), other)));
        debts.begin_again(at(9));
        assert_eq!(debts.oldest(), Some((at(9), other)));
        debts.forget(other);
        assert!(debts.oldest().is_none() && debts.since.is_empty());
    }
}
