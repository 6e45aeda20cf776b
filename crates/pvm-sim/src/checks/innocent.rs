//! Invariant: only hosts with a fault are removed.
use super::Checks;
use crate::scenario::{Command, Place};
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::BTreeSet;

/// The faults that may have removed hosts.
#[derive(Default)]
pub struct Faults {
    hosts: BTreeSet<Place>,
    /// Whether the master had a fault. If so, the master may remove any host.
    master: bool,
}

impl Checks {
    /// Notes a command that may remove hosts.
    pub fn note_fault(&mut self, command: &Command) {
        let places = match command {
            Command::Add(_) | Command::Power(_) | Command::Refuse(_) => return,
            command => command.places(),
        };
        self.faults.master |= places.contains(&1);
        self.faults.hosts.extend(places);
    }

    /// Notes that a computer has had a fault.
    pub fn fault_of(&mut self, place: Place) {
        self.faults.hosts.insert(place);
    }
}

impl World {
    /// Checks that the master had a reason to remove a host: a fault of that host, or of the master itself.
    pub fn has_reason(&mut self, host: Tid) {
        let Some(node) = self.nodes.iter().find(|node| node.tid == host) else { return };
        let faults = &self.checks.faults;
        if !faults.master && !faults.hosts.contains(&node.place) {
            self.checks.fail("innocent", &format!("{host} is removed, though it had no fault"), &[host]);
        }
    }
}
