//! Streamed sends: a body that is longer than a cell of pair memory goes through the cell as through a ring. The sender
//! writes round after round while the receiver copies out, so the cell stays in the caches, and the body needs no memory
//! of its length.
//!
//! The sender does not wait for a receiver that does not keep up: it *spills* the rest of the body, that is, it writes
//! the rest to its heap, and says where. The receiver gives room back only if it can keep all that it has copied out;
//! so a body is never lost, and can be taken from its start until room is given back.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};

/// The count of written bytes that says that the rest of the body will never come.
pub const WITHDRAWN: u64 = u64::MAX;
/// The start of the spilled part while there is none.
const NOT_SPILLED: u64 = u64::MAX;

/// The words of a stream. The sender writes all of them but `read`, which the receiver writes.
pub struct Stream<'a> {
    /// The number of bytes that are written, to the ring and then to the heap.
    pub written: &'a AtomicU64,
    /// The number of bytes whose room the sender may use again.
    pub read: &'a AtomicU64,
    /// Where in the body the spilled part begins, the offset of its block in the sender's heap, and its token.
    pub spill: [&'a AtomicU64; 3],
    /// The length of the ring in bytes.
    pub capacity: usize,
}

/// The spilled part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spill {
    /// Where in the body it begins.
    pub start: u64,
    /// The offset of its block in the sender's heap.
    pub offset: u64,
    pub token: u32,
}

impl Stream<'_> {
    /// Begins a new body; for a sender that holds the cell.
    pub fn begin(&self) {
        self.spill[0].store(NOT_SPILLED, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    /// Returns whether bytes `done..end` of the body fit in the ring; for the sender. `read` is what the receiver had
    /// read when the sender looked last.
    #[inline]
    pub fn has_room(&self, done: usize, end: usize, read: &mut usize) -> bool {
        if end <= *read + self.capacity {
            return true;
        }
        // Pair `ring read`: bytes that are written after this load do not change what the receiver has copied.
        let now = self.read.load_acquire();
        // A receiver that breaks the rules gets wrong bytes.
        *read = usize::try_from(now).unwrap_or(done).clamp(*read, done);
        end <= *read + self.capacity
    }

    /// Publishes that the first `bytes` bytes are written.
    #[inline]
    pub fn advance(&self, bytes: usize) {
        // Pair `stream written`: whoever sees the count sees the bytes, and where they lie.
        self.written.store(bytes as u64, Ordering::Release);
    }

    /// Says where the rest of the body will be, before any byte of it is published.
    pub fn spill(&self, spill: Spill) {
        self.spill[1].store(spill.offset, Ordering::Relaxed);
        self.spill[2].store(spill.token.into(), Ordering::Relaxed);
        self.spill[0].store(spill.start, Ordering::Relaxed);
    }

    /// Says that the rest of the body will never come.
    pub fn withdraw(&self) {
        // Pair `stream written`.
        self.written.store(WITHDRAWN, Ordering::Release);
    }

    /// Returns how many bytes are written, or [`WITHDRAWN`]; for the receiver.
    #[inline]
    pub fn available(&self) -> u64 {
        // Pair `stream written`.
        self.written.load_acquire()
    }

    /// Returns the spilled part; `None` if all bytes that are known to be written were written to the ring.
    #[inline]
    pub fn spilled(&self) -> Option<Spill> {
        let [start, offset, token] = self.spill.map(ReadOnlyLoad::load_relaxed);
        (start != NOT_SPILLED).then_some(Spill { start, offset, token: token as u32 })
    }

    /// Frees the room of the first `bytes` bytes; for the receiver, which has copied them out.
    #[inline]
    pub fn give_back(&self, bytes: usize) {
        // Pair `ring read`.
        self.read.store(bytes as u64, Ordering::Release);
    }
}
