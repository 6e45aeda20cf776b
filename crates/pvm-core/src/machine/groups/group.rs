//! One group: its members and their instances, and what else is known of it.
use super::arrivals::Arrivals;
use super::barrier::Shortage;
use super::replicas::Replica;
use crate::machine::settings::Time;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// Members that wait until all of them have called `pvm_freezegroup`.
pub(super) struct Freezing {
    pub need: i32,
    /// Task and number of the request.
    pub callers: Vec<(Tid, u32)>,
}

/// A group, as the master decides it or another host knows it.
#[derive(Default)]
pub(super) struct Group {
    pub id: u64,
    pub name: Vec<u8>,
    /// This host's page of it.
    pub replica: Replica,
    /// At the master: tasks of its host that asked to join before there was a page.
    pub joining: Vec<(Tid, u32)>,
    /// When its barrier is to be looked at, as far as that has been noted for all groups.
    pub noted_look: Option<Time>,
    members: BTreeMap<u32, Tid>,
    instances: BTreeMap<Tid, u32>,
    /// How many members each host has.
    hosts: BTreeMap<Tid, u32>,
    /// Numbers below the highest that are free.
    holes: BTreeSet<u32>,
    pub frozen: bool,
    /// It is frozen, and a member has gone.
    pub broken: bool,
    pub freezing: Option<Freezing>,
    pub shortage: Shortage,
    /// At the master: where members meet.
    pub arrivals: Arrivals,
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
    /// The highest instance in use, plus one.
    pub fn places(&self) -> u32 {
        self.members.last_key_value().map_or(0, |(highest, _)| highest + 1)
    }
    /// Instances with their tids, the lowest first.
    pub fn members(&self) -> impl Iterator<Item = (u32, Tid)> + '_ {
        self.members.iter().map(|(instance, tid)| (*instance, *tid))
    }
    /// The host on which all members live, if there is one.
    pub fn only_host(&self) -> Option<Tid> {
        let mut hosts = self.hosts.keys().copied();
        hosts.next().filter(|_| hosts.next().is_none())
    }

    /// Makes the task a member; returns its instance, the lowest number that is free.
    pub fn add(&mut self, tid: Tid) -> u32 {
        let instance = self.holes.pop_first().unwrap_or(self.members.len() as u32);
        self.put(instance, tid);
        instance
    }

    /// The task is the member of that number.
    pub fn put(&mut self, instance: u32, tid: Tid) {
        self.members.insert(instance, tid);
        self.instances.insert(tid, instance);
        *self.hosts.entry(tid.host()).or_default() += 1;
    }

    /// The task is no member any more; which one it was.
    pub fn remove(&mut self, tid: Tid) -> Option<u32> {
        let instance = self.instances.remove(&tid)?;
        self.members.remove(&instance);
        self.holes.insert(instance);
        // Holes lie below the highest member.
        drop(self.holes.split_off(&self.places()));
        let here = self.hosts.get_mut(&tid.host()).expect("it has a member");
        *here -= 1;
        if *here == 0 {
            self.hosts.remove(&tid.host());
        }
        Some(instance)
    }
}
