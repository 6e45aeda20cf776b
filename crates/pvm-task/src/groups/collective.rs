//! `pvm_reduce`, `pvm_gather`, `pvm_scatter`: what they have in common.
//!
//! Each is a number of **shares** between the root and the other members. A share is a message in
//! the group's private context with the user's tag; it is received from its sender by name. The
//! shares of two members stay in order, so the n-th operation of the one meets the n-th of the
//! other, however far one of them is ahead (D20).
//!
//! All shares go straight to or from the root. A tree over the members would need all of them to
//! see the same membership; while somebody joins or dies they do not, and a share that goes to the
//! wrong parent is one that another operation takes for its own.
use super::{CachedGroup, Group, GroupWait, InPlace, Membership};
use crate::Task;
use crate::message::OWN_DSIG;
use crate::receive::Target;
use crate::types::{Delivered, Filter, Kind, Submit};
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_fmp::INLINE_BYTES_MAX;
use std::rc::Rc;

/// What a message says that should be a share of so many bytes.
#[inline]
fn content(delivered: Delivered, bytes: usize) -> Result<(), i32> {
    match delivered {
        Delivered { wid: failure @ ..0, .. } => Err(failure),
        Delivered { failure: Some(code), .. } => Err(code.number()),
        Delivered { len, .. } if len == bytes => Ok(()),
        _ => Err(Code::Mismatch.number()),
    }
}

/// One call of a collective operation.
pub struct Collective {
    known: Rc<CachedGroup>,
    membership: Rc<Membership>,
    instance: u32,
    root: GroupMember,
    tag: i32,
    /// Of the items of which shares consist.
    kind: Kind,
}

/// Another member's part in the operation.
#[derive(Clone, Copy)]
pub struct GroupMember {
    /// The member.
    pub instance: u32,
    tid: u32,
}

/// Where the queue to a root stood after a share.
#[derive(Clone, Copy)]
pub(super) struct QueuePosition {
    root: u32,
    written: u64,
}

/// Long shares that a task may be ahead of a root, and so many times [`SHORT_SHARES`]. More would
/// take memory for each, and the time to have it from the system.
pub(super) const AHEAD_MAX: usize = 2;
/// So many short shares count as a long one.
const SHORT_SHARES: u32 = 512;
/// After so many short shares the sender of the last one is woken, should it sleep. A prime, so
/// that each of any number of senders has its turn, and just below [`SHORT_SHARES`]: a sender has then
/// little to wait for any more, and has not run out of shares yet.
const TAKEN_SHARES: u32 = 509;

impl CachedGroup {
    /// Whether a share of so many bytes is one to count.
    #[inline]
    fn counts(&self, bytes: usize) -> bool {
        if bytes > INLINE_BYTES_MAX {
            return true;
        }
        self.short_shares.set((self.short_shares.get() + 1) % SHORT_SHARES);
        self.short_shares.get() == 0
    }

    /// Whether a sender may go on now that a share of so many bytes was taken.
    #[inline]
    fn relieves(&self, bytes: usize) -> bool {
        self.taken_shares.set((self.taken_shares.get() + 1) % TAKEN_SHARES);
        bytes > INLINE_BYTES_MAX || self.taken_shares.get() == 0
    }
}

impl Collective {
    /// The own instance.
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// How many members take part.
    pub fn size(&self) -> usize {
        self.membership.members.len()
    }

    /// Whether instances are numbered without holes.
    pub fn is_whole(&self) -> bool {
        self.membership.members.last().is_none_or(|(last, _)| *last as usize + 1 == self.size())
    }

    /// The other members, by instance.
    pub fn others(&self) -> impl Iterator<Item = GroupMember> + use<'_> {
        let others = self.membership.members.iter().filter(|(instance, _)| *instance != self.instance);
        others.map(|(instance, tid)| GroupMember { instance: *instance, tid: *tid })
    }

    /// The root, for others than itself.
    pub fn root(&self) -> Option<GroupMember> {
        (self.instance != self.root.instance).then_some(self.root)
    }

    fn filter(&self, share: GroupMember) -> Filter {
        Filter { src: share.tid as i32, tag: self.tag, ctx: self.known.ctx() }
    }

    /// Whether the member still is where it was.
    fn is_there(&self, share: GroupMember) -> bool {
        self.known.view.version() == self.membership.version
            || self.known.view.tid_of(share.instance) == Some(share.tid)
    }
}

