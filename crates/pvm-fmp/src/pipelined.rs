//! Bodies that are sent while they are still being written: the receiver copies the beginning out
//! of the sender's heap while the sender copies the end into it.
//!
//! A word in front of the body says how much of it is there. A sender that dies in between leaves
//! a body that never becomes whole: that message was not sent.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};

/// Bytes in front of a pipelined body; the word has a cache line to itself.
pub const HEAD_BYTES: usize = 64;
/// A body is used in multiples of so many bytes, but for its end: no number is torn apart.
pub const UNIT_BYTES: usize = 64;

/// The sender: so many bytes are there now.
pub fn advance(progress: &AtomicU64, bytes: usize) {
    // Pair `bytes pipelined`: who sees the count sees the bytes.
    progress.store(bytes as u64, Ordering::Release);
}

/// The receiver: how many bytes are there.
pub fn available(progress: &AtomicU64) -> usize {
    // Pair `bytes pipelined`.
    progress.load_acquire() as usize
}
