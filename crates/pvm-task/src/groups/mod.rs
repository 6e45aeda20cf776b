//! Groups (contract 2.11), the task's side.
//!
//! The daemon publishes the members of a group in shared memory that all tasks can read. A task asks the
//! daemon for a group once; later look-ups need no daemon. Barriers use shared memory of the members. Collective operations
//! use messages in a context that only the library knows.
mod in_place;
mod membership;
mod releases;
mod waiters;

pub use in_place::InPlace;
pub(crate) use membership::Membership;
pub(crate) use releases::HeardReleases;
pub use waiters::GroupWait;

use crate::types::{Filter, GROUP_CONTEXTS};
use membership::STALE;
use pvm_core::codes::Code;
use pvm_core::state_line::Label;
use pvm_fmp::{GroupView, INLINE_BYTES_MAX};
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use waiters::GroupWaiters;

/// A task sends at most this number of long shares before the root has read the first of them, or [`SHORT_SHARES`] times this
/// number of short shares. More shares would need more memory, and getting memory from the system takes time.
const AHEAD_MAX: usize = 2;
/// How many short shares count as one long share.
const SHORT_SHARES: u32 = 512;
/// After receiving this number of short shares, the root wakes the sender of the last share, if this sender sleeps. The
/// number is a prime, so that all senders have their turn, however many there are. A sleeping sender is `AHEAD_MAX`
/// (two) times [`SHORT_SHARES`] short shares ahead. `TAKEN_SHARES` is just below [`SHORT_SHARES`], so the root wakes
/// the sender after reading about half of these shares, and reads the other half while the sender wakes.
const TAKEN_SHARES: u32 = 509;

/// How far this task had written the queue to a root when it had sent a share.
#[derive(Clone, Copy)]
pub(crate) struct QueuePosition {
    pub root: u32,
    pub written: u64,
}

/// A group for which this task has asked.
pub(crate) struct CachedGroup {
    pub id: u64,
    name: Vec<u8>,
    pub view: GroupView,
    /// The instance of this task; `None` if it is not a member.
    pub instance: Option<u32>,
    /// The members as they were last read.
    membership: RefCell<Rc<Membership>>,
    /// The members at the time of the freeze. This task continues with them even if some leave.
    frozen: OnceCell<Rc<Membership>>,
    /// How far this task had written the queue to the root after each of its latest long shares (its parts of
    /// collective operations), the newest first. `SHORT_SHARES` short shares count as one long share.
    ahead: Cell<[Option<QueuePosition>; AHEAD_MAX]>,
    short_shares: Cell<u32>,
    taken_shares: Cell<u32>,
}

impl CachedGroup {
    /// Returns the name of the group, for the state line.
    pub fn label(&self) -> Label {
        Label::new(&self.name)
    }

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
    pub fn keep_frozen(&self) {
        let version = self.view.version();
        self.frozen.get_or_init(|| Rc::new(Membership { version, members: self.view.frozen_members() }));
    }

