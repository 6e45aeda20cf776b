//! Groups when another host becomes the master: it gets what only the master knows. The pages and replicas stay as they are.
use super::{Freezing, Group, Groups, NO_ACK};
use crate::machine::core::Core;
use crate::master_state::{GroupOfMaster, MachineState};
use crate::proto::{ByteBuf, Reply, Request};
use crate::release::{EndedArrival, EndedPage, Passed};
use crate::tid::Tid;
use crate::wire::{Frame, GroupChange, GroupNews, GroupState};
use std::collections::{BTreeMap, BTreeSet};

/// How many numbers a new master skips.
const NUMBERS_SKIPPED: u64 = 1 << 32;

/// The groups of the master, as its deputy keeps them.
#[derive(Default)]
pub(in crate::machine) struct GroupShadow(BTreeMap<u64, Group>);

impl GroupShadow {
    /// Keeps a group.
    pub fn take(&mut self, state: GroupOfMaster) {
        let mut group = Group::of_state(&state);
        group.shortage.take(state.shortage);
        group.keep_ended(&state.ended, state.ended_page);
        group.barrier.note_passed(state.passed);
        self.0.insert(state.id, group);
    }

    /// Keeps a change of a group.
    pub fn change(&mut self, id: u64, name: &[u8], change: &GroupChange) {
        if *change == GroupChange::Close {
            self.0.remove(&id);
            return;
        }
        let group = self.0.entry(id).or_insert_with(|| Group::new(id, name.to_vec()));
        group.change_members(change);
        group.version += u64::from(matches!(change, GroupChange::Joined { .. } | GroupChange::Gone { .. }));
    }

    /// Keeps that a barrier of a whole group was released.
    pub fn released(&mut self, id: u64, passed: Passed) {
        self.0.get_mut(&id).into_iter().for_each(|group| group.barrier.note_passed(passed));
    }

    /// Keeps how a barrier of a group has ended.
    pub fn barrier_ended(&mut self, id: u64, ended: &[EndedArrival], page: Option<EndedPage>) {
        self.0.get_mut(&id).into_iter().for_each(|group| group.keep_ended(ended, page));
    }
}

/// Returns what a host with a replica learns of a group.
fn state_for_replica(state: &GroupOfMaster) -> GroupState {
    let GroupOfMaster { id, name, members, frozen, broken, version, .. } = state.clone();
    GroupState { id, name, members, frozen, broken, meets_here: false, version, chain: None }
}

impl Groups {
    // ----- the former master

    /// Returns whether a task waits until it can join a group.
    pub fn has_joiners(&self) -> bool {
        self.groups.values().any(|group| !group.joining.is_empty())
    }

    /// Returns what only the master knows about all groups together.
    pub fn machine_state(&self) -> MachineState {
        MachineState { last_group: self.last, ..self.shared.machine_state() }
    }

