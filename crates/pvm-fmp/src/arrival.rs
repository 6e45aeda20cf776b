//! Arriving bodies: in the queue, in the sender's heap, or in the sender's own memory.
use crate::BODY_BYTES_MAX;
use crate::copy::{self, CopyMode};
use crate::cross_memory;
use crate::extents::Mapping;
use crate::heap::{CopyOrder, length_and_order};
use crate::memory;
use crate::pair_memory::{ArrivedCell, PairMemory};
use crate::pipelined;
use crate::process::Refusal;
use crate::queue::Entry;
use crate::rendezvous::{self, SenderState};
use crate::segment::PeerRecord;
use crate::streamed_body::StreamedBody;
use crate::sync::{AtomicU64, ReadOnlyLoad};
use crate::ways;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The most fragments that a body in the heap can have: a descriptor of this many fragments just fits into a queue
/// entry.
pub const FRAGMENTS_MAX: usize = (crate::INLINE_BYTES_MAX - 8) / 16;

/// The size, in bytes, of the pieces that [`Remote::use_pieces`] makes of a body in fragments.
const COPIED_BYTES: usize = 64 * pipelined::UNIT_BYTES;

/// The shortest piece, in bytes, that is copied out in the mode for which the sender asks.
const ORDERED_BYTES_MIN: usize = 16 << 10;

/// The longest body, in bytes, that is copied to new memory without a check of the available memory.
const UNCHECKED_BYTES_MAX: usize = 64 << 20;

/// How long a receiver that has claimed the body of a rendezvous waits for a sender that is deciding whether to
/// withdraw. A sender that takes longer has been stopped between two instructions, or breaks the rules.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(10);

/// The token of every borrowed payload. It never appears in a release entry: the block is free as soon as the entry has
/// been read.
pub(crate) const BORROWED: u32 = u32::MAX;

/// The token of every body in a cell of pair memory. It never appears in a release entry either: the cell belongs to
/// the receiver.
const PASSED: u32 = u32::MAX - 1;

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

/// A peer's segment, and the tokens of its blocks that this task no longer reads.
pub(crate) struct Owner {
    pub mapping: Mapping,
    pub released: RefCell<Vec<u32>>,
    pub released_bytes: Cell<usize>,
    /// The token of the last measured body, and for how long this task has copied it out, in ns.
    pub timed: Cell<Option<(u32, u32)>>,
    /// Set when `released` of some peer is not empty.
    pub dirty: Rc<Cell<bool>>,
}

impl Owner {
    /// Notes that this task no longer reads the blocks of a token, which hold `bytes` bytes.
    pub fn release(&self, token: u32, bytes: usize) {
        self.released.borrow_mut().push(token);
        self.released_bytes.set(self.released_bytes.get() + bytes);
        self.dirty.set(true);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    pub address: *const u8,
    bytes: u32,
    /// How the sender asks for it to be copied, and whether the sender wants to know the time of that copy.
    order: CopyOrder,
}

// No body is longer than these words can say, and each message holds them.
const _: () = assert!(BODY_BYTES_MAX <= u32::MAX as usize);

impl Fragment {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// A body that lies in the sender's heap, or in a cell of pair memory. The memory may be reused as soon as this value is
/// dropped.
pub struct Remote {
    owner: Rc<Owner>,
    token: u32,
    bytes: u32,
    first: Fragment,
    rest: Vec<Fragment>,
    /// How many bytes of the timed fragment were copied out, and for how long, in ns.
    timed: Cell<(u32, u32)>,
    /// Keeps the cell in which the body lies.
    _cell: Option<ArrivedCell>,
}

impl Remote {
    /// Reads a descriptor. Returns `None` if it points outside the sender's heap, or if the body is longer than any
    /// message can be.
    pub(crate) fn from_descriptor(owner: &Rc<Owner>, descriptor: &[u8]) -> Option<Remote> {
        let (head, list) = descriptor.split_first_chunk::<8>()?;
        let token = u32::from_ne_bytes(head[..4].try_into().ok()?);
        let count = u32::from_ne_bytes(head[4..].try_into().ok()?) as usize;
        if count == 0 || list.len() != count * 16 {
            return None;
        }
        let mut fragments = list.chunks_exact(16).map(|words| {
            let word = |from: usize| u64::from_ne_bytes(words[from..from + 8].try_into().expect("eight"));
            let (bytes, order) = length_and_order(word(8));
            fragment(owner, word(0), bytes).map(|fragment| Fragment { order, ..fragment })
        });
        let first = fragments.next()??;
        let rest = fragments.collect::<Option<Vec<_>>>()?;
        let bytes = rest.iter().fold(first.bytes(), |sum, fragment| sum.saturating_add(fragment.bytes()));
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= BODY_BYTES_MAX)?;
        let mut remote = Remote::of(owner, token, first);
        (remote.rest, remote.bytes) = (rest, bytes);
        Some(remote)
    }