impl Task {
    /// Begins an operation. `NotInGroup`, `NoInst` (no such root), `NoGroup`.
    #[inline]
    pub fn begin_collective(&mut self, group: &Group, root: i32, tag: i32, kind: Kind) -> Result<Collective, Code> {
        self.check_connected()?;
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let known = group.0.clone();
        let instance = known.instance.ok_or(Code::NotInGroup)?;
        let membership = known.cached_membership().unwrap_or_else(|| self.refresh_membership(&known));
        let root = u32::try_from(root).map_err(|_| Code::NoInst)?;
        if known.view.is_closed() {
            return Err(Code::NoGroup);
        }
        let root = GroupMember { instance: root, tid: membership.tid_of(root).ok_or(Code::NoInst)? };
        Ok(Collective { known, membership, instance, root, tag, kind })
    }

    /// Sends this task's share to another member, or the code of its failure in its place. Call
    /// again on [`Submit::Again`], as with [`Task::send`].
    #[inline]
    pub fn send_share(
        &mut self,
        operation: &Collective,
        to: GroupMember,
        share: Result<&[u8], i32>,
    ) -> Result<Submit, Code> {
        let (body, failure) = match share {
            Ok(body) => (body, 0),
            Err(code) => (&[][..], code),
        };
        let meta = [operation.known.ctx(), operation.tag, failure, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32);
        let submitted = self.send_slice(Tid(to.tid), meta, body)?;
        if submitted == Submit::Done && operation.known.counts(body.len()) {
            self.note_ahead(operation, to);
        }
        Ok(submitted)
    }

    fn note_ahead(&mut self, operation: &Collective, to: GroupMember) {
        let Some(member) = &self.member else { return };
        let mut ahead = operation.known.ahead.get();
        ahead.rotate_right(1);
        ahead[0] = Some(QueuePosition { root: to.tid, written: member.endpoint.written(to.tid) });
        operation.known.ahead.set(ahead);
    }

    /// Whether this task is so far ahead that it had better wait a little.
    #[inline]
    pub fn is_far_ahead(&mut self, operation: &Collective) -> bool {
        operation.known.ahead.get()[AHEAD_MAX - 1].is_some_and(|mark| self.is_unread(operation, mark))
    }

    /// Whether the root has not read as far as that. What it has read is not asked for again: each look takes
    /// a cache line from the root that it writes for every share.
    fn is_unread(&mut self, operation: &Collective, mark: QueuePosition) -> bool {
        let Some(member) = &mut self.member else { return false };
        if !member.endpoint.has_read(mark.root, mark.written) {
            return true;
        }
        let mut ahead = operation.known.ahead.get();
        ahead[AHEAD_MAX - 1] = None;
        operation.known.ahead.set(ahead);
        false
    }

    /// This task waits for a share of so many bytes from now on, until [`Task::end_share`].
    pub fn await_share(&mut self, operation: &Collective, from: GroupMember, bytes: usize) -> GroupWait {
        self.begin_precv(&operation.filter(from), bytes);
        self.wait_in(&operation.known, operation.instance, None)
    }

    /// [`Task::await_share`] for a share that is to be used in place: it is not announced, for then
    /// it would come from the sender's own memory, as a whole.
    pub fn await_share_in_place(&mut self, operation: &Collective) -> GroupWait {
        self.wait_in(&operation.known, operation.instance, None)
    }

    /// A wait for a share is over.
    pub fn end_share(&mut self, wait: GroupWait) {
        self.end_precv();
        self.end_group_wait(wait);
    }

    /// One try to receive a member's share; it must be just as long as `data`. Takes in what that
    /// member has sent, and nothing else. `Mismatch` for another length, `NoTask` or `NoGroup` when
    /// the member is gone; a failure that was sent in place of the share is given as it is.
    #[inline]
    pub fn try_share(&mut self, operation: &Collective, from: GroupMember, data: &mut [u8]) -> Option<Result<(), i32>> {
        self.try_share_into(operation, from, data.len(), data)
    }

    /// [`Task::try_share`] of a share that is used where it lies. Try again with the same `share`.
    #[inline]
    pub fn try_share_in_place(
        &mut self,
        operation: &Collective,
        from: GroupMember,
        share: &mut InPlace<'_>,
    ) -> Option<Result<(), i32>> {
        self.try_share_into(operation, from, share.bytes(), share)
    }

