//! One peer of a task: the queue to it, the queue from it, and the blocks of our heap that it may still read.
use crate::clock::{Clock, is_earlier};
use crate::cross_memory;
use crate::heap::{Block, SharedHeap};
use crate::outstanding::Outstanding;
use crate::owner::Owner;
use crate::pair_memory::Pair;
use crate::process::owner_of;
use crate::queue::{
    Damaged, Entry, Kind, Reader, SHORT_HALF_SLOTS, SLOT_BYTES, Slot, Writer, half_slots_for, is_there,
};
use crate::segment_layout::{PEERS_MAX, PeerRecord};
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use crate::{Immediate, Meta, NoMemory};
use pvm_descriptor::OwnDescriptor;
use pvm_explorer::CircuitBreaker;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

/// The number of slots of a first ring, as an exponent of two: 64 slots, 4 KiB.
const RING_SHIFT_MIN: u32 = 6;
/// The number of slots of the largest ring, as an exponent of two: 16384 slots, 1 MiB. A longer queue continues in
/// further rings.
const RING_SHIFT_MAX: u32 = 14;

/// The number of records of a peer's table that are searched in one poll, on average, while the record for us has not
/// been found.
const SEARCH_RECORDS: usize = 64;
/// A table of at most this number of records is searched in one poll.
const SEARCH_RECORDS_AT_ONCE: usize = 256;

/// A peer.
pub(crate) struct Peer {
    pub tid: u32,
    pub owner: Rc<Owner>,
    pub bell: Option<OwnDescriptor>,
    /// The number of the last sleep of the peer for which this task has rung the peer's doorbell.
    pub rung: Cell<u32>,
    /// Our record for the peer, in our table.
    pub our_record: RecordPointer,
    /// The peer's record for us, in its table, once it has been found.
    pub their_record: Option<RecordPointer>,
    /// `table_version` of the peer when its table was last searched.
    pub searched: Option<u32>,
    /// The number of records of the peer's table that may be searched now, because earlier polls did not search.
    pub saved_records: usize,
    /// Where the host's port table has the number of the last message of the daemon to the peer (the endpoint keeps the
    /// table mapped), and the number that this task has told the peer last.
    pub last_message: NonNull<AtomicU64>,
    pub after_frame: u64,
    pub out: Option<Outbound>,
    pub inbound: Option<Inbound>,
    /// How many more times this task may wait in vain until the peer has committed a multicast.
    pub patience: u8,
    /// The number of the poll that knows the first entry of the queue from the peer ([`crate::endpoint`], `merge`).
    pub listed: u32,
    /// Set when the peer's queue was damaged; it is then read no further.
    pub damaged: bool,
    pub outstanding: Outstanding,
    pub rendezvous: RendezvousState,
    /// The clock of this task.
    pub clock: Clock,
    /// In memory of its own, which keeps the fields that every message needs together.
    pub pair: Box<Pair>,
}

impl Peer {
    /// Returns the peer's record for task `us`. Searches the peer's table only when the table has changed.
    pub fn find_record(&mut self, us: u32) -> Option<RecordPointer> {
        if self.their_record.is_none() {
            self.search(us, true);
        }
        self.their_record
    }

    /// Does what [`Peer::find_record`] does for a caller that asks again soon: a long table is searched only now and
    /// then. So a peer that changes its table all the time, and has no record for us in it, costs us little.
    pub fn probe_record(&mut self, us: u32) -> Option<RecordPointer> {
        if self.their_record.is_none() {
            self.search(us, false);
        }
        self.their_record
    }

    fn search(&mut self, us: u32, at_once: bool) {
        let header = self.owner.mapping.header();
        // Pair `table changed`: the length that is read below is that of this version, or of a later one.
        let version = header.table_version.load_acquire();
        if self.searched == Some(version) {
            return;
        }
        let count = (header.peers.0.load_relaxed() as usize).min(PEERS_MAX);
        self.saved_records += SEARCH_RECORDS;
        if self.saved_records < count && count > SEARCH_RECORDS_AT_ONCE && !at_once {
            return;
        }
        (self.saved_records, self.searched) = (0, Some(version));
        self.their_record = self.record_among(count, us);
    }

    /// Returns the record for task `us` if it is among the first `count` records of the peer's table.
    fn record_among(&self, count: usize, us: u32) -> Option<RecordPointer> {
        let mut from = 0;
        for piece in 0.. {
            let records = (from < count).then(|| self.owner.mapping.table(piece)).flatten()?;
            // Pair `record taken`.
            let is_ours = |record: &PeerRecord| record.tid.load_acquire() == us;
            if let Some(at) = records.iter().take(count - from).position(is_ours) {
                return Some(RecordPointer { index: from + at, record: NonNull::from(&records[at]) });
            }
            from += records.len();
        }
        None
    }

