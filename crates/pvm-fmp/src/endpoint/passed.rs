//! Messages in cells of memory that two tasks share ([`crate::pair_memory`]).
use super::in_progress::{receive_complete, receive_pipelined};
use super::wake::ring;
use super::words::{bytes_of, words_of};
use super::{Endpoint, PAIR_BYTES_MAX, SEND_BYTES, Step};
use crate::arrival::{Place, Sink};
use crate::copy::{CopyMode, touch_pages};
use crate::pair_memory::{Offer, PairMemory};
use crate::peer::{Inbound, Peer};
use crate::pipelined::{self, UNIT_BYTES};
use crate::queue::{Entry, Kind};
use crate::sync::ReadOnlyLoad;
use crate::{Meta, NoMemory, SendError, Sent};
use std::rc::Rc;

/// The shortest body that the receiver copies out of a cell while it is written, in bytes. With a shorter one, looking at
/// the count of its bytes costs more than is saved.
pub(super) const PIPELINED_BYTES_MIN: usize = 8 << 10;
/// The smallest and the largest chunk of a body in a cell, in bytes: with small chunks the receiver begins earlier, with
/// large ones it looks less often.
const CHUNK_BYTES_MIN: usize = 2 << 10;
const CHUNK_BYTES_MAX: usize = 16 << 10;
/// The bit of the third word of an entry that says that the body is complete. The others are those of [`crate::ways`].
pub(super) const COMPLETE: u64 = 1;

/// The first word of an entry for a message in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CellWord {
    pub generation: u32,
    pub cell: u32,
    /// Set if the sender may send the cell again.
    pub is_retained: bool,
    /// The cells that the sender will not send again, one bit each.
    pub dropped: u32,
}

const DROPPED_SHIFT: u32 = 8;
const RETAINED: u32 = 1 << 16;

impl CellWord {
    /// Returns the word for a cell of that memory, which tells the peer what this task has dropped.
    #[inline(always)]
    pub fn new(memory: &PairMemory, cell: u32, is_retained: bool) -> CellWord {
        CellWord { generation: memory.generation, cell, is_retained, dropped: memory.take_dropped() }
    }

    #[inline(always)]
    pub fn to_word(self) -> u64 {
        let low = self.cell | self.dropped << DROPPED_SHIFT | if self.is_retained { RETAINED } else { 0 };
        u64::from(self.generation) << 32 | u64::from(low)
    }

    /// Reads a word, which may be a lie: then its cell may not exist.
    #[inline(always)]
    pub fn from_word(word: u64) -> CellWord {
        let low = word as u32;
        CellWord {
            generation: (word >> 32) as u32,
            cell: low & !(RETAINED | 0xff << DROPPED_SHIFT),
            is_retained: low & RETAINED != 0,
            dropped: low >> DROPPED_SHIFT & 0xff,
        }
    }

    /// Notes what the word tells about cells. Returns whether the peer may pass the cell.
    #[inline(always)]
    fn note(self, memory: &PairMemory) -> bool {
        memory.note_dropped(self.dropped);
        let may_arrive = memory.may_arrive(self.cell);
        if self.is_retained && may_arrive {
            memory.retain(self.cell);
        }
        may_arrive
    }
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

/// Sends a body in a cell, if this task holds one that is long enough and the queue has room. Wakes a peer that sleeps;
/// `barriers` is as in [`ring`].
#[inline]
pub(super) fn pass_at_once(peer: &mut Peer, barriers: bool, meta: &Meta, body: &[u8]) -> Option<Sent> {
    if body.len() >= PIPELINED_BYTES_MIN {
        touch_pages(body);
    }
    let (memory, cell) = peer.pair.take(body.len())?;
    let queue = |peer: &mut Peer, word: CellWord, order| {
        let queued = peer.push_if_room(Kind::Passed, meta, &entry_of(word, body.len(), order));
        if queued { Ok(ring(peer, barriers)) } else { Err(()) }
    };
    let passed = if body.len() < PIPELINED_BYTES_MIN {
        pass_complete(peer, &memory, cell, body, queue)
    } else {
        pass_pipelined(peer, barriers, &memory, cell, body, queue)
    };
    passed.ok()
}

/// Writes a body to a cell, and then calls `queue` to put the cell into the queue and to wake the peer.
#[inline(always)]
fn pass_complete<E>(
    peer: &mut Peer,
    memory: &PairMemory,
    cell: u32,
    body: &[u8],
    queue: impl FnOnce(&mut Peer, CellWord, u64) -> Result<Sent, E>,
) -> Result<Sent, E> {
    memory.write(cell, 0, body, CopyMode::Cached);
    let word = CellWord::new(memory, cell, false);
    // Of a complete body, the receiver does not have to look at the count: that would be one more cache line.
    queue(peer, word, COMPLETE).inspect_err(|_| memory.take_back(cell, word.dropped))
}

/// Does what [`pass_complete`] does, but writes the body to the cell chunk by chunk when the cell is in the queue.
#[inline(always)]
fn pass_pipelined<E>(
    peer: &mut Peer,
    barriers: bool,
    memory: &PairMemory,
    cell: u32,
    body: &[u8],
    queue: impl FnOnce(&mut Peer, CellWord, u64) -> Result<Sent, E>,
) -> Result<Sent, E> {
    let progress = memory.progress(cell);
    pipelined::advance(progress, 0);
    let (way, order) = peer.pair.order(memory, body.len());
    let word = CellWord::new(memory, cell, false);
    let queued = queue(peer, word, order).inspect_err(|_| memory.take_back(cell, word.dropped))?;
    let mut done = 0;
    for piece in body.chunks((body.len() / 4).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) / UNIT_BYTES * UNIT_BYTES) {
        memory.write(cell, done, piece, way.copy_in);
        done += piece.len();
        pipelined::advance(progress, done);
    }
    // The peer may have gone to sleep because the body was incomplete.
    Ok(if ring(peer, barriers) == Sent::RingByDaemon { Sent::RingByDaemon } else { queued })
}

