//! One group: its members, their instance numbers, and its state.
use super::arrivals::Arrivals;
use super::barrier::Shortage;
use super::combining::Combining;
use super::coordination::Coordination;
use super::placement::Placement;
use super::replicas::Replica;
use crate::machine::settings::Time;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// A pending `pvm_freezegroup`.
pub(super) struct Freezing {
    /// How many members must call `pvm_freezegroup`.
    pub need: i32,
    /// The callers so far: task and wait id.
    pub callers: Vec<(Tid, u32)>,
}

/// A group: at the master, its decided state; on another host, a replica.
#[derive(Default)]
pub(super) struct Group {
    pub id: u64,
    pub name: Vec<u8>,
    /// This host's page of the group.
    pub replica: Replica,
    /// At the master: tasks of the master's host that asked to join before the page was made; task and wait id.
    pub joining: Vec<(Tid, u32)>,
    /// Its entry in `Groups::deadlines`.
    pub registered_deadline: Option<Time>,
    /// Tids by instance number.
    members: BTreeMap<u32, Tid>,
    /// Instance numbers by tid.
    instances: BTreeMap<Tid, u32>,
    /// The number of members on each host.
    hosts: BTreeMap<Tid, u32>,
    /// Free instance numbers below the highest in use.
    holes: BTreeSet<u32>,
    pub frozen: bool,
    /// Whether the group is frozen and has lost a member.
    pub broken: bool,
    /// The pending freeze.
    pub freezing: Option<Freezing>,
    /// The members that have gone and have not been replaced: the group's barrier may fail because of them.
    pub shortage: Shortage,
    /// At the master: arrivals at the group's barrier.
    pub arrivals: Arrivals,
    /// On other hosts: arrivals on their way to the master.
    pub combining: Combining,
    /// At the master: the choice of the coordinator.
    pub placement: Placement,
    /// The coordinator.
    pub coordination: Coordination,
    /// How often the members have changed.
    pub version: u64,
}

impl Group {
    pub fn new(id: u64, name: Vec<u8>) -> Group {
        Group { id, name, ..Group::default() }
    }
    pub fn name(&self) -> &[u8] {
        &self.name
    }
    pub fn size(&self) -> usize {
        self.members.len()
    }
    pub fn instance_of(&self, tid: Tid) -> Option<u32> {
        self.instances.get(&tid).copied()
    }
    pub fn tid_of(&self, instance: u32) -> Option<Tid> {
        self.members.get(&instance).copied()
    }
    /// Returns the highest instance number in use, plus one.
    pub fn places(&self) -> u32 {
        self.members.last_key_value().map_or(0, |(highest, _)| highest + 1)
    }
    /// Returns the members: instance numbers with their tids, the lowest number first.
    pub fn members(&self) -> impl Iterator<Item = (u32, Tid)> + '_ {
        self.members.iter().map(|(instance, tid)| (*instance, *tid))
    }
    /// Returns the host on which all members live, if there is one.
    pub fn only_host(&self) -> Option<Tid> {
        let mut hosts = self.hosts.keys().copied();
        hosts.next().filter(|_| hosts.next().is_none())
    }

    /// Returns the hosts with members, in the order of the host table.
    pub fn hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        self.hosts.keys().copied()
    }
    pub fn has_members_on(&self, host: Tid) -> bool {
        self.hosts.contains_key(&host)
    }
    /// Returns when something is due.
    pub fn next_deadline(&self) -> Option<Time> {
        let barriers = [self.shortage.next_deadline(), self.combining.next_deadline()];
        barriers.into_iter().chain([self.arrivals.releases.next_deadline()]).flatten().min()
    }

    /// Makes the task a member with the lowest free instance number; returns this number.
    pub fn add(&mut self, tid: Tid) -> u32 {
        let instance = self.holes.pop_first().unwrap_or(self.members.len() as u32);
        self.put(instance, tid);
        instance
    }

    /// Makes the task the member with that instance number.
    pub fn put(&mut self, instance: u32, tid: Tid) {
        self.members.insert(instance, tid);
        self.instances.insert(tid, instance);
        *self.hosts.entry(tid.host()).or_default() += 1;
    }

    /// Removes a member; returns its instance number.
    pub fn remove(&mut self, tid: Tid) -> Option<u32> {
        let instance = self.instances.remove(&tid)?;
        self.members.remove(&instance);
        self.holes.insert(instance);
        // `holes` has only numbers below the highest instance number in use.
        drop(self.holes.split_off(&self.places()));
        let here = self.hosts.get_mut(&tid.host()).expect("it has a member");
        *here -= 1;
        if *here == 0 {
            self.hosts.remove(&tid.host());
        }
        Some(instance)
    }
}
