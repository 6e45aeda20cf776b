//! Pair memory: memory that both tasks of a pair map for writing. It consists of a few cells. A message in a cell passes
//! the cell to its receiver: from then on the receiver alone writes it, and answers in it. A packed message may be sent
//! again as long as its buffer exists; so its cell goes over when the receiver has released it *and* the sender has dropped
//! the buffer.
//!
//! The lines of such a cell are already in the caches of the core that writes next. In a heap they are not: before a
//! sender can write to a line there again, it must take the line back from the core that has read it (decision 39).
use crate::copies_in::CopiesIn;
use crate::copy::CopyMode;
use crate::heap::SharedHeap;
use crate::stream::Stream;
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use crate::way_policy::{BYTES_MIN, Way};
use crate::ways::{self, Ways};
use crate::{copy, extents, file, mapping, pipelined};
use pvm_descriptor::OwnDescriptor;
use pvm_explorer::CircuitBreaker;
use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;

/// The number of cells for messages of one call: one for each direction, since both tasks may send at the same time.
pub const CELLS: u32 = 2;
/// The number of cells for packed messages ([`crate::packed_cell`]). A task may read its message until it receives the next
/// one, so two of them lie in messages that have arrived while the next body is packed.
pub const PACKED_CELLS: u32 = 3;
/// The smallest and the largest capacity of a cell, in bytes. Longer bodies go through a cell of the largest capacity as
/// through a ring ([`crate::stream`]). In a shorter ring the writer would have to take each line back from the reader's
/// second-level cache; the lines of this one are in the third-level cache again before their next round.
pub const CELL_BYTES_MIN: usize = 16 << 10;
pub const CELL_BYTES_MAX: usize = 2 << 20;
/// The longest packed body for which cells are made, in bytes. From 1 MiB on, cells are no faster than the heap: three of
/// them and the programs' own arrays do not fit in the caches.
pub const PACKED_BYTES_MAX: usize = 1 << 20;
/// How far in front of a body the words of a stream lie, in bytes: the receiver's word, and those that say where the rest
/// of the body is. Two words that different tasks write are at least two cache lines apart, since processors prefetch pairs
/// of lines.
const READ_WORD: usize = 256;
const SPILL_WORDS: usize = 512;
/// Where in the first part the first of the two words lies that say when a body was copied out, in bytes; the other one
/// lies as far behind it.
const FINISHED_WORDS: usize = 256;
/// The length of the part in front of each body, in bytes; its end is the head of a pipelined body.
const FRONT_BYTES: usize = crate::segment_layout::PAGE_BYTES as usize;

/// Returns the length of memory with cells of that capacity, in bytes. The first part holds no cell.
fn length(cells: u32, capacity: usize) -> usize {
    FRONT_BYTES + cells as usize * (FRONT_BYTES + capacity)
}

/// Returns a file of another process, open for reading and writing.
fn file_of(process: Pid, descriptor: u32) -> io::Result<OwnedFd> {
    let number = i32::try_from(descriptor).map_err(|_| wrong())?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    match pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()) {
        // Where processes may not trace each other (kernel.yama.ptrace_scope is 1), they may still open each other's files.
        Err(Errno::PERM | Errno::NOSYS) => opened_by_name(process, descriptor),
        file => Ok(file?),
    }
}

/// Opens a file of another process by its name in `/proc`.
fn opened_by_name(process: Pid, descriptor: u32) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/fd/{descriptor}", process.as_raw_nonzero());
    // A pipe or a device would block here.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no pair memory")
}

/// Pair memory in the address space of one of the two tasks, with the cells that this task holds.
pub struct PairMemory {
    base: NonNull<c_void>,
    cells: u32,
    capacity: usize,
    /// Set if this task has made the memory, and its peer has opened it.
    is_ours: bool,
    /// Tells this memory from earlier ones of the same pair.
    pub generation: u32,
    /// The cells that this task holds, one bit each, and the one that it got last.
    held: Cell<u32>,
    last: Cell<u32>,
    /// The cells that have arrived, but whose senders may send them again, and (`released`) those of them that this task no
    /// longer reads.
    retained: Cell<u32>,
    released: Cell<u32>,
    /// The cells that this task has passed and will not send again, as far as the peer has not been told.
    dropped: Cell<u32>,
    _charge: Option<Charge>,
}

