//! The queue from one task to another: a ring of slots with a single writer and a single reader.
//!
//! A slot is a cache line. An *immediate* message, of at most [`IMMEDIATE_BYTES`] with a well-known header
//! ([`WELL_KNOWN_HEADERS`]), takes half a slot, so one cache line can carry two messages; this saves time where cache
//! lines go slowly from core to core. Positions count half-slots. All other entries begin at the start of a slot; if a
//! half-slot is left free before such an entry, the stamp of that half-slot says so (a skip).
//!
//! Each slot begins with a stamp word: the parity of the round in which the slot was written, so that a slot of the
//! round before is never taken for a new one. The stamp of an entry's first slot also holds the time of the entry
//! ([`crate::clock`]), its kind, and the length of its body. If the first half of a slot holds an immediate message, the
//! second half begins with such a stamp, too. The writer stores the stamp of an entry's first slot or half-slot last.
//! The reader polls the stamp of the next slot and writes nothing to the ring, so a short message goes from core to core
//! in one cache line. `Endpoint` publishes the reader's position in other memory, so that the writer knows how much room
//! there is.
//!
//! A *held* entry belongs to a multicast. It is there for its reader only when the writer has committed the multicast,
//! after it has written all its entries: the reader compares the entry's time with a word of the writer's segment.
//!
//! All words are atomics, so that even a writer that breaks all rules causes only wrong bytes.
use crate::Meta;
use crate::clock::Clock;
use crate::copy::touch_ends;
use crate::immediate::{IMMEDIATE_BYTES, Immediate};
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use stamp::{
    HELD_BLOCKS, HELD_MESSAGE, IMMEDIATE, PARITY, Position, SKIP, bytes_of, fields, is_of_round, kind_of, well_known_of,
};

mod stamp;

pub use stamp::{Kind, is_held, is_there};

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 64;
/// Body bytes in the first slot of an entry, behind stamp and meta words.
pub const FIRST_BYTES: usize = SLOT_BYTES - FIRST_START;
/// Body bytes in each further slot, behind its stamp.
pub const NEXT_BYTES: usize = SLOT_BYTES - 8;
/// Where the body begins in the first slot: the six meta words take three words of the slot.
const FIRST_START: usize = 8 + 24;
const WORDS: usize = SLOT_BYTES / 8;
/// Where the body begins in a half-slot: behind the stamp and two meta words.
const IMMEDIATE_START: usize = 16;
const _: () = assert!(IMMEDIATE_START + IMMEDIATE_BYTES == SLOT_BYTES / 2);
/// The largest number of half-slots that a message of at most one slot takes: a slot, and a skipped half-slot before
/// it.
pub const SHORT_HALF_SLOTS: u64 = 3;
/// The last four meta words of most messages; an immediate message holds their index in this list instead.
/// Both ends of a queue must have the same list.
pub const WELL_KNOWN_HEADERS: [[u32; 4]; 2] = [[0, NATIVE, NATIVE, 0], [0, 0x1000_0000, NATIVE, 0]];
/// The word for the data format of this host.
const NATIVE: u32 = LITTLE | if cfg!(target_endian = "big") { 0x618_6318 } else { 0 };
/// The word for the data format of a little-endian host.
const LITTLE: u32 = if size_of::<usize>() == 8 { 0x40_8c41 } else { 0x40_8841 };

