//! Groups (contract 2.11), the task's side. The daemon says who the members are, in memory that
//! all tasks read; so a group is asked for once, and looked up without the daemon from then on.
//! Barriers go through memory that the members share ([`barrier`]), collective operations through
//! messages in a context that only the library knows ([`collective`]).
mod barrier;
mod collective;
mod in_place;

pub use barrier::Barrier;
pub use collective::{Collective, Share};
pub use in_place::InPlace;

use crate::Task;
use crate::control::Member;
use crate::types::{Filter, PRIVATE_CONTEXTS};
use pvm_core::codes::Code;
use pvm_core::proto::Reply;
use pvm_fmp::GroupView;
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A group that this task has asked for.
pub(crate) struct Known {
    id: u64,
    name: Vec<u8>,
    view: GroupView,
    /// The own instance; `None` for no member.
    instance: Option<u32>,
    /// Who the members were when that last mattered.
    roll: RefCell<Rc<Roll>>,
    /// Who they were when the group was frozen: for this task they stay.
    frozen: OnceCell<Rc<Roll>>,
    /// What this task has sent lately to roots that have not read it yet.
    ahead: Cell<[Option<collective::Mark>; collective::AHEAD_MAX]>,
    short_shares: Cell<u32>,
    taken_shares: Cell<u32>,
}

/// The members at one moment.
#[derive(Default)]
pub(crate) struct Roll {
    /// As of the list; odd for a roll that must not be used again.
    version: u32,
    /// Instance and tid, by instance.
    members: Vec<(u32, u32)>,
}

impl Roll {
    /// The lowest instance that nobody has.
    fn first_free(&self) -> u32 {
        let whole = |(place, (instance, _)): &(usize, &(u32, u32))| *place == *instance as usize;
        self.members.iter().enumerate().take_while(whole).count() as u32
    }

    /// Who has that instance. Mostly there are no holes, and it is the place in the list.
    #[inline]
    fn tid_of(&self, instance: u32) -> Option<u32> {
        match self.members.get(instance as usize) {
            Some((there, tid)) if *there == instance => Some(*tid),
            _ => {
                let at = self.members.binary_search_by_key(&instance, |(instance, _)| *instance).ok()?;
                Some(self.members[at].1)
            }
        }
    }
}

impl Known {
    /// The members of the frozen group, if this task goes on with them: because it has frozen it, or has asked
    /// for it before one had gone.
    #[inline]
    fn frozen(&self) -> Option<&Rc<Roll>> {
        if self.frozen.get().is_none() && self.view.is_frozen() && !self.view.is_broken() {
            self.keep_frozen();
        }
        self.frozen.get()
    }

    #[cold]
    fn keep_frozen(&self) {
        let version = self.view.version();
        self.frozen.get_or_init(|| Rc::new(Roll { version, members: self.view.frozen_members() }));
    }

    /// The members, if they are those of last time.
    #[inline]
    fn last_roll(&self) -> Option<Rc<Roll>> {
        if let Some(frozen) = self.frozen() {
            return Some(frozen.clone());
        }
        let roll = self.roll.borrow();
        (roll.version == self.view.version()).then(|| roll.clone())
    }

    /// The members now.
    fn roll(&self) -> Rc<Roll> {
        self.last_roll().unwrap_or_else(|| self.call_roll())
    }

    #[cold]
    fn call_roll(&self) -> Rc<Roll> {
        let before = self.view.version();
        let members = self.view.members();
        // A list that changed meanwhile has another version; then the roll serves this once.
        let version = if self.view.version() == before { before } else { NEVER };
        let roll = Rc::new(Roll { version, members });
        *self.roll.borrow_mut() = roll.clone();
        roll
    }

    /// The context of the group's own messages.
    fn ctx(&self) -> i32 {
        PRIVATE_CONTEXTS.start + (self.id % PRIVATE_CONTEXTS.len() as u64) as i32
    }

    /// What is true of waiting for somebody who is gone.
    fn loss(&self) -> Code {
        if self.view.is_frozen() || self.view.is_closed() { Code::NoGroup } else { Code::NoTask }
    }
}

/// The tid in a place that no member has.
const NOBODY: i32 = -1;
/// No list has an odd version while it stands.
const NEVER: u32 = 1;

/// A group. A handle stays good when the group is not: then calls say so.
#[derive(Clone)]
pub struct Group(Rc<Known>);

impl Group {
    /// `pvm_gsize`.
    pub fn size(&self) -> i32 {
        self.0.frozen().map_or_else(|| self.0.view.size(), |roll| roll.members.len() as u32) as i32
    }

