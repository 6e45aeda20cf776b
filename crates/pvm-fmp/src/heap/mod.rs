//! The heap of a segment. All bookkeeping is private: peers see bytes, never the structure.
//!
//! Small blocks come from spans of one size class (powers of two). Large blocks are runs of pages, chosen by best fit;
//! free neighbours are joined. Free runs are *resident* (their memory is still committed; they are used first) or
//! *hollow* (their memory was never committed, or has been given back).
mod lent;
mod ways;

use crate::NoMemory;
use crate::copy::{self, CopyMode};
use crate::copy_policy::{Choice, CopyPolicy, POLICY_BYTES_MIN};
use crate::segment::Segment;
use crate::segment_layout::{FIRST_BYTES, HEAP_START, PAGE_BYTES};
use crate::sync::AtomicU64;
use crate::way_policy::WayPolicy;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

pub use lent::Lent;
pub use ways::{CopyOrder, length_and_order};

/// The smallest block, in bytes.
const SMALL_BYTES_MIN: u64 = 1024;
/// The longest small block, in bytes; longer ones are runs of pages.
const SMALL_BYTES_MAX: u64 = 32 << 10;
/// The smallest span of blocks of one class, in bytes.
const SPAN_BYTES_MIN: u64 = 32 << 10;
/// The number of free bytes that are kept for the next message instead of being given back.
const KEEP_BYTES: u64 = 64 << 20;
/// The number of free bytes that are kept when the task has been idle.
const KEEP_IDLE_BYTES: u64 = 4 << 20;
const CLASSES: usize = (SMALL_BYTES_MAX / SMALL_BYTES_MIN).ilog2() as usize + 1;

/// A source of memory: a segment, or a replacement for it in tests.
pub trait Source {
    /// Commits the pages of a range, all or none.
    fn commit(&self, offset: u64, bytes: u64) -> Result<(), NoMemory>;
    /// Gives the pages of a range back.
    fn give_back(&self, offset: u64, bytes: u64);
    /// Makes more room. Returns its offset and its length, which is at least `bytes`. The new room never adjoins
    /// existing room.
    fn grow(&self, bytes: u64) -> Result<(u64, u64), NoMemory>;
}

impl Source for Segment {
    fn commit(&self, offset: u64, bytes: u64) -> Result<(), NoMemory> {
        Segment::commit(self, offset, bytes)
    }
    fn give_back(&self, offset: u64, bytes: u64) {
        Segment::give_back(self, offset, bytes);
    }
    fn grow(&self, bytes: u64) -> Result<(u64, u64), NoMemory> {
        Segment::grow(self, bytes)
    }
}

/// Free runs of pages, by place and by size.
#[derive(Default)]
struct Runs {
    by_place: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Runs {
    /// Adds a run and joins it with its neighbours.
    fn add(&mut self, mut offset: u64, mut bytes: u64) {
        self.bytes += bytes;
        if let Some((&before, &count)) = self.by_place.range(..offset).next_back() {
            if before + count == offset {
                self.forget(before, count);
                (offset, bytes) = (before, bytes + count);
            }
        }
        if let Some(&count) = self.by_place.get(&(offset + bytes)) {
            self.forget(offset + bytes, count);
            bytes += count;
        }
        self.by_place.insert(offset, bytes);
        self.by_size.insert((bytes, offset));
    }
    fn forget(&mut self, offset: u64, bytes: u64) {
        self.by_place.remove(&offset);
        self.by_size.remove(&(bytes, offset));
    }
    /// Takes `bytes` out of the smallest run that holds them.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(count, offset) = self.by_size.range((bytes, 0)..).next()?;
        self.forget(offset, count);
        self.bytes -= count;
        if count > bytes {
            self.add(offset + bytes, count - bytes);
        }
        Some(offset)
    }
    /// Takes the first `bytes` of the run that begins at `offset`, if there is one and it holds as many.
    fn take_at(&mut self, offset: u64, bytes: u64) -> bool {
        let Some(&count) = self.by_place.get(&offset).filter(|&&count| count >= bytes) else { return false };
        self.forget(offset, count);
        self.bytes -= count;
        if count > bytes {
            self.add(offset + bytes, count - bytes);
        }
        true
    }
    fn largest(&self) -> Option<(u64, u64)> {
        self.by_size.last().map(|&(bytes, offset)| (offset, bytes))
    }
    fn remove_largest(&mut self) -> Option<(u64, u64)> {
        let (offset, bytes) = self.largest()?;
        self.forget(offset, bytes);
        self.bytes -= bytes;
        Some((offset, bytes))
    }
}