    /// Returns the peer's record for task `us`.
    pub fn theirs(&mut self, us: u32) -> Option<&PeerRecord> {
        self.find_record(us)?;
        self.their_record.as_ref().map(RecordPointer::get)
    }

    /// Copies a part of the body of a rendezvous into the peer's buffer, if the peer has opened it. Returns whether the
    /// buffer was open.
    #[inline]
    pub fn help(&mut self, us: u32, number: u64, body: &[u8]) -> bool {
        let Some(record) = self.find_record(us) else { return false };
        // Pair `buffer opened`.
        let is_open = record.get().into_number.load_acquire() == number;
        if is_open {
            self.help_now(record, number, body);
        }
        is_open
    }

    fn help_now(&mut self, record: RecordPointer, number: u64, body: &[u8]) {
        let mapping = &self.owner.mapping;
        let named = mapping.header().pid.load_relaxed();
        if self.rendezvous.process.is_none_or(|(before, _)| before != named) {
            // The process is checked again when the segment names another one, for example after a takeover by a child:
            // the old process id may belong to an unrelated process now.
            self.rendezvous.process = Some((named, owner_of(mapping)));
        }
        if let Some((_, Some(process))) = self.rendezvous.process {
            cross_memory::help(process, record.get(), self.our_record.get(), number, body);
        }
    }

    /// Returns the number of the last message of the daemon to the peer.
    #[inline(always)]
    pub fn last_message(&self) -> u64 {
        // SAFETY: points into the port table, which the endpoint keeps mapped, or to a static.
        unsafe { self.last_message.as_ref() }.load_relaxed()
    }

    /// Returns whether the peer has been told which message of the daemon precedes the next entry.
    #[inline(always)]
    pub fn is_in_order(&self) -> bool {
        self.last_message() == self.after_frame
    }

    /// Finds the queue from the peer if there is one by now. Returns whether one has just been found.
    pub fn find_queue(&mut self, us: u32, at_once: bool) -> bool {
        if self.damaged || self.inbound.is_some() {
            return false;
        }
        let record = if at_once { self.find_record(us) } else { self.probe_record(us) };
        self.inbound = record.and_then(|record| Inbound::find(&self.owner, record.get(), &self.clock));
        self.inbound.is_some()
    }

    /// Returns whether [`Peer::find_queue`] may find a queue now.
    fn may_have_new_queue(&self) -> bool {
        match (self.damaged, &self.their_record) {
            (true, _) => false,
            // Pair `ring made`.
            (_, Some(record)) => record.get().ring.load_acquire() != 0,
            // Pair `table changed`.
            (_, None) => self.searched != Some(self.owner.mapping.header().table_version.load_acquire()),
        }
    }

    /// Returns the stamp of the next entry of the queue from the peer, if that entry is there.
    #[inline(always)]
    pub fn head(&self) -> Option<u64> {
        let inbound = self.inbound.as_ref()?;
        // SAFETY: the slice is used within this method, during which the peer keeps its mapping.
        let stamp = inbound.reader.head(unsafe { inbound.slots() })?;
        self.is_there(stamp).then_some(stamp)
    }

    /// Returns whether the peer has sent nothing that is earlier than this stamp and still in its queue.
    #[inline(always)]
    pub fn has_nothing_before(&self, stamp: u64) -> bool {
        match self.head() {
            Some(head) => !is_earlier(head, stamp),
            None => self.inbound.is_some() || !self.may_have_new_queue(),
        }
    }

    /// Returns the next entry of the queue from the peer, if that entry is there.
    ///
    /// # Safety
    /// The peer must live as long as the entry is used.
    #[inline(always)]
    pub unsafe fn next<'a>(&self) -> Result<Option<Entry<'a>>, Damaged> {
        let Some(inbound) = self.inbound.as_ref() else { return Ok(None) };
        // SAFETY: the caller keeps the peer, which keeps its mapping.
        let entry = inbound.reader.next(unsafe { inbound.slots() })?;
        Ok(entry.filter(|entry| !entry.is_held() || self.is_there(entry.stamp())))
    }

    /// Returns whether an entry with this stamp is there, as its multicast is committed.
    #[inline(always)]
    pub fn is_there(&self, stamp: u64) -> bool {
        is_there(stamp, || self.owner.mapping.header().multicasts.0.committed())
    }