    /// `pvm_gettid`.
    pub fn tid_of(&self, instance: i32) -> Result<i32, Code> {
        let instance = u32::try_from(instance).map_err(|_| Code::NoInst)?;
        let tid = self.0.frozen().map_or_else(|| self.0.view.tid_of(instance), |roll| roll.tid_of(instance));
        tid.map(|tid| tid as i32).ok_or(Code::NoInst)
    }

    /// `pvm_getinst`; for tid -1 the lowest instance that nobody has.
    pub fn instance_of(&self, tid: i32) -> Result<i32, Code> {
        if tid == NOBODY {
            return Ok(self.0.roll().first_free() as i32);
        }
        let tid = tid as u32;
        let instance = match self.0.frozen() {
            Some(roll) => roll.members.iter().find(|(_, member)| *member == tid).map(|(instance, _)| *instance),
            None => self.0.view.instance_of(tid),
        };
        instance.map(|instance| instance as i32).ok_or(Code::NotInGroup)
    }

    /// The own instance.
    pub fn instance(&self) -> Result<i32, Code> {
        self.0.instance.map(|instance| instance as i32).ok_or(Code::NotInGroup)
    }

    /// The tids of all members, by instance.
    pub fn tids(&self) -> Vec<i32> {
        self.0.roll().members.iter().map(|(_, tid)| *tid as i32).collect()
    }
}

/// What a task knows of groups.
#[derive(Default)]
pub(crate) struct Groups {
    /// Groups that were asked for, the one used last in front.
    known: Vec<Rc<Known>>,
    /// Memory that has come, by group; the reply that says what for follows.
    arrived: Vec<(u64, GroupView)>,
    /// Shares that will come and are not wanted: of operations that this task has given up.
    unwanted: Vec<Filter>,
    /// Where threads of this task wait for other members.
    waiting: Vec<Waiting>,
    next_wait: u32,
}

/// A wait for other members, until [`Task::end_group_wait`].
#[must_use]
pub struct GroupWait(u32);

/// Where a thread waits for other members.
struct Waiting {
    number: u32,
    known: Rc<Known>,
    instance: u32,
    /// The barrier, if it is one.
    generation: Option<u32>,
}

/// Looks at the word of a barrier in one watch: some hundred nanoseconds.
const WATCH_LOOKS: u32 = 64;