/// The allocator, over any source of memory.
pub struct Heap<S: Source> {
    source: S,
    resident: Runs,
    hollow: Runs,
    small: [Vec<u64>; CLASSES],
    /// The class of each span of small blocks, by the offset of the span.
    spans: BTreeMap<u64, usize>,
    in_use_bytes: u64,
    /// How many bytes were committed, and how often memory was given back.
    committed_bytes: u64,
    losses: u64,
    retired: bool,
    copy_policy: CopyPolicy,
    /// How long packed bodies are copied, once there was one.
    ways: Option<Box<WayPolicy>>,
}

impl<S: Source> Heap<S> {
    /// Makes an empty heap, which takes no memory yet.
    pub fn new(source: S) -> Heap<S> {
        let mut hollow = Runs::default();
        hollow.add(HEAP_START, FIRST_BYTES - HEAP_START);
        let small = std::array::from_fn(|_| Vec::new());
        Heap {
            source,
            resident: Runs::default(),
            hollow,
            small,
            spans: BTreeMap::new(),
            in_use_bytes: 0,
            committed_bytes: 0,
            losses: 0,
            retired: false,
            copy_policy: CopyPolicy::default(),
            ways: None,
        }
    }
    /// Returns the source of the heap's memory.
    pub fn source(&self) -> &S {
        &self.source
    }
    /// Returns how many bytes are committed and free.
    pub fn free_bytes(&self) -> u64 {
        let small = self.small.iter().enumerate().map(|(class, free)| free.len() as u64 * (SMALL_BYTES_MIN << class));
        self.resident.bytes + small.sum::<u64>()
    }
    /// Returns how many bytes were committed in all. The first copy to such memory takes long, since the kernel clears it.
    pub fn committed_bytes(&self) -> u64 {
        self.committed_bytes
    }
    /// Returns how many bytes are in blocks in use.
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes
    }

    /// Allocates a block of at least `bytes`. Returns its offset and size.
    pub fn allocate(&mut self, bytes: u64) -> Result<(u64, u64), NoMemory> {
        let (offset, size) = match class_of(bytes) {
            Some(class) => (self.allocate_small(class)?, SMALL_BYTES_MIN << class),
            None => {
                let size = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(NoMemory)?;
                (self.allocate_run(size)?, size)
            }
        };
        self.in_use_bytes += size;
        Ok((offset, size))
    }

    /// Notes that the endpoint ends. Receivers may still read what was sent, so no memory is given back any more; the
    /// segment vanishes with its last reader.
    pub fn retire(&mut self) {
        self.retired = true;
    }

    /// Frees a block that `allocate` has returned.
    pub fn free(&mut self, offset: u64, size: u64) {
        if self.retired {
            return;
        }
        self.in_use_bytes -= size;
        match class_of(size) {
            Some(class) => self.small[class].push(offset),
            None => {
                self.resident.add(offset, size);
                self.shrink_to(KEEP_BYTES.max(self.in_use_bytes));
            }
        }
    }

    /// Gives back free memory that an idle task does not need.
    pub fn tidy(&mut self) {
        if self
            .small
            .iter()
            .enumerate()
            .any(|(class, free)| free.len() as u64 * (SMALL_BYTES_MIN << class) > KEEP_IDLE_BYTES)
        {
            self.collect_spans();
        }
        self.shrink_to(KEEP_IDLE_BYTES);
    }

    fn allocate_small(&mut self, class: usize) -> Result<u64, NoMemory> {
        if let Some(offset) = self.small[class].pop() {
            return Ok(offset);
        }
        let size = SMALL_BYTES_MIN << class;
        let span = span_bytes(class);
        let start = self.allocate_run(span)?;
        self.spans.insert(start, class);
        self.small[class].extend((1..span / size).rev().map(|index| start + index * size));
        Ok(start)
    }

    fn allocate_run(&mut self, bytes: u64) -> Result<u64, NoMemory> {
        if let Some(offset) = self.resident.take(bytes).or_else(|| self.extend_largest(bytes)) {
            return Ok(offset);
        }
        self.take_hollow(bytes).or_else(|error| {
            // If free runs elsewhere are given back, there may be enough memory for this run.
            if self.resident.bytes == 0 {
                return Err(error);
            }
            self.shrink_to(0);
            self.take_hollow(bytes)
        })
    }

    /// Takes the largest resident run, which is too short, and hollow memory behind it. [`Heap::shrink_to`] gives back
    /// the end of a run. So of a message that is a little longer than what is kept, only the rest is committed again.
    fn extend_largest(&mut self, bytes: u64) -> Option<u64> {
        let (offset, count) = self.resident.largest()?;
        let (behind, more) = (offset + count, bytes - count);
        if !self.hollow.take_at(behind, more) {
            return None;
        }
        if self.source.commit(behind, more).is_err() {
            self.hollow.add(behind, more);
            return None;
        }
        self.committed_bytes += more;
        self.resident.remove_largest();
        Some(offset)
    }

    fn take_hollow(&mut self, bytes: u64) -> Result<u64, NoMemory> {
        let offset = match self.hollow.take(bytes) {
            Some(offset) => offset,
            None => {
                let (start, more) = self.source.grow(bytes)?;
                self.hollow.add(start, more);
                self.hollow.take(bytes).expect("as much as was asked for")
            }
        };
        if let Err(error) = self.source.commit(offset, bytes) {
            self.hollow.add(offset, bytes);
            return Err(error);
        }
        self.committed_bytes += bytes;
        Ok(offset)
    }

    /// Gives the largest free runs back until at most `keep` bytes of free memory stay.
    fn shrink_to(&mut self, keep: u64) {
        while self.resident.bytes > keep {
            let (offset, bytes) = self.resident.remove_largest().expect("bytes are counted");
            let excess = (self.resident.bytes + bytes - keep).min(bytes).next_multiple_of(PAGE_BYTES).min(bytes);
            if excess < bytes {
                self.resident.add(offset, bytes - excess);
            }
            self.losses += 1;
            self.source.give_back(offset + bytes - excess, excess);
            self.hollow.add(offset + bytes - excess, excess);
        }
    }

    /// Turns spans without a block in use into free runs.
    fn collect_spans(&mut self) {
        for class in 0..CLASSES {
            let size = SMALL_BYTES_MIN << class;
            let per_span = (span_bytes(class) / size) as usize;
            let mut free = std::mem::take(&mut self.small[class]);
            free.sort_unstable();
            let mut kept = Vec::new();
            let mut rest = &free[..];
            while let Some(&first) = rest.first() {
                let end = self.span_of(first) + span_bytes(class);
                let (group, tail) = rest.split_at(rest.partition_point(|offset| *offset < end));
                rest = tail;
                if group.len() == per_span {
                    self.spans.remove(&first);
                    self.resident.add(first, span_bytes(class));
                } else {
                    kept.extend_from_slice(group);
                }
            }
            kept.reverse();
            self.small[class] = kept;
        }
    }

    fn span_of(&self, offset: u64) -> u64 {
        *self.spans.range(..=offset).next_back().expect("small blocks lie in spans").0
    }
}

