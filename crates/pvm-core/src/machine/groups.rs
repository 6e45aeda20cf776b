//! Groups (contract 2.11): who is a member, freezing, and barriers that cannot open any more.
//!
//! Members find one another, and meet in barriers, in memory that the daemon's edge keeps for each
//! group ([`GroupAction`]); it takes no daemon. The rules of membership are here, and what becomes
//! of a barrier when members go.
use super::{Action, Machine, Time};
use crate::codes::Code;
use crate::proto::{ByteBuf, Reply};
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// The count that stands for "as many as the group has members".
const ALL_MEMBERS: i32 = -1;

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

/// A group.
#[derive(Default)]
pub(super) struct Group {
    pub id: u64,
    /// Whether it has its memory.
    made: bool,
    /// Who asked to join before it had.
    joining: Vec<(Tid, u32)>,
    members: BTreeMap<u32, Tid>,
    instances: BTreeMap<Tid, u32>,
    /// Numbers below the highest that are free.
    holes: BTreeSet<u32>,
    pub frozen: bool,
    /// It is frozen, and a member has gone.
    pub broken: bool,
    pub freezing: Option<Freezing>,
    pub shortage: super::groups_barrier::Shortage,
}

impl Group {
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

    /// Gives the task the lowest number that is free.
    fn add(&mut self, tid: Tid) -> u32 {
        let instance = self.holes.pop_first().unwrap_or(self.members.len() as u32);
        self.members.insert(instance, tid);
        self.instances.insert(tid, instance);
        instance
    }

    fn remove(&mut self, tid: Tid) -> Option<u32> {
        let instance = self.instances.remove(&tid)?;
        self.members.remove(&instance);
        self.holes.insert(instance);
        // Holes lie below the highest member.
        drop(self.holes.split_off(&self.places()));
        Some(instance)
    }
}

/// All groups, by name.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<Vec<u8>, Group>,
    last: u64,
}

impl Groups {
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        self.groups.iter().filter(|(_, group)| group.size() > 0).map(|(name, group)| (name.as_slice(), group))
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.values_mut()
    }
    pub fn by_id(&mut self, id: u64) -> Option<&mut Group> {
        self.groups.values_mut().find(|group| group.id == id)
    }
    fn existing(&mut self, name: &[u8]) -> Result<&mut Group, Code> {
        if name.is_empty() {
            return Err(Code::NullGroup);
        }
        self.groups.get_mut(name).filter(|group| group.size() > 0).ok_or(Code::NoGroup)
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
        let last = &mut self.groups.last;
        let group = self.groups.groups.entry(name.into_vec()).or_insert_with(|| {
            *last += 1;
            Group { id: *last, ..Group::default() }
        });
        let id = group.id;
        if group.made {
            return self.add_member(id, from, wait);
        }
        group.joining.push((from, wait));
        if group.joining.len() == 1 {
            self.group_action(id, GroupAction::Make);
        }
    }

    /// A group has its memory, or there was none to be had.
    pub fn handle_group_made(&mut self, group: u64, made: bool) {
        let Some(found) = self.groups.by_id(group) else { return };
        found.made = made;
        for (tid, wait) in std::mem::take(&mut found.joining) {
            match made {
                true => self.add_member(group, tid, wait),
                false => self.reply(tid, wait, Err(Code::OutOfRes)),
            }
        }
        self.drop_empty(group);
    }

    fn add_member(&mut self, id: u64, tid: Tid, wait: u32) {
        if !self.is_present(tid) {
            return;
        }
        let Some(group) = self.groups.by_id(id) else { return };
        // Of a frozen group not even a member hears that it is one.
        let refusal = match group.instance_of(tid) {
            _ if group.frozen => Some(Code::NotInGroup),
            member => member.map(|_| Code::DupGroup),
        };
        if let Some(code) = refusal {
            return self.reply(tid, wait, Err(code));
        }
        let instance = group.add(tid);
        group.shortage.somebody_joined();
        self.group_action(id, GroupAction::Joined { instance, tid });
        self.show_group(id, tid, wait, Some(instance));
    }

    fn show_group(&mut self, id: u64, to: Tid, wait: u32, instance: Option<u32>) {
        self.group_action(id, GroupAction::Show { to, member: instance.is_some() });
        let instance = instance.map_or(-1, |instance| instance as i32);
        self.reply(to, wait, Ok(Reply::Group { id, instance }));
    }

    /// Any task asks for a group.
    pub(super) fn look_up_group(&mut self, from: Tid, wait: u32, name: &[u8]) {
        match self.groups.existing(name).map(|group| (group.id, group.instance_of(from))) {
            Ok((id, instance)) => self.show_group(id, from, wait, instance),
            Err(code) => self.reply(from, wait, Err(code)),
        }
    }

    pub(super) fn leave_group(&mut self, from: Tid, name: &[u8]) -> Result<Reply, Code> {
        let group = self.groups.existing(name)?;
        let id = group.id;
        group.instance_of(from).ok_or(Code::NotInGroup)?;
        self.remove_member(id, from);
        Ok(Reply::Done)
    }

    /// The task has gone without leaving its groups.
    pub(super) fn leave_all_groups(&mut self, tid: Tid) {
        let mine = self.groups.iter_mut().filter(|group| group.instance_of(tid).is_some());
        let ids: Vec<u64> = mine.map(|group| group.id).collect();
        for id in ids {
            self.remove_member(id, tid);
        }
    }

    fn remove_member(&mut self, id: u64, tid: Tid) {
        let Some(group) = self.groups.by_id(id) else { return };
        let size = group.size();
        let Some(instance) = group.remove(tid) else { return };
        group.shortage.somebody_goes(size);
        let frozen = group.frozen;
        group.broken = frozen;
        self.group_action(id, GroupAction::Gone { instance });
        if frozen {
            self.group_action(id, GroupAction::Break);
        }
        self.member_freezes_no_more(id, tid);
        self.group_action(id, GroupAction::Look);
        self.drop_empty(id);
    }

    fn drop_empty(&mut self, id: u64) {
        if self.groups.by_id(id).is_some_and(|group| group.size() == 0 && group.joining.is_empty()) {
            self.groups.groups.retain(|_, group| group.id != id);
            self.group_action(id, GroupAction::Close);
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
            self.group_action(id, GroupAction::Freeze);
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

    /// When a barrier wants to be looked at again.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.groups.groups.values().filter_map(|group| group.shortage.next_look()).min()
    }
}