    /// Returns whether the peer is sending a multicast that may be earlier than this stamp of another peer's one.
    pub fn may_multicast_before(&self, stamp: u64) -> bool {
        let multicasts = &self.owner.mapping.header().multicasts.0;
        multicasts.may_precede(stamp, |time| self.clock.is_recent(time))
    }

    /// Returns how many bytes of the peer's heap we no longer read, but have not released yet.
    pub fn released_bytes(&self) -> usize {
        self.owner.released_bytes.get()
    }

    /// Does what [`Peer::consumed`] does, for a caller that asks again soon.
    pub fn consumed_lately(&mut self, us: u32) -> u64 {
        // Pair `read so far`.
        self.probe_record(us).map_or(0, |record| record.get().consumed.load_acquire())
    }

    /// Returns how many half-slots of our queue the peer has read.
    pub fn consumed(&mut self, us: u32) -> u64 {
        // Pair `read so far`.
        self.theirs(us).map_or(0, |record| record.consumed.load_acquire())
    }

    /// Queues an entry; the queue grows when it is full.
    #[inline]
    pub fn push(&mut self, us: u32, heap: &SharedHeap, kind: Kind, meta: &Meta, body: &[u8]) -> Result<(), NoMemory> {
        let half_slots = half_slots_for(body.len());
        if !self.out.as_ref().is_some_and(|out| out.has_room(half_slots)) {
            self.make_room(us, heap, half_slots)?;
        }
        let out = self.out.as_mut().expect("room was made");
        out.writer.write(out.ring.slots(), kind, meta, body);
        Ok(())
    }

    /// Queues a held message (see [`Writer::write_held`]).
    pub fn push_held(
        &mut self,
        us: u32,
        heap: &SharedHeap,
        time: u64,
        in_blocks: bool,
        meta: &Meta,
        body: &[u8],
    ) -> Result<(), NoMemory> {
        let half_slots = half_slots_for(body.len());
        if !self.out.as_ref().is_some_and(|out| out.has_room(half_slots)) {
            self.make_room(us, heap, half_slots)?;
        }
        let out = self.out.as_mut().expect("room was made");
        out.writer.write_held(out.ring.slots(), time, in_blocks, meta, body);
        Ok(())
    }

    /// Queues a message of at most one slot if the queue has room. Returns whether it did.
    #[inline(always)]
    pub fn push_short(&mut self, meta: &Meta, body: &[u8]) -> bool {
        match &mut self.out {
            Some(out) if out.has_room(SHORT_HALF_SLOTS) => {
                out.writer.write_short(out.ring.slots(), meta, body);
                true
            }
            _ => false,
        }
    }

    /// Queues a message with its body if the queue has room. Returns whether it did.
    #[inline(never)]
    pub fn push_message(&mut self, meta: &Meta, body: &[u8]) -> bool {
        self.push_if_room(Kind::Message, meta, body)
    }

    /// Queues an entry if the queue has room. Returns whether it did.
    #[inline(always)]
    pub fn push_if_room(&mut self, kind: Kind, meta: &Meta, body: &[u8]) -> bool {
        match &mut self.out {
            Some(out) if out.has_room(half_slots_for(body.len())) => {
                out.writer.write(out.ring.slots(), kind, meta, body);
                true
            }
            _ => false,
        }
    }

    /// Queues an immediate message if the queue has room, and the clock is behind the time. Returns whether it did.
    #[inline(always)]
    pub fn push_immediate(&mut self, immediate: &Immediate) -> bool {
        match &mut self.out {
            Some(out) if out.has_room(1) => {
                let Some(time) = out.writer.time() else { return false };
                out.writer.put(out.ring.slots(), time, immediate);
                true
            }
            _ => false,
        }
    }

    #[cold]
    fn make_room(&mut self, us: u32, heap: &SharedHeap, half_slots: u64) -> Result<(), NoMemory> {
        if self.out.is_none() {
            self.out = Some(Outbound::new(heap, self.our_record.get(), self.clock.clone())?);
        }
        let consumed = self.consumed(us);
        let out = self.out.as_mut().expect("made above");
        out.note_consumed(consumed);
        if out.has_room(half_slots) { Ok(()) } else { out.grow(heap, half_slots) }
    }

    /// Goes back to a small ring if a large one has been read to its end.
    pub fn tidy(&mut self, us: u32, heap: &SharedHeap) {
        let consumed = self.consumed(us);
        if let Some(out) = &mut self.out {
            out.note_consumed(consumed);
            if out.ring.shift > RING_SHIFT_MIN + 2 && out.written() == consumed {
                // A failure only means that the large ring is kept.
                let _ = out.continue_in(heap, RING_SHIFT_MIN);
            }
        }
    }
}

