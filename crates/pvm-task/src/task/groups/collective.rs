//! The common part of `pvm_reduce`, `pvm_gather` and `pvm_scatter`.
//!
//! Each operation consists of **shares** between the root and the other members. A share is a message in the group's
//! private context with the user's tag; each receive names the sender of the share. The shares between two members stay
//! in order, so the n-th operation of one member meets the n-th of the other, however far one of them is ahead (D20).
//!
//! All shares go directly to or from the root. A tree over the members would work only if all of them saw the same
//! membership. While a member joins or dies, the others may see different memberships. A share that was sent to the
//! wrong parent would then be mistaken for a share of another operation.
use crate::groups::{CachedGroup, Group, GroupWait, InPlace, Membership, QueuePosition};
use crate::message::OWN_DSIG;
use crate::target::Target;
use crate::task::Task;
use crate::types::{Delivered, Filter, Kind, Submit};
use pvm_core::codes::Code;
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use pvm_fmp::{Immediate, WELL_KNOWN_HEADERS};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The index in [`WELL_KNOWN_HEADERS`] of the last meta words of a share that carries no failure.
const OWN_HEADER: usize = 0;
const _: () = {
    let [wid, enc, format, far] = WELL_KNOWN_HEADERS[OWN_HEADER];
    assert!(wid == 0 && enc == OWN_DSIG as u32 && format == OWN_DSIG as u32 && far == 0);
};

/// Checks that a message is a share of `bytes` bytes. If the message carries a failure in place of a share, fails with
/// this failure; if the length differs, fails with `Mismatch`.
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
    group: Rc<CachedGroup>,
    membership: Rc<Membership>,
    instance: u32,
    root: GroupMember,
    tag: i32,
    /// The kind of the items in shares.
    kind: Kind,
    /// The first meta words of a share.
    first: [u32; 2],
}

/// Another member that takes part in the operation.
#[derive(Clone, Copy)]
pub struct GroupMember {
    /// The member's instance.
    pub instance: u32,
    tid: u32,
}

/// How long a task that looks for the share of a member that is gone waits for a frame of the daemon before it, and the pause
/// between two looks.
const FRAME_WAIT_MAX: Duration = Duration::from_secs(1);
const FRAME_PAUSE: Duration = Duration::from_millis(1);

impl Collective {
    /// Returns the wait for a share of that member, or until it has taken ours, for the state line.
    pub fn call(&self, of: GroupMember) -> Call {
        Call::Collective { group: self.group.label(), of: Tid(of.tid) }
    }

    /// Returns the instance of this task.
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns how many members take part.
    pub fn size(&self) -> usize {
        self.membership.members.len()
    }

    /// Returns whether the instances have no holes.
    pub fn is_whole(&self) -> bool {
        self.membership.members.last().is_none_or(|(last, _)| *last as usize + 1 == self.size())
    }

    /// Returns the other members in the order of their instances.
    pub fn others(&self) -> impl Iterator<Item = GroupMember> + use<'_> {
        let others = self.membership.members.iter().filter(|(instance, _)| *instance != self.instance);
        others.map(|(instance, tid)| GroupMember { instance: *instance, tid: *tid })
    }

    /// Returns the root; `None` if this task is the root.
    pub fn root(&self) -> Option<GroupMember> {
        (self.instance != self.root.instance).then_some(self.root)
    }

    fn filter(&self, member: GroupMember) -> Filter {
        Filter { src: member.tid as i32, tag: self.tag, ctx: self.group.ctx() }
    }

    /// Returns whether the member still has its instance.
    fn is_there(&self, member: GroupMember) -> bool {
        self.group.view.version() == self.membership.version
            || self.group.view.tid_of(member.instance) == Some(member.tid)
    }
}

impl Task {
    /// Begins an operation. Fails with `NotInGroup`, `NoInst` (no such root) or `NoGroup`.
    #[inline]
    pub fn begin_collective(&mut self, group: &Group, root: i32, tag: i32, kind: Kind) -> Result<Collective, Code> {
        self.check_connected()?;
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let group = group.0.clone();
        let instance = group.instance.ok_or(Code::NotInGroup)?;
        let membership = group.cached_membership().unwrap_or_else(|| self.refresh_membership(&group));
        let root = u32::try_from(root).map_err(|_| Code::NoInst)?;
        if group.view.is_closed() {
            return Err(Code::NoGroup);
        }
        let root = GroupMember { instance: root, tid: membership.tid_of(root).ok_or(Code::NoInst)? };
        let first = [group.ctx() as u32, tag as u32];
        Ok(Collective { group, membership, instance, root, tag, kind, first })
    }

