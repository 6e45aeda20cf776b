//! The stamp of an entry: its time, and what stands below it in the same word; the parity of a round.
use super::{Slot, WELL_KNOWN_HEADERS};
use crate::clock::{FIELD_BITS, FIELDS, is_earlier};

/// The fields of a stamp word: the kind of the entry, the length of its body in bytes, the parity of the round. The
/// time is above them.
pub(super) const KIND_MASK: u64 = 0x1f;
pub(super) const BYTES_SHIFT: u32 = 5;
pub(super) const BYTES_MASK: u64 = 0x1ff;
/// The bit is set in the first round, in which cleared memory has it not, and then in every second one.
pub(super) const PARITY: u64 = 1 << PARITY_SHIFT;
pub(super) const PARITY_SHIFT: u32 = 14;
const _: () = assert!(PARITY_SHIFT + 1 == FIELD_BITS && crate::INLINE_BYTES_MAX <= BYTES_MASK as usize);

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message with its body.
    Message = 1,
    /// A message whose body lies in the writer's heap; the entry holds a descriptor of the body.
    Blocks = 2,
    /// A message whose body lies in the writer's own memory: a rendezvous.
    Rendezvous = 3,
    /// The tokens of blocks that belong to the reader and that the writer no longer reads.
    Release = 4,
    /// The queue continues in another ring.
    Continuation = 5,
    /// A message whose body is being written to the writer's heap.
    Pipelined = 6,
    /// An offer of memory that the writer has made for both tasks.
    Offer = 10,
    /// The answer to an offer.
    Answer = 11,
    /// A message whose body lies in a cell of such memory; the cell goes to the reader.
    Passed = 12,
    /// A message whose body goes through such a cell as through a ring; the cell goes to the reader, too.
    Streamed = 13,
    /// A token, and for how long the writer has copied the body of that token out.
    CopyTime = 14,
    /// The cells with packed messages that the writer will not send again.
    Dropped = 15,
    /// The number of a frame of the daemon that the reader takes before the next entries.
    AfterFrame = 16,
    /// A host, and how many messages of it will follow that come before all later entries of any writer.
    Gap = 19,
    /// A host of which no more messages follow.
    NoMore = 20,
}

/// The kind in the stamp of a skipped half-slot: the next entry begins at the next slot.
pub(super) const SKIP: u8 = 7;
/// The kind of an immediate message, before the message's index in [`WELL_KNOWN_HEADERS`] is added.
pub(super) const IMMEDIATE: u8 = 8;
/// The kinds of held messages.
pub(super) const HELD_MESSAGE: u8 = 17;
pub(super) const HELD_BLOCKS: u8 = 18;

impl Kind {
    /// Returns whether an entry of this kind is a message.
    pub fn is_message(self) -> bool {
        use Kind::*;
        matches!(self, Message | Blocks | Rendezvous | Pipelined | Passed | Streamed)
    }

    pub(super) fn from_number(number: u8) -> Option<Kind> {
        const KINDS: [Kind; 15] = [
            Kind::Message,
            Kind::Blocks,
            Kind::Rendezvous,
            Kind::Release,
            Kind::Continuation,
            Kind::Pipelined,
            Kind::Offer,
            Kind::Answer,
            Kind::Passed,
            Kind::Streamed,
            Kind::CopyTime,
            Kind::Dropped,
            Kind::AfterFrame,
            Kind::Gap,
            Kind::NoMore,
        ];
        KINDS.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Returns the fields of a stamp word without the parity.
#[inline(always)]
pub(super) fn fields(bytes: usize, kind: u8) -> u64 {
    (bytes as u64) << BYTES_SHIFT | u64::from(kind)
}

/// The position of a writer or reader, in half-slots, and the parity of its round.
#[derive(Debug)]
pub(super) struct Position {
    pub(super) count: u64,
    pub(super) parity: u64,
    /// Where the next round begins.
    round_end: u64,
}

impl Position {
    /// Begins at the start of a ring of `2^shift` slots.
    pub(super) fn start(shift: u32) -> Position {
        Position { count: 0, parity: PARITY, round_end: 2 << shift }
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, half_slots: u64, ring: &[Slot]) {
        self.move_to(self.count + half_slots, ring);
    }

    #[inline(always)]
    pub(super) fn move_to(&mut self, count: u64, ring: &[Slot]) {
        self.count = count;
        if count >= self.round_end {
            self.begin_round(ring);
        }
    }

    #[cold]
    fn begin_round(&mut self, ring: &[Slot]) {
        self.round_end += 2 * ring.len() as u64;
        self.parity ^= PARITY;
    }

    /// Returns the parity of a position that is at most a round ahead.
    #[inline(always)]
    pub(super) fn parity_ahead(&self, count: u64) -> u64 {
        if count >= self.round_end { self.parity ^ PARITY } else { self.parity }
    }
}

/// Returns whether a stamp word was written in a round of that parity.
#[inline(always)]
pub(super) fn is_of_round(stamp: u64, parity: u64) -> bool {
    (stamp ^ parity) & PARITY == 0
}

/// Returns the length of the body of an entry with this stamp, in bytes.
#[inline(always)]
pub(super) fn bytes_of(stamp: u64) -> usize {
    (stamp >> BYTES_SHIFT & BYTES_MASK) as usize
}

/// Returns the number of the kind of an entry with this stamp.
#[inline(always)]
pub(super) fn kind_of(stamp: u64) -> u8 {
    (stamp & KIND_MASK) as u8
}

/// Returns whether an entry with this stamp belongs to a multicast.
#[inline(always)]
pub fn is_held(stamp: u64) -> bool {
    matches!(kind_of(stamp), HELD_MESSAGE | HELD_BLOCKS)
}

/// Returns whether an entry with this stamp is there for its reader. `committed`: the time of the last multicast that
/// the writer has committed.
#[inline(always)]
pub fn is_there(stamp: u64, committed: impl FnOnce() -> u64) -> bool {
    !is_held(stamp) || !is_earlier(committed(), stamp & !FIELDS)
}

/// Returns the index in [`WELL_KNOWN_HEADERS`] of the last meta words of an immediate message; `None` for any other
/// entry.
#[inline(always)]
pub(super) fn well_known_of(stamp: u64) -> Option<usize> {
    let number = kind_of(stamp).wrapping_sub(IMMEDIATE) as usize;
    (number < WELL_KNOWN_HEADERS.len()).then_some(number)
}
