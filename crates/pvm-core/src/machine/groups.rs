//! Groups (contract 2.11): who is a member, freezing, and barriers that cannot open any more.
//!
//! Members find one another, and meet in barriers, in memory that the daemon's edge keeps for each
//! group ([`GroupAction`]); it takes no daemon. The rules of membership are here, and the master
//! decides by them. What other hosts keep of a group is in `groups_kept`, barriers of members on
//! several hosts in `groups_far`.
use super::groups_kept::NOBODY_ELSE;
use super::index::Index;
use super::limits::NAME_BYTES_MAX;
use super::{Action, Machine, Time, groups_far, groups_kept};
use crate::codes::Code;
use crate::proto::{ByteBuf, Reply};
use crate::tid::{SLOT_MASK, Tid};
use crate::wire::GroupChange;
use std::collections::{BTreeMap, BTreeSet};

/// The count that stands for "as many as the group has members".
pub(super) const ALL_MEMBERS: i32 = -1;
/// The instance of a task that is no member.
pub(super) const NO_MEMBER: i32 = -1;
/// Members of one group: as many as its memory has places.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, the form of the memory fixes it
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `a_group_has_so_many_members_and_no_more`
pub(super) const GROUP_MEMBERS_MAX: usize = SLOT_MASK as usize;

/// What is to be done with the memory of a group. Actions are to be done in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum GroupAction {
    /// Make it; answer by [`Machine::handle_group_made`].
    Make,
    /// The task is the member of that number now.
    Joined { instance: u32, tid: Tid },
    /// There is no member of that number any more; wake those who wait for others.
    Gone { instance: u32 },
    /// Nobody joins any more.
    Freeze,
    /// A member of the frozen group has gone: its barriers are refused from now on.
    Break,
    /// The group is no more.
    Close,
    /// Send it to a task, to a member with the board.
    Show { to: Tid, member: bool },
    /// Look at the barrier; answer by [`Machine::handle_barrier`].
    Look,
    /// Take the arrivals at the barrier away, if there is one: from now on members arrive by the
    /// daemon. Answer by [`Machine::handle_barrier_taken`].
    Take,
    /// Let those go on whose arrivals were taken, or tell them that the barrier has failed.
    Release { opened: bool },
    /// Members meet in the memory again.
    Give,
    /// Make the barrier fail; answer by [`Machine::handle_barrier_failed`], or, when somebody has
    /// arrived since it was looked at, by [`Machine::handle_barrier_changed`].
    Fail(super::Barrier),
}

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
    name: Vec<u8>,
    /// This host's memory of it.
    pub kept: groups_kept::Kept,
    /// At the master: tasks of its host that asked to join before there was memory.
    joining: Vec<(Tid, u32)>,
    /// When its barrier is to be looked at, as far as that has been noted for all groups.
    noted_look: Option<Time>,
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
    pub shortage: super::groups_barrier::Shortage,
    /// At the master: where members meet.
    pub meeting: groups_far::Meeting,
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

    /// Gives the task the lowest number that is free.
    fn add(&mut self, tid: Tid) -> u32 {
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

/// All groups. There may be many, and tasks end all the time: what concerns one task or one host is
/// found without a look at all of them, and so is what is to be done next.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<u64, Group>,
    names: BTreeMap<Vec<u8>, u64>,
    last: u64,
    /// At the master: of which groups each task is a member.
    memberships: Index<Tid, u64>,
    /// When barriers are to be looked at again.
    looks: BTreeSet<(Time, u64)>,
    pub keeping: groups_kept::Keeping,
    pub spreading: groups_kept::Spreading,
}

