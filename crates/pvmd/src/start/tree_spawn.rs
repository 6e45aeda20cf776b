//! The tree spawn: hosts that have a link to the master start further hosts for the master. This file chooses the
//! parent of each new host and does no I/O.
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// The number of hosts that one parent starts at the same time.
///
/// * Filled by: tasks that add hosts
/// * Setting: none, `HPVM_STARTS_MAX` sets how many the master starts itself
/// * Reached: another parent is asked, or the master starts the host when it can start one more
/// * Test: `each_parent_has_a_share_and_the_idlest_is_asked`
pub const FAN_OUT: usize = 8;
/// If failures exceed successes by this number, the hosts of this machine apparently cannot start one another.
const LOSSES_MAX: usize = 4;

#[derive(Default)]
struct Parent {
    busy: usize,
    /// Successes minus failures.
    balance: isize,
}

/// All hosts with a link to the master.
#[derive(Default)]
pub struct TreeSpawn {
    all: BTreeMap<Tid, Parent>,
    /// The hosts that can be asked, those with the fewest starts in progress first.
    ready: BTreeSet<(usize, Tid)>,
    balance: isize,
}

impl TreeSpawn {
    /// Adds a host that has a link now.
    pub fn add_parent(&mut self, host: Tid) {
        self.all.entry(host).or_default();
        self.sort(host);
    }

    /// Removes a host that has no link any more.
    pub fn remove_parent(&mut self, host: Tid) {
        if let Some(parent) = self.all.remove(&host) {
            self.ready.remove(&(parent.busy, host));
        }
    }

    /// Returns the parent of the next host, if there is one that can be asked. A parent with more failures than
    /// successes is not asked. Once tree spawn has proved futile, no parent is asked.
    pub fn choose_parent(&self) -> Option<Tid> {
        let is_futile = self.balance <= -(LOSSES_MAX as isize);
        self.ready.first().filter(|_| !is_futile).map(|(_, host)| *host)
    }

    /// Counts a start that a parent has begun.
    pub fn begin(&mut self, host: Tid) {
        self.change(host, |parent| parent.busy += 1);
    }

    /// Counts the end of a start.
    pub fn end(&mut self, host: Tid, succeeded: bool) {
        let balance = if succeeded { 1 } else { -1 };
        self.balance += balance;
        self.change(host, |parent| {
            parent.busy -= 1;
            parent.balance += balance;
        });
    }

    fn change(&mut self, host: Tid, how: impl FnOnce(&mut Parent)) {
        let Some(parent) = self.all.get_mut(&host) else { return };
        self.ready.remove(&(parent.busy, host));
        how(parent);
        self.sort(host);
    }

    fn sort(&mut self, host: Tid) {
        let parent = self.all.get(&host).filter(|parent| parent.busy < FAN_OUT && parent.balance >= 0);
        self.ready.extend(parent.map(|parent| (parent.busy, host)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_spawn(count: u32) -> (TreeSpawn, Vec<Tid>) {
        let hosts: Vec<Tid> = (2..count + 2).map(Tid::host_number).collect();
        let mut tree_spawn = TreeSpawn::default();
        hosts.iter().for_each(|host| tree_spawn.add_parent(*host));
        (tree_spawn, hosts)
    }

    #[test]
    fn each_parent_has_a_share_and_the_idlest_is_asked() {
        let (mut tree_spawn, hosts) = tree_spawn(3);
        let mut asked = Vec::new();
        while let Some(host) = tree_spawn.choose_parent() {
            tree_spawn.begin(host);
            asked.push(host);
        }
        assert_eq!(asked.len(), 3 * FAN_OUT);
        assert!(asked.chunks(3).all(|turn| turn == hosts));
        tree_spawn.end(hosts[1], true);
        assert_eq!(tree_spawn.choose_parent(), Some(hosts[1]));
        tree_spawn.remove_parent(hosts[1]);
        assert_eq!(tree_spawn.choose_parent(), None);
        tree_spawn.add_parent(Tid::host_number(9));
        assert_eq!(tree_spawn.choose_parent(), Some(Tid::host_number(9)));
    }

    #[test]
    fn one_that_fails_is_asked_no_more_unless_it_has_also_succeeded() {
        let (mut tree_spawn, hosts) = tree_spawn(2);
        for (host, succeeded) in [(hosts[0], false), (hosts[1], true), (hosts[1], false)] {
            tree_spawn.begin(host);
            tree_spawn.end(host, succeeded);
        }
        assert_eq!(tree_spawn.choose_parent(), Some(hosts[1]));
        tree_spawn.remove_parent(hosts[1]);
        assert_eq!(tree_spawn.choose_parent(), None);
        // The host now runs another daemon, and no failure of that daemon is recorded.
        tree_spawn.remove_parent(hosts[0]);
        tree_spawn.add_parent(hosts[0]);
        assert_eq!(tree_spawn.choose_parent(), Some(hosts[0]));
    }

    #[test]
    fn where_hosts_cannot_start_one_another_nobody_is_asked_any_more() {
        let (mut tree_spawn, hosts) = tree_spawn(20);
        let mut asked = 0;
        while let Some(host) = tree_spawn.choose_parent() {
            tree_spawn.begin(host);
            tree_spawn.end(host, false);
            asked += 1;
        }
        assert_eq!((asked, hosts.len()), (LOSSES_MAX, 20));
    }

    #[test]
    fn of_one_that_has_gone_nothing_is_remembered_but_how_it_went() {
        let (mut tree_spawn, hosts) = tree_spawn(1);
        tree_spawn.begin(hosts[0]);
        tree_spawn.remove_parent(hosts[0]);
        tree_spawn.end(hosts[0], false);
        assert!(tree_spawn.all.is_empty() && tree_spawn.ready.is_empty() && tree_spawn.balance == -1);
    }
}
