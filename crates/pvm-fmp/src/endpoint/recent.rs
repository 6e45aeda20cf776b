//! The next message of the peer that sent last; the message is still in the queue.
use super::passed::{RecentBody, body_in_cell, progress_of};
use super::{Endpoint, RECENT_PROBES, SHORTS_PER_POLL, WATCH_PEERS};
use crate::arrival::{BodyInTransit, Outcome, Place, Transit};
use crate::pair_memory::ArrivedCell;
use crate::peer::{Inbound, Peer};
use crate::queue::{Entry, Kind};
use crate::remote::Remote;
use crate::traffic::{Route, Traffic, route_by};
use crate::{Immediate, Meta};
use std::cell::Cell;

impl Endpoint {
    /// Returns the next message of the most recent peer, if it is there with its body in the queue or in a cell: this is the
    /// shortest path to a message. Also returns `None` when it is time to [`Endpoint::poll`] all peers.
    /// `of_any`: the caller accepts messages of every peer, so the message must be the earliest one. No message is taken before an
    /// earlier entry of the daemon.
    #[inline(always)]
    pub fn probe_recent(&mut self, of_any: bool) -> Option<RecentMessage<'_>> {
        self.recent(of_any, false)
    }

    /// Does what [`Endpoint::probe_recent`] does, for a message that is there or arrives within some hundred nanoseconds.
    /// Waits for it under the same conditions as [`Endpoint::probe_recent_immediate`].
    #[inline(always)]
    pub fn await_recent(&mut self, of_any: bool) -> Option<RecentMessage<'_>> {
        self.recent(of_any, true)
    }

    #[inline(always)]
    fn recent(&mut self, of_any: bool, wait: bool) -> Option<RecentMessage<'_>> {
        let &index = self.order.first()?;
        let inbound = self.peers[index].as_deref()?.inbound.as_ref()?;
        if self.shorts >= SHORTS_PER_POLL || inbound.should_publish() {
            return None;
        }
        // SAFETY: the slice lives no longer than the borrow of the peer, which keeps its mapping.
        let ring = unsafe { inbound.slots() };
        let looks = if !wait || inbound.reader.has_next(ring) { 0 } else { self.recent_probes() };
        // Damage is handled by the next poll.
        let entry = inbound.reader.next_within(ring, looks).ok()??;
        if !self.may_be_taken(of_any, index, entry.stamp()) {
            return None;
        }
        let peer = self.peers[index].as_deref_mut()?;
        // The order of multicasts is a matter of the ordinary path.
        if entry.is_held() && (of_any || !peer.is_there(entry.stamp())) {
            return None;
        }
        let body = match entry.kind {
            Kind::Message => RecentBody::Queue,
            Kind::Passed => body_in_cell(peer, &entry)?,
            _ => return None,
        };
        let (shorts, unpublished, traffic) = (&mut self.shorts, &mut self.unpublished, self.traffic.share());
        Some(RecentMessage { entry, body, peer, shorts, unpublished, traffic })
    }

    /// Returns whether a message with this stamp may be taken by itself. For a caller that accepts messages of every peer, it must be
    /// the earliest one; for others, the daemon must have queued nothing before it, since that may be a gap ([`super::gaps`]).
    #[inline(always)]
    pub(super) fn may_be_taken(&self, of_any: bool, index: usize, stamp: u64) -> bool {
        match of_any {
            _ if self.order.len() <= 1 => true,
            true => self.is_earliest(index, stamp),
            false => self.is_before_daemon(stamp),
        }
    }

    /// Returns the peer from which [`Endpoint::poll`] took a message last, or one that was introduced since.
    #[inline(always)]
    pub fn most_recent_peer(&self) -> Option<u32> {
        let &index = self.order.first()?;
        Some(self.peers[index].as_ref()?.tid)
    }

    /// Returns the next message of [`Endpoint::most_recent_peer`], if it is an immediate message that is there or
    /// arrives within some hundred nanoseconds. Waits for it only if there are few other peers and none of them has
    /// sent. Also returns `None` when it is time to [`Endpoint::poll`] all peers. `of_any`: see [`Endpoint::probe_recent`].
    #[inline(always)]
    pub fn probe_recent_immediate(&mut self, of_any: bool) -> Option<RecentImmediate<'_>> {
        let &index = self.order.first()?;
        let inbound = self.peers[index].as_ref()?.inbound.as_ref()?;
        if self.shorts >= SHORTS_PER_POLL || inbound.should_publish() {
            return None;
        }
        // SAFETY: the slice lives no longer than this method, during which the peer keeps its mapping.
        let ring = unsafe { inbound.slots() };
        let looks = if inbound.reader.has_next(ring) { 0 } else { self.recent_probes() };
        let (immediate, stamp) = inbound.reader.next_immediate(ring, looks)?;
        if !self.may_be_taken(of_any, index, stamp) {
            return None;
        }
        let inbound = self.peers[index].as_mut()?.inbound.as_mut()?;
        Some(RecentImmediate {
            immediate,
            stamp,
            inbound,
            shorts: &mut self.shorts,
            unpublished: &mut self.unpublished,
            traffic: self.traffic.share(),
        })
    }

    /// Returns the next message of that peer, if it is an immediate message that is there. Also returns `None` when it is
    /// time to [`Endpoint::poll_peer`].
    #[inline(always)]
    pub fn probe_immediate_of(&mut self, tid: u32) -> Option<RecentImmediate<'_>> {
        let index = self.index_of(tid)?;
        let inbound = self.peers[index].as_ref()?.inbound.as_ref()?;
        if inbound.should_publish() {
            return None;
        }
        // SAFETY: the slice lives no longer than this method, during which the peer keeps its mapping.
        let ring = unsafe { inbound.slots() };
        let (immediate, stamp) = inbound.reader.next_immediate(ring, 0)?;
        if !self.may_be_taken(false, index, stamp) {
            return None;
        }
        let inbound = self.peers[index].as_mut()?.inbound.as_mut()?;
        Some(RecentImmediate {
            immediate,
            stamp,
            inbound,
            shorts: &mut self.shorts,
            unpublished: &mut self.unpublished,
            traffic: self.traffic.share(),
        })
    }

    /// Returns how often to probe the queue of the most recent peer: 0 while tasks outnumber the cores, when another
    /// peer has sent, or when there are too many other peers to check.
    fn recent_probes(&self) -> usize {
        let others = &self.order[1..];
        let has_sent = |index: &usize| {
            let inbound = self.peers[*index].as_ref().and_then(|peer| peer.inbound.as_ref());
            // SAFETY: the slice is used within this statement, the peer holds the mapping.
            inbound.is_some_and(|inbound| inbound.reader.has_next(unsafe { inbound.slots() }))
        };
        let busy = self.crowded() || others.len() >= WATCH_PEERS || others.iter().any(has_sent);
        if busy { 0 } else { RECENT_PROBES }
    }
}

