//! Invariant: only hosts with a fault are removed.
//!
//! There is one exception, because the master cannot know better: two hosts have lost their link, only one of them has a
//! fault, and the master sees no sign of it (decision 25). The exception is as narrow as this sentence: no third host
//! misses the one with the fault, and in all the time that the master remembers it sent no packet to it again.
use super::Checks;
use crate::queue::Nanos;
use crate::scenario::{Command, Place};
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::BTreeSet;

/// The number of beats that a host sends within the host timeout.
const BEATS_PER_TIMEOUT: Nanos = 5;
/// The number of beats for which the master remembers whether they were bad.
const REMEMBERED_BEATS: Nanos = 32;

/// The faults that may have removed hosts.
#[derive(Default)]
pub struct Faults {
    hosts: BTreeSet<Place>,
    /// Whether the master had a fault. If so, the master may remove any host.
    master: bool,
    /// Pairs of hosts that have lost their link, as the master was told; the lower tid first.
    missing: BTreeSet<[Tid; 2]>,
    /// The hosts whose removal has been checked.
    removed: BTreeSet<Tid>,
    /// How many hosts without a fault were removed because the master could not know better.
    undecidable: u64,
}

impl Checks {
    /// Notes a command that may remove hosts.
    /// `hits_office`: it names the master, or a host that has to do with its office.
    pub fn note_fault(&mut self, command: &Command, hits_office: bool) {
        let places = match command {
            Command::Add(_) | Command::Power(_) | Command::Refuse(_) => return,
            command => command.places(),
        };
        self.faults.master |= hits_office && !matches!(command, Command::Delete(_));
        self.faults.hosts.extend(places);
    }

    /// Notes which computer's daemon is the master now.
    pub fn master_is_at(&mut self, place: Place) {
        self.faults.master |= self.faults.hosts.contains(&place);
    }

    /// Notes that another host has become the master because the former one was lost.
    pub fn master_was_lost(&mut self) {
        self.faults.master = true;
    }

    /// Returns whether the machine may end: there was a fault.
    pub fn may_end(&self) -> bool {
        !self.faults.hosts.is_empty()
    }

    /// Returns whether a computer, or the master, has had a fault.
    pub fn may_be_removed(&self, place: Place) -> bool {
        self.faults.master || self.faults.hosts.contains(&place)
    }

    /// Notes that a computer has had a fault.
    pub fn fault_of(&mut self, place: Place) {
        self.faults.hosts.insert(place);
    }

    /// Notes that the master has been told that a host misses another.
    pub fn missing(&mut self, from: Tid, host: Tid) {
        self.faults.missing.insert([from.min(host), from.max(host)]);
    }

    /// Returns how many hosts without a fault were removed because the master could not know better.
    pub fn undecidable(&self) -> u64 {
        self.faults.undecidable
    }
}

impl Faults {
    /// Returns the hosts of the machine that have lost their link to a host.
    fn partners(&self, host: Tid) -> Vec<Tid> {
        let pairs = self.missing.iter().filter(|pair| pair.contains(&host));
        let others = pairs.map(|[low, high]| if *low == host { *high } else { *low });
        others.filter(|other| !self.removed.contains(other)).collect()
    }
}

impl World {
    /// Checks that the master had a reason to remove a host: a fault of that host, or of the master itself.
    pub fn has_reason(&mut self, host: Tid) {
        let Some(place) = self.place_of_host(host) else { return };
        if self.checks.faults.removed.contains(&host) {
            return;
        }
        let innocent = !self.checks.faults.master && !self.checks.faults.hosts.contains(&place);
        if innocent && self.could_not_know_better(host) {
            self.checks.faults.undecidable += 1;
        } else if innocent {
            self.checks.fail("innocent", &format!("{host} is removed, though it had no fault"), &[host]);
        }
        self.checks.faults.removed.insert(host);
    }

    fn place_of_host(&self, host: Tid) -> Option<Place> {
        self.nodes.iter().find(|node| node.tid == host).map(|node| node.place)
    }

    /// Returns whether the master cannot tell which of two hosts has the fault: they have lost their link, the other one has a
    /// fault, and no third host has noticed that.
    fn could_not_know_better(&mut self, host: Tid) -> bool {
        self.checks.faults.partners(host).into_iter().any(|partner| {
            let faulty = self.place_of_host(partner).is_some_and(|place| self.checks.faults.hosts.contains(&place));
            faulty && self.checks.faults.partners(partner) == [host] && !self.master_sent_again(partner)
        })
    }

    /// Returns whether the master has sent packets to a host again, in the time that it remembers: it counts since it is the
    /// master. It may not have counted those of the current beat yet.
    fn master_sent_again(&self, host: Tid) -> bool {
        let master = self.office.master;
        let Some(link) = self.nodes[master].links.get(&host).map(|link| &self.links[*link]) else { return true };
        let beat = self.scenario.timeout / BEATS_PER_TIMEOUT;
        let from = self.now.saturating_sub(REMEMBERED_BEATS * beat).max(self.office.since);
        let until = self.now.saturating_sub(beat).max(from);
        let packets = &link.retransmissions[link.end_of(master)];
        packets.until(until) > packets.until(from)
    }
}
