//! The queue between two tasks: a ring of cache lines with one writer and one reader.
//!
//! Each line begins with a stamp word: the lap in which it was written (so that a line of an
//! earlier lap is never taken for new), and for the first line of an entry its kind and the length
//! of its body. The writer stores the first line's stamp last. The reader keeps its position to
//! itself and polls the stamp of the next line; a short message thus crosses the cores in one line.
//! How far the reader has come is published elsewhere (`Endpoint`), for the writer to see room.
//!
//! All words are atomics, so that even a writer gone mad causes wrong bytes at most.
use crate::Meta;
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Body bytes in the first line of an entry, behind stamp and meta words.
pub const FIRST_BYTES: usize = LINE_BYTES - FIRST_START;
/// Body bytes in each further line, behind its stamp.
pub const NEXT_BYTES: usize = LINE_BYTES - 8;
/// Where the body begins in the first line: the six meta words are three of ours.
const FIRST_START: usize = 8 + 24;
const WORDS: usize = LINE_BYTES / 8;

/// A line of the ring, alone in its cache line.
#[repr(C, align(64))]
pub struct Line {
    words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == LINE_BYTES);

impl Line {
    #[cfg(any(test, loom))]
    pub fn new() -> Line {
        Line { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
    /// Makes sure that no stamp of an earlier use of the memory is left.
    pub fn clear(&self) {
        self.words[0].store(0, Ordering::Relaxed);
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message with its body.
    Message = 1,
    /// A message whose body lies in the writer's heap: a descriptor.
    Blocks = 2,
    /// A message whose body lies in the writer's own memory: an offer.
    Offer = 3,
    /// Blocks of the reader that the writer no longer reads: tokens.
    Release = 4,
    /// The queue goes on in another ring.
    Link = 5,
    /// A message whose body is being written to the writer's heap.
    Stream = 6,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        [Kind::Message, Kind::Blocks, Kind::Offer, Kind::Release, Kind::Link, Kind::Stream]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// How many lines an entry with a body of `bytes` takes.
pub const fn lines_for(bytes: usize) -> usize {
    if bytes <= FIRST_BYTES { 1 } else { 1 + (bytes - FIRST_BYTES).div_ceil(NEXT_BYTES) }
}

/// Stamp word: lap in the upper half, length, kind.
fn stamp(position: u64, shift: u32, bytes: usize, kind: u8) -> u64 {
    lap(position, shift) << 32 | (bytes as u64) << 8 | u64::from(kind)
}

/// The lap of a position, never zero, so that cleared memory matches none.
fn lap(position: u64, shift: u32) -> u64 {
    ((position >> shift) + 1) & 0xffff_ffff
}

/// The writing end: where the next entry goes.
#[derive(Debug)]
pub struct Writer {
    position: u64,
    shift: u32,
}

impl Writer {
    /// Starts at the first line of a cleared ring of `2^shift` lines.
    pub fn new(shift: u32) -> Writer {
        Writer { position: 0, shift }
    }
    /// Lines written so far.
    pub fn position(&self) -> u64 {
        self.position
    }
    /// Lines of the ring.
    pub fn capacity(&self) -> u64 {
        1 << self.shift
    }

    /// Writes an entry. The caller has made sure that the reader has left the lines.
    #[inline]
    pub fn write(&mut self, ring: &[Line], kind: Kind, meta: &Meta, body: &[u8]) {
        let (first, rest) = body.split_at(body.len().min(FIRST_BYTES));
        if !rest.is_empty() {
            self.write_rest(ring, rest);
        }
        self.publish(ring, kind, meta, first, body.len());
        self.position += lines_for(body.len()) as u64;
    }

    /// Writes a message whose body fits in one line.
    #[inline(always)]
    pub fn write_short(&mut self, ring: &[Line], meta: &Meta, body: &[u8]) {
        self.publish(ring, Kind::Message, meta, body, body.len());
        self.position += 1;
    }

    /// Writes the first line of an entry, with its stamp last.
    #[inline(always)]
    fn publish(&self, ring: &[Line], kind: Kind, meta: &Meta, first: &[u8], bytes: usize) {
        let line = &ring[self.position as usize & (ring.len() - 1)];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        line.words[1].store(pair(meta[0], meta[1]), Ordering::Relaxed);
        line.words[2].store(pair(meta[2], meta[3]), Ordering::Relaxed);
        line.words[3].store(pair(meta[4], meta[5]), Ordering::Relaxed);
        match <[u8; 8]>::try_from(first) {
            Ok(word) => line.words[FIRST_START / 8].store(u64::from_ne_bytes(word), Ordering::Relaxed),
            Err(_) => store_bytes(line, FIRST_START / 8, first),
        }
        // Pairs with the acquire in `Reader::next`: whoever sees the stamp sees the entry.
        line.words[0].store(stamp(self.position, self.shift, bytes, kind as u8), Ordering::Release);
    }

    /// The lines behind the first one, before that is published.
    fn write_rest(&mut self, ring: &[Line], rest: &[u8]) {
        for (further, piece) in rest.chunks(NEXT_BYTES).enumerate() {
            let position = self.position + 1 + further as u64;
            let line = &ring[position as usize & (ring.len() - 1)];
            line.words[0].store(stamp(position, self.shift, 0, 0), Ordering::Relaxed);
            store_bytes(line, 1, piece);
        }
    }
}

/// How far ahead of the reader lines are fetched. A line that is not written yet does no harm: the
/// reader holds it from the last lap.
const AHEAD_LINES: usize = 8;

/// Fetches a line for reading, while the one before is being handled.
#[inline]
fn want_soon(line: &Line) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch changes nothing but the caches.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = line;
}

/// Stores bytes into the words of a line from word `from` on.
#[inline]
fn store_bytes(line: &Line, from: usize, bytes: &[u8]) {
    let words = &line.words[from..];
    let (whole, rest) = bytes.split_at(bytes.len() & !7);
    for (word, bytes) in words.iter().zip(whole.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight")), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0u8; 8];
        // Byte by byte: a call of memcpy would cost as much as all the rest.
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        words[whole.len() / 8].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Loads bytes from the words of a line from word `from` on.
#[inline]
fn load_bytes(line: &Line, from: usize, bytes: &mut [u8]) {
    let words = &line.words[from..];
    let split = bytes.len() & !7;
    let (whole, rest) = bytes.split_at_mut(split);
    for (word, bytes) in words.iter().zip(whole.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    if !rest.is_empty() {
        let last = words[split / 8].load(Ordering::Relaxed).to_ne_bytes();
        for (to, from) in rest.iter_mut().zip(last) {
            *to = from;
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader {
    position: u64,
    shift: u32,
}

/// An entry, still in the ring.
pub struct Entry<'a> {
    ring: &'a [Line],
    position: u64,
    bytes: usize,
    /// What it is.
    pub kind: Kind,
}

/// The writer broke the rules of the queue; nothing more of it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl Reader {
    /// Starts at the first line of a ring of `2^shift` lines.
    pub fn new(shift: u32) -> Reader {
        Reader { position: 0, shift }
    }

    /// The next entry, if it is there.
    #[inline(always)]
    pub fn next<'a>(&self, ring: &'a [Line]) -> Result<Option<Entry<'a>>, Damaged> {
        let line = &ring[self.position as usize & (ring.len() - 1)];
        // Pairs with the release in `Writer::write`.
        let stamp = line.words[0].load(Ordering::Acquire);
        if stamp >> 32 != lap(self.position, self.shift) {
            return Ok(None);
        }
        let bytes = (stamp >> 8 & 0xff_ffff) as usize;
        let kind = match stamp as u8 {
            1 => Kind::Message,
            other => Kind::from_number(other).ok_or(Damaged)?,
        };
        if bytes > crate::INLINE_BYTES_MAX || lines_for(bytes) > ring.len() {
            return Err(Damaged);
        }
        want_soon(&ring[(self.position as usize + AHEAD_LINES) & (ring.len() - 1)]);
        Ok(Some(Entry { ring, position: self.position, bytes, kind }))
    }

    /// The next entry, if it is there and a message that fits in one line.
    #[inline(always)]
    pub fn next_short<'a>(&self, ring: &'a [Line]) -> Option<Short<'a>> {
        let line = &ring[self.position as usize & (ring.len() - 1)];
        // Pairs with the release in `Writer::publish`.
        let stamp = line.words[0].load(Ordering::Acquire);
        let bytes = (stamp >> 8 & 0xff_ffff) as usize;
        let fits = stamp >> 32 == lap(self.position, self.shift);
        let fits = fits && stamp as u8 == Kind::Message as u8 && bytes <= FIRST_BYTES;
        fits.then(|| {
            want_soon(&ring[(self.position as usize + AHEAD_LINES) & (ring.len() - 1)]);
            Short { line, bytes }
        })
    }

    /// Whether the next entry is there.
    #[inline(always)]
    pub fn has_next(&self, ring: &[Line]) -> bool {
        let line = &ring[self.position as usize & (ring.len() - 1)];
        line.words[0].load(Ordering::Relaxed) >> 32 == lap(self.position, self.shift)
    }

    /// Leaves `lines` lines behind.
    pub fn advance(&mut self, lines: usize) {
        self.position += lines as u64;
    }
}

/// A message in one line, still in the ring.
pub struct Short<'a> {
    line: &'a Line,
    bytes: usize,
}

impl Short<'_> {
    /// Bytes of the body.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// The words that travel with the message.
    #[inline(always)]
    pub fn meta(&self) -> Meta {
        meta_of(self.line)
    }
    /// Copies the first bytes of the body, as many as fit.
    #[inline(always)]
    pub fn copy_to(&self, data: &mut [u8]) {
        match (self.bytes, data.first_chunk_mut::<8>()) {
            (8, Some(word)) => *word = self.line.words[FIRST_START / 8].load(Ordering::Relaxed).to_ne_bytes(),
            _ => {
                let wanted = data.len().min(self.bytes);
                load_bytes(self.line, FIRST_START / 8, &mut data[..wanted]);
            }
        }
    }
}

#[inline(always)]
fn meta_of(line: &Line) -> Meta {
    let word = |index: usize| line.words[index].load(Ordering::Relaxed);
    let (a, b, c) = (word(1), word(2), word(3));
    [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32, c as u32, (c >> 32) as u32]
}

impl Entry<'_> {
    /// Bytes of the body.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Lines that the entry takes.
    pub fn lines(&self) -> usize {
        lines_for(self.bytes)
    }
    /// The words that travel with the message.
    #[inline]
    pub fn meta(&self) -> Meta {
        meta_of(&self.ring[self.position as usize & (self.ring.len() - 1)])
    }

