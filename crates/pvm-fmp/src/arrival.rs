//! Arriving bodies: in the queue, in the sender's heap, or in the sender's own memory.
use crate::BODY_BYTES_MAX;
use crate::copy::{self, CopyMode};
use crate::cross_memory;
use crate::memory;
use crate::not_taken::NotTaken;
use crate::owner::{Keeping, Owner};
use crate::pair_memory::{ArrivedCell, PairMemory};
use crate::pipelined;
use crate::process::Refusal;
use crate::queue::Entry;
use crate::remote::Remote;
use crate::rendezvous::{self, SenderState};
use crate::segment_layout::PeerRecord;
use crate::streamed_body::StreamedBody;
use crate::sync::{AtomicU64, ReadOnlyLoad};
use crate::ways;
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The most fragments that a body in the heap can have: a descriptor of this many fragments just fits into a queue
/// entry.
pub const FRAGMENTS_MAX: usize = (crate::INLINE_BYTES_MAX - 8) / 16;

/// The longest body, in bytes, that is copied to new memory without a check of the available memory.
const UNCHECKED_BYTES_MAX: usize = 64 << 20;

/// How long a receiver that has claimed the body of a rendezvous waits for a sender that is deciding whether to
/// withdraw. A sender that takes longer has been stopped between two instructions, or breaks the rules.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(10);

/// A body that arrived in the queue; copy it out before returning from [`Sink::arrived`].
pub struct Inline<'a>(pub(crate) Entry<'a>);

impl Inline<'_> {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the body, or as much of it as `data` can hold. Returns the number of bytes copied.
    #[inline]
    pub fn copy_to(&self, data: &mut [u8]) -> usize {
        self.0.copy_to(data)
    }
}

/// How the transfer of a [`BodyInTransit`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Taken,
    Later,
    Lost,
}

/// A body that is still in transit: it lies in the sender's own memory (a rendezvous), the sender is still writing it
/// to its heap or to a cell (a pipelined or streamed send), or it lies in the daemon's heap (a borrowed payload). Take the
/// body at once, into its final place if that is known, else into new memory. If this value is dropped instead, the
/// message arrives again: as a [`Remote`] once the heap or the cell has the whole body, otherwise (and always for a
/// borrowed payload) as a body in transit.
pub struct BodyInTransit<'a> {
    pub(crate) owner: &'a Rc<Owner>,
    pub(crate) bytes: usize,
    pub(crate) sender_lives: &'a dyn Fn() -> bool,
    pub(crate) outcome: &'a Cell<Outcome>,
    pub(crate) transit: Transit<'a>,
}