/// A pointer to a record of a table, our own or a peer's. Mappings do not move, and the endpoint keeps its own mapping
/// and those of its peers as long as it has such a pointer. So neither the heap nor the owner need be borrowed to use
/// the pointer.
#[derive(Clone, Copy)]
pub(crate) struct RecordPointer {
    pub index: usize,
    record: NonNull<PeerRecord>,
}

impl RecordPointer {
    /// Returns the pointer to a record of this process's table. Panics if there is none.
    pub fn own(heap: &SharedHeap, index: usize) -> RecordPointer {
        let borrowed = heap.borrow();
        let record = borrowed.source().mapping.peer_record(index).expect("the table was made so long");
        RecordPointer { index, record: NonNull::from(record) }
    }
    #[inline]
    pub fn get(&self) -> &PeerRecord {
        // SAFETY: points into a segment that is kept mapped (see above); a record is made of atomics.
        unsafe { self.record.as_ref() }
    }
}

/// A ring in our heap.
struct OwnRing {
    block: Block,
    /// Where the block lies.
    slots: NonNull<Slot>,
    /// The number of slots, and (`shift`) the same as an exponent of two.
    count: usize,
    shift: u32,
}

impl OwnRing {
    fn new(heap: &SharedHeap, shift: u32) -> Result<OwnRing, NoMemory> {
        let block = Block::allocate(heap, SLOT_BYTES << shift)?;
        let slots = NonNull::new(block.address().cast()).expect("mappings do not begin at zero");
        let ring = OwnRing { block, slots, count: 1 << shift, shift };
        ring.slots().iter().for_each(Slot::clear);
        Ok(ring)
    }
    fn slots(&self) -> &[Slot] {
        // SAFETY: the block holds that many slots (aligned, blocks start at multiples of 1024),
        // slots are made of atomics, and the block lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.count) }
    }
}

/// The queue to a peer.
pub(crate) struct Outbound {
    ring: OwnRing,
    pub writer: Writer,
    /// Half-slots written to all earlier rings.
    base: u64,
    /// Half-slots that the peer has read, over all rings, as last seen.
    consumed: u64,
    /// The position up to which the writer may write; it leaves room for a continuation entry.
    end: u64,
    /// Earlier rings that the peer may still read, each with the count of half-slots at which the peer has read it to
    /// its end.
    earlier: VecDeque<(OwnRing, u64)>,
}

impl Outbound {
    fn new(heap: &SharedHeap, ours: &PeerRecord, clock: Clock) -> Result<Outbound, NoMemory> {
        let ring = OwnRing::new(heap, RING_SHIFT_MIN)?;
        ours.ring_shift.store(ring.shift, Ordering::Relaxed);
        // Pair `ring made`: whoever sees the ring sees it cleared, and its length.
        ours.ring.store(ring.block.offset(), Ordering::Release);
        let writer = Writer::new(RING_SHIFT_MIN, clock);
        let mut out = Outbound { ring, writer, base: 0, consumed: 0, end: 0, earlier: VecDeque::new() };
        out.note_consumed(0);
        Ok(out)
    }

    /// Returns whether there is room for `half_slots`, and for a continuation entry.
    #[inline(always)]
    fn has_room(&self, half_slots: u64) -> bool {
        self.writer.position() + half_slots <= self.end
    }

    /// Returns how many half-slots have been written, over all rings.
    pub fn written(&self) -> u64 {
        self.base + self.writer.position()
    }

    /// Notes how many half-slots the peer reports as read. If the peer reports more than were written, the number
    /// written counts.
    pub fn note_consumed(&mut self, consumed: u64) {
        let consumed = consumed.min(self.written());
        self.consumed = consumed;
        self.end = 2 * self.ring.count as u64 + consumed.saturating_sub(self.base) - SHORT_HALF_SLOTS;
        while self.earlier.front().is_some_and(|(_, end)| *end <= consumed) {
            self.earlier.pop_front();
        }
    }

    fn grow(&mut self, heap: &SharedHeap, half_slots: u64) -> Result<(), NoMemory> {
        debug_assert!(half_slots + SHORT_HALF_SLOTS < 2 << RING_SHIFT_MIN);
        self.continue_in(heap, (self.ring.shift + 1).min(RING_SHIFT_MAX))
    }

