//! Groups (contract 2.11): members, freezing, and barriers that can no longer open.
//!
//! The daemon of each host keeps a page for each group ([`GroupAction`]). In this page members find one another and
//! synchronize in barriers, without the help of the daemon. This module contains the rules of membership, which the
//! master applies.
//!
//! * `replicas`: the groups that each host replicates
//! * `barrier`: barriers of members on several hosts
//! * `shortage`: barriers that lack members
//! * `listing`: the group server's messages
//! * `succession`: another host becomes the master

mod barrier;
mod listing;
mod replicas;
mod shortage;
mod succession;

pub(super) use self::barrier::{End, Report};
use self::barrier::{OverHosts, Shared};
use self::listing::Listings;
pub(super) use self::listing::ask_group_server;
use self::replicas::{ChangeAcks, Replica, Replicas};
use self::shortage::Shortage;
pub(super) use self::succession::GroupShadow;
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::group_page::GroupAction;
use super::index::PairIndex;
use super::limits::NAME_BYTES_MAX;
use super::pending_acks::Ack;
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::proto::{ByteBuf, Reply};
use crate::tid::{SLOT_MASK, Tid};
use crate::time::Time;
use crate::wire::{GroupChange, ReleaseDatagram};
use std::collections::{BTreeMap, BTreeSet};

/// The count that stands for the number of members of the group.
const ALL_MEMBERS: i32 = -1;
/// The instance number of a task that is no member.
const NO_MEMBER: i32 = -1;
/// The number of a change that no other host needs to acknowledge.
const NO_ACK: u64 = 0;
/// Members of one group: as many as its page has slots.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, the form of the page fixes it
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `the_members_of_a_group_are_limited`
pub(in crate::machine) const GROUP_MEMBERS_MAX: usize = SLOT_MASK as usize;

/// A pending `pvm_freezegroup`.
struct Freezing {
    /// How many members must call `pvm_freezegroup`.
    need: i32,
    /// The callers so far: task and wait id.
    callers: Vec<(Tid, u32)>,
}

/// A group: at the master, its decided state; on another host, a replica.
#[derive(Default)]
pub(super) struct Group {
    id: u64,
    name: Vec<u8>,
    /// This host's page of the group.
    replica: Replica,
    /// At the master: tasks of the master's host that asked to join before the page was made; task and wait id.
    joining: Vec<(Tid, u32)>,
    /// Its entry in `Groups::deadlines`.
    registered_deadline: Option<Time>,
    /// Tids by instance number.
    members: BTreeMap<u32, Tid>,
    /// Instance numbers by tid.
    instances: BTreeMap<Tid, u32>,
    /// The number of members on each host.
    hosts: BTreeMap<Tid, u32>,
    /// Free instance numbers below the highest in use.
    holes: BTreeSet<u32>,
    frozen: bool,
    /// Whether the group is frozen and has lost a member.
    broken: bool,
    /// The pending freeze.
    freezing: Option<Freezing>,
    /// The members that have gone and have not been replaced: the group's barrier may fail because of them.
    shortage: Shortage,
    /// The group's barrier, if it has members on several hosts.
    barrier: OverHosts,
    /// How often the members have changed.
    version: u64,
}

impl Group {
    pub fn new(id: u64, name: Vec<u8>) -> Group {
        Group { id, name, ..Group::default() }
    }
    /// Returns a group with these members, as another host knows it.
    pub fn known(
        id: u64,
        name: Vec<u8>,
        members: &[(u32, Tid)],
        (frozen, broken): (bool, bool),
        version: u64,
    ) -> Group {
        let mut group = Group { frozen, broken, version, ..Group::new(id, name) };
        members.iter().for_each(|(instance, tid)| group.put(*instance, *tid));
        group
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
        self.shortage.next_deadline().into_iter().chain(self.barrier.next_deadline()).min()
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

/// All groups. There may be many groups, and tasks end all the time. So the groups of a task or host, and the group
/// with the next deadline, are found without a search through all groups.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<u64, Group>,
    /// The ids of the groups, by name.
    names: BTreeMap<Vec<u8>, u64>,
    /// The id assigned last.
    last: u64,
    /// At the master: the groups of each member.
    memberships: PairIndex<Tid, u64>,
    /// The times at which barriers are to be examined again, in order.
    deadlines: BTreeSet<(Time, u64)>,
    replicas: Replicas,
    change_acks: ChangeAcks,
    listings: Listings,
    shared: Shared,
}

impl SubMachine for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }
    fn is_idle(&self) -> bool {
        let indices = self.memberships.is_empty() && self.deadlines.is_empty() && self.replicas.is_idle();
        let none = self.groups.is_empty() && self.names.is_empty() && indices;
        none && self.shared.wishes.is_idle() && self.change_acks.is_idle() && self.listings.is_idle()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, .. } => {
                self.task_leaves(core, *tid);
                self.shared.wishes.task_gone(*tid);
                self.leave_all(core, *tid);
                self.forget_viewer(*tid);
            }
            Event::ClientLeft { tid, .. } => {
                self.shared.wishes.task_gone(*tid);
                self.leave_all(core, *tid);
            }
            Event::HostGone(host) => {
                self.shared.reach.host_gone(*host);
                self.shared.wishes.host_gone(*host);
                self.replica_host_gone(core, *host);
                self.with_each(|group, shared| group.barrier_host_gone(core, shared, *host));
                self.listing_host_gone(core, *host);
                for (tid, id) in self.memberships.take_host(*host) {
                    self.remove_member(core, id, tid, Tid::NONE);
                }
            }
            _ => {}
        }
    }
}

