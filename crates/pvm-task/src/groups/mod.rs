//! Groups (contract 2.11), the task's side.
//!
//! The daemon publishes the members of a group in shared memory that all tasks can read. A task asks the
//! daemon for a group once; later look-ups need no daemon. Barriers use shared memory of the members
//! ([`barrier`]). Collective operations use messages in a context that only the library knows
//! ([`collective`]).
mod barrier;
mod collective;
mod in_place;
mod membership;
mod releases;
mod waiters;

pub use barrier::BarrierArrival;
pub use collective::{Collective, GroupMember};
pub use in_place::InPlace;
pub(crate) use releases::Releases;
pub use waiters::GroupWait;

use crate::Task;
use crate::control::Member;
use crate::types::{Filter, GROUP_CONTEXTS};
use membership::{Membership, STALE};
use pvm_core::codes::Code;
use pvm_core::proto::Reply;
use pvm_fmp::GroupView;
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use waiters::{GroupWaiters, NO_WAIT};

/// A group for which this task has asked.
struct CachedGroup {
    id: u64,
    name: Vec<u8>,
    view: GroupView,
    /// The instance of this task; `None` if it is not a member.
    instance: Option<u32>,
    /// The members as they were last read.
    membership: RefCell<Rc<Membership>>,
    /// The members at the time of the freeze. This task continues with them even if some leave.
    frozen: OnceCell<Rc<Membership>>,
    /// How far this task had written the queue to the root after each of its latest long shares (its parts of
    /// collective operations), the newest first. `SHORT_SHARES` short shares count as one long share.
    ahead: Cell<[Option<collective::QueuePosition>; collective::AHEAD_MAX]>,
    short_shares: Cell<u32>,
    taken_shares: Cell<u32>,
}

impl CachedGroup {
    /// Returns the members at the time of the freeze, if this task continues with them: if it has frozen the group
    /// itself, or has used the group after the freeze and before a member left.
    #[inline]
    fn frozen(&self) -> Option<&Rc<Membership>> {
        if self.frozen.get().is_none() && self.view.is_frozen() && !self.view.is_broken() {
            self.keep_frozen();
        }
        self.frozen.get()
    }

    #[cold]
    fn keep_frozen(&self) {
        let version = self.view.version();
        self.frozen.get_or_init(|| Rc::new(Membership { version, members: self.view.frozen_members() }));
    }

    /// Returns the members that were read last, if they have not changed.
    #[inline]
    fn cached_membership(&self) -> Option<Rc<Membership>> {
        if let Some(frozen) = self.frozen() {
            return Some(frozen.clone());
        }
        let membership = self.membership.borrow();
        (membership.version == self.view.version()).then(|| membership.clone())
    }

    /// Returns the members now.
    fn membership(&self) -> Rc<Membership> {
        self.cached_membership().unwrap_or_else(|| self.refresh_membership())
    }

    #[cold]
    fn refresh_membership(&self) -> Rc<Membership> {
        let before = self.view.version();
        let members = self.view.members();
        // If the list changed meanwhile, this membership is used only once.
        let version = if self.view.version() == before { before } else { STALE };
        let membership = Rc::new(Membership { version, members });
        *self.membership.borrow_mut() = membership.clone();
        membership
    }

    /// Returns the context of the group's own messages.
    fn ctx(&self) -> i32 {
        GROUP_CONTEXTS.start + (self.id % GROUP_CONTEXTS.len() as u64) as i32
    }

    /// Returns the code with which a wait for a member fails if the member is gone.
    fn loss(&self) -> Code {
        if self.view.is_frozen() || self.view.is_closed() { Code::NoGroup } else { Code::NoTask }
    }
}

/// The tid that stands for an instance without a member.
const NOBODY: i32 = -1;

/// A handle to a group. It stays valid when the group ends, but calls with it then fail.
#[derive(Clone)]
pub struct Group(Rc<CachedGroup>);

