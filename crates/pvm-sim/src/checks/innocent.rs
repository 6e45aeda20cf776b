//! Only hosts that something has befallen are removed.
use super::Checks;
use crate::scenario::{Deed, Place};
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::BTreeSet;

/// What can have cost hosts their place.
#[derive(Default)]
pub struct Befallen {
    hosts: BTreeSet<Place>,
    /// It was the master, and others can seem lost to it.
    master: bool,
}

impl Checks {
    /// Something happens to hosts.
    pub fn befalls(&mut self, deed: &Deed) {
        let places = match deed {
            Deed::Add(_) | Deed::Power(_) | Deed::Refuse(_) => return,
            deed => deed.places(),
        };
        self.befallen.master |= places.contains(&1);
        self.befallen.hosts.extend(places);
    }
}

impl World {
    /// The master removes a host; there has to be a reason.
    pub fn has_reason(&mut self, host: Tid) {
        let Some(node) = self.nodes.iter().find(|node| node.tid == host) else { return };
        let befallen = &self.checks.befallen;
        if !befallen.master && !befallen.hosts.contains(&node.place) {
            self.checks.fail("innocent", &format!("{host} is removed, and nothing has befallen it"), &[host]);
        }
    }
}