    #[inline]
    fn try_share_into<T: Target + ?Sized>(
        &mut self,
        operation: &Collective,
        from: GroupMember,
        bytes: usize,
        target: &mut T,
    ) -> Option<Result<(), i32>> {
        let filter = operation.filter(from);
        if self.has_unwanted() {
            self.drop_unwanted(&filter);
        }
        match self.try_precv_from(&filter, operation.kind, target) {
            Some(delivered) => {
                // What its sender had sent before is there too, and may be seen.
                self.reveal_all();
                if operation.known.relieves(delivered.len) {
                    // It may sleep because it was far ahead.
                    self.wake(from.tid);
                }
                Some(content(delivered, bytes))
            }
            None if !operation.is_there(from) => self.last_share(operation, from, bytes, target),
            None if operation.known.view.is_closed() => Some(Err(Code::NoGroup.number())),
            None => self.check_connected().err().map(|code| Err(code.number())),
        }
    }

    /// The share of a member that is gone may have come all the same.
    #[cold]
    fn last_share<T: Target + ?Sized>(
        &mut self,
        operation: &Collective,
        from: GroupMember,
        bytes: usize,
        target: &mut T,
    ) -> Option<Result<(), i32>> {
        self.request_socket_poll();
        self.take_in_all();
        match self.try_precv_from(&operation.filter(from), operation.kind, target) {
            Some(delivered) => Some(content(delivered, bytes)),
            None => Some(Err(operation.known.loss().number())),
        }
    }

    /// Before the shares of all are waited for: a member that has left a frozen group may have sent its share
    /// before, else there is nothing to wait for.
    #[inline]
    pub fn expect_shares(&mut self, operation: &Collective) -> Result<(), Code> {
        if operation.known.view.is_broken() { self.look_for_shares(operation) } else { Ok(()) }
    }

    #[cold]
    fn look_for_shares(&mut self, operation: &Collective) -> Result<(), Code> {
        self.request_socket_poll();
        self.take_in_all();
        let left = |share: &GroupMember| !operation.is_there(*share);
        let lacks = |share| self.state.store.find(&operation.filter(share)).is_none();
        if operation.others().filter(left).any(lacks) {
            self.give_up_shares(operation);
            return Err(operation.known.loss());
        }
        Ok(())
    }

    /// Gives an operation up whose shares others have sent or will send: they are dropped when they
    /// come, so that the next operation does not take them for its own.
    pub fn give_up_shares(&mut self, operation: &Collective) {
        operation.others().for_each(|share| self.give_up_share(operation, share));
    }

    /// The same with one member's share.
    pub fn give_up_share(&mut self, operation: &Collective, from: GroupMember) {
        if let Some(member) = &mut self.member {
            member.groups.unwanted.push(operation.filter(from));
        }
    }

    #[inline]
    fn has_unwanted(&self) -> bool {
        self.member.as_ref().is_some_and(|member| !member.groups.unwanted.is_empty())
    }

    #[cold]
    fn drop_unwanted(&mut self, filter: &Filter) {
        loop {
            let Some(member) = &self.member else { return };
            let Some(at) = member.groups.unwanted.iter().position(|unwanted| unwanted == filter) else { return };
            if self.try_precv_from(filter, Kind::Byte, &mut [][..]).is_none() {
                return;
            }
            if let Some(member) = &mut self.member {
                member.groups.unwanted.swap_remove(at);
            }
        }
    }

    /// Who the members are now. What others had sent before they went is of no use to anybody.
    #[cold]
    fn refresh_membership(&mut self, known: &CachedGroup) -> Rc<Membership> {
        let membership = known.refresh_membership();
        self.drop_shares(known, |tid| membership.members.iter().all(|(_, member)| *member as i32 != tid));
        membership
    }

    /// Forgets all shares of a group that this task has left.
    pub(super) fn drop_all_shares(&mut self, known: &CachedGroup) {
        self.take_in_all();
        self.drop_shares(known, |_| true);
    }

    fn drop_shares(&mut self, known: &CachedGroup, stale: impl Fn(i32) -> bool) {
        let ctx = known.ctx();
        if let Some(member) = &mut self.member {
            member.groups.unwanted.retain(|unwanted| unwanted.ctx != ctx || !stale(unwanted.src));
        }
        let store = &mut self.state.store;
        let is_stale = |slot: &u32| {
            let message = &store.table[*slot as usize];
            message.ctx == ctx && stale(message.src)
        };
        let stale: Vec<u32> = store.queue.walk(&store.table).filter(is_stale).collect();
        for slot in stale {
            store.free(slot as i32 + 1);
        }
    }
}
