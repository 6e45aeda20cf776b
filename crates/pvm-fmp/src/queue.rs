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
pub const FIRST_BYTES: usize = LINE_BYTES - 8 - META_BYTES;
/// Body bytes in each further line, behind its stamp.
pub const NEXT_BYTES: usize = LINE_BYTES - 8;
const META_BYTES: usize = 20;
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
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        [Kind::Message, Kind::Blocks, Kind::Offer, Kind::Release, Kind::Link]
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
    pub fn write(&mut self, ring: &[Line], kind: Kind, meta: &Meta, body: &[u8]) {
        let mask = ring.len() - 1;
        let lines = lines_for(body.len());
        let (first, mut rest) = body.split_at(body.len().min(FIRST_BYTES));
        for further in 1..lines {
            let position = self.position + further as u64;
            let (piece, tail) = rest.split_at(rest.len().min(NEXT_BYTES));
            let mut bytes = [0u8; LINE_BYTES];
            bytes[8..8 + piece.len()].copy_from_slice(piece);
            let line = &ring[position as usize & mask];
            line.words[0].store(stamp(position, self.shift, 0, 0), Ordering::Relaxed);
            store_words(line, &bytes, 8 + piece.len());
            rest = tail;
        }
        let mut bytes = [0u8; LINE_BYTES];
        for (place, word) in bytes[8..8 + META_BYTES].chunks_exact_mut(4).zip(meta) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let start = 8 + META_BYTES;
        copy_short(&mut bytes[start..start + first.len()], first);
        let line = &ring[self.position as usize & mask];
        store_words(line, &bytes, start + first.len());
        // Pairs with the acquire in `Reader::next`: whoever sees the stamp sees the entry.
        line.words[0].store(stamp(self.position, self.shift, body.len(), kind as u8), Ordering::Release);
        self.position += lines as u64;
    }
}

/// Stores the words behind the stamp that hold the first `end` bytes of the line.
#[inline]
fn store_words(line: &Line, bytes: &[u8; LINE_BYTES], end: usize) {
    for (word, bytes) in line.words.iter().zip(bytes.chunks_exact(8)).take(end.div_ceil(8)).skip(1) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight")), Ordering::Relaxed);
    }
}

/// Short bodies are copied in place; a call of memcpy would cost as much as the rest.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    if from.len() == 8 {
        to.copy_from_slice(&<[u8; 8]>::try_from(from).expect("eight"));
    } else {
        to.copy_from_slice(from);
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
    #[inline]
    pub fn next<'a>(&self, ring: &'a [Line]) -> Result<Option<Entry<'a>>, Damaged> {
        let line = &ring[self.position as usize & (ring.len() - 1)];
        // Pairs with the release in `Writer::write`.
        let stamp = line.words[0].load(Ordering::Acquire);
        if stamp >> 32 != lap(self.position, self.shift) {
            return Ok(None);
        }
        let bytes = (stamp >> 8 & 0xff_ffff) as usize;
        let kind = Kind::from_number(stamp as u8).ok_or(Damaged)?;
        if bytes > crate::INLINE_BYTES_MAX || lines_for(bytes) > ring.len() {
            return Err(Damaged);
        }
        Ok(Some(Entry { ring, position: self.position, bytes, kind }))
    }

    /// Leaves `lines` lines behind.
    pub fn advance(&mut self, lines: usize) {
        self.position += lines as u64;
    }
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
    pub fn meta(&self) -> Meta {
        let line = &self.ring[self.position as usize & (self.ring.len() - 1)];
        let words = [1, 2, 3].map(|index| line.words[index].load(Ordering::Relaxed).to_ne_bytes());
        let half = |index: usize, from: usize| u32::from_ne_bytes(words[index][from..from + 4].try_into().expect("four"));
        [half(0, 0), half(0, 4), half(1, 0), half(1, 4), half(2, 0)]
    }

    /// Copies the first bytes of the body, as many as fit; returns how many.
    pub fn copy_to(&self, data: &mut [u8]) -> usize {
        let wanted = data.len().min(self.bytes);
        let mut done = 0;
        let mut position = self.position;
        let mut start = 8 + META_BYTES;
        while done < wanted {
            let count = (wanted - done).min(LINE_BYTES - start);
            let bytes = self.load_words(position, start / 8, (start + count).div_ceil(8));
            copy_short(&mut data[done..done + count], &bytes[start..start + count]);
            done += count;
            position += 1;
            start = 8;
        }
        wanted
    }

    #[inline]
    fn load_words(&self, position: u64, from: usize, to: usize) -> [u8; LINE_BYTES] {
        let line = &self.ring[position as usize & (self.ring.len() - 1)];
        let mut bytes = [0u8; LINE_BYTES];
        for index in from..to {
            let word = line.words[index].load(Ordering::Relaxed);
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
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
                    let meta = [index as u32, 1, 2, 3, u32::MAX];
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