/// Returns the class of blocks of that size, or `None` if such blocks are runs of pages.
fn class_of(bytes: u64) -> Option<usize> {
    (bytes <= SMALL_BYTES_MAX)
        .then(|| (bytes.max(SMALL_BYTES_MIN).next_power_of_two() / SMALL_BYTES_MIN).ilog2() as usize)
}

fn span_bytes(class: usize) -> u64 {
    SPAN_BYTES_MIN.max((SMALL_BYTES_MIN << class) * 4)
}

/// The heap of a segment, shared by the blocks in it.
pub type SharedHeap = Rc<RefCell<Heap<Segment>>>;

struct Inner {
    heap: SharedHeap,
    address: *mut u8,
    offset: u64,
    size: u64,
    /// How many references to the bytes of the block exist.
    lent: Cell<u32>,
    /// The last long copy into the block.
    copied_in: Cell<Option<ways::CopiedIn>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.heap.borrow_mut().free(self.offset, self.size);
    }
}

/// A block of this process's heap. Clones share the block, which is freed with the last clone. The endpoint keeps a
/// clone while a receiver may read the block.
#[derive(Clone)]
pub struct Block(Rc<Inner>);

impl Block {
    /// Allocates a block of at least `bytes` bytes.
    pub(crate) fn allocate(heap: &SharedHeap, bytes: usize) -> Result<Block, NoMemory> {
        let mut borrowed = heap.borrow_mut();
        let (offset, size) = borrowed.allocate(bytes as u64)?;
        let address = borrowed.source().mapping.address(offset, size);
        Ok(Block(Rc::new(Inner {
            heap: heap.clone(),
            address,
            offset,
            size,
            lent: Cell::new(0),
            copied_in: Cell::new(None),
        })))
    }
    /// Returns how many bytes its heap has committed ([`Heap::committed_bytes`]).
    pub(crate) fn committed_bytes(&self) -> u64 {
        self.0.heap.borrow().committed_bytes()
    }
    /// Returns its offset in the segment.
    pub(crate) fn offset(&self) -> u64 {
        self.0.offset
    }
    /// Returns the address of its first byte.
    pub(crate) fn address(&self) -> *mut u8 {
        self.0.address
    }
    /// Returns the first word, as peers see it.
    pub(crate) fn head_word(&self) -> &AtomicU64 {
        // SAFETY: blocks are at least SMALL_BYTES_MIN long and start at multiples of it; the word is
        // an atomic, and is written as such only.
        unsafe { &*self.0.address.cast::<AtomicU64>() }
    }
    /// Returns how many bytes fit into the block.
    pub fn capacity(&self) -> usize {
        self.0.size as usize
    }
    /// Copies `data` to `offset`. Panics past the end, and while the block is lent.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) {
        if data.len() >= POLICY_BYTES_MIN {
            return self.write_long(offset, data);
        }
        self.write_by(CopyMode::Cached, offset, data);
    }
    /// Does what [`Block::write`] does, by the mode that one of the two policies chooses.
    #[inline(never)]
    fn write_long(&self, offset: usize, data: &[u8]) {
        if Block::learns(data.len()) {
            return self.write_learnt(offset, data);
        }
        let Choice { mode, is_timed } = self.0.heap.borrow_mut().copy_policy.choose(data.len());
        let start = is_timed.then(Instant::now);
        self.write_by(mode, offset, data);
        if let Some(start) = start {
            self.0.heap.borrow_mut().copy_policy.record(mode, data.len(), start.elapsed());
        }
    }
    /// Does what [`Block::write`] does, in that mode.
    #[inline]
    pub(crate) fn write_by(&self, mode: CopyMode, offset: usize, data: &[u8]) {
        self.check_writable(offset, data.len());
        // SAFETY: checked to lie in the block, which only this process writes; no reference to the block exists, so
        // `data` cannot overlap it.
        unsafe { copy::copy_by(mode, data.as_ptr(), self.0.address.add(offset), data.len()) }
    }
    /// Panics unless the range lies in the block and no reference to the block exists.
    pub(crate) fn check_writable(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.capacity()));
        assert!(self.0.lent.get() == 0, "a lent block is written");
    }
    /// Copies the first `count` bytes of another block to `offset`. Panics past either end.
    pub(crate) fn fill_from(&self, offset: usize, from: &Block, count: usize) {
        assert!(count <= from.capacity());
        self.check_writable(offset, count);
        // SAFETY: both ranges lie in blocks of this process; blocks do not overlap, and no reference to this one exists.
        unsafe { copy::copy(from.address(), self.0.address.add(offset), count) }
    }
    /// Copies from `offset` to `data`. Panics past the end.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.capacity()));
        // SAFETY: checked to lie in the block, which only this process writes; `data` cannot overlap it, since blocks are
        // lent for reading only.
        unsafe { copy::copy(self.0.address.add(offset), data.as_mut_ptr(), data.len()) }
    }
}

#[cfg(test)]
mod tests;