    /// Copies the first bytes of the body, as many as fit; returns how many.
    #[inline]
    pub fn copy_to(&self, data: &mut [u8]) -> usize {
        let wanted = data.len().min(self.bytes);
        let (first, rest) = data[..wanted].split_at_mut(wanted.min(FIRST_BYTES));
        let line = |further: usize| &self.ring[(self.position as usize + further) & (self.ring.len() - 1)];
        load_bytes(line(0), FIRST_START / 8, first);
        for (further, piece) in rest.chunks_mut(NEXT_BYTES).enumerate() {
            load_bytes(line(1 + further), 1, piece);
        }
        wanted
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring(shift: u32) -> Vec<Line> {
        (0..1 << shift).map(|_| Line::new()).collect()
    }

    #[test]
    fn an_empty_ring_gives_nothing() {
        assert!(Reader::new(3).next(&ring(3)).unwrap().is_none());
    }

    #[test]
    fn an_eight_byte_message_takes_one_line() {
        assert_eq!(lines_for(8), 1);
        assert_eq!(lines_for(FIRST_BYTES), 1);
        assert_eq!(lines_for(FIRST_BYTES + 1), 2);
        assert!(lines_for(crate::INLINE_BYTES_MAX) < 16);
    }

    #[test]
    fn a_line_that_no_writer_writes_is_damage() {
        let ring = ring(2);
        ring[0].words[0].store(1 << 32 | 0xff, Ordering::Relaxed);
        assert!(matches!(Reader::new(2).next(&ring), Err(Damaged)));
        ring[0].words[0].store(1 << 32 | 100_000 << 8 | 1, Ordering::Relaxed);
        assert!(matches!(Reader::new(2).next(&ring), Err(Damaged)));
    }

    proptest! {
        /// The queue against a `VecDeque`: what goes in comes out, in order, over many laps.
        #[test]
        fn the_ring_behaves_like_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..=504, any::<u8>()), 1..400)) {
            let (shift, ring) = (5, ring(5));
            let (mut writer, mut reader) = (Writer::new(shift), Reader::new(shift));
            let mut oracle: VecDeque<(Meta, Vec<u8>)> = VecDeque::new();
            let mut read = 0;
            for (index, (write, bytes, fill)) in steps.into_iter().enumerate() {
                if write && writer.position() - read + lines_for(bytes) as u64 <= writer.capacity() {
                    let body: Vec<u8> = (0..bytes).map(|at| fill.wrapping_add(at as u8)).collect();
                    let meta = [index as u32, 1, 2, 3, u32::MAX, 4];
                    writer.write(&ring, Kind::Message, &meta, &body);
                    oracle.push_back((meta, body));
                } else {
                    let entry = reader.next(&ring).unwrap();
                    prop_assert_eq!(entry.is_some(), !oracle.is_empty());
                    if let Some(entry) = entry {
                        let (meta, body) = oracle.pop_front().unwrap();
                        let mut copy = vec![0; entry.len()];
                        prop_assert_eq!(entry.copy_to(&mut copy), body.len());
                        prop_assert_eq!((entry.meta(), copy), (meta, body));
                        let lines = entry.lines();
                        reader.advance(lines);
                        read += lines as u64;
                    }
                }
            }
        }
    }
}