/// What an endpoint has taken from the memory that it may take, until this value is dropped.
struct Charge {
    heap: SharedHeap,
    total: Rc<Cell<usize>>,
    bytes: usize,
}

impl Charge {
    fn take(heap: &SharedHeap, total: &Rc<Cell<usize>>, bytes: usize, bytes_max: usize) -> Option<Charge> {
        let fits = total.get() + bytes <= bytes_max && heap.borrow().source().allowance.take(bytes as u64);
        fits.then(|| {
            total.set(total.get() + bytes);
            Charge { heap: heap.clone(), total: total.clone(), bytes }
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes);
        self.heap.borrow().source().allowance.give_back(self.bytes as u64);
    }
}

/// How a task names pair memory to its peer.
pub struct Offer {
    pub descriptor: u32,
    pub generation: u32,
    pub nonce: u64,
    /// The number of cells, and their capacity in bytes.
    pub cells: u32,
    pub capacity: u32,
}

impl PairMemory {
    /// Makes memory of `cells` cells for bodies of `bytes` bytes, or for streams if they are longer than [`CELL_BYTES_MAX`];
    /// this task holds all cells. `total` is what all such memory of this task takes, and `bytes_max` what it may take, in bytes. Returns
    /// `None` if there is no memory.
    pub fn make(
        heap: &SharedHeap,
        total: &Rc<Cell<usize>>,
        bytes_max: usize,
        (cells, bytes): (u32, usize),
        generation: u32,
    ) -> Option<(PairMemory, OwnedFd, Offer)> {
        let capacity = bytes.next_power_of_two().clamp(CELL_BYTES_MIN, CELL_BYTES_MAX);
        let length = length(cells, capacity);
        let charge = Charge::take(heap, total, length, bytes_max)?;
        let file = file::make("hpvm-pair", length as u64).ok()?;
        file::take_memory(file.as_fd(), 0, length as u64).ok()?;
        file::seal(&file, SealFlags::SHRINK | SealFlags::GROW).ok()?;
        let mut memory = PairMemory::map(&file, (cells, capacity), generation, Advice::LinuxPopulateWrite).ok()?;
        memory.is_ours = true;
        memory._charge = Some(charge);
        let mut nonce = [0u8; 8];
        crate::random_bytes(&mut nonce).ok()?;
        let nonce = u64::from_ne_bytes(nonce);
        memory.word(0).store(nonce, Ordering::Relaxed);
        memory.held.set((1 << cells) - 1);
        let descriptor = file.as_raw_fd() as u32;
        Some((memory, file, Offer { descriptor, generation, nonce, cells, capacity: capacity as u32 }))
    }

    /// Maps the memory that a peer, the process `process`, has made; this task holds no cell of it. The offer may be a
    /// lie, and the number of the process may mean another one: then the file does not have the nonce.
    pub fn open(process: u32, offer: &Offer) -> io::Result<PairMemory> {
        let (cells, capacity) = (offer.cells, offer.capacity as usize);
        let is_capacity = (CELL_BYTES_MIN..=CELL_BYTES_MAX).contains(&capacity) && capacity.is_power_of_two();
        if !is_capacity || ![CELLS, PACKED_CELLS].contains(&cells) {
            return Err(wrong());
        }
        let process = i32::try_from(process).ok().filter(|process| *process > 0).and_then(Pid::from_raw);
        let file = file_of(process.ok_or_else(wrong)?, offer.descriptor)?;
        let status = rustix::fs::fstat(&file)?;
        let is_ordinary = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
        if !is_ordinary || status.st_size as u64 != length(cells, capacity) as u64 || !extents::is_safe(&file) {
            return Err(wrong());
        }
        // The pages are there: reading maps many of them at once, for writing too.
        let memory = PairMemory::map(&file, (cells, capacity), offer.generation, Advice::LinuxPopulateRead)?;
        if memory.word(0).load_relaxed() == offer.nonce { Ok(memory) } else { Err(wrong()) }
    }