    /// Returns the members that were read last, if they have not changed.
    #[inline]
    pub fn cached_membership(&self) -> Option<Rc<Membership>> {
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
    pub fn refresh_membership(&self) -> Rc<Membership> {
        let before = self.view.version();
        let members = self.view.members();
        // If the list changed meanwhile, this membership is used only once.
        let version = if self.view.version() == before { before } else { STALE };
        let membership = Rc::new(Membership { version, members });
        *self.membership.borrow_mut() = membership.clone();
        membership
    }

    /// Returns the context of the group's own messages.
    pub fn ctx(&self) -> i32 {
        GROUP_CONTEXTS.start + (self.id % GROUP_CONTEXTS.len() as u64) as i32
    }

    /// Returns the code with which a wait for a member fails if the member is gone.
    pub fn loss(&self) -> Code {
        if self.view.is_frozen() || self.view.is_closed() { Code::NoGroup } else { Code::NoTask }
    }

    /// Counts a share that was sent. Returns whether it is a long share or completes [`SHORT_SHARES`] short ones.
    #[inline]
    pub fn count_sent(&self, bytes: usize) -> bool {
        if bytes > INLINE_BYTES_MAX {
            return true;
        }
        self.short_shares.set((self.short_shares.get() + 1) % SHORT_SHARES);
        self.short_shares.get() == 0
    }

    /// Notes how far this task has written the queue to a root.
    pub fn note_ahead(&self, position: QueuePosition) {
        let mut ahead = self.ahead.get();
        ahead.rotate_right(1);
        ahead[0] = Some(position);
        self.ahead.set(ahead);
    }

    /// Returns up to where a root must have read, or this task is too far ahead of it.
    #[inline]
    pub fn farthest_ahead(&self) -> Option<QueuePosition> {
        self.ahead.get()[AHEAD_MAX - 1]
    }

    /// Notes that the root has read up to there.
    pub fn forget_farthest(&self) {
        let mut ahead = self.ahead.get();
        ahead[AHEAD_MAX - 1] = None;
        self.ahead.set(ahead);
    }

    /// Counts a share that was received. Returns whether its sender should be woken.
    #[inline]
    pub fn count_taken(&self, bytes: usize) -> bool {
        self.taken_shares.set((self.taken_shares.get() + 1) % TAKEN_SHARES);
        bytes > INLINE_BYTES_MAX || self.taken_shares.get() == 0
    }
}

/// The tid that stands for an instance without a member.
const NOBODY: i32 = -1;

/// A handle to a group. It stays valid when the group ends, but calls with it then fail.
#[derive(Clone)]
pub struct Group(pub(crate) Rc<CachedGroup>);

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
    pub joined: Vec<(u64, u32)>,
    /// Shares that other members still send for collective operations that this task has given up. They are dropped
    /// when they arrive.
    pub abandoned: Vec<Filter>,
    pub waiters: GroupWaiters,
}

impl Groups {
    /// Returns the group with this name, if it is cached and still exists.
    #[inline]
    pub fn get(&mut self, name: &[u8]) -> Option<Group> {
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

    pub fn by_name(&self, name: &[u8]) -> Option<&Rc<CachedGroup>> {
        self.cached.iter().find(|group| group.name == name)
    }

    /// Caches a group whose memory has arrived. Fails with `OutOfRes` if there was no room for its descriptors or
    /// memory.
    pub fn enter(&mut self, name: &[u8], id: u64, instance: Option<u32>) -> Result<Group, Code> {
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

    /// Removes a group that this task has left.
    pub fn remove(&mut self, name: &[u8]) -> Option<Rc<CachedGroup>> {
        let at = self.cached.iter().position(|group| group.name == name)?;
        let group = self.cached.remove(at);
        self.joined.retain(|(id, _)| *id != group.id);
        Some(group)
    }

    /// Notes that an abandoned share was dropped.
    pub fn dropped_share(&mut self, share: &Filter) {
        if let Some(at) = self.abandoned.iter().position(|abandoned| abandoned == share) {
            self.abandoned.swap_remove(at);
        }
    }

    /// Forgets a group's abandoned shares that come from senders that have left the group.
    pub fn forget_shares(&mut self, ctx: i32, has_left: impl Fn(i32) -> bool) {
        self.abandoned.retain(|abandoned| abandoned.ctx != ctx || !has_left(abandoned.src));
    }

    /// Returns a frozen group that no longer exists at the daemon, if this task continues with its members.
    pub fn former(&self, name: &[u8]) -> Option<Group> {
        let group = self.by_name(name)?;
        Some(Group(group.clone())).filter(|group| group.0.frozen.get().is_some())
    }

    /// Takes in the memory of a group.
    pub fn on_group(&mut self, id: u64, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let Some(list) = descriptors.next() else { return };
        // If the memory cannot be mapped, it is missing when the daemon's reply arrives, and `enter` fails.
        if let Ok(view) = GroupView::open(list, descriptors.next()) {
            self.arrived.retain(|(other, _)| *other != id);
            self.arrived.push((id, view));
        }
    }
}
