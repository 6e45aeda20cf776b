//! A task's segment: a file of memory that only its owner writes.
//!
//! Layout: [`Header`], then the first [`PeerRecord`]s, then the heap, which also holds the further records. A segment
//! begins small and grows as the heap needs it; it never shrinks, so a peer that has mapped a part of it never faults
//! there, whatever the owner does. Memory is taken page by page on first use and given back by punching holes.
use crate::extents::Mapping;
use crate::multicasts::Multicasts;
use crate::parker::Parker;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{file, memory};
use pvm_descriptor::OwnDescriptor;
use rustix::fs::{Mode, SealFlags};
use rustix::mm::Advice;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The first word of a segment: the bytes of "hpvmseg7", which stand for this layout of segments and queues.
pub const MAGIC: u64 = u64::from_be_bytes(*b"hpvmseg7");
/// The largest number of peers that a task can have, or claim to have, at a time.
///
/// * Filled by: each task of the host, in its own segment
/// * Setting: none, a host cannot have more tasks than this
/// * Reached: other tasks ignore the further records, and do not search such a long table after each of its changes
/// * Test: `a_long_table_that_changes_all_the_time_is_not_searched_all_the_time`
pub const PEERS_MAX: usize = 65_536;
/// The number of records of the peer table right behind the header: one page.
pub const FIRST_RECORDS: usize = 32;
/// The number of pieces of the peer table: those first records, a second piece of the same length, and then each piece
/// twice as long as the one before.
const TABLES: usize = (PEERS_MAX / FIRST_RECORDS).ilog2() as usize + 1;
/// The length of the first extent, in bytes. Each peer maps this extent.
pub const FIRST_BYTES: u64 = 64 << 10;
/// The least growth of a segment, in bytes, unless a limit allows less.
const GROWTH_BYTES: u64 = 256 << 10;
/// The largest number of extents behind the first one. Mostly each is as long as all earlier ones together.
pub const EXTENTS_MAX: usize = 64;
/// Largest length of a segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 30;
/// The offset at which the heap begins, in bytes.
pub const HEAP_START: u64 = (size_of::<Header>() + FIRST_RECORDS * size_of::<PeerRecord>()) as u64;
/// The size of a page, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// What the owner publishes to all peers. Words that change lie in other cache lines than words that do not change.
#[repr(C, align(4096))]
pub struct Header {
    pub magic: AtomicU64,
    /// Process id of the owner, for `process_vm_readv`.
    pub pid: AtomicU32,
    _pad: AtomicU32,
    /// A random number, and its address in the owner's memory. The number proves that the process id means the owner:
    /// in another process namespace the same id may mean another process.
    pub nonce: AtomicU64,
    pub nonce_address: AtomicU64,
    /// How many records of the peer table are or were in use.
    pub peers: Apart<AtomicU32>,
    pub table_version: AtomicU32,
    /// Whether the owner sleeps.
    pub parker: Apart<Parker>,
    /// What the owner waits for in a one-call receive (`pvm_precv`).
    pub posted: Apart<PostedWords>,
    /// The multicasts of the owner.
    pub multicasts: Apart<Multicasts>,
    /// Where each extent behind the first one ends; 0 for none yet.
    pub ends: Apart<[AtomicU64; EXTENTS_MAX]>,
    /// The offsets of the pieces of the peer table, except the first one; 0 for none yet.
    pub tables: [AtomicU64; TABLES],
}

/// Returns the first record of a piece of the peer table, and how many records the piece has.
pub fn table_piece(piece: usize) -> (usize, usize) {
    match piece {
        0 => (0, FIRST_RECORDS),
        _ => (FIRST_RECORDS << (piece - 1), FIRST_RECORDS << (piece - 1)),
    }
}

/// A value in a cache line of its own.
#[repr(C, align(64))]
pub struct Apart<T>(pub T);

/// [`crate::Posted`] in shared memory. It is only a hint: a torn read costs time, never data.
#[repr(C)]
pub struct PostedWords {
    pub active: AtomicU32,
    pub from: AtomicU32,
    pub mask: [AtomicU32; 6],
    pub value: [AtomicU32; 6],
}

