//! The next message of the peer that sent last; the message is still in the queue.
use super::passed::progress_of;
use crate::arrival::{BodyInTransit, Outcome, Place, Transit};
use crate::pair_memory::{ArrivedCell, PairMemory};
use crate::peer::{Inbound, Peer};
use crate::queue::Entry;
use crate::remote::Remote;
use crate::{Immediate, Meta};
use std::cell::Cell;
use std::rc::Rc;

/// A message that can be taken; see [`super::Endpoint::probe_recent`].
pub struct RecentMessage<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) body: RecentBody,
    pub(super) peer: &'a mut Peer,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
}

/// Where the body of a message lies.
pub(super) enum RecentBody {
    /// In the queue.
    Queue,
    /// In a cell, which has room for that many bytes.
    Cell { memory: Rc<PairMemory>, cell: u32, bytes: usize },
    /// In such a cell, to which its sender may still be writing; `order` is what the sender asks for ([`crate::ways`]).
    Pipelined { memory: Rc<PairMemory>, cell: u32, bytes: usize, order: u64 },
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
        Some(bytes)
    }

    /// Takes the message and its body, which stays where it is; `None` if the body does not lie in a cell that is complete:
    /// then the message is still there.
    #[inline(always)]
    pub fn keep(self) -> Option<Remote> {
        let RecentBody::Cell { memory, cell, bytes } = self.body else { return None };
        self.peer.pair.note_arrival();
        pass(self.peer, &self.entry, self.shorts, self.unpublished);
        Some(Remote::in_cell(&self.peer.owner, ArrivedCell { memory, cell }, bytes))
    }
}

/// Moves past an entry that has been taken.
#[inline(always)]
fn pass(peer: &mut Peer, entry: &Entry<'_>, shorts: &mut u32, unpublished: &mut bool) {
    if let Some(inbound) = &mut peer.inbound {
        inbound.advance(entry.half_slots());
    }
    *shorts += 1;
    *unpublished = true;
}

/// An immediate message that can be taken; see [`super::Endpoint::probe_recent_immediate`].
pub struct RecentImmediate<'a> {
    /// The message itself.
    pub immediate: Immediate,
    pub(super) inbound: &'a mut Inbound,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
}

impl RecentImmediate<'_> {
    /// Takes the message.
    #[inline(always)]
    pub fn take(self) -> Immediate {
        self.inbound.advance(1);
        *self.shorts += 1;
        *self.unpublished = true;
        self.immediate
    }
}