    fn continue_in(&mut self, heap: &SharedHeap, shift: u32) -> Result<(), NoMemory> {
        let next = OwnRing::new(heap, shift)?;
        let mut body = [0u8; 16];
        body[..8].copy_from_slice(&next.block.offset().to_ne_bytes());
        body[8..].copy_from_slice(&u64::from(shift).to_ne_bytes());
        self.writer.write_continuation(self.ring.slots(), &body);
        self.base = self.written();
        self.writer = self.writer.for_ring(shift);
        let full = std::mem::replace(&mut self.ring, next);
        self.earlier.push_back((full, self.base));
        self.note_consumed(self.consumed);
        Ok(())
    }
}

/// The queue from a peer.
pub(crate) struct Inbound {
    slots: NonNull<Slot>,
    count: usize,
    pub reader: Reader,
    clock: Clock,
    /// Half-slots read, over all rings.
    pub consumed: u64,
    pub published: u64,
    /// A body that was incomplete at the last poll: the position of its entry, and how many bytes were there.
    pub stalled: Option<(u64, usize)>,
}

impl Inbound {
    /// Returns the queue that the peer's record for us names, if there is one yet.
    pub fn find(owner: &Owner, theirs: &PeerRecord, clock: &Clock) -> Option<Inbound> {
        // Pair `ring made`.
        let ring = theirs.ring.load_acquire();
        let shift = theirs.ring_shift.load_relaxed();
        (ring != 0).then(|| Inbound::at(owner, ring, shift, clock.clone())).flatten()
    }

    fn at(owner: &Owner, ring: u64, shift: u32, clock: Clock) -> Option<Inbound> {
        if !(RING_SHIFT_MIN..=RING_SHIFT_MAX).contains(&shift) || ring % SLOT_BYTES as u64 != 0 {
            return None;
        }
        let slots = owner.mapping.reach(ring, (SLOT_BYTES as u64) << shift)?.cast();
        let reader = Reader::new(shift);
        Some(Inbound { slots, count: 1 << shift, reader, clock, consumed: 0, published: 0, stalled: None })
    }

    /// Returns the ring's slots in the peer's segment.
    ///
    /// # Safety
    /// The peer's mapping must live as long as the slice is used.
    #[inline]
    pub unsafe fn slots<'a>(&self) -> &'a [Slot] {
        // SAFETY: checked to lie in the mapping and aligned by `at`; made of atomics; that the
        // mapping lives on is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.count) }
    }

    /// Moves past an entry of `half_slots` with this stamp.
    #[inline(always)]
    pub fn advance(&mut self, half_slots: usize, stamp: u64) {
        self.clock.observe(stamp);
        // SAFETY: the peer, to which this queue belongs, keeps its mapping.
        self.reader.advance(half_slots, unsafe { self.slots() });
        self.consumed += half_slots as u64;
    }

    /// Returns whether the read count should be published again: half a ring or more has been read since the last time.
    #[inline]
    pub fn should_publish(&self) -> bool {
        (self.consumed - self.published) << 1 >= self.count as u64
    }

    /// Returns the addresses of the ring.
    pub fn place(&self) -> std::ops::Range<usize> {
        let start = self.slots.as_ptr().addr();
        start..start + SLOT_BYTES * self.count
    }

    /// Returns how many half-slots the ring has.
    pub fn capacity(&self) -> u64 {
        2 * self.count as u64
    }

    /// Follows a continuation entry that takes `half_slots`. Returns `None` if the entry points to no valid ring.
    pub fn follow(&mut self, owner: &Owner, body: &[u8; 16], half_slots: usize) -> Option<()> {
        let word = |from: usize| u64::from_ne_bytes(body[from..from + 8].try_into().expect("eight"));
        let next = Inbound::at(owner, word(0), u32::try_from(word(8)).ok()?, self.clock.clone())?;
        *self = Inbound { consumed: self.consumed + half_slots as u64, published: self.published, ..next };
        Some(())
    }
}

/// What is known about rendezvous with the peer.
#[derive(Default)]
pub(crate) struct RendezvousState {
    /// The number of the last rendezvous.
    pub number: u64,
    /// The token under which the last rendezvous has fallen back to eager. The peer may nevertheless have taken the
    /// body from our own memory; then it does not release the token.
    pub eager_token: Option<u32>,
    /// The process id that the peer has named, and the same id again if we can copy to that process; `None` before the
    /// first check.
    pub process: Option<(u32, Option<i32>)>,
    /// Set when no further rendezvous may be opened with the peer: it has asked for a body in the heap, or a rendezvous
    /// with it was withdrawn.
    pub refused: bool,
    /// Whether the peer began its receive when this task, as a sender, has waited for that.
    pub linger: CircuitBreaker,
}