/// The record of a peer: what the owner publishes for that peer, as a sender to it and as a receiver from it.
#[repr(C, align(128))]
pub struct PeerRecord {
    /// The peer's tid; 0 for a free record.
    pub tid: AtomicU32,
    /// The number of slots of the first ring, as an exponent of two.
    pub ring_shift: AtomicU32,
    /// Where the first ring to the peer begins; 0 for none yet.
    pub ring: AtomicU64,
    /// The number of the last rendezvous, times four, and its state ([`crate::rendezvous`]).
    pub rendezvous: AtomicU64,
    /// After a fall-back to eager: the offset of the body, its length, its token.
    pub eager_offset: AtomicU64,
    pub eager_bytes: AtomicU64,
    pub eager_token: AtomicU64,
    /// The offset from which on the sender has claimed the body of the rendezvous; from `back_done` on, it has copied
    /// the body.
    pub back: AtomicU64,
    pub back_done: AtomicU64,
    /// The number of half-slots read from the peer's queue, over all its rings.
    pub consumed: AtomicU64,
    /// The number of the peer's last rendezvous that has been answered, times four, plus one if the owner asked for the
    /// body in the heap instead of copying it.
    pub taken: AtomicU64,
    /// The number of the rendezvous whose sender may write to the receive buffer below; 0 for none.
    pub into_number: AtomicU64,
    pub into_address: AtomicU64,
    pub into_bytes: AtomicU64,
    /// The offset up to which the receiver has claimed the body of the rendezvous.
    pub front: AtomicU64,
    /// A position in a queue, in half-slots; 0 for none. If the owner is a daemon, it wants to be rung when the peer has
    /// read the queue from the daemon up to there. If the owner is a task and the peer its daemon, the task still reads
    /// the payload of the entry that ends there, in the daemon's heap.
    pub mark: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<PeerRecord>() == 128);

/// The owner's side of a segment.
pub struct Segment {
    pub mapping: Mapping,
    writable: OwnDescriptor,
    readable: OwnDescriptor,
    pub(crate) allowance: memory::Allowance,
}

impl Segment {
    /// Makes a segment of one extent.
    pub fn new() -> io::Result<Segment> {
        let writable = file::make("hpvm", FIRST_BYTES)?;
        rustix::fs::fchmod(&writable, Mode::RUSR)?;
        file::seal(&writable, SealFlags::SHRINK)?;
        let mapping = Mapping::of_owner(writable.as_fd())?;
        mapping.header().magic.store(MAGIC, Ordering::Relaxed);
        Segment::with(mapping, writable)
    }

    /// Adopts an untouched segment that the daemon made for this process.
    pub fn adopt(writable: OwnedFd) -> io::Result<Segment> {
        let mapping = Mapping::of_owner(writable.as_fd())?;
        if !mapping.is_segment() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a segment"));
        }
        Segment::with(mapping, writable)
    }

    fn with(mapping: Mapping, writable: OwnedFd) -> io::Result<Segment> {
        mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
        let readable = file::read_only(&writable)?;
        let (writable, readable) = (writable.into(), readable.into());
        Ok(Segment { mapping, writable, readable, allowance: memory::Allowance::new() })
    }

    /// Returns the writable and the readable descriptor, for another owner.
    pub fn into_descriptors(self) -> Option<(OwnedFd, OwnedFd)> {
        self.mapping.header().pid.store(0, Ordering::Relaxed);
        self.writable.into_owned().zip(self.readable.into_owned())
    }

    /// Returns a descriptor through which the segment can only be read.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Returns the memory file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.writable.as_fd()
    }

    /// Makes the segment longer. Returns the offset and the length of the new usable part, which has at least `bytes`
    /// bytes. The segment doubles, or grows by as much as limits of address space and file size allow. One page of each
    /// extent is not used, so that no free run reaches into another extent.
    pub fn grow(&self, bytes: u64) -> Result<(u64, u64), crate::NoMemory> {
        let start = self.mapping.end();
        let wanted = bytes.checked_add(PAGE_BYTES).ok_or(crate::NoMemory)?;
        let room = SEGMENT_BYTES_MAX - start;
        let mut more = wanted.max(start).max(GROWTH_BYTES).min(room);
        while more >= wanted {
            if self.mapping.add_extent(self.writable.as_fd(), start, more).is_ok() {
                return Ok((start + PAGE_BYTES, more - PAGE_BYTES));
            }
            if more == wanted {
                break;
            }
            more = (more / 2).next_multiple_of(PAGE_BYTES).max(wanted);
        }
        Err(crate::NoMemory)
    }

    /// Commits memory for a range of pages. Returns an error if there is too little memory; if the memory were not
    /// committed here, this lack would kill the process at a later access.
    pub fn commit(&self, offset: u64, bytes: u64) -> Result<(), crate::NoMemory> {
        if !self.allowance.take(bytes) {
            return Err(crate::NoMemory);
        }
        if file::take_memory(self.writable.as_fd(), offset, bytes).is_err() {
            self.give_back(offset, bytes);
            return Err(crate::NoMemory);
        }
        let address = self.mapping.address(offset, bytes).cast();
        // This avoids page faults, which cost several microseconds each on a virtual machine.
        // SAFETY: populating maps pages that the process owns and changes no byte.
        let _ = unsafe { rustix::mm::madvise(address, bytes as usize, Advice::LinuxPopulateWrite) };
        Ok(())
    }

    /// Gives the memory of a range of pages back to the system.
    pub fn give_back(&self, offset: u64, bytes: u64) {
        file::give_memory_back(self.writable.as_fd(), offset, bytes);
        self.allowance.give_back(bytes);
    }
}
