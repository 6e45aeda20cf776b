//! Invariant: all hosts have the same table, and it contains the living hosts.
use super::{Checks, Unsettled};
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::node::NodeState;
use crate::world::World;
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};

/// What hosts have received about the host table.
#[derive(Default)]
pub struct Tables {
    /// The change that led to each version: the hosts that were added and removed.
    changes: BTreeMap<u64, (Vec<Tid>, Vec<Tid>)>,
    /// The version of each host.
    versions: BTreeMap<Tid, u64>,
    /// Hosts that the master has removed.
    removed: BTreeSet<Tid>,
    /// The newest daemon of each host.
    daemons: BTreeMap<Tid, NodeId>,
}

impl Tables {
    /// Checks a change of the table that arrives at a host: changes must arrive in order, and be the same for all
    /// hosts.
    pub fn frame(&mut self, to: Tid, from: Tid, frame: &Frame) -> Result<(), String> {
        match frame {
            Frame::Welcome { version, .. } | Frame::WholeTable { version, .. } => {
                self.versions.insert(to, *version);
            }
            Frame::Table { version, added, removed } => {
                let change = (added.iter().map(|entry| entry.tid).collect(), removed.clone());
                let known = self.changes.entry(*version).or_insert_with(|| change.clone());
                if *known != change {
                    return Err(format!("{from} told {to} of version {version}: {change:?}, and others {known:?}"));
                }
                let before = self.versions.insert(to, *version);
                if before.is_none_or(|before| before + 1 != *version) {
                    return Err(format!("{to} heard of version {version} after {before:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Checks {
    /// Notes that the daemon of a new host has started.
    pub fn daemon_started(&mut self, tid: Tid, node: NodeId) {
        if self.tables.daemons.insert(tid, node).is_some() {
            self.fail("tables", &format!("{tid} is the number of two hosts"), &[tid]);
        }
    }

    /// Notes that the master has removed a host.
    pub fn removed(&mut self, host: Tid) {
        self.tables.removed.insert(host);
    }

    /// Notes what the master tells of its table: it may have to hear of the next version from another master.
    pub fn table_told(&mut self, master: Tid, frame: &Frame) {
        if let Frame::Welcome { version, .. } | Frame::Table { version, .. } | Frame::WholeTable { version, .. } = frame
        {
            self.tables.versions.insert(master, *version);
        }
    }

    /// Returns whether the master has removed the host, or the host never existed.
    pub fn is_removed(&self, host: Tid) -> bool {
        self.tables.removed.contains(&host) || !self.tables.daemons.contains_key(&host)
    }
}

impl World {
    /// Returns whether the host of a task lives and belongs to the machine.
    pub fn in_machine(&self, task: TaskId) -> bool {
        let node = &self.nodes[self.tasks[task].node];
        node.state != NodeState::Dead && !self.checks.is_removed(node.tid)
    }

    /// Checks that all living hosts have the same table as the master, and that this table contains exactly the living
    /// hosts.
    pub fn tables_agree(&self) -> Unsettled {
        let living: Vec<NodeId> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].state != NodeState::Dead).collect();
        let expected: Vec<Tid> = living.iter().map(|node| self.nodes[*node].tid).collect();
        let master = &self.nodes[self.office.master];
        let masters = master.machine.host_list();
        for node in living {
            let node = &self.nodes[node];
            let list = node.machine.host_list();
            let tids: Vec<Tid> = list.iter().map(|host| host.tid).collect();
            if tids != expected || list != masters {
                let text = format!("{} lives with the table {tids:?}; living hosts are {expected:?}", node.tid);
                return Err((text, vec![node.tid, master.tid]));
            }
        }
        Ok(())
    }
}