/// A message that can be taken; see [`super::Endpoint::probe_recent`].
pub struct RecentMessage<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) body: RecentBody,
    pub(super) peer: &'a mut Peer,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
    pub(super) traffic: Traffic,
}

#[allow(clippy::len_without_is_empty)] // an empty message is a message, too
impl RecentMessage<'_> {
    /// Returns the tid of the sender.
    #[inline(always)]
    pub fn from(&self) -> u32 {
        self.peer.tid
    }

    /// Returns the length of the message's body in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self.body {
            RecentBody::Queue => self.entry.len(),
            RecentBody::Cell { bytes, .. } | RecentBody::Pipelined { bytes, .. } => bytes,
        }
    }

    /// Returns whether the body lies in the queue, and not in memory that the receiver could keep.
    #[inline(always)]
    pub fn is_in_queue(&self) -> bool {
        matches!(self.body, RecentBody::Queue)
    }

    /// Returns the meta words of the message.
    #[inline(always)]
    pub fn meta(&self) -> Meta {
        self.entry.meta()
    }

    /// Takes the message: copies its first bytes into `data`, up to the length of `data`. Returns the message's length;
    /// `None` if the sender stopped in the middle of the body: then the message is still there, and its bytes may be in
    /// `data`.
    #[inline(always)]
    pub fn take(self, data: &mut [u8]) -> Option<usize> {
        let bytes = self.len();
        match self.body {
            RecentBody::Queue => drop(self.entry.copy_to(data)),
            RecentBody::Cell { memory, cell, .. } => {
                memory.read(cell, data, bytes);
                memory.release(cell);
                self.peer.pair.note_arrival();
            }
            RecentBody::Pipelined { memory, cell, order, .. } => {
                self.peer.pair.note_order(&memory, bytes, order);
                let inbound = self.peer.inbound.as_mut()?;
                let before = progress_of(inbound, &memory, cell);
                let (outcome, place) = (Cell::new(Outcome::Later), Place::Cell { memory: &memory, cell, order });
                let (owner, transit) = (&self.peer.owner, Transit::Pipelined(place));
                // If the sender stops, a poll finds out whether it is dead.
                let body = BodyInTransit { owner, bytes, sender_lives: &|| true, outcome: &outcome, transit };
                if body.take(data).is_err() {
                    inbound.stalled = Some(before);
                    return None;
                }
                self.peer.pair.note_arrival();
            }
        }
        pass(self.peer, &self.entry, self.shorts, self.unpublished);
        self.traffic.received(route_by(self.peer.tid), bytes);
        Some(bytes)
    }

    /// Takes the message and its body, which stays where it is; `None` if the body does not lie in a cell that is complete:
    /// then the message is still there.
    #[inline(always)]
    pub fn keep(self) -> Option<Remote> {
        let RecentBody::Cell { memory, cell, bytes } = self.body else { return None };
        self.peer.pair.note_arrival();
        pass(self.peer, &self.entry, self.shorts, self.unpublished);
        self.traffic.received(Route::Memory, bytes);
        Some(Remote::in_cell(&self.peer.owner, ArrivedCell { memory, cell }, bytes))
    }
}

/// Moves past an entry that has been taken.
#[inline(always)]
fn pass(peer: &mut Peer, entry: &Entry<'_>, shorts: &mut u32, unpublished: &mut bool) {
    if let Some(inbound) = &mut peer.inbound {
        inbound.advance(entry.half_slots(), entry.stamp());
    }
    *shorts += 1;
    *unpublished = true;
}

/// An immediate message that can be taken; see [`super::Endpoint::probe_recent_immediate`].
pub struct RecentImmediate<'a> {
    /// The message itself.
    pub immediate: Immediate,
    pub(super) stamp: u64,
    pub(super) inbound: &'a mut Inbound,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
    pub(super) traffic: Traffic,
}

impl RecentImmediate<'_> {
    /// Takes the message.
    #[inline(always)]
    pub fn take(self) -> Immediate {
        self.inbound.advance(1, self.stamp);
        *self.shorts += 1;
        *self.unpublished = true;
        self.traffic.received(Route::Memory, self.immediate.len());
        self.immediate
    }
}