/// Returns the body of an entry for a message of `bytes` bytes in a cell.
#[inline(always)]
pub(super) fn entry_of(word: CellWord, bytes: usize, order: u64) -> [u8; 24] {
    bytes_of([word.to_word(), bytes as u64, order])
}

/// Returns the body of a message in a cell, if the message keeps the rules; `None` also if the sender has written nothing
/// more since the receiver stopped waiting for it.
#[inline]
pub(super) fn body_in_cell(peer: &mut Peer, entry: &Entry<'_>) -> Option<RecentBody> {
    let [first, bytes, order] = words_of(entry);
    let (word, bytes) = (CellWord::from_word(first), bytes as usize);
    let memory = peer.pair.of(word.generation)?;
    if !word.note(&memory) || bytes > memory.capacity() {
        return None;
    }
    let cell = word.cell;
    Some(if order & COMPLETE != 0 {
        RecentBody::Cell { memory, cell, bytes }
    } else {
        let inbound = peer.inbound.as_ref()?;
        let now = progress_of(inbound, &memory, cell);
        if inbound.stalled == Some(now) && now.1 != bytes {
            return None;
        }
        RecentBody::Pipelined { memory, cell, bytes, order }
    })
}

/// Returns what identifies a message and its progress for [`Inbound::stalled`].
pub(super) fn progress_of(inbound: &Inbound, memory: &PairMemory, cell: u32) -> (u64, usize) {
    (inbound.consumed, pipelined::available(memory.progress(cell)))
}

impl Endpoint {
    /// Sends a body in a cell, if this task holds one that is long enough. The cell goes to the receiver.
    #[inline]
    pub(super) fn send_passed(&mut self, index: usize, meta: &Meta, body: &[u8]) -> Option<Result<Sent, SendError>> {
        // While tasks outnumber the cores, the receiver would often have to wait for us in the middle of a body.
        let at_once = body.len() < PIPELINED_BYTES_MIN || self.crowded();
        let peer = self.peers[index].as_mut().expect("connected");
        let (memory, cell) = peer.pair.take(body.len())?;
        let (us, barriers) = (self.tid, self.barriers);
        let alive = self.ports.as_ref().is_none_or(|ports| ports.alive(peer.tid));
        self.uncollected += SEND_BYTES;
        let heap = &self.heap;
        let queue = |peer: &mut Peer, word: CellWord, order| {
            if !alive {
                return Ok(Sent::Done);
            }
            peer.push(us, heap, Kind::Passed, meta, &entry_of(word, body.len(), order))?;
            Ok(ring(peer, barriers))
        };
        let passed = if at_once {
            pass_complete(peer, &memory, cell, body, queue)
        } else {
            pass_pipelined(peer, barriers, &memory, cell, body, queue)
        };
        Some(passed.map_err(|NoMemory| SendError::NoMemory))
    }