    /// Maps the memory. `populate` says how its pages are mapped at once, which avoids page faults in the messages that
    /// follow.
    fn map(
        file: &OwnedFd,
        (cells, capacity): (u32, usize),
        generation: u32,
        populate: Advice,
    ) -> io::Result<PairMemory> {
        let bytes = length(cells, capacity);
        let base = mapping::map(file.as_fd(), 0, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: populating maps pages that the process owns and changes no byte.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr(), bytes, populate) };
        Ok(PairMemory {
            base,
            cells,
            capacity,
            is_ours: false,
            generation,
            held: Cell::new(0),
            last: Cell::new(0),
            retained: Cell::new(0),
            released: Cell::new(0),
            dropped: Cell::new(0),
            _charge: None,
        })
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// Returns how many bytes fit in a cell.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes a cell out of those that this task holds: the one that it got last, if it holds that.
    pub fn take(&self) -> Option<u32> {
        let last = self.last.get();
        let cell = if self.holds(last) { last } else { self.held.get().trailing_zeros() };
        self.holds(cell).then(|| {
            self.held.set(self.held.get() & !(1 << cell));
            cell
        })
    }

    /// Returns whether this task holds a cell; false for a number that no cell has.
    pub fn holds(&self, cell: u32) -> bool {
        cell < self.cells && self.held.get() & 1 << cell != 0
    }

    /// Returns whether the peer may pass a cell: it exists, and this task does not hold it.
    #[inline]
    pub fn may_arrive(&self, cell: u32) -> bool {
        cell < self.cells && (self.held.get() | self.released.get()) & 1 << cell == 0
    }

    /// Notes that this task holds a cell from now on.
    pub fn keep(&self, cell: u32) {
        self.held.set(self.held.get() | 1 << cell);
        self.last.set(cell);
    }

    /// Notes that a cell has arrived which its sender may send again: this task may not write to it before
    /// [`PairMemory::note_dropped`].
    pub fn retain(&self, cell: u32) {
        self.retained.set(self.retained.get() | 1 << cell);
    }

    /// Notes that this task no longer reads a cell that has arrived.
    #[inline]
    pub fn release(&self, cell: u32) {
        if self.retained.get() & 1 << cell == 0 {
            self.keep(cell);
        } else {
            self.released.set(self.released.get() | 1 << cell);
        }
    }

    /// Notes that the peer will not send these cells again. A lie makes the liar's own message wrong.
    #[inline]
    pub fn note_dropped(&self, cells: u32) {
        if cells & self.retained.get() != 0 {
            self.keep_released(cells);
        }
    }

    fn keep_released(&self, cells: u32) {
        self.retained.set(self.retained.get() & !cells);
        let released = self.released.get() & cells;
        self.released.set(self.released.get() & !released);
        self.held.set(self.held.get() | released);
        if released != 0 {
            self.last.set(released.trailing_zeros());
        }
    }

    /// Notes that this task will not send these cells again, which it has passed.
    pub fn drop_cells(&self, cells: u32) {
        self.dropped.set(self.dropped.get() | cells);
    }

    /// Takes a cell back that the peer has not been told of, nor that this task has dropped other cells.
    #[cold]
    pub fn take_back(&self, cell: u32, dropped: u32) {
        self.keep(cell);
        self.drop_cells(dropped);
    }

    /// Returns the cells of [`PairMemory::drop_cells`]; the caller tells the peer.
    #[inline]
    pub fn take_dropped(&self) -> u32 {
        self.dropped.take()
    }

    /// Returns the word that counts the bytes of a body that are written. Panics if there is no such cell.
    pub fn progress(&self, cell: u32) -> &AtomicU64 {
        self.word(self.start(cell) - pipelined::HEAD_BYTES)
    }

    /// Returns the words of a stream through a cell. Panics if there is no such cell.
    pub fn stream(&self, cell: u32) -> Stream<'_> {
        let start = self.start(cell);
        let [first, second, third] = [0, 8, 16].map(|at| self.word(start - SPILL_WORDS + at));
        Stream {
            written: self.progress(cell),
            read: self.word(start - READ_WORD),
            spill: [first, second, third],
            capacity: self.capacity,
        }
    }

    /// Returns the address of the first byte of a body. Panics if there is no such cell.
    pub fn body(&self, cell: u32) -> *mut u8 {
        // SAFETY: the whole cell lies in the mapping.
        unsafe { self.base.cast::<u8>().add(self.start(cell)).as_ptr() }
    }

    fn start(&self, cell: u32) -> usize {
        assert!(cell < self.cells);
        FRONT_BYTES + cell as usize * (FRONT_BYTES + self.capacity) + FRONT_BYTES
    }

