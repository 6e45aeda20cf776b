//! Pipelined sends: the receiver copies the beginning of a body out of the sender's heap while the sender copies the
//! end into it.
//!
//! A word in front of the body holds the number of bytes that the sender has written. A sender that dies before the end
//! leaves a body that never becomes complete: that message was not sent.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};

/// The number of bytes in front of a pipelined body; the word that counts its bytes has a cache line of its own.
pub const HEAD_BYTES: usize = 64;
/// A body is read in multiples of this many bytes, except for its end, so that no packed number is split between two
/// reads.
pub const UNIT_BYTES: usize = 64;

/// The number of reads of the sender's count without progress, some 100 microseconds in all, after which the receiver
/// stops waiting for a pipelined body. It tries again in a later poll of the queue.
pub const SPINS_MAX: u32 = 20_000;

/// Publishes that the first `bytes` bytes are written; for the sender.
pub fn advance(progress: &AtomicU64, bytes: usize) {
    // Pair `bytes available`: whoever sees the count sees the bytes.
    progress.store(bytes as u64, Ordering::Release);
}

/// Returns how many bytes are written; for the receiver.
pub fn available(progress: &AtomicU64) -> usize {
    // Pair `bytes available`.
    progress.load_acquire() as usize
}