impl Groups {
    /// Drops waits for barriers that have opened. Their callers are about to return, or have jumped out of the wait.
    pub fn forget_passed(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_over());
    }

    /// Passes a moment, or less when the barrier opens that was begun last. `false` if there is none.
    #[inline]
    pub fn watch(&self, crowded: bool) -> bool {
        let Some(waiting) = self.waiting.last() else { return false };
        let Some(generation) = waiting.generation else { return crowded };
        // Where tasks crowd the cores the others need this one to come to the barrier.
        let looks = if crowded { 0 } else { WATCH_LOOKS };
        for _ in 0..looks {
            if waiting.known.view.passed(generation).is_some() {
                break;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// The task is about to sleep: who has what it waits for must ring.
    pub fn lie_down(&self) {
        self.waiting.iter().for_each(Waiting::lie_down);
    }

    /// It is awake. Says whether somebody else than the sleeper may have been rung for.
    pub fn rise(&self) -> bool {
        self.waiting.iter().for_each(|waiting| waiting.known.view.unpark(waiting.instance));
        self.waiting.len() > 1
    }

    #[cold]
    fn find(&mut self, name: &[u8]) -> Option<Group> {
        self.known.retain(|known| !known.view.is_closed() || known.frozen.get().is_some());
        let at = self.known.iter().position(|known| known.name == name)?;
        self.known[..=at].rotate_right(1);
        Some(Group(self.known[0].clone())).filter(|group| !group.0.view.is_closed())
    }
}

impl Waiting {
    /// Whether nothing is waited for any more: of who has jumped out of a wait that stays here.
    fn is_over(&self) -> bool {
        self.generation.is_some_and(|generation| self.known.view.passed(generation).is_some())
    }

    fn lie_down(&self) {
        self.known.view.prepare_park(self.instance);
    }
}

impl Member {
    /// The memory of a group has come.
    pub(crate) fn group_arrived(&mut self, id: u64, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(list) = descriptors.next() else { return };
        // Where it cannot be mapped the reply finds nothing, and says so.
        if let Ok(view) = GroupView::open(list, descriptors.next()) {
            self.groups.arrived.retain(|(other, _)| *other != id);
            self.groups.arrived.push((id, view));
        }
    }
}

/// Groups. The requests are [`Request::JoinGroup`](pvm_core::proto::Request) and its kin.
impl Task {
    /// The group of that name, if it is known and still there. Else ask the daemon
    /// (`Request::Group`) and give the answer to [`Task::enter_group`].
    #[inline]
    pub fn group(&mut self, name: &[u8]) -> Option<Group> {
        let groups = &mut self.member.as_mut()?.groups;
        match groups.known.first() {
            Some(first) if first.name == name && !first.view.is_closed() => Some(Group(first.clone())),
            Some(_) => groups.find(name),
            None => None,
        }
    }

    /// The daemon has answered `JoinGroup` or `Group`. `OutOfRes` where there was no room for the
    /// group's descriptors or memory; who has joined must leave then.
    pub fn enter_group(&mut self, name: &[u8], reply: Reply) -> Result<Group, Code> {
        let Reply::Group { id, instance } = reply else { return Err(Code::BadMsg) };
        let groups = &mut self.member.as_mut().ok_or(Code::SysErr)?.groups;
        let at = groups.arrived.iter().position(|(other, _)| *other == id).ok_or(Code::OutOfRes)?;
        let view = groups.arrived.swap_remove(at).1;
        if instance >= 0 && !view.has_barrier_page() {
            return Err(Code::OutOfRes);
        }
        let roll = Rc::new(Roll { version: NEVER, members: Vec::new() });
        let known = Rc::new(Known {
            id,
            name: name.to_vec(),
            view,
            instance: u32::try_from(instance).ok(),
            roll: RefCell::new(roll),
            frozen: OnceCell::new(),
            ahead: Cell::default(),
            short_shares: Cell::new(0),
            taken_shares: Cell::new(0),
        });
        groups.known.retain(|other| other.name != name);
        groups.known.insert(0, known.clone());
        Ok(Group(known))
    }

    /// `pvm_freezegroup` of this task has succeeded.
    pub fn froze_group(&mut self, name: &[u8]) {
        let Some(member) = &self.member else { return };
        member.groups.known.iter().filter(|known| known.name == name).for_each(|known| known.keep_frozen());
    }

    /// The daemon knows no group of that name any more, and this task goes on with the members of a frozen one.
    pub fn former_group(&self, name: &[u8]) -> Option<Group> {
        let known = self.member.as_ref()?.groups.known.iter().find(|known| known.name == name)?;
        Some(Group(known.clone())).filter(|group| group.0.frozen.get().is_some())
    }

    /// The daemon has let this task out of the group.
    pub fn left_group(&mut self, name: &[u8]) {
        let Some(member) = &mut self.member else { return };
        let Some(at) = member.groups.known.iter().position(|known| known.name == name) else { return };
        let known = member.groups.known.remove(at);
        self.drop_all_shares(&known);
    }

    /// `pvm_bcast` of the active send buffer: to all members but this task. `NoInst` where there
    /// are none; then as [`Task::multicast`].
    pub fn group_receivers(&self, group: &Group) -> Result<Vec<i32>, Code> {
        let own = self.own_tid();
        let mut receivers = group.tids();
        receivers.retain(|tid| *tid != own);
        if receivers.is_empty() { Err(Code::NoInst) } else { Ok(receivers) }
    }

    /// From now on this task waits for other members: they ring it when they have what it waits for.
    fn wait_in(&mut self, known: &Rc<Known>, instance: u32, generation: Option<u32>) -> GroupWait {
        let sleeps = self.someone_sleeps();
        let Some(member) = &mut self.member else { return GroupWait(0) };
        let groups = &mut member.groups;
        groups.next_wait = groups.next_wait.wrapping_add(1);
        let waiting = Waiting { number: groups.next_wait, known: known.clone(), instance, generation };
        if sleeps {
            // Another thread sleeps for all of them already.
            waiting.lie_down();
        }
        groups.waiting.push(waiting);
        GroupWait(groups.next_wait)
    }

    /// A wait is over.
    #[inline]
    pub fn end_group_wait(&mut self, wait: GroupWait) {
        if let Some(member) = &mut self.member {
            member.groups.waiting.retain(|waiting| waiting.number != wait.0);
        }
    }

    /// Whether a wait in a group may go on: not without a daemon, which alone notices deaths.
    pub(crate) fn is_watched_over(&self) -> Result<(), Code> {
        if self.is_connected() { Ok(()) } else { Err(Code::SysErr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_beside_holes_too() {
        let whole = Roll { version: 0, members: vec![(0, 40), (1, 41), (2, 42)] };
        assert_eq!([0, 2, 3].map(|instance| whole.tid_of(instance)), [Some(40), Some(42), None]);
        let holed = Roll { version: 0, members: vec![(1, 41), (2, 42), (5, 45)] };
        assert_eq!([0, 1, 2, 5].map(|instance| holed.tid_of(instance)), [None, Some(41), Some(42), Some(45)]);
        let late = Roll { version: 0, members: vec![(0, 40), (1, 41), (5, 45)] };
        assert_eq!([whole, holed, late, Roll::default()].map(|roll| roll.first_free()), [3, 0, 2, 0]);
    }
}