/// Orders the daemon to act on the page of a group.
fn act(core: &mut Core, group: u64, action: GroupAction) {
    core.push(Action::Group { group, action });
}

impl Groups {
    /// Returns the groups with members, by name.
    fn iter(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        let groups = self.names.iter().filter_map(|(name, id)| Some((name.as_slice(), self.groups.get(id)?)));
        groups.filter(|(_, group)| group.size() > 0)
    }
    /// Finds a group by id.
    fn by_id(&mut self, id: u64) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }
    fn insert(&mut self, group: Group) {
        self.names.insert(group.name.clone(), group.id);
        self.groups.insert(group.id, group);
    }
    fn remove(&mut self, id: u64) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        group.registered_deadline.map(|when| self.deadlines.remove(&(when, id)));
        if self.names.get(&group.name) == Some(&id) {
            self.names.remove(&group.name);
        }
        Some(group)
    }
    /// Registers the deadline of a group's barrier, which may have changed. An earlier one stays registered, because
    /// that costs less than to remove it at every barrier.
    fn register_deadline(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let Some(next) = group.next_deadline() else { return };
        if group.registered_deadline.is_none_or(|before| next < before) {
            let before = group.registered_deadline.replace(next);
            before.map(|when| self.deadlines.remove(&(when, id)));
            self.deadlines.insert((next, id));
        }
    }
    /// Lets a group handle something, after which another deadline may be the next one.
    pub fn with<T>(&mut self, id: u64, handle: impl FnOnce(&mut Group, &mut Shared) -> T) -> Option<T> {
        let result = self.groups.get_mut(&id).map(|group| handle(group, &mut self.shared));
        self.register_deadline(id);
        result
    }
    /// Lets each group handle something.
    fn with_each(&mut self, mut handle: impl FnMut(&mut Group, &mut Shared)) {
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        ids.into_iter().for_each(|id| _ = self.with(id, &mut handle));
    }
    /// Takes a group whose registered deadline has passed.
    fn take_due(&mut self, now: Time) -> Option<u64> {
        let (when, id) = self.deadlines.first().copied().filter(|(when, _)| *when <= now)?;
        self.deadlines.remove(&(when, id));
        if let Some(group) = self.groups.get_mut(&id) {
            group.registered_deadline = None;
        }
        Some(id)
    }
    /// Returns the arrivals at a barrier that is pending at the master.
    #[cfg(test)]
    pub fn waiting_here(&self) -> Option<crate::wire::Waiting> {
        self.groups.values().find_map(|group| group.barrier.waiting())
    }
    #[cfg(test)]
    pub fn members_of(&self, id: u64) -> Vec<Tid> {
        self.groups.get(&id).map_or(Vec::new(), |group| group.members.values().copied().collect())
    }
    #[cfg(test)]
    pub fn put_member(&mut self, id: u64, instance: u32, tid: Tid) {
        self.by_id(id).expect("a group").put(instance, tid);
    }
    /// Returns the next deadline, and its group.
    pub fn next_deadline(&self) -> Option<(Time, u64)> {
        self.deadlines.first().copied()
    }
    /// Finds a group with members by name.
    fn existing(&mut self, name: &[u8]) -> Result<&mut Group, Code> {
        if name.is_empty() {
            return Err(Code::NullGroup);
        }
        let id = self.names.get(name).ok_or(Code::NoGroup)?;
        self.groups.get_mut(id).filter(|group| group.size() > 0).ok_or(Code::NoGroup)
    }
    /// Finds a group by name; makes one if there is none.
    fn entry(&mut self, name: Vec<u8>) -> &mut Group {
        let id = self.names.entry(name.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.groups.entry(*id).or_insert_with(|| Group::new(*id, name))
    }

    /// Handles `pvm_joingroup`.
    pub fn join(&mut self, core: &mut Core, from: Tid, wait: u32, name: ByteBuf) {
        if name.is_empty() {
            return core.reply(from, wait, Err(Code::NullGroup));
        }
        let is_new = !self.names.contains_key(name.as_slice());
        if name.len() > NAME_BYTES_MAX || is_new && self.groups.len() >= core.settings.limits.groups {
            return core.reply(from, wait, Err(Code::OutOfRes));
        }
        let own = core.own_host();
        let group = self.entry(name.into_vec());
        let id = group.id;
        if from.host() != own || group.replica.is_made() {
            return self.add_member(core, id, from, wait);
        }
        group.joining.push((from, wait));
        self.make_page(core, id);
    }

    /// Admits the tasks that asked to join before the page was made, or refuses them if it could not be made.
    fn admit_joiners(&mut self, core: &mut Core, group: u64, made: bool) {
        let joining = self.by_id(group).map(|found| std::mem::take(&mut found.joining)).unwrap_or_default();
        for (tid, wait) in joining {
            match made {
                true => self.add_member(core, group, tid, wait),
                false => core.reply(tid, wait, Err(Code::OutOfRes)),
            }
        }
    }

    /// Makes a task a member, if the rules allow it.
    fn add_member(&mut self, core: &mut Core, id: u64, tid: Tid, wait: u32) {
        if !core.can_be_answered(tid) {
            return;
        }
        let is_full = self.memberships.len() >= core.settings.limits.members;
        let Some(group) = self.by_id(id) else { return };
        // A frozen group refuses with this code any task that joins, even a member.
        let refusal = match group.instance_of(tid) {
            _ if group.frozen => Some(Code::NotInGroup),
            Some(_) => Some(Code::DupGroup),
            None if group.size() >= GROUP_MEMBERS_MAX || is_full => Some(Code::OutOfRes),
            None => None,
        };
        if let Some(code) = refusal {
            core.reply(tid, wait, Err(code));
            return self.drop_empty(core, id);
        }
        self.with(id, |group, shared| group.take_back(core, shared, false));
        let Some(group) = self.by_id(id) else { return };
        let instance = group.add(tid);
        group.shortage.member_joined();
        self.memberships.insert(tid, id);
        let number = self.change_group(core, id, GroupChange::Joined { instance, tid }, tid.host());
        self.with(id, |group, shared| {
            group.choose_place(core, shared);
            group.subscribe(core, tid.host());
        });
        self.answer_when_known(core, number, tid, wait, Ok(Reply::Group { id, instance: instance as i32 }));
    }

    /// Handles a request for the page of a group; the task need not be a member.
    pub fn look_up(&mut self, core: &mut Core, from: Tid, wait: u32, name: &[u8]) {
        match self.existing(name).map(|group| (group.id, group.instance_of(from))) {
            Ok((id, instance)) => {
                self.with(id, |group, _| group.subscribe(core, from.host()));
                let instance = instance.map_or(NO_MEMBER, |instance| instance as i32);
                self.answer_with_group(core, from, wait, Ok(Reply::Group { id, instance }));
            }
            Err(code) => core.reply(from, wait, Err(code)),
        }
    }

    /// Handles `pvm_lvgroup`.
    pub fn leave(&mut self, core: &mut Core, from: Tid, wait: u32, name: &[u8]) {
        let number = self.existing(name).and_then(|group| {
            group.instance_of(from).ok_or(Code::NotInGroup)?;
            Ok(group.id)
        });
        match number.map(|id| self.remove_member(core, id, from, from.host())) {
            Ok(number) => self.answer_when_known(core, number, from, wait, Ok(Reply::Done)),
            Err(code) => core.reply(from, wait, Err(code)),
        }
    }

    /// Removes a task from all its groups.
    fn leave_all(&mut self, core: &mut Core, tid: Tid) {
        if !core.is_master() {
            // The master does this.
            return;
        }
        let ids: Vec<u64> = self.memberships.of(tid).collect();
        for id in ids {
            self.remove_member(core, id, tid, Tid::NONE);
        }
    }

    /// Removes a member. Returns the number that acknowledgements of the change carry; see [`Groups::change_group`].
    fn remove_member(&mut self, core: &mut Core, id: u64, tid: Tid, asking_host: Tid) -> u64 {
        self.memberships.remove(tid, id);
        self.with(id, |group, shared| group.take_back(core, shared, false));
        let Some(group) = self.by_id(id) else { return NO_ACK };
        let size = group.size();
        let Some(instance) = group.remove(tid) else { return NO_ACK };
        group.shortage.member_left(size);
        let frozen = group.frozen;
        group.broken = frozen;
        group.barrier.member_gone(tid);
        let number = self.change_group(core, id, GroupChange::Gone { instance }, asking_host);
        if frozen {
            self.change_group(core, id, GroupChange::Break, Tid::NONE);
        }
        self.withdraw_from_freeze(core, id, tid);
        self.with(id, |group, shared| {
            group.examine_barrier(core, shared);
            group.choose_place(core, shared);
        });
        self.drop_empty(core, id);
        number
    }

    /// Ends a group that has no members.
    fn drop_empty(&mut self, core: &mut Core, id: u64) {
        if self.by_id(id).is_some_and(|group| group.size() == 0 && group.joining.is_empty()) {
            self.change_group(core, id, GroupChange::Close, Tid::NONE);
            self.forget_group(core, id);
        }
    }

    // ----- barriers over several hosts

    /// Handles the arrival of a member of this host: the request of that number.
    pub fn arrive(&mut self, core: &mut Core, arriver: (Tid, u32), id: u64, count: i32, lan: bool) {
        let known = self.with(id, |group, shared| group.arrive(core, shared, arriver, count, lan));
        if known.is_none() {
            core.reply(arriver.0, arriver.1, Err(Code::NoGroup));
        }
    }

    /// Sends the arrivals of a task that is about to leave to the master.
    pub fn task_leaves(&mut self, core: &mut Core, tid: Tid) {
        self.groups.values_mut().for_each(|group| group.arriver_leaves(core, tid));
    }

    /// Handles a datagram that anybody may have sent.
    pub fn datagram_received(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), DatagramError> {
        let ReleaseDatagram { group, release } = ReleaseDatagram::read(bytes)?;
        let accepted = self.with(group, |group, _| group.released(core, &release, Tid::NONE));
        accepted.unwrap_or(Err(DatagramError::Unexpected))
    }

    /// Handles a host's news that it got a release of this host only when it was repeated.
    pub fn release_missed(&mut self, from: Tid) {
        self.shared.reach.note_miss(from);
    }

    /// Handles a host's report, after the master's order to stop following a coordinator.
    pub fn recall_reported(&mut self, core: &mut Core, from: Tid, id: u64, number: u64, report: Report) {
        core.acks.received(from, Ack::Group(number));
        self.with(id, |group, shared| group.recall_reported(core, shared, from, number, report));
    }

    /// Does what is due.
    pub fn on_time(&mut self, core: &mut Core) {
        let ids: Vec<u64> = std::iter::from_fn(|| self.take_due(core.now)).collect();
        ids.into_iter().for_each(|id| _ = self.with(id, |group, shared| group.barrier_on_time(core, shared)));
    }

    // ----- freezing

    /// Handles `pvm_freezegroup`.
    pub fn freeze(&mut self, core: &mut Core, from: Tid, wait: u32, name: &[u8], count: i32) {
        match self.begin_freeze(from, wait, name, count) {
            Ok(id) => self.settle_freeze(core, id),
            Err(code) => core.reply(from, wait, Err(code)),
        }
    }

    /// Counts a member that has called `pvm_freezegroup`.
    fn begin_freeze(&mut self, from: Tid, wait: u32, name: &[u8], count: i32) -> Result<u64, Code> {
        let group = self.existing(name)?;
        if group.frozen {
            return Err(Code::DupGroup);
        }
        group.instance_of(from).ok_or(Code::NotInGroup)?;
        let need = match count {
            ALL_MEMBERS => group.size() as i32,
            1.. => count,
            _ => return Err(Code::BadParam),
        };
        let freezing = group.freezing.get_or_insert(Freezing { need, callers: Vec::new() });
        if freezing.need != need {
            return Err(Code::Mismatch);
        }
        freezing.callers.push((from, wait));
        Ok(group.id)
    }

    /// Freezes the group if enough members have called `pvm_freezegroup`; fails the callers if not enough members are
    /// left to call it.
    fn settle_freeze(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        let Some(freezing) = &group.freezing else { return };
        let size = group.size();
        let complete = freezing.callers.len() >= freezing.need as usize;
        if !complete && !group.shortage.prevents(freezing, size) {
            return;
        }
        let callers = group.freezing.take().map(|freezing| freezing.callers).unwrap_or_default();
        let answer = if complete { Ok(Reply::Int(size as i32)) } else { Err(Code::NoTask) };
        if complete {
            group.frozen = true;
            self.change_group(core, id, GroupChange::Freeze, Tid::NONE);
        }
        for (tid, wait) in callers {
            core.reply(tid, wait, answer.clone());
        }
    }

    /// Removes a member that has left the group or died from the callers of a pending freeze.
    fn withdraw_from_freeze(&mut self, core: &mut Core, id: u64, tid: Tid) {
        let Some(group) = self.by_id(id) else { return };
        let Some(freezing) = &mut group.freezing else { return };
        let (gone, rest): (Vec<_>, Vec<_>) = freezing.callers.drain(..).partition(|(caller, _)| *caller == tid);
        freezing.callers = rest;
        if freezing.callers.is_empty() {
            group.freezing = None;
        }
        for (tid, wait) in gone {
            core.reply(tid, wait, Err(Code::NotInGroup));
        }
        self.settle_freeze(core, id);
    }
}