impl Groups {
    pub fn is_idle(&self) -> bool {
        let indices = self.memberships.is_empty() && self.looks.is_empty() && self.keeping.is_idle();
        self.groups.is_empty() && self.names.is_empty() && indices && self.spreading.is_idle()
    }
    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        let groups = self.names.iter().filter_map(|(name, id)| Some((name.as_slice(), self.groups.get(id)?)));
        groups.filter(|(_, group)| group.size() > 0)
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.values_mut()
    }
    pub fn by_id(&mut self, id: u64) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }
    pub fn insert(&mut self, group: Group) {
        self.names.insert(group.name.clone(), group.id);
        self.groups.insert(group.id, group);
    }
    pub fn remove(&mut self, id: u64) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        group.noted_look.map(|when| self.looks.remove(&(when, id)));
        if self.names.get(&group.name) == Some(&id) {
            self.names.remove(&group.name);
        }
        Some(group)
    }
    /// When the barrier of that group is to be looked at next may have changed.
    pub fn note_look(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let next = group.shortage.next_look();
        let before = std::mem::replace(&mut group.noted_look, next);
        if before != next {
            before.map(|when| self.looks.remove(&(when, id)));
            next.map(|when| self.looks.insert((when, id)));
        }
    }
    /// When a barrier is to be looked at, and of which group.
    pub fn next_look(&self) -> Option<(Time, u64)> {
        self.looks.first().copied()
    }
    fn existing(&mut self, name: &[u8]) -> Result<&mut Group, Code> {
        if name.is_empty() {
            return Err(Code::NullGroup);
        }
        let id = self.names.get(name).ok_or(Code::NoGroup)?;
        self.groups.get_mut(id).filter(|group| group.size() > 0).ok_or(Code::NoGroup)
    }
    /// The group of that name; a new one if there is none.
    fn entry(&mut self, name: Vec<u8>) -> &mut Group {
        let id = self.names.entry(name.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.groups.entry(*id).or_insert_with(|| Group::new(*id, name))
    }
}

impl Machine {
    pub(super) fn group_action(&mut self, group: u64, action: GroupAction) {
        self.actions.push_back(Action::Group { group, action });
    }

    pub(super) fn join_group(&mut self, from: Tid, wait: u32, name: ByteBuf) {
        if name.is_empty() {
            return self.reply(from, wait, Err(Code::NullGroup));
        }
        let is_new = !self.groups.names.contains_key(name.as_slice());
        if name.len() > NAME_BYTES_MAX || is_new && self.groups.groups.len() >= self.settings.limits.groups {
            return self.reply(from, wait, Err(Code::OutOfRes));
        }
        let own = self.own_host();
        let group = self.groups.entry(name.into_vec());
        let id = group.id;
        if from.host() != own || group.kept.is_made() {
            return self.add_member(id, from, wait);
        }
        group.joining.push((from, wait));
        self.make_memory(id);
    }

    /// Those who asked to join before there was memory.
    pub(super) fn let_joiners_in(&mut self, group: u64, made: bool) {
        let joining = self.groups.by_id(group).map(|found| std::mem::take(&mut found.joining)).unwrap_or_default();
        for (tid, wait) in joining {
            match made {
                true => self.add_member(group, tid, wait),
                false => self.reply(tid, wait, Err(Code::OutOfRes)),
            }
        }
    }

    fn add_member(&mut self, id: u64, tid: Tid, wait: u32) {
        if !self.is_present(tid) {
            return;
        }
        let is_full = self.groups.memberships.len() >= self.settings.limits.members;
        let Some(group) = self.groups.by_id(id) else { return };
        // Of a frozen group not even a member hears that it is one.
        let refusal = match group.instance_of(tid) {
            _ if group.frozen => Some(Code::NotInGroup),
            Some(_) => Some(Code::DupGroup),
            None if group.size() >= GROUP_MEMBERS_MAX || is_full => Some(Code::OutOfRes),
            None => None,
        };
        if let Some(code) = refusal {
            self.reply(tid, wait, Err(code));
            return self.drop_empty(id);
        }
        let instance = group.add(tid);
        group.shortage.somebody_joined();
        self.groups.memberships.insert(tid, id);
        let number = self.change_group(id, GroupChange::Joined { instance, tid }, tid.host());
        self.choose_meeting(id);
        self.subscribe(id, tid.host());
        self.answer_when_known(number, tid, wait, Ok(Reply::Group { id, instance: instance as i32 }));
    }

