//! Hosts that start others for the master, and which of them does the next one. Nothing but rules.
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// Hosts that one deputy starts at the same time.
///
/// * Filled by: tasks that add hosts
/// * Setting: none, `HPVM_STARTS_MAX` sets how many the master starts itself
/// * Reached: another deputy is asked, or the master starts the host when it has a place
/// * Test: `each_deputy_has_a_share_and_the_idlest_is_asked`
pub const FAN_OUT: usize = 8;
/// By so many more failures than successes it is clear that hosts here cannot start one another.
const LOSSES_MAX: usize = 4;

#[derive(Default)]
struct Deputy {
    busy: usize,
    /// Successes less failures.
    merit: isize,
}

/// All hosts with a link to the master.
#[derive(Default)]
pub struct Deputies {
    all: BTreeMap<Tid, Deputy>,
    /// Those that can be asked, the idlest first.
    ready: BTreeSet<(usize, Tid)>,
    merit: isize,
}

impl Deputies {
    /// There is a link to the host.
    pub fn came(&mut self, host: Tid) {
        self.all.entry(host).or_default();
        self.sort(host);
    }

    /// There is none any more.
    pub fn gone(&mut self, host: Tid) {
        if let Some(deputy) = self.all.remove(&host) {
            self.ready.remove(&(deputy.busy, host));
        }
    }

    /// Who is to start the next host, if anybody: one that has not failed more often than not, unless that
    /// is how it goes with all of them.
    pub fn idlest(&self) -> Option<Tid> {
        let hopeless = self.merit <= -(LOSSES_MAX as isize);
        self.ready.first().filter(|_| !hopeless).map(|(_, host)| *host)
    }

    /// It has been asked.
    pub fn begins(&mut self, host: Tid) {
        self.change(host, |deputy| deputy.busy += 1);
    }

    /// It has nothing to do with a start any more that it was asked for.
    pub fn ends(&mut self, host: Tid, well: bool) {
        let merit = if well { 1 } else { -1 };
        self.merit += merit;
        self.change(host, |deputy| {
            deputy.busy -= 1;
            deputy.merit += merit;
        });
    }

    fn change(&mut self, host: Tid, how: impl FnOnce(&mut Deputy)) {
        let Some(deputy) = self.all.get_mut(&host) else { return };
        self.ready.remove(&(deputy.busy, host));
        how(deputy);
        self.sort(host);
    }

    fn sort(&mut self, host: Tid) {
        let deputy = self.all.get(&host).filter(|deputy| deputy.busy < FAN_OUT && deputy.merit >= 0);
        self.ready.extend(deputy.map(|deputy| (deputy.busy, host)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deputies(count: u32) -> (Deputies, Vec<Tid>) {
        let hosts: Vec<Tid> = (2..count + 2).map(Tid::host_number).collect();
        let mut deputies = Deputies::default();
        hosts.iter().for_each(|host| deputies.came(*host));
        (deputies, hosts)
    }

    #[test]
    fn each_deputy_has_a_share_and_the_idlest_is_asked() {
        let (mut deputies, hosts) = deputies(3);
        let mut asked = Vec::new();
        while let Some(host) = deputies.idlest() {
            deputies.begins(host);
            asked.push(host);
        }
        assert_eq!(asked.len(), 3 * FAN_OUT);
        assert!(asked.chunks(3).all(|turn| turn == hosts));
        deputies.ends(hosts[1], true);
        assert_eq!(deputies.idlest(), Some(hosts[1]));
        deputies.gone(hosts[1]);
        assert_eq!(deputies.idlest(), None);
        deputies.came(Tid::host_number(9));
        assert_eq!(deputies.idlest(), Some(Tid::host_number(9)));
    }

    #[test]
    fn one_that_fails_is_asked_no_more_unless_it_has_also_succeeded() {
        let (mut deputies, hosts) = deputies(2);
        for (host, well) in [(hosts[0], false), (hosts[1], true), (hosts[1], false)] {
            deputies.begins(host);
            deputies.ends(host, well);
        }
        assert_eq!(deputies.idlest(), Some(hosts[1]));
        deputies.gone(hosts[1]);
        assert_eq!(deputies.idlest(), None);
        // It is another daemon now.
        deputies.gone(hosts[0]);
        deputies.came(hosts[0]);
        assert_eq!(deputies.idlest(), Some(hosts[0]));
    }

    #[test]
    fn where_hosts_cannot_start_one_another_nobody_is_asked_any_more() {
        let (mut deputies, hosts) = deputies(20);
        let mut asked = 0;
        while let Some(host) = deputies.idlest() {
            deputies.begins(host);
            deputies.ends(host, false);
            asked += 1;
        }
        assert_eq!((asked, hosts.len()), (LOSSES_MAX, 20));
    }

    #[test]
    fn of_one_that_has_gone_nothing_is_remembered_but_how_it_went() {
        let (mut deputies, hosts) = deputies(1);
        deputies.begins(hosts[0]);
        deputies.gone(hosts[0]);
        deputies.ends(hosts[0], false);
        assert!(deputies.all.is_empty() && deputies.ready.is_empty() && deputies.merit == -1);
    }
}