    /// Returns how bodies of `bytes` bytes to a task are copied, in words and with the time of a byte; `None` if this task
    /// has not learnt it.
    pub fn way_to(&self, to: u32, bytes: usize) -> Option<String> {
        let peer = self.peers[self.index_of(to)?].as_ref()?;
        let (way, ns) = peer.pair.way_of(bytes)?;
        Some(format!("{way}, {ns:.4} ns a byte"))
    }

    /// Does what [`Endpoint::way_to`] does, for packed bodies, to whomever they go.
    pub fn way_of_packed(&self, bytes: usize) -> Option<String> {
        let (way, ns) = self.heap.borrow().way_of(bytes)?;
        Some(format!("{way}, {ns:.4} ns a byte"))
    }

    /// Notes that a body has gone through the heap. If the two tasks answer each other with such bodies again and again,
    /// offers memory to the peer. Of two tasks, the one with the smaller tid does this.
    #[inline]
    pub(super) fn note_unpassed(&mut self, index: usize, bytes: usize, cells: u32) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        let wanted = peer.pair.note_send(bytes, cells);
        let is_maker = self.tid < peer.tid && !self.crowded();
        if let Some(wanted) = wanted.filter(|_| is_maker) {
            self.offer_memory(index, wanted);
        }
    }

    /// Makes memory for messages with a peer, and offers it. A failure only means that bodies go through the heap.
    #[cold]
    fn offer_memory(&mut self, index: usize, wanted: (u32, usize)) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        let generation = peer.pair.generation.wrapping_add(1);
        let made = PairMemory::make(&self.heap, &self.pair_bytes, PAIR_BYTES_MAX, wanted, generation);
        let Some((memory, file, offer)) = made else { return };
        let Offer { descriptor, nonce, cells, capacity, .. } = offer;
        let size = u64::from(cells) << 32 | u64::from(capacity);
        let words = [u64::from(generation) << 32 | u64::from(descriptor), nonce, size];
        if peer.push(self.tid, &self.heap, Kind::Offer, &[0; 6], &bytes_of::<3, 24>(words)).is_ok() {
            peer.pair.generation = generation;
            peer.pair.offered = Some((memory, file.into()));
        }
    }

    /// Maps the memory that a peer offers, and answers whether that was possible.
    #[cold]
    pub(super) fn take_offer(&mut self, index: usize, entry: &Entry<'_>) -> Step {
        let [first, nonce, size] = words_of(entry);
        let (generation, descriptor) = ((first >> 32) as u32, first as u32);
        let (cells, capacity) = ((size >> 32) as u32, size as u32);
        let peer = self.peers[index].as_mut().expect("connected");
        let process = peer.owner.mapping.header().pid.load_relaxed();
        let opened = PairMemory::open(process, &Offer { descriptor, generation, nonce, cells, capacity });
        let words = [u64::from(generation) << 32 | u64::from(opened.is_ok())];
        let answered = peer.push(self.tid, &self.heap, Kind::Answer, &[0; 6], &bytes_of::<1, 8>(words));
        // Without an answer the peer goes on to use what it used before.
        if let (Ok(memory), Ok(())) = (opened, answered) {
            peer.pair.renew(memory);
        }
        Step::Other
    }

    /// Takes the answer to an offer: the peer has mapped the memory, or will never do so.
    #[cold]
    pub(super) fn take_answer(&mut self, index: usize, entry: &Entry<'_>) -> Step {
        let [first, ..] = words_of(entry);
        let pair = &mut self.peers[index].as_mut().expect("connected").pair;
        let Some((memory, _)) = pair.offered.take() else { return Step::Damaged };
        if u64::from(memory.generation) != first >> 32 {
            return Step::Damaged;
        }
        if first as u32 == 0 {
            pair.refused = true;
        } else {
            pair.renew(memory);
        }
        Step::Other
    }

    /// Receives a message in a cell.
    pub(super) fn receive_passed(&mut self, index: usize, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
        let [first, bytes, order] = words_of(entry);
        let word = CellWord::from_word(first);
        let cell = word.cell;
        let peer = self.peers[index].as_mut().expect("connected");
        let Some(memory) = peer.pair.of(word.generation) else { return Step::Damaged };
        // The peer cannot pass what we hold.
        if !word.note(&memory) {
            return Step::Damaged;
        }
        peer.pair.note_order(&memory, bytes as usize, order);
        let place = Place::Cell { memory: &memory, cell, order };
        if order & COMPLETE == 0 {
            return receive_pipelined(peer, &self.ports, place, bytes, entry, sink);
        }
        receive_complete(peer, place, bytes, entry, sink)
    }
}