/// The transfer protocol of a body.
pub(crate) enum Transit<'a> {
    /// A rendezvous: both sides copy the body out of the sender's own memory.
    Rendezvous(RendezvousSource<'a>),
    /// A pipelined send: the sender is writing the body, piece by piece.
    Pipelined(Place<'a>),
    /// A streamed send: the sender is writing the body, which goes through a cell.
    Streamed(StreamedBody<'a>),
    /// A borrowed payload: the body lies in the daemon's heap until the entry has been read, or longer if the task keeps it.
    Borrowed(&'a Remote),
}

/// Where the body of a pipelined send lies, which may be incomplete.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In the sender's heap, behind its head at `offset`.
    Heap { token: u32, offset: u64 },
    /// In a cell, which has room for the body; `order` is what the sender asks for ([`crate::ways`]).
    Cell { memory: &'a Rc<PairMemory>, cell: u32, order: u64 },
}

impl<'a> Place<'a> {
    /// Returns the word that counts the bytes that are written; `None` if `bytes` bytes cannot lie there. The body
    /// follows [`pipelined::HEAD_BYTES`] behind the word.
    pub fn progress(&self, owner: &'a Owner, bytes: usize) -> Option<&'a AtomicU64> {
        match *self {
            Place::Heap { offset, .. } => pipelined_progress(owner, offset, bytes),
            Place::Cell { memory, cell, .. } => (bytes <= memory.capacity()).then(|| memory.progress(cell)),
        }
    }

    /// Returns the mode for which the sender asks.
    fn mode(&self) -> CopyMode {
        match self {
            Place::Cell { order, .. } => ways::way_of(*order).copy_out,
            Place::Heap { .. } => CopyMode::Cached,
        }
    }

    /// Notes for the sender that the body has been copied out.
    fn finish(&self) {
        if let Place::Cell { memory, order, .. } = self {
            ways::finish(memory.finished(true), *order);
        }
    }

    /// Returns the complete body, or `None` if it cannot lie there. The drop of the result releases the memory.
    pub fn complete(&self, owner: &Rc<Owner>, bytes: usize) -> Option<Remote> {
        match *self {
            Place::Heap { token, offset } => {
                Remote::from_place(owner, token, offset + pipelined::HEAD_BYTES as u64, bytes as u64)
            }
            Place::Cell { memory, cell, .. } => (bytes <= memory.capacity())
                .then(|| Remote::in_cell(owner, ArrivedCell { memory: memory.clone(), cell }, bytes)),
        }
    }
}

/// The sender's memory in a [`crate::rendezvous`].
pub(crate) struct RendezvousSource<'a> {
    /// The sender's record for this task, and this task's record for the sender.
    pub theirs: &'a PeerRecord,
    pub ours: &'a PeerRecord,
    pub number: u64,
    pub address: u64,
    /// Cleared when the system forbids copies between processes.
    pub allowed: &'a Cell<bool>,
}

impl BodyInTransit<'_> {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Leaves the body where it lies, if it is a borrowed payload that the daemon allows the task to keep, and the task
    /// keeps no other one. The daemon's memory is free again when the result is dropped.
    pub fn keep(&self) -> Option<Remote> {
        let Transit::Borrowed(remote) = &self.transit else { return None };
        if self.owner.kept.get() == Keeping::Reading {
            return None;
        }
        let kept = remote.kept()?;
        self.owner.kept.set(Keeping::Reading);
        self.outcome.set(Outcome::Taken);
        Some(kept)
    }

    /// Copies all bytes to the end of `data`, which has room for them.
    pub fn take_all(self, data: &mut Vec<u8>) -> Result<(), NotTaken> {
        let start = data.len();
        if let Transit::Borrowed(remote) = self.transit {
            remote.append_to(data);
            self.outcome.set(Outcome::Taken);
            return Ok(());
        }
        if self.bytes > UNCHECKED_BYTES_MAX && !memory::can_have(self.bytes as u64) {
            return self.end(Err(NotTaken::Later));
        }
        data.resize(start + self.bytes, 0);
        self.take(&mut data[start..])
    }

    /// Copies the first `data.len()` bytes (at most `len`) in one call. After that the sender may reuse its memory,
    /// even if `data` has room for only a part of the body.
    pub fn take(self, data: &mut [u8]) -> Result<(), NotTaken> {
        let count = data.len().min(self.bytes);
        let data = &mut data[..count];
        let result = match &self.transit {
            Transit::Rendezvous(memory) => memory.take(self.owner, data, self.sender_lives),
            Transit::Pipelined(place) => {
                let mode = place.mode();
                let each = &mut |at: usize, from: *const u8, count: usize| {
                    // SAFETY: `count` bytes lie there, to which no reference exists; they may be anything.
                    unsafe { copy::copy_shared_by(mode, from, data[at..at + count].as_mut_ptr(), count) }
                };
                self.follow(place, count, &mut 0, each).inspect(|()| place.finish())
            }
            Transit::Streamed(streamed) => streamed.take(data),
            Transit::Borrowed(remote) => {
                remote.read(0, data);
                Ok(())
            }
        };
        self.end(result)
    }

    /// Passes the body to `each` without a copy, piece by piece, as the sender writes it. `each` gets the offset of the
    /// piece in the body (a multiple of 64), the address of its first byte, and its length. `each` may read the piece
    /// only during the call; a sender that breaks the rules may change the piece at any time. The first `done` bytes
    /// are skipped, and `done` grows with each piece: after [`NotTaken::Later`] the caller passes the same `done` when
    /// the message arrives again. For a rendezvous the result is always [`NotTaken::Later`]: its body arrives again
    /// through the heap.
    pub fn use_pieces(self, done: &mut usize, each: &mut dyn FnMut(usize, *const u8, usize)) -> Result<(), NotTaken> {
        let result = match &self.transit {
            Transit::Rendezvous(_) => Err(NotTaken::Later),
            Transit::Pipelined(place) => self.follow(place, self.bytes, done, each),
            Transit::Streamed(streamed) => streamed.use_pieces(done, each),
            Transit::Borrowed(remote) => {
                remote.use_pieces(done, each);
                Ok(())
            }
        };
        self.end(result)
    }

    fn end(&self, result: Result<(), NotTaken>) -> Result<(), NotTaken> {
        self.outcome.set(match &result {
            Ok(()) | Err(NotTaken::Eager(_)) => Outcome::Taken,
            Err(NotTaken::Later) => Outcome::Later,
            Err(NotTaken::Lost) => Outcome::Lost,
        });
        result
    }

    /// Passes bytes `done..wanted` of a pipelined body to `each` as the sender writes them. Returns [`NotTaken::Later`]
    /// if the sender makes no progress for a while: it may be stopped, or waiting for a core.
    fn follow(
        &self,
        place: &Place<'_>,
        wanted: usize,
        done: &mut usize,
        each: &mut dyn FnMut(usize, *const u8, usize),
    ) -> Result<(), NotTaken> {
        let (owner, bytes) = (self.owner, self.bytes);
        let Some(progress) = place.progress(owner, bytes) else { return Err(NotTaken::Lost) };
        let body = ptr::from_ref(progress).cast::<u8>().wrapping_add(pipelined::HEAD_BYTES);
        let mut spins = 0u32;
        loop {
            let there = pipelined::available(progress).min(bytes);
            let whole = if there == bytes { bytes } else { there / pipelined::UNIT_BYTES * pipelined::UNIT_BYTES };
            let end = whole.min(wanted);
            if end > *done {
                // `progress` checked that the body lies in the mapping, which `owner` keeps, or in the cell.
                each(*done, body.wrapping_add(*done), end - *done);
                (*done, spins) = (end, 0);
            }
            if there == bytes {
                // This value is made only to be dropped: the drop releases the memory.
                drop(place.complete(owner, bytes));
                return Ok(());
            }
            spins += 1;
            if spins > pipelined::SPINS_MAX {
                let lost = !(self.sender_lives)() && pipelined::available(progress) != bytes;
                return Err(if lost { NotTaken::Lost } else { NotTaken::Later });
            }
            std::hint::spin_loop();
        }
    }
}

impl RendezvousSource<'_> {
    fn take(&self, owner: &Rc<Owner>, data: &mut [u8], lives: &dyn Fn() -> bool) -> Result<(), NotTaken> {
        if self.allowed.get() {
            let header = owner.mapping.header();
            let into = (data.as_mut_ptr(), data.len());
            // SAFETY: `data` is lent for writing, and not looked at before the call is over.
            let received = unsafe {
                cross_memory::receive(header, self.theirs, self.ours, self.number, self.address, into, lives)
            };
            match received {
                Ok(()) if self.claim(lives) == SenderState::Open => return Ok(()),
                Ok(()) | Err(Refusal::Gone) => {}
                Err(Refusal::Forbidden) => self.allowed.set(false),
            }
        }
        match rendezvous::sender_state(&self.theirs.rendezvous, self.number) {
            SenderState::Eager => return Err(self.eager(owner)),
            SenderState::Withdrawn => return Err(NotTaken::Lost),
            SenderState::Open | SenderState::InDoubt | SenderState::Other => {}
        }
        if !lives() {
            return Err(NotTaken::Lost);
        }
        rendezvous::request_eager(&self.ours.taken, self.number);
        Err(NotTaken::Later)
    }

    fn eager(&self, owner: &Rc<Owner>) -> NotTaken {
        match eager_body(owner, self.theirs) {
            Some(body) => NotTaken::Eager(body),
            None if owner.mapping.take_starved() => NotTaken::Later,
            None => NotTaken::Lost,
        }
    }

    fn claim(&self, lives: &dyn Fn() -> bool) -> SenderState {
        let mut start = None;
        let may_wait = || lives() && start.get_or_insert_with(Instant::now).elapsed() < DECISION_WAIT_MAX;
        rendezvous::claim(&self.theirs.rendezvous, &self.ours.taken, self.number, may_wait)
    }
}

/// Returns the word in which the sender publishes how many bytes of a pipelined body it has written.
pub(crate) fn pipelined_progress(owner: &Owner, offset: u64, bytes: usize) -> Option<&AtomicU64> {
    let whole = (bytes as u64).checked_add(pipelined::HEAD_BYTES as u64)?;
    if bytes > BODY_BYTES_MAX || offset % pipelined::HEAD_BYTES as u64 != 0 {
        return None;
    }
    // SAFETY: lies in the mapping, aligned, and an atomic.
    Some(unsafe { owner.mapping.reach(offset, whole)?.cast::<AtomicU64>().as_ref() })
}

/// Returns the body of the sender's last rendezvous, which has fallen back to eager.
pub(crate) fn eager_body(owner: &Rc<Owner>, theirs: &PeerRecord) -> Option<Remote> {
    let word = |word: &AtomicU64| word.load_relaxed();
    Remote::from_place(owner, word(&theirs.eager_token) as u32, word(&theirs.eager_offset), word(&theirs.eager_bytes))
}

/// Where the body of an arrived message is.
pub enum Arrival<'a> {
    /// In the queue.
    Inline(Inline<'a>),
    /// In the sender's heap.
    Remote(Remote),
    /// Still in transit.
    InTransit(BodyInTransit<'a>),
}

impl<'a> Arrival<'a> {
    /// Returns the length of the body in bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Arrival::Inline(inline) => inline.len(),
            Arrival::Remote(remote) => remote.len(),
            Arrival::InTransit(body) => body.bytes,
        }
    }

    /// Returns where it is noted whether the body has been taken, if that is in doubt.
    #[inline(always)]
    pub(crate) fn outcome(&self) -> Option<&'a Cell<Outcome>> {
        match self {
            Arrival::InTransit(body) => Some(body.outcome),
            Arrival::Inline(_) | Arrival::Remote(_) => None,
        }
    }
}

/// Takes messages that arrive.
pub trait Sink {
    /// Takes a message of task `from`. Messages of one sender arrive in the order in which they were sent.
    fn arrived(&mut self, from: u32, meta: crate::Meta, body: Arrival<'_>);
    /// Notes that the next `count` messages of another host, which the daemon passes on, come before all that arrives from now
    /// on.
    #[inline]
    fn gap(&mut self, _host: u32, _count: u32) {}
    /// Notes that no more messages of another host arrive. Returns whether messages that were kept have arrived thereby.
    #[inline]
    fn no_more(&mut self, _host: u32) -> bool {
        false
    }
    /// Returns whether messages of that task are wanted now; unwanted ones stay in their queues.
    #[inline]
    fn wants(&self, _from: u32) -> bool {
        true
    }
    /// Returns whether the sink picks a message with these words out of the order of all messages
    /// ([`crate::Endpoint::poll_peer`]).
    #[inline]
    fn picks(&self, _from: u32, _meta: &crate::Meta) -> bool {
        true
    }
    /// Returns whether the sink has what it wanted. If so, the later messages of the peer that is being polled stay in
    /// its queue.
    #[inline]
    fn satisfied(&self) -> bool {
        false
    }
}
