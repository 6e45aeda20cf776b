//! A two-sided copy: how receiver and sender agree who copies which part.
//!
//! The receiver claims chunks from the front, the sender (the helper) from the back. Each claims a chunk before it
//! copies it, and they stop where they meet. The buffer is the receiver's: the helper may write to it only while the
//! buffer is open, and after [`TwoSidedCopy::receive`] has returned, nobody else writes to it any more.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad, fence, yield_now};
use std::ops::Range;

/// The words of a copy; each has a single writer.
pub struct TwoSidedCopy<'a> {
    /// Written by the receiver: the number of the copy for which its buffer is open, 0 for none.
    pub open: &'a AtomicU64,
    /// Written by the receiver: the offset before which it has claimed everything.
    pub front: &'a AtomicU64,
    /// Written by the helper: the offset from which on it has claimed everything.
    pub back: &'a AtomicU64,
    /// Written by the helper: the offset from which on it has copied everything.
    pub back_done: &'a AtomicU64,
}

/// Sets the helper's words: nothing is claimed. Call it before anybody can open a buffer for the copy.
pub fn begin(back: &AtomicU64, back_done: &AtomicU64) {
    back.store(u64::MAX, Ordering::Relaxed);
    back_done.store(u64::MAX, Ordering::Relaxed);
}

impl TwoSidedCopy<'_> {
    /// Returns whether the buffer is open for that copy.
    pub fn is_open(&self, number: u64) -> bool {
        // Pair `buffer opened`: whoever sees the number sees where the buffer is.
        self.open.load_acquire() == number
    }

    /// Copies `0..bytes` together with the helper; for the receiver. `timed_out` returns whether the helper has taken
    /// too long; then the receiver also copies the chunks that the helper has claimed. `has_ended` returns whether the
    /// helper has ended, and so writes no more. While the helper lives, this function returns only after the helper has
    /// copied each chunk that it has claimed, or has given up the claim.
    pub fn receive<Failure>(
        &self,
        number: u64,
        bytes: u64,
        chunk: u64,
        copy: impl FnMut(Range<u64>) -> Result<(), Failure>,
        timed_out: &mut dyn FnMut() -> bool,
        has_ended: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        self.front.store(0, Ordering::Relaxed);
        // Pair `buffer opened`: whoever sees the number sees where the buffer is.
        self.open.store(number, Ordering::Release);
        let result = self.receive_front(bytes, chunk, copy, timed_out);
        // When this function returns, the buffer belongs to the caller again. So this function closes the buffer, and
        // waits until the helper has finished with a claimed chunk, however long that takes.
        self.open.store(0, Ordering::Relaxed);
        // Pair `close or claim`: either the helper sees that the buffer is closed, or we see its claim.
        fence(Ordering::SeqCst);
        // Pair `back written`: the helper's bytes are there.
        while self.back.load_acquire() != self.back_done.load_acquire() && !has_ended() {
            yield_now();
        }
        result
    }

    fn receive_front<Failure>(
        &self,
        bytes: u64,
        chunk: u64,
        mut copy: impl FnMut(Range<u64>) -> Result<(), Failure>,
        timed_out: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        // Pair `back written`: the helper's bytes are there. `claimed` also counts what the helper has claimed, but not
        // written yet.
        let claimed = || self.back.load_acquire().min(bytes);
        let written = || self.back_done.load_acquire().min(bytes);
        let mut front = 0;
        while front < claimed() {
            let end = (front + chunk).min(claimed()).max(front);
            // A claim needs no ordering: if both sides copy the same chunk, they write the same bytes.
            self.front.store(end, Ordering::Relaxed);
            copy(front..end)?;
            front = end;
        }
        loop {
            let end = written();
            if end <= front {
                return Ok(());
            }
            if timed_out() {
                return copy(front..end);
            }
        }
    }

    /// Copies from the back of `0..bytes` while the buffer is open for that copy; for the helper.
    pub fn help<Failure>(
        &self,
        number: u64,
        bytes: u64,
        chunk: u64,
        mut copy: impl FnMut(Range<u64>) -> Result<(), Failure>,
    ) {
        let mut back = bytes;
        loop {
            let start = back.saturating_sub(chunk).max(self.front.load_relaxed());
            if start >= back {
                return;
            }
            self.back.store(start, Ordering::Relaxed);
            // Pair `close or claim`: either we see that the buffer is closed, or the receiver sees our claim.
            fence(Ordering::SeqCst);
            if !self.is_open(number) || copy(start..back).is_err() {
                // The claimed chunk is not copied: the receiver copies it when its wait times out. Pair `back written`.
                self.back.store(self.back_done.load_relaxed(), Ordering::Release);
                return;
            }
            // Pair `back written`.
            self.back_done.store(start, Ordering::Release);
            back = start;
        }
    }
}
