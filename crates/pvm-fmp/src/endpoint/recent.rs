//! The next message of the peer that sent last; the message is still in the queue.
use crate::arrival::{BodyInTransit, Outcome, Place, Transit};
use crate::pair_memory::PairMemory;
use crate::peer::{Inbound, Peer};
use crate::queue::Entry;
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
                let (outcome, place) = (Cell::new(Outcome::Later), Place::Cell { memory: &memory, cell, order });
                let (owner, transit) = (&self.peer.owner, Transit::Pipelined(place));
                // If the sender stops, a poll finds out whether it is dead.
                let body = BodyInTransit { owner, bytes, sender_lives: &|| true, outcome: &outcome, transit };
                body.take(data).ok()?;
                self.peer.pair.note_arrival();
            }
        }
        if let Some(inbound) = &mut self.peer.inbound {
            inbound.advance(self.entry.half_slots());
        }
        *self.shorts += 1;
        *self.unpublished = true;
        Some(bytes)
    }
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