    /// Returns what the master knows about each group.
    pub fn groups_of_master(&self) -> impl Iterator<Item = GroupOfMaster> + '_ {
        self.groups.values().map(Group::of_master)
    }

    /// Drops what only the master knows. Returns the callers of pending freezes, as requests.
    pub fn resign(&mut self, own: Tid) -> Vec<(Tid, u32, Request)> {
        self.shared.resign();
        self.memberships = Default::default();
        let mut callers = Vec::new();
        for group in self.groups.values_mut() {
            let name = ByteBuf::from(group.name.clone());
            if let Some(Freezing { need, callers: waiting }) = group.freezing.take() {
                let request = |(task, wait)| (task, wait, Request::FreezeGroup { name: name.clone(), count: need });
                callers.extend(waiting.into_iter().map(request));
            }
            group.replica.resign();
            group.barrier.resign();
        }
        let unused = self.groups.values().filter(|group| !group.is_kept_on(own)).map(|group| group.id);
        for id in unused.collect::<Vec<_>>() {
            self.remove(id);
        }
        callers
    }

    // ----- the new master

    /// Takes over what the former master knew about all groups together.
    pub fn take_machine_state(&mut self, state: &MachineState) {
        self.last = self.last.max(state.last_group);
        self.shared.take_machine_state(state);
    }

    /// Examines all barriers as the master.
    pub fn examine_barriers(&mut self, core: &mut Core) {
        self.with_each(|group, shared| group.examine_barrier(core, shared));
    }

    /// Takes over the groups of the former master, as the deputy has kept them.
    pub fn succeed(&mut self, core: &mut Core, mut shadow: GroupShadow, former: Tid) {
        // What this host knows about barriers, before it learns of other members.
        let news = self.take_news(core.own_host());
        // A group without members was about to begin: its first member asks again.
        shadow.0.retain(|_, group| group.size() > 0);
        // Numbers that the former master has given, and that did not come here, are not given again.
        self.shared.skip_numbers();
        self.last = self.last.wrapping_add(NUMBERS_SKIPPED);
        let unknown = self.groups.keys().copied().filter(|id| !shadow.0.contains_key(id)).collect::<Vec<_>>();
        for id in unknown {
            self.follow(core, id, &GroupChange::Close);
        }
        for group in shadow.0.into_values() {
            let state = group.of_master();
            self.replace_replica(core, state_for_replica(&state));
            self.take_group(state);
        }
        let own = core.own_host();
        let awaited = core.hosts.others().into_iter().filter(|host| core.is_awaited(*host));
        let hosts: BTreeSet<Tid> = awaited.chain([own]).collect();
        self.with_each(|group, shared| group.begin_census(core, shared, &hosts, former));
        self.news_told(core, own, news);
    }

    /// Takes over what the former master knew about a group.
    fn take_group(&mut self, state: GroupOfMaster) {
        for (_, tid) in &state.members {
            self.memberships.insert(*tid, state.id);
        }
        let Some(group) = self.by_id(state.id) else { return };
        // A replica does not know which numbers are free.
        group.holes = (0..group.places()).filter(|instance| !group.members.contains_key(instance)).collect();
        if !group.replica.meets_here {
            group.shortage.take(state.shortage);
        }
        group.replica.take_hosts(BTreeSet::new());
        group.keep_ended(&state.ended, state.ended_page);
        group.barrier.note_passed(state.passed);
    }

    /// Handles what a host knows about the groups that it keeps; at a new master.
    pub fn news_told(&mut self, core: &mut Core, host: Tid, news: Vec<GroupNews>) {
        let own = core.own_host();
        let mut told = BTreeMap::new();
        for one in news {
            let Some(group) = self.groups.get_mut(&one.id) else {
                core.send_host(host, Frame::GroupChanged { id: one.id, number: NO_ACK, change: GroupChange::Close });
                continue;
            };
            if host != own {
                group.replica.forget(host);
                group.subscribe(core, host);
            }
            told.insert(one.id, one);
        }
        self.with_each(|group, shared| {
            let news = told.remove(&group.id);
            group.news_told(core, shared, host, news);
        });
    }

    /// Returns the members of all groups.
    pub fn all_members(&self) -> impl Iterator<Item = Tid> + '_ {
        self.groups.values().flat_map(|group| group.members.values().copied())
    }

    /// Returns the answer to a task that has joined a group.
    pub fn membership_of(&mut self, name: &[u8], tid: Tid) -> Option<Reply> {
        let group = self.existing(name).ok()?;
        let instance = group.instance_of(tid)? as i32;
        Some(Reply::Group { id: group.id, instance })
    }

    // ----- all hosts

    /// Returns what this host knows about the groups that it keeps, for another master.
    pub fn take_news(&mut self, own: Tid) -> Vec<GroupNews> {
        self.groups.values_mut().map(|group| group.take_news(own)).collect()
    }

    /// Replaces what this host knows of a group.
    pub fn replace_replica(&mut self, core: &mut Core, state: GroupState) {
        let id = state.id;
        let Some(group) = self.groups.get(&id) else { return self.replicate(core, state) };
        let wanted: BTreeMap<u32, Tid> = state.members.iter().copied().collect();
        let gone = group.members().filter(|(instance, tid)| wanted.get(instance) != Some(tid));
        let gone: Vec<GroupChange> = gone.map(|(instance, _)| GroupChange::Gone { instance }).collect();
        let known: BTreeSet<(u32, Tid)> = group.members().collect();
        let came = wanted.into_iter().filter(|member| !known.contains(member));
        let came = came.map(|(instance, tid)| GroupChange::Joined { instance, tid });
        let freeze = (state.frozen && !group.frozen).then_some(GroupChange::Freeze);
        let breaks = (state.broken && !group.broken).then_some(GroupChange::Break);
        let changes: Vec<GroupChange> = gone.into_iter().chain(came).chain(freeze).chain(breaks).collect();
        for change in changes {
            self.follow(core, id, &change);
        }
        self.by_id(id).into_iter().for_each(|group| group.version = state.version);
    }
}

impl Group {
    /// Returns a group that this host does not know, as the master knows it.
    fn of_state(state: &GroupOfMaster) -> Group {
        let GroupOfMaster { id, name, members, frozen, broken, version, .. } = state;
        Group::known(*id, name.to_vec(), members, (*frozen, *broken), *version)
    }

    /// Returns whether this host has to follow the group although it is not the master.
    fn is_kept_on(&self, own: Tid) -> bool {
        self.replica.has_page() || self.has_members_on(own) || self.barrier.has_arrivals()
    }

    /// Returns what the master knows about the group.
    fn of_master(&self) -> GroupOfMaster {
        let state = GroupOfMaster {
            id: self.id,
            name: ByteBuf::from(self.name.clone()),
            members: self.members().collect(),
            frozen: self.frozen,
            broken: self.broken,
            version: self.version,
            shortage: self.shortage.state(),
            ..GroupOfMaster::default()
        };
        self.barrier.add_to(state)
    }
}