    /// Copies `data` to a body, `offset` bytes behind its start, in that mode. Panics past the end of the cell.
    pub fn write(&self, cell: u32, offset: usize, data: &[u8], mode: CopyMode) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.capacity));
        let (from, to, bytes) = (data.as_ptr(), self.body(cell).wrapping_add(offset), data.len());
        // SAFETY: checked to lie in the cell, to which no reference exists. A peer that breaks the rules may write there,
        // too; then the peer finds bytes that nobody has sent.
        unsafe { copy::copy_by(mode, from, to, bytes) }
    }

    /// Copies the first bytes of a body of `bytes` bytes into `data`, as many as fit. Panics past the end of the cell.
    #[inline]
    pub fn read(&self, cell: u32, data: &mut [u8], bytes: usize) {
        assert!(bytes <= self.capacity);
        // SAFETY: checked to lie in the cell, to which no reference exists; the peer has passed the cell. A peer that breaks
        // the rules may write there; then the caller finds bytes that nobody has sent.
        unsafe { copy::copy(self.body(cell), data.as_mut_ptr(), bytes.min(data.len())) }
    }

    /// Copies `data.len()` bytes of a body, from `offset` on. Panics past the end of the cell.
    pub fn read_from(&self, cell: u32, offset: usize, data: &mut [u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.capacity));
        // SAFETY: as in `read`.
        unsafe { copy::copy(self.body(cell).wrapping_add(offset), data.as_mut_ptr(), data.len()) }
    }

    /// Returns the word in which the receiver of this task's messages, or (`to_us`) this task, says when it has copied a
    /// body out.
    pub fn finished(&self, to_us: bool) -> &AtomicU64 {
        self.word(if self.is_ours == to_us { FINISHED_WORDS } else { 2 * FINISHED_WORDS })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: all callers pass offsets of words within the mapping, which live as long as `self`; the words are
        // used as atomics only.
        unsafe { self.base.cast::<u8>().add(offset).cast().as_ref() }
    }
}

impl Drop for PairMemory {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping; whoever uses a cell holds this value.
        unsafe { mapping::unmap(self.base, length(self.cells, self.capacity)) };
    }
}

/// A cell with a message that has arrived. Dropping it releases the cell.
pub struct ArrivedCell {
    pub memory: Rc<PairMemory>,
    pub cell: u32,
}

impl Drop for ArrivedCell {
    fn drop(&mut self) {
        self.memory.release(self.cell);
    }
}

/// What a task knows about memory that it shares with one peer.
#[derive(Default)]
pub struct Pair {
    pub current: Option<Rc<PairMemory>>,
    /// The memory before `current`, as long as messages in it may still arrive.
    pub previous: Option<Rc<PairMemory>>,
    /// Memory that was offered to the peer, which has not answered yet. The peer needs the descriptor.
    pub offered: Option<(PairMemory, OwnDescriptor)>,
    /// The generation of the memory that was offered last.
    pub generation: u32,
    /// Set when the peer could not map an offer.
    pub refused: bool,
    /// What has arrived of the stream that arrives, as far as its room was given back to the sender.
    pub saved: RefCell<Vec<u8>>,
    /// The way policy, once there was a choice.
    ways: Option<Box<Ways>>,
    /// The copies of bodies that go through the heap.
    pub copies_in: CopiesIn,
    /// Whether the receiver began to read earlier streams in time. If it did not, bodies go through the heap at once.
    streams: CircuitBreaker,
    /// How often a long message went to the peer after a long message from the peer, without a cell.
    turns: u32,
    ours_was_last: bool,
}

/// The shortest body in a cell whose way is learnt, in bytes. A shorter one stays in a core's own caches together with its
/// cell, which each core writes after it has read it.
const LEARNT_BYTES_MIN: usize = 128 << 10;
/// The number of turns after which memory is made for a pair: such tasks will probably go on.
const TURNS_MIN: u32 = 8;
/// The number of turns with longer bodies after which a pair that has memory gets longer cells. It is known that such tasks
/// answer each other; a single long body is not worth it.
const LONGER_TURNS_MIN: u32 = 2;

impl Pair {
    /// Notes a long message from the peer.
    #[inline]
    pub fn note_arrival(&mut self) {
        self.ours_was_last = false;
    }