impl Group {
    /// Returns whether this task has the list of the members of the freeze, and continues with it.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.0.frozen().is_some()
    }

    /// `pvm_gsize`.
    pub fn size(&self) -> i32 {
        self.0.frozen().map_or_else(|| self.0.view.size(), |frozen| frozen.members.len() as u32) as i32
    }

    /// `pvm_gettid`.
    pub fn tid_of(&self, instance: i32) -> Result<i32, Code> {
        let instance = u32::try_from(instance).map_err(|_| Code::NoInst)?;
        let tid = self.0.frozen().map_or_else(|| self.0.view.tid_of(instance), |frozen| frozen.tid_of(instance));
        tid.map(|tid| tid as i32).ok_or(Code::NoInst)
    }

    /// `pvm_getinst`. For tid -1, returns the lowest instance that no member has.
    pub fn instance_of(&self, tid: i32) -> Result<i32, Code> {
        if tid == NOBODY {
            return Ok(self.0.membership().first_free() as i32);
        }
        let tid = tid as u32;
        let instance = match self.0.frozen() {
            Some(frozen) => frozen.instance_of(tid),
            None => self.0.view.instance_of(tid),
        };
        instance.map(|instance| instance as i32).ok_or(Code::NotInGroup)
    }

    /// Returns the instance of this task.
    pub fn instance(&self) -> Result<i32, Code> {
        self.0.instance.map(|instance| instance as i32).ok_or(Code::NotInGroup)
    }

    /// Returns the tids of all members in the order of their instances.
    pub fn tids(&self) -> Vec<i32> {
        self.0.membership().members.iter().map(|(_, tid)| *tid as i32).collect()
    }
}

/// The groups that a task knows.
#[derive(Default)]
pub(crate) struct Groups {
    /// Groups for which the task has asked, the one used last in front.
    cached: Vec<Rc<CachedGroup>>,
    /// Group numbers and the memory of these groups. The memory arrives before the daemon's reply about the group.
    arrived: Vec<(u64, GroupView)>,
    /// The numbers and instances of the groups that this task is a member of, in the order in which it joined.
    joined: Vec<(u64, u32)>,
    /// Shares that other members still send for collective operations that this task has given up. They are dropped
    /// when they arrive.
    abandoned: Vec<Filter>,
    pub(crate) waiters: GroupWaiters,
}

impl Groups {
    /// Returns the group with this name, if it is cached and still exists.
    #[inline]
    fn get(&mut self, name: &[u8]) -> Option<Group> {
        match self.cached.first() {
            Some(first) if first.name == name && !first.view.is_closed() => Some(Group(first.clone())),
            Some(_) => self.find(name),
            None => None,
        }
    }

    #[cold]
    fn find(&mut self, name: &[u8]) -> Option<Group> {
        self.cached.retain(|group| !group.view.is_closed() || group.frozen.get().is_some());
        let at = self.cached.iter().position(|group| group.name == name)?;
        self.cached[..=at].rotate_right(1);
        Some(Group(self.cached[0].clone())).filter(|group| !group.0.view.is_closed())
    }

    fn by_name(&self, name: &[u8]) -> Option<&Rc<CachedGroup>> {
        self.cached.iter().find(|group| group.name == name)
    }

    /// Caches a group whose memory has arrived. Fails with `OutOfRes` if there was no room for its descriptors or
    /// memory.
    fn enter(&mut self, name: &[u8], id: u64, instance: Option<u32>) -> Result<Group, Code> {
        let at = self.arrived.iter().position(|(other, _)| *other == id).ok_or(Code::OutOfRes)?;
        let view = self.arrived.swap_remove(at).1;
        if instance.is_some() && !view.has_barrier_page() {
            return Err(Code::OutOfRes);
        }
        let group = Rc::new(CachedGroup {
            id,
            name: name.to_vec(),
            view,
            instance,
            membership: RefCell::new(Rc::new(Membership::unread())),
            frozen: OnceCell::new(),
            ahead: Cell::default(),
            short_shares: Cell::new(0),
            taken_shares: Cell::new(0),
        });
        self.cached.retain(|other| other.name != name);
        self.cached.insert(0, group.clone());
        Ok(Group(group))
    }

    fn remove(&mut self, name: &[u8]) -> Option<Rc<CachedGroup>> {
        let at = self.cached.iter().position(|group| group.name == name)?;
        Some(self.cached.remove(at))
    }

    /// Notes that a share has to be dropped when it arrives.
    fn abandon_share(&mut self, share: Filter) {
        self.abandoned.push(share);
    }

    #[inline]
    fn has_abandoned_shares(&self) -> bool {
        !self.abandoned.is_empty()
    }

    fn abandons(&self, share: &Filter) -> bool {
        self.abandoned.contains(share)
    }

    /// Notes that an abandoned share was dropped.
    fn dropped_share(&mut self, share: &Filter) {
        if let Some(at) = self.abandoned.iter().position(|abandoned| abandoned == share) {
            self.abandoned.swap_remove(at);
        }
    }

