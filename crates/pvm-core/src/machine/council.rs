//! The council: a few hosts that decide, by a majority, whether the master or its deputy goes on when they cannot hear each other.
//!
//! Its members are the master, the deputy, and the hosts that have been in the machine for the longest time. The deputy becomes
//! the master if a majority has lost the master, too. The master goes on without the deputy if a majority has said that it does
//! not support the deputy any more. Any two majorities have a member in common, and a host never does both: so only one of the
//! two goes on, however messages are delayed or lost.
use crate::tid::Tid;
use std::collections::BTreeSet;

/// How many hosts the council has, and how many if the machine is large.
const MEMBERS: usize = 3;
const MEMBERS_OF_LARGE: usize = 5;
const LARGE: usize = 16;

/// The members of a council.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Council(BTreeSet<Tid>);

impl Council {
    /// Returns the council of a machine of these hosts, the oldest first.
    pub fn of(hosts: &[Tid], master: Tid, deputy: Tid) -> Council {
        let size = if hosts.len() < LARGE { MEMBERS } else { MEMBERS_OF_LARGE };
        let others = hosts.iter().copied().filter(|host| *host != master && *host != deputy);
        Council([master, deputy].into_iter().chain(others).take(size).collect())
    }

    pub fn members(&self) -> impl Iterator<Item = Tid> + '_ {
        self.0.iter().copied()
    }
    /// Returns whether a majority of the members votes so.
    pub fn has_majority(&self, votes_so: impl Fn(Tid) -> bool) -> bool {
        2 * self.members().filter(|host| votes_so(*host)).count() > self.0.len()
    }
    /// Returns whether there are members besides the master and the deputy. If not, silence decides nothing.
    pub fn decides(&self) -> bool {
        self.0.len() >= MEMBERS
    }
}

/// A deputy that the master wants to do without, although it may live.
pub(super) struct Deposition {
    pub deputy: Tid,
    /// The councils of all host tables that the deputy may have; each of them must agree.
    councils: Vec<Council>,
    /// The hosts that do not support the deputy any more.
    agreed: BTreeSet<Tid>,
}

/// What a master may do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may go on without the deputy.
    Agreed,
    /// More hosts must answer.
    Open,
    /// Too few hosts are left: the deputy may have become the master.
    Lost,
}

impl Deposition {
    /// Begins to do without the deputy. If the deputy is the only other member, the master needs nobody's consent: that deputy
    /// never takes over from a master that is only silent.
    pub fn begin(deputy: Tid, councils: impl IntoIterator<Item = Council>) -> Deposition {
        let councils = councils.into_iter().filter(Council::decides).collect();
        Deposition { deputy, councils, agreed: BTreeSet::new() }
    }
    /// Returns all hosts that have to do with it.
    pub fn members(&self) -> BTreeSet<Tid> {
        self.councils.iter().flat_map(Council::members).collect()
    }
    /// Notes that a host does not support the deputy any more.
    pub fn agree(&mut self, host: Tid) {
        self.agreed.insert(host);
    }
    /// Returns whether a host has agreed.
    pub fn has_agreed(&self, host: Tid) -> bool {
        self.agreed.contains(&host)
    }
    /// Returns what the master may do. `may_answer`: whether a host can still be reached.
    pub fn verdict(&self, may_answer: impl Fn(Tid) -> bool) -> Verdict {
        let agrees = |host: Tid| self.has_agreed(host);
        // The deputy itself knows best. As long as it may answer, it is asked: one that has not heard of the order takes the end of
        // a master that it has just heard for the vote of that master.
        let is_agreed = agrees(self.deputy)
            || !may_answer(self.deputy) && self.councils.iter().all(|council| council.has_majority(agrees));
        let may_agree = |host: Tid| agrees(host) || may_answer(host);
        let is_possible =
            may_answer(self.deputy) || self.councils.iter().all(|council| council.has_majority(may_agree));
        match (is_agreed, is_possible) {
            (true, _) => Verdict::Agreed,
            (false, true) => Verdict::Open,
            (false, false) => Verdict::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(numbers: std::ops::RangeInclusive<u32>) -> Vec<Tid> {
        numbers.map(Tid::host_number).collect()
    }

    #[test]
    fn the_oldest_hosts_are_in_the_council() {
        let [one, two, nine] = [1, 2, 9].map(Tid::host_number);
        let council = |count, master, deputy| Council::of(&hosts(1..=count), master, deputy).0;
        assert_eq!(council(2, one, two), BTreeSet::from_iter(hosts(1..=2)));
        assert_eq!(council(15, one, two), BTreeSet::from_iter(hosts(1..=3)));
        assert_eq!(council(16, one, two), BTreeSet::from_iter(hosts(1..=5)));
        assert_eq!(council(9, nine, two), BTreeSet::from([one, two, nine]));
        assert!(!Council::of(&hosts(1..=2), one, two).decides());
        assert!(Council::of(&hosts(1..=3), one, two).decides());
    }

    #[test]
    fn a_majority_of_each_council_must_agree_or_the_deputy_itself() {
        let [one, two, three, four] = [1, 2, 3, 4].map(Tid::host_number);
        let of = |third: Tid| Council::of(&[one, two, third], one, two);
        let begin = || {
            let mut deposition = Deposition::begin(two, [of(three), of(four)]);
            deposition.agree(one);
            deposition
        };
        let mut deposition = begin();
        assert_eq!(deposition.verdict(|host| host != two), Verdict::Open);
        assert_eq!(deposition.verdict(|host| host == four), Verdict::Lost);
        deposition.agree(three);
        assert_eq!(deposition.verdict(|host| host == four), Verdict::Open);
        assert_eq!(deposition.verdict(|_| false), Verdict::Lost);
        deposition.agree(four);
        assert_eq!(deposition.verdict(|host| host == two), Verdict::Open, "the deputy may not know it");
        assert_eq!(deposition.verdict(|_| false), Verdict::Agreed);
        let mut deposition = begin();
        assert_eq!(deposition.verdict(|host| host == two), Verdict::Open);
        deposition.agree(two);
        assert_eq!(deposition.verdict(|_| false), Verdict::Agreed);
        // Nobody else is there.
        let alone = Deposition::begin(two, [Council::of(&[one, two], one, two)]);
        assert_eq!(alone.verdict(|_| false), Verdict::Agreed);
    }
}