/// A slot of the ring, alone in its cache line.
#[repr(C, align(64))]
pub struct Slot {
    words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

impl Slot {
    #[cfg(any(test, loom))]
    pub fn new() -> Slot {
        Slot { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
    /// Clears the stamp that an earlier use of the memory may have left.
    pub fn clear(&self) {
        self.words[0].store(0, Ordering::Relaxed);
    }
}

/// Returns how many slots an entry with a body of `bytes` takes; not for immediate messages.
pub const fn slots_for(bytes: usize) -> usize {
    if bytes <= FIRST_BYTES { 1 } else { 1 + (bytes - FIRST_BYTES).div_ceil(NEXT_BYTES) }
}

/// Returns how many half-slots an entry with a body of `bytes` can take: its slots, and a skipped half-slot.
pub const fn half_slots_for(bytes: usize) -> u64 {
    2 * slots_for(bytes) as u64 + 1
}

/// Returns the slot of a position.
#[inline(always)]
fn slot_at(ring: &[Slot], position: u64) -> &Slot {
    debug_assert!(ring.len().is_power_of_two());
    // SAFETY: the length of a ring is a power of two, so the index is less than that.
    unsafe { ring.get_unchecked((position / 2) as usize & (ring.len() - 1)) }
}

/// Returns the index, within its slot, of the first word of the half-slot at a position.
#[inline(always)]
fn word_at(position: u64) -> usize {
    (position as usize & 1) * (WORDS / 2)
}

/// Returns the index in [`WELL_KNOWN_HEADERS`] of the last four meta words.
#[inline(always)]
fn well_known_number(meta: &Meta) -> Option<usize> {
    let last = [meta[2], meta[3], meta[4], meta[5]];
    (0..WELL_KNOWN_HEADERS.len()).find(|number| WELL_KNOWN_HEADERS[*number] == last)
}

/// The writing end, with the position of the next entry.
#[derive(Debug)]
pub struct Writer {
    position: Position,
    clock: Clock,
    /// Whether the reader has no other peer.
    is_alone: bool,
}

impl Writer {
    /// Starts at the first slot of a cleared ring of `2^shift` slots.
    pub fn new(shift: u32, clock: Clock) -> Writer {
        Writer { position: Position::start(shift), clock, is_alone: false }
    }
    /// Returns a writer of the same entries for another cleared ring.
    pub fn for_ring(&self, shift: u32) -> Writer {
        Writer { position: Position::start(shift), clock: self.clock.clone(), ..*self }
    }
    /// Notes whether the reader has no other peer, so that the time of what this one sends does not matter.
    pub fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }
    /// Returns the stamp of the next entry.
    #[inline(always)]
    fn stamp(&self) -> u64 {
        self.time().unwrap_or_else(|| self.clock.next())
    }
    /// Returns the stamp of the next entry, unless the latest stamp is later than the time.
    #[inline(always)]
    pub fn time(&self) -> Option<u64> {
        // Stamps wrap, so a stamp must not become too old.
        let reads_no_time = self.is_alone && self.position.count & 0xffff > 1;
        if reads_no_time { Some(self.clock.next_without_time()) } else { self.clock.next_by_time() }
    }
    /// Returns how many half-slots have been written.
    pub fn position(&self) -> u64 {
        self.position.count
    }

    /// Writes an entry. As many half-slots must be free as [`half_slots_for`] returns for the body.
    #[inline]
    pub fn write(&mut self, ring: &[Slot], kind: Kind, meta: &Meta, body: &[u8]) {
        if kind == Kind::Message && self.write_immediate(ring, meta, body) {
            return;
        }
        let time = self.stamp();
        self.write_whole(ring, time | u64::from(kind as u8), meta, body);
    }

    /// Writes the entry behind which the queue continues elsewhere. It is no later than any entry that follows.
    pub fn write_continuation(&mut self, ring: &[Slot], body: &[u8]) {
        let time = self.clock.latest();
        self.write_whole(ring, time | u64::from(Kind::Continuation as u8), &[0; 6], body);
    }

    /// Writes a held message of the given time, with its body or (`in_blocks`) the descriptor of its body.
    pub fn write_held(&mut self, ring: &[Slot], time: u64, in_blocks: bool, meta: &Meta, body: &[u8]) {
        let kind = if in_blocks { HELD_BLOCKS } else { HELD_MESSAGE };
        self.write_whole(ring, time | u64::from(kind), meta, body);
    }

    /// Writes an entry that fills its slots. `stamp`: its time and kind.
    #[inline(always)]
    fn write_whole(&mut self, ring: &[Slot], stamp: u64, meta: &Meta, body: &[u8]) {
        self.skip(ring);
        let (first, rest) = body.split_at(body.len().min(FIRST_BYTES));
        if !rest.is_empty() {
            // The bytes of half a message might look like stamps.
            touch_ends(body);
            self.write_rest(ring, rest);
        }
        self.publish(ring, stamp | fields(body.len(), 0), meta, first);
        self.position.advance(2 * slots_for(body.len()) as u64, ring);
    }

    /// Writes a message whose body fits in one slot.
    #[inline(always)]
    pub fn write_short(&mut self, ring: &[Slot], meta: &Meta, body: &[u8]) {
        if self.write_immediate(ring, meta, body) {
            return;
        }
        let time = self.stamp();
        self.skip(ring);
        self.publish(ring, time | fields(body.len(), Kind::Message as u8), meta, body);
        self.position.advance(2, ring);
    }

    /// Writes a message into half a slot, if it fits. Returns whether the message was written.
    #[inline(always)]
    fn write_immediate(&mut self, ring: &[Slot], meta: &Meta, body: &[u8]) -> bool {
        if body.len() > IMMEDIATE_BYTES {
            return false;
        }
        let immediate =
            well_known_number(meta).and_then(|well_known| Immediate::new([meta[0], meta[1]], well_known, body));
        match immediate {
            Some(immediate) => self.put(ring, self.stamp(), &immediate),
            None => return false,
        }
        true
    }

    /// Writes an immediate message of the given time.
    #[inline(always)]
    pub fn put(&mut self, ring: &[Slot], time: u64, immediate: &Immediate) {
        let Position { count, parity, .. } = self.position;
        let (slot, at) = (slot_at(ring, count), word_at(count));
        slot.words[at + 1].store(pair(immediate.first[0], immediate.first[1]), Ordering::Relaxed);
        slot.words[at + 2].store(immediate.words[0], Ordering::Relaxed);
        if immediate.bytes > 8 {
            slot.words[at + 3].store(immediate.words[1], Ordering::Relaxed);
        }
        // A body of an earlier round may have left bytes in the second half-slot that look like the stamp expected
        // there next. Checking this costs less than a store: a store waits for the cache line, and later stores wait
        // behind it.
        if at == 0 && slot.words[WORDS / 2].load_relaxed() & PARITY == parity {
            slot.words[WORDS / 2].store(parity ^ PARITY, Ordering::Relaxed);
        }
        let stamp = time | parity | fields(immediate.bytes, IMMEDIATE + immediate.well_known as u8);
        // Pair `entry published`: who sees the stamp sees the entry.
        slot.words[at].store(stamp, Ordering::Release);
        self.position.move_to(count + 1, ring);
    }

    /// If the position is the second half-slot of a slot, skips that half-slot.
    #[inline(always)]
    fn skip(&mut self, ring: &[Slot]) {
        let Position { count, parity, .. } = self.position;
        if count % 2 == 1 {
            let word = &slot_at(ring, count).words[WORDS / 2];
            // Pair `entry published`.
            word.store(parity | fields(0, SKIP), Ordering::Release);
            self.position.advance(1, ring);
        }
    }

    /// Writes the first slot of an entry, with its stamp last. `stamp`: without the parity.
    #[inline(always)]
    fn publish(&self, ring: &[Slot], stamp: u64, meta: &Meta, first: &[u8]) {
        let slot = slot_at(ring, self.position.count);
        slot.words[1].store(pair(meta[0], meta[1]), Ordering::Relaxed);
        slot.words[2].store(pair(meta[2], meta[3]), Ordering::Relaxed);
        slot.words[3].store(pair(meta[4], meta[5]), Ordering::Relaxed);
        store_first(slot, first);
        // Pair `entry published`: who sees the stamp sees the entry.
        slot.words[0].store(stamp | self.position.parity, Ordering::Release);
    }

    /// Writes the slots behind the first one; called before the first one is published.
    #[inline]
    fn write_rest(&mut self, ring: &[Slot], rest: &[u8]) {
        let mut count = self.position.count;
        let mut next = || {
            count += 2;
            let slot = slot_at(ring, count);
            slot.words[0].store(self.position.parity_ahead(count), Ordering::Relaxed);
            slot
        };
        let mut pieces = rest.chunks_exact(NEXT_BYTES);
        for piece in &mut pieces {
            store_words::<NEXT_BYTES>(&next().words[1..], piece.try_into().expect("a whole piece"));
        }
        if !pieces.remainder().is_empty() {
            store_bytes(next(), 1, pieces.remainder());
        }
    }
}

/// How far ahead of the reader slots are prefetched, in half-slots. Prefetching a slot that is not written yet does no
/// harm: the reader's core still has it from the last round.
const PREFETCH_HALF_SLOTS: u64 = 16;

/// Prefetches a slot for reading, while the reader handles an earlier one.
#[inline]
fn prefetch(slot: &Slot) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch changes nothing but the caches.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(slot).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = slot;
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Stores the part of a body in the first slot, with fast paths for eight bytes and for a part that fills the slot.
#[inline(always)]
fn store_first(slot: &Slot, body: &[u8]) {
    if let Ok(word) = <[u8; 8]>::try_from(body) {
        slot.words[FIRST_START / 8].store(u64::from_ne_bytes(word), Ordering::Relaxed);
    } else if let Ok(first) = <&[u8; FIRST_BYTES]>::try_from(body) {
        store_words(&slot.words[FIRST_START / 8..], first);
    } else {
        store_bytes(slot, FIRST_START / 8, body);
    }
}

/// Stores bytes into the words of a slot from word `from` on.
#[inline]
fn store_bytes(slot: &Slot, from: usize, bytes: &[u8]) {
    let words = &slot.words[from..];
    let (whole, rest) = bytes.split_at(bytes.len() & !7);
    for (word, bytes) in words.iter().zip(whole.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight")), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0u8; 8];
        // Byte by byte: a call of memcpy would cost as much as the rest of the function.
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        words[whole.len() / 8].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Stores bytes that fill words. Their number is known, so there is no loop.
#[inline(always)]
fn store_words<const BYTES: usize>(words: &[AtomicU64], bytes: &[u8; BYTES]) {
    for (place, word) in words.iter().zip(bytes.chunks_exact(8)) {
        place.store(u64::from_ne_bytes(word.try_into().expect("eight")), Ordering::Relaxed);
    }
}

/// Loads what [`store_words`] has stored.
#[inline(always)]
fn load_words<const BYTES: usize>(words: &[AtomicU64], bytes: &mut [u8; BYTES]) {
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.load_relaxed().to_ne_bytes());
    }
}

/// Loads bytes from the words of a slot from word `from` on.
#[inline]
fn load_bytes(slot: &Slot, from: usize, bytes: &mut [u8]) {
    let words = &slot.words[from..];
    let split = bytes.len() & !7;
    let (whole, rest) = bytes.split_at_mut(split);
    for (word, bytes) in words.iter().zip(whole.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load_relaxed().to_ne_bytes());
    }
    if !rest.is_empty() {
        let last = words[split / 8].load_relaxed().to_ne_bytes();
        for (to, from) in rest.iter_mut().zip(last) {
            *to = from;
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader {
    position: Position,
}

/// An entry, still in the ring.
pub struct Entry<'a> {
    ring: &'a [Slot],
    position: u64,
    stamp: u64,
    /// The number of half-slots that the entry takes, including a skipped one before it.
    half_slots: usize,
    /// The kind of the entry.
    pub kind: Kind,
}

/// The writer broke the rules of the queue; no further entry of this queue can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl Reader {
    /// Starts at the first slot of a ring of `2^shift` slots.
    pub fn new(shift: u32) -> Reader {
        Reader { position: Position::start(shift) }
    }

    /// Returns the stamp word at a position of a round with that parity, if it was written in that round.
    #[inline(always)]
    fn stamp(ring: &[Slot], count: u64, parity: u64) -> Option<u64> {
        // Pair `entry published`.
        let stamp = slot_at(ring, count).words[word_at(count)].load_acquire();
        is_of_round(stamp, parity).then_some(stamp)
    }

    /// Returns the position and the stamp of the next entry, if that entry is there.
    #[inline(always)]
    fn find(&self, ring: &[Slot]) -> Option<(u64, u64)> {
        let Position { count, parity, .. } = self.position;
        let stamp = Reader::stamp(ring, count, parity)?;
        if count % 2 == 1 && kind_of(stamp) == SKIP {
            return Some((count + 1, Reader::stamp(ring, count + 1, self.position.parity_ahead(count + 1))?));
        }
        Some((count, stamp))
    }

    /// Returns the next entry, if it is there.
    #[inline(always)]
    pub fn next<'a>(&self, ring: &'a [Slot]) -> Result<Option<Entry<'a>>, Damaged> {
        self.next_within(ring, 0)
    }