    /// Returns the body of one fragment.
    fn of(owner: &Rc<Owner>, token: u32, first: Fragment) -> Remote {
        let (owner, rest, bytes, timed) = (owner.clone(), Vec::new(), first.bytes, Cell::new((0, 0)));
        Remote { owner, token, bytes, first, rest, timed, _cell: None }
    }

    /// Returns the body that lies at `offset` in one piece.
    pub(crate) fn from_place(owner: &Rc<Owner>, token: u32, offset: u64, bytes: u64) -> Option<Remote> {
        Some(Remote::of(owner, token, fragment(owner, offset, bytes)?))
    }

    /// Returns the body of `bytes` bytes in a cell, which has room for it.
    fn in_cell(owner: &Rc<Owner>, cell: ArrivedCell, bytes: usize) -> Remote {
        let address = cell.memory.body(cell.cell);
        let first = Fragment { address, bytes: bytes as u32, order: CopyOrder::default() };
        let mut remote = Remote::of(owner, PASSED, first);
        remote._cell = Some(cell);
        remote
    }

    /// Returns the body whose first `bytes` bytes lie in a cell, which has room for them, and whose rest lies in the
    /// sender's heap: under a token, at an offset, with a length.
    pub(crate) fn in_cell_and_heap(
        owner: &Rc<Owner>,
        cell: ArrivedCell,
        bytes: usize,
        rest: Option<(u32, u64, u64)>,
    ) -> Option<Remote> {
        let mut remote = Remote::in_cell(owner, cell, bytes);
        if let Some((token, offset, more)) = rest {
            remote.rest.push(fragment(owner, offset, more)?);
            remote.token = token;
            remote.bytes += more as u32;
        }
        Some(remote)
    }

    pub(crate) fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns whether this is a borrowed payload, which is released when its entry has been read.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.token == BORROWED
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes as usize
    }
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Passes the body to `each` without a copy, as [`BodyInTransit::use_pieces`] does. A body in fragments is an
    /// exception: it is copied in small pieces, because a packed number may be split between two fragments.
    pub fn use_pieces(&self, done: &mut usize, each: &mut dyn FnMut(usize, *const u8, usize)) {
        if *done > self.len() {
            return; // the sender has announced a shorter body than before
        }
        if self.rest.is_empty() {
            // The fragment was checked to lie in the mapping, which `owner` keeps.
            each(*done, self.first.address.wrapping_add(*done), self.len() - *done);
            *done = self.len();
            return;
        }
        let mut piece = [0u8; COPIED_BYTES];
        while *done < self.len() {
            let piece = &mut piece[..COPIED_BYTES.min(self.len() - *done)];
            self.read(*done, piece);
            each(*done, piece.as_ptr(), piece.len());
            *done += piece.len();
        }
    }

    /// Copies the whole body to the end of `data`.
    pub fn append_to(&self, data: &mut Vec<u8>) {
        data.reserve(self.len());
        for fragment in self.fragments() {
            let (address, bytes) = (fragment.address, fragment.bytes());
            let room = data.spare_capacity_mut();
            debug_assert!(room.len() >= bytes);
            // SAFETY: the fragment was checked to lie in the mapping, which `owner` keeps; no reference into it exists,
            // and its bytes may be anything. The room for all fragments was reserved, and its bytes are written before
            // the length includes them.
            unsafe {
                copy::copy_shared(address, room.as_mut_ptr().cast(), bytes);
                data.set_len(data.len() + bytes);
            }
        }
    }