    /// Sends this task's share to another member, or, if this task has failed, the code of the failure in place of the
    /// share. After [`Submit::Again`] the call has to be repeated, as with [`Task::send`].
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
        let meta = [operation.group.ctx(), operation.tag, failure, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32);
        let submitted = self.send_slice(Tid(to.tid), meta, body)?;
        if submitted == Submit::Done && operation.group.count_sent(body.len()) {
            self.note_ahead(operation, to);
        }
        Ok(submitted)
    }

    /// Notes how far this task has written the queue to a root.
    fn note_ahead(&mut self, operation: &Collective, to: GroupMember) {
        let Some(member) = &self.member else { return };
        operation.group.note_ahead(QueuePosition { root: to.tid, written: member.endpoint.written(to.tid) });
    }

    /// Returns whether this task is so far ahead of the root that it should wait a little.
    #[inline]
    pub fn is_far_ahead(&mut self, operation: &Collective) -> bool {
        operation.group.farthest_ahead().is_some_and(|position| self.is_unread(operation, position))
    }

    /// Returns whether the root has not yet read up to the position. If the root has, drops the position, so that it is
    /// not checked again: each check takes a cache line from the root, and the root writes this line for every share.
    fn is_unread(&mut self, operation: &Collective, position: QueuePosition) -> bool {
        let Some(member) = &mut self.member else { return false };
        if !member.endpoint.has_read(position.root, position.written) {
            return true;
        }
        operation.group.forget_farthest();
        false
    }

    /// Begins a wait for a share of `bytes` bytes. [`Task::end_share`] ends the wait.
    pub fn await_share(&mut self, operation: &Collective, from: GroupMember, bytes: usize) -> GroupWait {
        self.begin_precv(&operation.filter(from), bytes);
        self.begin_group_wait(&operation.group, operation.instance, None)
    }

    /// As [`Task::await_share`], for a share that is used in place. Posts no receive: to a posted receive, the sender
    /// would send the address of the share in its own memory (a rendezvous), and such a share cannot be used in place.
    pub fn await_share_in_place(&mut self, operation: &Collective) -> GroupWait {
        self.begin_group_wait(&operation.group, operation.instance, None)
    }

    /// Ends a wait for a share.
    pub fn end_share(&mut self, wait: GroupWait) {
        self.end_precv();
        self.end_group_wait(wait);
    }

    /// Receives a share of 4, 8 or 16 bytes that is the next message of its sender, by the shortest path. Returns whether
    /// it did; if not, [`Task::try_share`] looks further.
    #[inline(always)]
    pub fn share_at_once(&mut self, operation: &Collective, from: GroupMember, data: &mut [u8]) -> bool {
        let state = &self.state;
        if !state.store.queue.is_empty() || state.handlers.may_intercept() || state.output.collects_any() {
            return false;
        }
        let Some(member) = self.member.as_mut().filter(|member| member.groups.abandoned.is_empty()) else {
            return false;
        };
        let Some(next) = member.endpoint.probe_immediate_of(from.tid) else { return false };
        let Immediate { first, well_known, .. } = next.immediate;
        let is_share = first == operation.first && well_known == OWN_HEADER && next.immediate.len() == data.len();
        if !is_share || !next.immediate.copy_numbers_to(data) {
            return false;
        }
        next.take();
        member.idle_since = None;
        if operation.group.count_taken(data.len()) {
            self.wake(from.tid);
        }
        true
    }

    /// Tries once to receive a member's share, which must have the length of `data`. Takes in only messages of that
    /// member. Fails with `Mismatch` for another length, with `NoTask` or `NoGroup` if the member is gone, or with the
    /// failure that the member has sent in place of the share.
    #[inline]
    pub fn try_share(&mut self, operation: &Collective, from: GroupMember, data: &mut [u8]) -> Option<Result<(), i32>> {
        self.try_share_into(operation, from, data.len(), data)
    }

    /// As [`Task::try_share`], for a share that is used in place. Further tries must pass the same `share`.
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
        match self.take_share(operation, from, target) {
            Some(delivered) => {
                // Earlier messages of the share's sender have been taken in too. They become visible now.
                self.reveal_all();
                if operation.group.count_taken(delivered.len) {
                    // The sender may sleep because it was far ahead of the root.
                    self.wake(from.tid);
                }
                Some(content(delivered, bytes))
            }
            None if !operation.is_there(from) => self.last_share(operation, from, bytes, target),
            None if operation.group.view.is_closed() => Some(Err(Code::NoGroup.number())),
            None => self.check_connected().err().map(|code| Err(code.number())),
        }
    }

    /// Receives the next share of a member, if it has arrived. Abandoned shares of this member are dropped before.
    #[inline]
    fn take_share<T: Target + ?Sized>(
        &mut self,
        operation: &Collective,
        from: GroupMember,
        target: &mut T,
    ) -> Option<Delivered> {
        let filter = operation.filter(from);
        if self.has_abandoned_shares() && !self.drop_abandoned_shares(&filter) {
            return None;
        }
        self.try_precv_from(&filter, operation.kind, target)
    }

    /// Tries a last time to receive the share of a member that is gone.
    #[cold]
    fn last_share<T: Target + ?Sized>(
        &mut self,
        operation: &Collective,
        from: GroupMember,
        bytes: usize,
        target: &mut T,
    ) -> Option<Result<(), i32>> {
        self.take_in_shares();
        match self.take_share(operation, from, target) {
            Some(delivered) => Some(content(delivered, bytes)),
            // It may have arrived behind a gap.
            None if self.state.backlog.is_open() => None,
            None => Some(Err(operation.group.loss().number())),
        }
    }

    /// Takes in everything that has arrived. Waits a little for what is queued behind messages of the daemon that wait for
    /// room in this task's socket, or behind a gap.
    fn take_in_shares(&mut self) {
        let end = Instant::now() + FRAME_WAIT_MAX;
        loop {
            self.request_socket_poll();
            self.take_in_all();
            let waits_for_frame = self.member.as_ref().is_some_and(|member| member.endpoint.waits_for_frame());
            let waits = waits_for_frame || self.state.backlog.is_open();
            if !waits || Instant::now() >= end {
                return;
            }
            std::thread::sleep(FRAME_PAUSE);
        }
    }

    /// Checks that the shares of all members that have left a frozen group have arrived: a wait for a missing share
    /// would not end. Must be called before a wait for the shares of all members.
    #[inline]
    pub fn expect_shares(&mut self, operation: &Collective) -> Result<(), Code> {
        if operation.group.view.is_broken() { self.look_for_shares(operation) } else { Ok(()) }
    }

    #[cold]
    fn look_for_shares(&mut self, operation: &Collective) -> Result<(), Code> {
        self.take_in_shares();
        let left = |member: &GroupMember| !operation.is_there(*member);
        let lacks = |member| !self.state.has_taken_in(&operation.filter(member));
        if operation.others().filter(left).any(lacks) {
            self.give_up_shares(operation);
            return Err(operation.group.loss());
        }
        Ok(())
    }

    /// Gives an operation up. The shares of other members are dropped when they arrive, so that the next operation does
    /// not mistake them for its own shares.
    pub fn give_up_shares(&mut self, operation: &Collective) {
        operation.others().for_each(|member| self.give_up_share(operation, member));
    }

    /// Gives up the share of one member, see [`Task::give_up_shares`].
    pub fn give_up_share(&mut self, operation: &Collective, from: GroupMember) {
        if let Some(member) = &mut self.member {
            member.groups.abandoned.push(operation.filter(from));
        }
    }

    #[inline]
    fn has_abandoned_shares(&self) -> bool {
        self.member.as_ref().is_some_and(|member| !member.groups.abandoned.is_empty())
    }

    /// Drops the abandoned shares that the filter accepts: they would be mistaken for the expected share. Returns whether
    /// all of them have arrived; a share that arrives after a call that returned false may be an abandoned one.
    #[cold]
    fn drop_abandoned_shares(&mut self, filter: &Filter) -> bool {
        while self.member.as_ref().is_some_and(|member| member.groups.abandoned.contains(filter)) {
            if self.try_precv_from(filter, Kind::Byte, &mut [][..]).is_none() {
                return false;
            }
            if let Some(member) = &mut self.member {
                member.groups.dropped_share(filter);
            }
        }
        true
    }

    /// Reads the members anew. Drops the shares of tasks that are not members any more.
    #[cold]
    fn refresh_membership(&mut self, group: &CachedGroup) -> Rc<Membership> {
        let membership = group.refresh_membership();
        self.drop_shares(group, |tid| !membership.contains(tid));
        membership
    }

    /// Drops all shares of a group that this task has left.
    pub(super) fn drop_all_shares(&mut self, group: &CachedGroup) {
        self.take_in_all();
        self.drop_shares(group, |_| true);
    }

    /// Drops the queued shares of a group that come from senders for which `stale` returns true.
    fn drop_shares(&mut self, group: &CachedGroup, stale: impl Fn(i32) -> bool) {
        let ctx = group.ctx();
        if let Some(member) = &mut self.member {
            member.groups.forget_shares(ctx, &stale);
        }
        let store = &mut self.state.store;
        let is_stale = |slot: &u32| {
            let message = &store.table[*slot as usize];
            message.ctx == ctx && stale(message.src)
        };
        let stale: Vec<u32> = store.queue.walk(&store.table).filter(is_stale).collect();
        let kept: Vec<u32> = self.state.backlog.slots().filter(is_stale).collect();
        self.state.backlog.forget(&kept);
        for slot in stale.into_iter().chain(kept) {
            store.free(slot as i32 + 1);
        }
    }
}