    /// Returns the next entry, if it is there or arrives within `looks` further polls.
    #[inline(always)]
    pub fn next_within<'a>(&self, ring: &'a [Slot], looks: usize) -> Result<Option<Entry<'a>>, Damaged> {
        let mut looks = looks;
        let (position, stamp) = loop {
            match (self.find(ring), looks) {
                (Some(found), _) => break found,
                (None, 0) => return Ok(None),
                (None, _) => looks -= 1,
            }
            // Polling without a pause would take the cache line from the writer before the writer has finished with it.
            std::hint::spin_loop();
        };
        let bytes = bytes_of(stamp);
        let well_known = well_known_of(stamp);
        let kind = match kind_of(stamp) {
            _ if well_known.is_some() => Kind::Message,
            1 | HELD_MESSAGE => Kind::Message,
            HELD_BLOCKS => Kind::Blocks,
            other => Kind::from_number(other).ok_or(Damaged)?,
        };
        let (whole_slots, bytes_max) =
            if well_known.is_some() { (0, IMMEDIATE_BYTES) } else { (slots_for(bytes), crate::INLINE_BYTES_MAX) };
        if bytes > bytes_max || whole_slots > ring.len() || (whole_slots > 0 && position % 2 == 1) {
            return Err(Damaged);
        }
        prefetch(slot_at(ring, position + PREFETCH_HALF_SLOTS));
        let half_slots = (position - self.position.count) as usize + (2 * whole_slots).max(1);
        Ok(Some(Entry { ring, position, stamp, half_slots, kind }))
    }

    /// Returns the next entry and its stamp, if it is an immediate message that is there or arrives within `looks` further
    /// polls.
    #[inline(always)]
    pub fn next_immediate(&self, ring: &[Slot], looks: usize) -> Option<(Immediate, u64)> {
        let Position { count, parity, .. } = self.position;
        let (slot, at) = (slot_at(ring, count), word_at(count));
        // All work that does not depend on the message is done before it arrives.
        prefetch(slot_at(ring, count + PREFETCH_HALF_SLOTS));
        let mut looks = looks;
        let stamp = loop {
            // Pair `entry published`.
            let stamp = slot.words[at].load_acquire();
            if is_of_round(stamp, parity) {
                break stamp;
            }
            looks = looks.checked_sub(1)?;
            // Polling without a pause would take the cache line from the writer before the writer has finished with it.
            std::hint::spin_loop();
        };
        let bytes = bytes_of(stamp);
        let Some(well_known) = well_known_of(stamp) else {
            if bytes > FIRST_BYTES {
                // The caller will soon need the rest.
                prefetch(slot_at(ring, count + 2));
            }
            return None;
        };
        if bytes > IMMEDIATE_BYTES {
            return None;
        }
        let word = |place: usize| slot.words[at + place].load_relaxed();
        let first = word(1);
        let first = [first as u32, (first >> 32) as u32];
        Some((Immediate { first, well_known, bytes, words: [word(2), word(3)] }, stamp))
    }

    /// Returns the stamp of the next entry, if that entry is there; for a held entry ([`Entry::is_held`]), whether
    /// the writer has committed it still has to be checked.
    #[inline(always)]
    pub fn head(&self, ring: &[Slot]) -> Option<u64> {
        Some(self.find(ring)?.1)
    }

    /// Returns whether the next entry is there.
    #[inline(always)]
    pub fn has_next(&self, ring: &[Slot]) -> bool {
        let Position { count, parity, .. } = self.position;
        is_of_round(slot_at(ring, count).words[word_at(count)].load_relaxed(), parity)
    }

    /// Advances by `half_slots`.
    #[inline(always)]
    pub fn advance(&mut self, half_slots: usize, ring: &[Slot]) {
        self.position.advance(half_slots as u64, ring);
    }
}