    /// Forgets a group's abandoned shares that come from senders that have left the group.
    fn forget_shares(&mut self, ctx: i32, has_left: impl Fn(i32) -> bool) {
        self.abandoned.retain(|abandoned| abandoned.ctx != ctx || !has_left(abandoned.src));
    }
}

impl Member {
    /// Takes in the memory of a group.
    pub(crate) fn on_group(&mut self, id: u64, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(list) = descriptors.next() else { return };
        // If the memory cannot be mapped, it is missing when the daemon's reply arrives, and `enter` fails.
        if let Ok(view) = GroupView::open(list, descriptors.next()) {
            self.groups.arrived.retain(|(other, _)| *other != id);
            self.groups.arrived.push((id, view));
        }
    }
}

/// Groups. The requests to the daemon are [`Request::JoinGroup`](pvm_core::proto::Request) and similar ones.
impl Task {
    /// Returns the group with this name, if it is cached and still exists. Otherwise send `Request::Group` to the
    /// daemon and pass its reply to [`Task::enter_group`].
    #[inline]
    pub fn group(&mut self, name: &[u8]) -> Option<Group> {
        self.member.as_mut()?.groups.get(name)
    }

    /// Takes in the reply to `JoinGroup` or `Group`. Fails with `OutOfRes` if there was no room for the group's
    /// descriptors or memory; a task that has joined must then leave the group.
    pub fn enter_group(&mut self, name: &[u8], reply: Reply) -> Result<Group, Code> {
        let Reply::Group { id, instance } = reply else { return Err(Code::BadMsg) };
        let groups = &mut self.member.as_mut().ok_or(Code::SysErr)?.groups;
        groups.enter(name, id, u32::try_from(instance).ok())
    }

    /// Notes that this task has joined the group.
    pub fn joined_group(&mut self, group: &Group) {
        if let (Some(member), Some(instance)) = (&mut self.member, group.0.instance) {
            member.groups.joined.push((group.0.id, instance));
        }
    }

    /// Returns the instance of this task in the group that it has joined last, of those that it has not left.
    pub fn last_instance(&self) -> Option<u32> {
        Some(self.member.as_ref()?.groups.joined.last()?.1)
    }

    /// Notes that `pvm_freezegroup` of this task has succeeded.
    pub fn froze_group(&mut self, name: &[u8]) {
        let group = self.member.as_ref().and_then(|member| member.groups.by_name(name));
        if let Some(group) = group {
            group.keep_frozen();
        }
    }

    /// Returns a frozen group that no longer exists at the daemon, if this task continues with its members.
    pub fn former_group(&self, name: &[u8]) -> Option<Group> {
        let group = self.member.as_ref()?.groups.by_name(name)?;
        Some(Group(group.clone())).filter(|group| group.0.frozen.get().is_some())
    }

    /// Notes that this task has left the group.
    pub fn left_group(&mut self, name: &[u8]) {
        if let Some(group) = self.member.as_mut().and_then(|member| member.groups.remove(name)) {
            if let Some(member) = &mut self.member {
                member.groups.joined.retain(|(id, _)| *id != group.id);
            }
            self.drop_all_shares(&group);
        }
    }

    /// Returns the receivers of `pvm_bcast`: all members but this task. Fails with `NoInst` if there are none. The
    /// caller passes them to [`Task::multicast`].
    pub fn group_receivers(&self, group: &Group) -> Result<Vec<i32>, Code> {
        let own = self.own_tid();
        let mut receivers = group.tids();
        receivers.retain(|tid| *tid != own);
        if receivers.is_empty() { Err(Code::NoInst) } else { Ok(receivers) }
    }

    /// Begins a wait for other members, which ring this task's doorbell when they have done their part.
    fn begin_group_wait(&mut self, group: &Rc<CachedGroup>, instance: u32, generation: Option<u32>) -> GroupWait {
        let asleep = self.another_thread_sleeps();
        match &mut self.member {
            Some(member) => member.groups.waiters.add(group, instance, generation, asleep),
            None => NO_WAIT,
        }
    }

    /// Ends a wait for other members.
    #[inline]
    pub fn end_group_wait(&mut self, wait: GroupWait) {
        if let Some(member) = &mut self.member {
            member.groups.waiters.remove(&wait);
        }
    }

    /// Fails if the daemon is gone: a wait for other members must then end, since only the daemon notices that a member
    /// has died.
    pub(crate) fn check_connected(&self) -> Result<(), Code> {
        if self.is_connected() { Ok(()) } else { Err(Code::SysErr) }
    }
}
