//! Blocks as slices, for users that read the bytes where they lie, such as a socket or a cipher.
use super::Block;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;

/// A range of a block, lent for reading. Nobody can write to the block meanwhile: a write panics.
pub struct Lent<'a> {
    block: &'a Block,
    range: Range<usize>,
}

impl Block {
    /// Lends a range of this block. Panics past its end.
    pub fn lend(&self, range: Range<usize>) -> Lent<'_> {
        assert!(range.start <= range.end && range.end <= self.capacity());
        let lent = self.0.lent.get();
        self.0.lent.set(lent.checked_add(1).expect("a block is not lent that often"));
        Lent { block: self, range }
    }

    /// Calls `use_file` with the memory file in which the block lies, and the block's range in it. The file never becomes
    /// shorter.
    pub fn with_file<T>(&self, use_file: impl FnOnce(BorrowedFd<'_>, Range<u64>) -> T) -> T {
        let heap = self.0.heap.borrow();
        use_file(heap.source().file(), self.0.offset..self.0.offset + self.0.size)
    }

    /// Returns how often the block's heap has given memory of free blocks back to the system. Who keeps pages of free
    /// blocks, as devices do, has other pages than the heap afterwards.
    pub fn heap_losses(&self) -> u64 {
        self.0.heap.borrow().losses
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.block.address().wrapping_add(self.range.start);
        // SAFETY: `lend` checked that the range lies in the block, whose memory the system has zeroed. `block` keeps the
        // block. Only this process writes to it, and while the block is lent, each function that writes panics
        // (`check_writable`).
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.block.0.lent.set(self.block.0.lent.get() - 1);
    }
}