    /// Notes a long message of `bytes` bytes to the peer, for which there was no cell, of a kind that needs `cells` cells.
    /// Returns the number and the capacity of the cells of the memory that should be offered to the peer, if any.
    pub fn note_send(&mut self, bytes: usize, cells: u32) -> Option<(u32, usize)> {
        if !std::mem::replace(&mut self.ours_was_last, true) {
            self.turns += 1;
        }
        let (has_cells, capacity) = self.current.as_ref().map_or((0, 0), |memory| (memory.cells(), memory.capacity()));
        let enough = has_cells >= cells && capacity >= bytes.min(CELL_BYTES_MAX);
        let turns_min = if self.current.is_some() { LONGER_TURNS_MIN } else { TURNS_MIN };
        if self.turns < turns_min || enough || self.refused || self.offered.is_some() {
            return None;
        }
        self.turns = 0;
        Some((cells.max(has_cells), bytes.max(capacity)))
    }

    /// Returns a cell for a body of `bytes` bytes, and the memory in which it lies.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<(Rc<PairMemory>, u32)> {
        let memory = self.current.as_ref().filter(|memory| memory.capacity() >= bytes)?;
        let cell = memory.take()?;
        self.ours_was_last = true;
        Some((memory.clone(), cell))
    }

    /// Returns a cell for a stream, and the memory in which it lies.
    pub fn take_for_stream(&mut self) -> Option<(Rc<PairMemory>, u32)> {
        if self.streams.allows() { self.take(CELL_BYTES_MAX) } else { None }
    }

    /// Returns how to copy a body of `bytes` bytes in that memory: for the sender, and as a word for the receiver.
    #[inline]
    pub fn order(&mut self, memory: &PairMemory, bytes: usize) -> (Way, u64) {
        if bytes < LEARNT_BYTES_MIN {
            if bytes >= BYTES_MIN {
                ways::note_way(Way::default());
            }
            return (Way::default(), 0);
        }
        let ways = self.ways.get_or_insert_default();
        let (way, word) = if memory.is_ours { ways.order(memory.finished(false), bytes) } else { ways.answer(bytes) };
        ways::note_way(way);
        (way, word)
    }

    /// Returns the way that bodies of `bytes` bytes go, and its time in ns a byte; `None` if this task does not decide, or
    /// has not measured one.
    pub fn way_of(&self, bytes: usize) -> Option<(Way, f32)> {
        self.ways.as_ref()?.best(bytes)
    }

    /// Notes the word of a message of the peer of `bytes` bytes.
    #[inline]
    pub fn note_order(&mut self, memory: &PairMemory, bytes: usize, order: u64) {
        if bytes >= LEARNT_BYTES_MIN && !memory.is_ours {
            self.ways.get_or_insert_default().note(bytes, order);
        }
    }

    /// Notes whether the receiver of a stream has begun to read it in time.
    pub fn note_stream(&mut self, read: bool) {
        self.streams.note(read);
    }

    /// Returns the memory of a generation, in which a message has arrived. Once one has arrived in the current memory, none
    /// arrives in the memory before any more, since messages of a peer arrive in order.
    pub fn of(&mut self, generation: u32) -> Option<Rc<PairMemory>> {
        let is_it = |memory: &&Rc<PairMemory>| memory.generation == generation;
        match self.current.as_ref().filter(is_it) {
            Some(current) => {
                self.previous = None;
                Some(current.clone())
            }
            None => self.previous.as_ref().filter(is_it).cloned(),
        }
    }

    /// Uses new memory from now on.
    pub fn renew(&mut self, memory: PairMemory) {
        self.previous = self.current.replace(Rc::new(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_that_may_not_be_traced_is_opened_by_its_name() {
        let file = file::make("hpvm-pair", length(CELLS, CELL_BYTES_MIN) as u64).unwrap();
        let ours = PairMemory::map(&file, (CELLS, CELL_BYTES_MIN), 1, Advice::LinuxPopulateWrite).unwrap();
        let own = rustix::process::getpid();
        let opened = opened_by_name(own, file.as_raw_fd() as u32).unwrap();
        let theirs = PairMemory::map(&opened, (CELLS, CELL_BYTES_MIN), 1, Advice::LinuxPopulateRead).unwrap();
        ours.progress(1).store(77, Ordering::Relaxed);
        assert_eq!(theirs.progress(1).load_relaxed(), 77);
        assert!(opened_by_name(own, 999_999).is_err());
    }
}