/// Returns the index of the first word of the body: of an immediate message that begins at word `at`, or else of an
/// entry that fills its slots from the first word on.
#[inline(always)]
fn body_word(at: usize, well_known: Option<usize>) -> usize {
    if well_known.is_some() { at + IMMEDIATE_START / 8 } else { FIRST_START / 8 }
}

#[inline(always)]
fn meta_of(slot: &Slot, at: usize, well_known: Option<usize>) -> Meta {
    let word = |index: usize| slot.words[index].load_relaxed();
    if let Some(number) = well_known {
        let (first, last) = (word(at + 1), WELL_KNOWN_HEADERS[number]);
        return [first as u32, (first >> 32) as u32, last[0], last[1], last[2], last[3]];
    }
    let (a, b, c) = (word(1), word(2), word(3));
    [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32, c as u32, (c >> 32) as u32]
}

impl Entry<'_> {
    /// Returns the length of the body in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        bytes_of(self.stamp)
    }
    /// Returns the index of the message's last meta words in [`WELL_KNOWN_HEADERS`], if the message is immediate.
    #[inline(always)]
    fn well_known(&self) -> Option<usize> {
        well_known_of(self.stamp)
    }
    /// Returns whether the entry is held: it is there only if its writer has committed entries of its time.
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        is_held(self.stamp)
    }
    /// Returns the entry's stamp: its time, and fields of the queue.
    #[inline(always)]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }
    /// Returns how many half-slots the reader must advance to pass this entry.
    pub fn half_slots(&self) -> usize {
        self.half_slots
    }
    /// Returns the words that travel with the message.
    #[inline(always)]
    pub fn meta(&self) -> Meta {
        meta_of(slot_at(self.ring, self.position), word_at(self.position), self.well_known())
    }

    /// Copies the first bytes of the body, as many as fit; returns how many.
    #[inline(always)]
    pub fn copy_to(&self, data: &mut [u8]) -> usize {
        match (self.len(), data.first_chunk_mut::<8>()) {
            (8, Some(word)) => {
                let from = body_word(word_at(self.position), self.well_known());
                *word = slot_at(self.ring, self.position).words[from].load_relaxed().to_ne_bytes();
                8
            }
            _ => self.copy_any_to(data),
        }
    }

    fn copy_any_to(&self, data: &mut [u8]) -> usize {
        let wanted = data.len().min(self.len());
        let (first, rest) = data[..wanted].split_at_mut(wanted.min(FIRST_BYTES));
        let slot = |further: usize| slot_at(self.ring, self.position + 2 * further as u64);
        let from = body_word(word_at(self.position), self.well_known());
        match <&mut [u8; FIRST_BYTES]>::try_from(&mut *first) {
            Ok(first) => load_words(&slot(0).words[FIRST_START / 8..], first),
            Err(_) => load_bytes(slot(0), from, first),
        }
        let mut pieces = rest.chunks_exact_mut(NEXT_BYTES);
        let mut further = 0;
        for piece in &mut pieces {
            further += 1;
            load_words::<NEXT_BYTES>(&slot(further).words[1..], piece.try_into().expect("a whole piece"));
        }
        let last = pieces.into_remainder();
        if !last.is_empty() {
            load_bytes(slot(further + 1), 1, last);
        }
        wanted
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::FIELDS;

    fn ring(shift: u32) -> Vec<Slot> {
        (0..1 << shift).map(|_| Slot::new()).collect()
    }

    #[test]
    fn an_empty_ring_gives_nothing() {
        assert!(Reader::new(3).next(&ring(3)).unwrap().is_none());
    }

    #[test]
    fn an_eight_byte_message_takes_one_slot() {
        assert_eq!(slots_for(8), 1);
        assert_eq!(slots_for(FIRST_BYTES), 1);
        assert_eq!(slots_for(FIRST_BYTES + 1), 2);
        assert!(slots_for(crate::INLINE_BYTES_MAX) < 16);
    }

    #[test]
    fn a_slot_that_no_writer_writes_is_damage() {
        let ring = ring(2);
        for stamp in [fields(8, 31), fields(8, SKIP), fields(crate::INLINE_BYTES_MAX + 1, Kind::Message as u8)] {
            ring[0].words[0].store(PARITY | stamp, Ordering::Relaxed);
            assert!(matches!(Reader::new(2).next(&ring), Err(Damaged)));
        }
    }

    fn well_known(first: u32, number: usize) -> Meta {
        let [a, b, c, d] = WELL_KNOWN_HEADERS[number];
        [first, 1, a, b, c, d]
    }

    #[test]
    fn two_immediate_messages_share_a_slot() {
        let ring = ring(2);
        let (mut writer, mut reader) = (Writer::new(2, Clock::default()), Reader::new(2));
        let meta = well_known;
        writer.write_short(&ring, &meta(1, 0), b"the first");
        writer.write(&ring, Kind::Message, &meta(2, 1), &[2; IMMEDIATE_BYTES]);
        assert_eq!(writer.position(), 2);
        for (wanted, body) in [(meta(1, 0), &b"the first"[..]), (meta(2, 1), &[2; IMMEDIATE_BYTES])] {
            let entry = reader.next(&ring).unwrap().unwrap();
            let mut copy = vec![0; entry.len()];
            entry.copy_to(&mut copy);
            assert_eq!((entry.meta(), &copy[..], entry.half_slots()), (wanted, body, 1));
            reader.advance(1, &ring);
        }
        assert!(!reader.has_next(&ring));
    }

    #[test]
    fn the_half_slot_behind_an_immediate_message_is_left_by_what_needs_a_slot() {
        let ring = ring(2);
        let (mut writer, mut reader) = (Writer::new(2, Clock::default()), Reader::new(2));
        let well_known = well_known(1, 0);
        writer.write_short(&ring, &well_known, &[1; 8]);
        writer.write_short(&ring, &well_known, &[2; FIRST_BYTES]);
        assert_eq!(writer.position(), 4);
        reader.advance(reader.next(&ring).unwrap().unwrap().half_slots(), &ring);
        let entry = reader.next(&ring).unwrap().unwrap();
        assert_eq!((entry.len(), entry.half_slots()), (FIRST_BYTES, 3));
        reader.advance(3, &ring);
        assert!(reader.next(&ring).unwrap().is_none());
    }

    #[test]
    fn a_slot_behind_a_half_slot_that_was_not_left_is_damage() {
        let ring = ring(2);
        let well_known = well_known(1, 0);
        Writer::new(2, Clock::default()).write_short(&ring, &well_known, &[1; 8]);
        let mut reader = Reader::new(2);
        reader.advance(1, &ring);
        ring[0].words[4].store(PARITY | fields(8, Kind::Message as u8), Ordering::Relaxed);
        assert!(matches!(reader.next(&ring), Err(Damaged)));
        ring[0].words[4].store(PARITY | fields(IMMEDIATE_BYTES + 1, IMMEDIATE), Ordering::Relaxed);
        assert!(matches!(reader.next(&ring), Err(Damaged)));
    }

    #[test]
    fn only_a_whole_immediate_message_is_one() {
        let ring = ring(2);
        let (mut writer, reader) = (Writer::new(2, Clock::default()), Reader::new(2));
        assert_eq!(reader.next_immediate(&ring, 3), None);
        writer.write_short(&ring, &well_known(1, 0), &[1; IMMEDIATE_BYTES + 1]);
        assert_eq!(reader.next_immediate(&ring, 3), None);
        ring[0].words[0].store(PARITY | fields(IMMEDIATE_BYTES + 1, IMMEDIATE), Ordering::Relaxed);
        assert_eq!(reader.next_immediate(&ring, 3), None);
        ring[0].words[0].store(PARITY | fields(IMMEDIATE_BYTES, IMMEDIATE), Ordering::Relaxed);
        assert!(reader.next_immediate(&ring, 0).is_some());
    }

    #[test]
    fn neither_cleared_memory_nor_the_round_before_is_of_a_round() {
        let ring = ring(2);
        let mut position = Position::start(2);
        assert!(!is_of_round(0, position.parity));
        for count in 0..100 {
            assert_eq!((position.count, position.parity == PARITY), (count, count / 8 % 2 == 0));
            for ahead in 0..8 {
                assert_eq!(position.parity_ahead(count + ahead) == PARITY, (count + ahead) / 8 % 2 == 0);
            }
            assert!(is_of_round(position.parity, position.parity));
            assert!(!is_of_round(position.parity, position.parity_ahead(count + 8)));
            position.advance(1, &ring);
        }
    }

    #[test]
    fn a_held_entry_is_there_once_its_time_is_committed() {
        let ring = ring(2);
        let clock = Clock::default();
        let (mut writer, mut reader) = (Writer::new(2, clock.clone()), Reader::new(2));
        writer.write_short(&ring, &well_known(1, 0), &[1; 8]);
        let before = reader.head(&ring).unwrap();
        assert!(is_there(before, || unreachable!("only held entries need the word")));
        let time = clock.next();
        for in_blocks in [false, true] {
            writer.write_held(&ring, time, in_blocks, &well_known(2, 0), &[2; 8]);
        }
        reader.advance(1, &ring);
        for kind in [Kind::Message, Kind::Blocks] {
            let entry = reader.next(&ring).unwrap().unwrap();
            assert_eq!((entry.kind, entry.is_held(), entry.len()), (kind, true, 8));
            assert_eq!(reader.head(&ring), Some(entry.stamp()));
            assert!(!is_there(entry.stamp(), || before & !FIELDS) && is_there(entry.stamp(), || time));
            assert!(reader.next_immediate(&ring, 0).is_none());
            reader.advance(entry.half_slots(), &ring);
        }
        assert!(reader.next(&ring).unwrap().is_none());
    }

    #[test]
    fn a_body_that_is_all_zeros_or_ones_is_no_stamp_in_any_round() {
        let (shift, ring) = (2, ring(2));
        let (mut writer, mut reader) = (Writer::new(shift, Clock::default()), Reader::new(shift));
        for fill in [0, 0xff, 0, 0, 0xff, 0xff] {
            for _ in 0..ring.len() {
                writer.write_short(&ring, &well_known(1, 0), &[fill; FIRST_BYTES]);
                reader.advance(reader.next(&ring).unwrap().unwrap().half_slots(), &ring);
            }
            for _ in 0..2 * ring.len() {
                writer.write_short(&ring, &well_known(1, 0), &[fill; 8]);
                reader.advance(reader.next(&ring).unwrap().unwrap().half_slots(), &ring);
                assert!(matches!(reader.next(&ring), Ok(None)));
            }
        }
    }

    /// These tests have one thread, so ThreadSanitizer (`--cfg one_mapping`) has nothing to find in them.
    #[cfg(not(one_mapping))]
    mod generated {
        use super::super::stamp::PARITY_SHIFT;
        use super::*;
        use proptest::prelude::*;
        use std::collections::VecDeque;

        /// Returns a body of `bytes` bytes whose words look like stamps of immediate messages in this round or the
        /// next.
        fn body_like_stamps(bytes: usize, fill: u8) -> Vec<u8> {
            let word = (u64::from(fill) % 2) << PARITY_SHIFT | fields(8, IMMEDIATE);
            word.to_ne_bytes().into_iter().cycle().take(bytes).collect()
        }

        proptest! {
            /// Compares the queue with a `VecDeque`: all entries are read in the order in which they were written, over
            /// many rounds.
            #[test]
            fn the_ring_behaves_like_a_queue(steps in proptest::collection::vec((0u8..8, 0usize..=504, any::<u8>()), 1..400)) {
                let (shift, ring) = (5, ring(5));
                let (mut writer, mut reader) = (Writer::new(shift, Clock::default()), Reader::new(shift));
                let mut oracle: VecDeque<(Meta, Vec<u8>)> = VecDeque::new();
                let mut read = 0;
                for (index, (step, bytes, fill)) in steps.into_iter().enumerate() {
                    let bytes = if step % 2 == 0 { bytes % (IMMEDIATE_BYTES + 4) } else { bytes };
                    if step < 4 && writer.position() - read + half_slots_for(bytes) <= 2 << shift {
                        let body = body_like_stamps(bytes, fill);
                        let number = fill as usize % WELL_KNOWN_HEADERS.len();
                        let meta = if fill < 200 { well_known(index as u32, number) } else { [index as u32, 1, 2, 3, u32::MAX, 4] };
                        if bytes <= FIRST_BYTES && fill % 3 == 0 {
                            writer.write_short(&ring, &meta, &body);
                        } else {
                            writer.write(&ring, Kind::Message, &meta, &body);
                        }
                        oracle.push_back((meta, body));
                        continue;
                    }
                    let immediate = reader.next_immediate(&ring, 0).filter(|_| fill % 3 == 0);
                    let (meta, copy, half_slots) = match reader.next(&ring).unwrap() {
                        _ if immediate.is_some() => {
                            let (immediate, _) = immediate.unwrap();
                            let ([first, second], [a, b, c, d]) = (immediate.first, WELL_KNOWN_HEADERS[immediate.well_known]);
                            ([first, second, a, b, c, d], immediate.filled_body()[..immediate.len()].to_vec(), 1)
                        }
                        Some(entry) => {
                            let mut copy = vec![0; entry.len()];
                            prop_assert_eq!(entry.copy_to(&mut copy), entry.len());
                            (entry.meta(), copy, entry.half_slots())
                        }
                        None => {
                            prop_assert!(oracle.is_empty() && !reader.has_next(&ring));
                            continue;
                        }
                    };
                    prop_assert_eq!(Some((meta, copy)), oracle.pop_front());
                    reader.advance(half_slots, &ring);
                    read += half_slots as u64;
                }
            }
        }
    }
}