    /// Any task asks for a group.
    pub(super) fn look_up_group(&mut self, from: Tid, wait: u32, name: &[u8]) {
        match self.groups.existing(name).map(|group| (group.id, group.instance_of(from))) {
            Ok((id, instance)) => {
                self.subscribe(id, from.host());
                let instance = instance.map_or(NO_MEMBER, |instance| instance as i32);
                self.answer_with_group(from, wait, Ok(Reply::Group { id, instance }));
            }
            Err(code) => self.reply(from, wait, Err(code)),
        }
    }

    pub(super) fn leave_group(&mut self, from: Tid, wait: u32, name: &[u8]) {
        let number = self.groups.existing(name).and_then(|group| {
            group.instance_of(from).ok_or(Code::NotInGroup)?;
            Ok(group.id)
        });
        match number.map(|id| self.remove_member(id, from, from.host())) {
            Ok(number) => self.answer_when_known(number, from, wait, Ok(Reply::Done)),
            Err(code) => self.reply(from, wait, Err(code)),
        }
    }

    /// The task has gone without leaving its groups.
    pub(super) fn leave_all_groups(&mut self, tid: Tid) {
        if !self.hosts.is_master() {
            // The master hears of it.
            return;
        }
        let ids: Vec<u64> = self.groups.memberships.of(tid).collect();
        for id in ids {
            self.remove_member(id, tid, Tid::NONE);
        }
    }

    /// Gives the number under which hosts say that they know; see [`Machine::change_group`].
    fn remove_member(&mut self, id: u64, tid: Tid, asking: Tid) -> u64 {
        self.groups.memberships.remove(tid, id);
        let Some(group) = self.groups.by_id(id) else { return NOBODY_ELSE };
        let size = group.size();
        let Some(instance) = group.remove(tid) else { return NOBODY_ELSE };
        group.shortage.somebody_goes(size);
        let frozen = group.frozen;
        group.broken = frozen;
        let number = self.change_group(id, GroupChange::Gone { instance }, asking);
        if frozen {
            self.change_group(id, GroupChange::Break, Tid::NONE);
        }
        self.member_freezes_no_more(id, tid);
        self.look_at_barrier(id);
        self.choose_meeting(id);
        self.drop_empty(id);
        number
    }

    pub(super) fn drop_empty(&mut self, id: u64) {
        if self.groups.by_id(id).is_some_and(|group| group.size() == 0 && group.joining.is_empty()) {
            self.change_group(id, GroupChange::Close, Tid::NONE);
            self.forget_group(id);
        }
    }

    // ----- freezing

    pub(super) fn freeze_group(&mut self, from: Tid, wait: u32, name: &[u8], count: i32) {
        match self.begin_freeze(from, wait, name, count) {
            Ok(id) => self.settle_freeze(id),
            Err(code) => self.reply(from, wait, Err(code)),
        }
    }

    fn begin_freeze(&mut self, from: Tid, wait: u32, name: &[u8], count: i32) -> Result<u64, Code> {
        let group = self.groups.existing(name)?;
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

    /// Freezes the group if all have called; lets the callers go if they never will.
    fn settle_freeze(&mut self, id: u64) {
        let Some(group) = self.groups.by_id(id) else { return };
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
            self.change_group(id, GroupChange::Freeze, Tid::NONE);
        }
        for (tid, wait) in callers {
            self.reply(tid, wait, answer.clone());
        }
    }

    /// One that has gone no longer counts as one that wants to freeze.
    fn member_freezes_no_more(&mut self, id: u64, tid: Tid) {
        let Some(group) = self.groups.by_id(id) else { return };
        let Some(freezing) = &mut group.freezing else { return };
        let (gone, rest): (Vec<_>, Vec<_>) = freezing.callers.drain(..).partition(|(caller, _)| *caller == tid);
        freezing.callers = rest;
        if freezing.callers.is_empty() {
            group.freezing = None;
        }
        for (tid, wait) in gone {
            self.reply(tid, wait, Err(Code::NotInGroup));
        }
        self.settle_freeze(id);
    }
}