    /// Copies `data.len()` bytes from `offset`. Panics past the end.
    pub fn read(&self, mut offset: usize, mut data: &mut [u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.len()));
        for fragment in self.fragments() {
            if offset >= fragment.bytes() {
                offset -= fragment.bytes();
                continue;
            }
            let count = data.len().min(fragment.bytes() - offset);
            let (piece, tail) = data.split_at_mut(count);
            self.read_piece(fragment, offset, piece);
            (data, offset) = (tail, 0);
            if data.is_empty() {
                return;
            }
        }
    }
}

impl Remote {
    /// Copies a piece of a fragment, from `offset` on, as the sender has asked for it. Panics past the end.
    #[inline]
    fn read_piece(&self, fragment: &Fragment, offset: usize, piece: &mut [u8]) {
        assert!(offset.checked_add(piece.len()).is_some_and(|end| end <= fragment.bytes()));
        let CopyOrder { mode, is_timed } = fragment.order;
        let is_long = piece.len() >= ORDERED_BYTES_MIN;
        let start = (is_timed && is_long).then(Instant::now);
        let (from, to, mode) =
            (fragment.address.wrapping_add(offset), piece.as_mut_ptr(), if is_long { mode } else { CopyMode::Cached });
        // SAFETY: the fragment was checked to lie in the mapping, which `owner` keeps; no
        // reference into it exists, and its bytes may be anything.
        unsafe { copy::copy_shared_by(mode, from, to, piece.len()) };
        if let Some(start) = start {
            let (bytes, ns) = self.timed.get();
            let elapsed = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
            self.timed.set((bytes.saturating_add(piece.len() as u32), ns.saturating_add(elapsed)));
        }
    }

    /// Notes for the sender how long the copies of the timed fragment have taken, if it was copied once and in long pieces.
    #[cold]
    fn report_time(&self) {
        let (bytes, ns) = self.timed.get();
        let timed = self.fragments().find(|fragment| fragment.order.is_timed);
        if timed.is_some_and(|fragment| fragment.bytes == bytes) {
            self.owner.timed.set(Some((self.token, ns)));
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.timed.get().0 > 0 {
            self.report_time();
        }
        if self.token != BORROWED && self.token != PASSED {
            self.owner.release(self.token, self.len());
        }
    }
}

fn fragment(owner: &Rc<Owner>, offset: u64, bytes: u64) -> Option<Fragment> {
    let order = CopyOrder::default();
    if bytes > BODY_BYTES_MAX as u64 {
        return None;
    }
    owner.mapping.reach(offset, bytes).map(|address| Fragment { address: address.as_ptr(), bytes: bytes as u32, order })
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
    /// A borrowed payload: the body lies in the daemon's heap until the entry has been read.
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
            if spins > PIPELINED_SPINS_MAX {
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

/// The number of reads of the sender's count without progress, some 100 microseconds in all, after which the receiver
/// stops waiting for a pipelined body. It tries again in a later poll of the queue.
pub(crate) const PIPELINED_SPINS_MAX: u32 = 20_000;

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

/// Why a [`BodyInTransit`] was not taken.
pub enum NotTaken {
    /// The sender has fallen back to eager: here is the body.
    Eager(Remote),
    /// The message will arrive once more, through the sender's heap; this arrival does not count.
    Later,
    /// The sender died before it had sent the message completely, or has withdrawn it.
    Lost,
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

/// Takes messages that arrive.
pub trait Sink {
    /// Takes a message of task `from`. Messages of one sender arrive in the order in which they were sent.
    fn arrived(&mut self, from: u32, meta: crate::Meta, body: Arrival<'_>);
    /// Returns whether messages of that task are wanted now; unwanted ones stay in their queues.
    #[inline]
    fn wants(&self, _from: u32) -> bool {
        true
    }
    /// Returns whether the sink has what it wanted. If so, the later messages of the peer that is being polled stay in
    /// its queue.
    #[inline]
    fn satisfied(&self) -> bool {
        false
    }
}
