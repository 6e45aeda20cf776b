//! A task's segment: a sparse memfd of fixed virtual size that only its owner writes.
//!
//! Layout: [`Header`], a table of [`PeerLine`]s, the heap. The size is sealed, so a peer that has
//! mapped it never faults, whatever the owner does. Memory is taken page by page on first use and
//! given back by punching holes.
use crate::bell::Waiting;
use crate::descriptor::above_standard;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{mapping, memory};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// "hpvmseg2": the layout of segments and queues.
const MAGIC: u64 = u64::from_be_bytes(*b"hpvmseg2");
/// Peers that a task has at a time, or says it has.
///
/// * Filled by: each task of the host
/// * Setting: none, a host has no more tasks
/// * Reached: the rest of its table is not looked at, and the table is not searched all the time
/// * Test: `a_long_table_that_changes_all_the_time_is_not_searched_all_the_time`
pub const PEERS_MAX: usize = 65_536;
/// Smallest virtual size of a segment, in bytes; less than this is no use.
const SEGMENT_BYTES_MIN: u64 = 32 << 20;
/// Largest virtual size, in bytes: 47 bits of address space hold 2048 such peers.
const SEGMENT_BYTES_MAX: u64 = 64 << 30;
/// Where the heap begins, in bytes.
pub const HEAP_START: u64 = (size_of::<Header>() + PEERS_MAX * size_of::<PeerLine>()) as u64;
/// The unit of memory, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// What the owner tells everybody. Lines that change are apart from those that do not.
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    /// Process id of the owner, for `process_vm_readv`.
    pub pid: AtomicU32,
    _pad: AtomicU32,
    /// A random number, and where in the owner's memory it stands: proves that a process id means
    /// the owner (it does not across process namespaces).
    pub nonce: AtomicU64,
    pub nonce_address: AtomicU64,
    /// How many entries of the peer table are or were in use; also grows when one changes.
    pub peers: Apart<AtomicU32>,
    pub table_version: AtomicU32,
    /// Whether the owner sleeps.
    pub waiting: Apart<Waiting>,
    /// What the owner waits for in a one-call receive.
    pub posted: Apart<PostedWords>,
}

/// A value in a cache line of its own.
#[repr(C, align(64))]
pub struct Apart<T>(pub T);

/// [`crate::Posted`] in shared memory. A hint: a torn read costs time, never data.
#[repr(C)]
pub struct PostedWords {
    pub active: AtomicU32,
    pub from: AtomicU32,
    pub mask: [AtomicU32; 6],
    pub value: [AtomicU32; 6],
}

/// What the owner tells one peer: as a sender to it, and as a receiver from it.
#[repr(C, align(128))]
pub struct PeerLine {
    /// The peer; 0 for a free line.
    pub tid: AtomicU32,
    /// Lines of the first ring, as a power of two.
    pub ring_shift: AtomicU32,
    /// Where the first ring to the peer begins; 0 for none yet.
    pub ring: AtomicU64,
    /// The number of the last offer, times four, and what became of it ([`crate::offer`]).
    pub offer: AtomicU64,
    /// Where the body of that offer has moved to, its length, its token.
    pub moved_offset: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub moved_token: AtomicU64,
    /// The offered body from here on is being copied, or has been, by its sender.
    pub back: AtomicU64,
    pub back_done: AtomicU64,
    /// Half lines read from the peer's queue, over all its rings.
    pub consumed: AtomicU64,
    /// The number of the last offer of the peer that has been dealt with, times four, plus one
    /// when it could not be copied.
    pub taken: AtomicU64,
    /// The offer for which the receive buffer below is open to its sender; 0 for none.
    pub into_number: AtomicU64,
    pub into_address: AtomicU64,
    pub into_bytes: AtomicU64,
    /// The offered body up to here is being copied, or has been, by its receiver.
    pub front: AtomicU64,
    /// The owner, a daemon, wants to be rung when the peer has read so many lines; 0 for never.
    pub notice: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<PeerLine>() == 128);

/// A mapping of a segment, the owner's or a peer's.
pub struct Mapping {
    base: NonNull<c_void>,
    bytes: u64,
    /// The number by which /proc tells this segment from others.
    pub inode: u64,
}

/// What large pages are of: to read one that cannot be had would kill the reader.
const LARGE_PAGES_MAGIC: u64 = 0x9584_58f6;

/// Whether memory of a file system of that kind can be read without fear.
fn is_plain_memory(kind: u64) -> bool {
    kind & 0xffff_ffff != LARGE_PAGES_MAGIC
}

impl Mapping {
    fn new(segment: BorrowedFd<'_>, bytes: u64, protection: ProtFlags) -> io::Result<Mapping> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let base = mapping::map(segment, length, protection)?;
        // SAFETY: the mapping is ours; the advice changes nothing but what a core dump holds.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr(), length, Advice::LinuxDontDump) };
        let inode = rustix::fs::fstat(segment)?.st_ino;
        Ok(Mapping { base, bytes, inode })
    }

    /// Maps a peer's segment for reading; refuses what is no segment.
    pub fn of_peer(segment: OwnedFd) -> io::Result<Mapping> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a segment");
        let seals = rustix::fs::fcntl_get_seals(&segment).map_err(|_| wrong())?;
        if !seals.contains(SealFlags::SHRINK) || !is_plain_memory(rustix::fs::fstatfs(&segment)?.f_type as u64) {
            return Err(wrong());
        }
        let bytes = rustix::fs::fstat(&segment)?.st_size as u64;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
            return Err(wrong());
        }
        let mapping = Mapping::new(segment.as_fd(), bytes, ProtFlags::READ)?;
        if mapping.header().magic.load(Ordering::Relaxed) != MAGIC {
            return Err(wrong());
        }
        Ok(mapping)
    }

    /// Virtual size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// The header.
    pub fn header(&self) -> &Header {
        // SAFETY: a mapping holds at least SEGMENT_BYTES_MIN bytes, is page-aligned, and a header
        // is made of atomics, for which every bit pattern is a value.
        unsafe { self.base.cast::<Header>().as_ref() }
    }
    /// A line of the peer table. Panics past its end.
    pub fn peer_line(&self, index: usize) -> &PeerLine {
        assert!(index < PEERS_MAX);
        // SAFETY: the table lies behind the header, within SEGMENT_BYTES_MIN; atomics, as above.
        unsafe { self.base.byte_add(size_of::<Header>()).cast::<PeerLine>().add(index).as_ref() }
    }
    /// Whether `count` bytes at `offset` lie in the heap part.
    pub fn in_heap(&self, offset: u64, count: u64) -> bool {
        offset >= HEAP_START && offset.checked_add(count).is_some_and(|end| end <= self.bytes)
    }
    /// The address of `count` bytes at `offset`. Panics when they are not in the heap part.
    pub fn address(&self, offset: u64, count: u64) -> *mut u8 {
        assert!(self.in_heap(offset, count));
        // SAFETY: checked to lie within the mapping.
        unsafe { self.base.as_ptr().cast::<u8>().add(offset as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nobody holds a reference beyond `self`.
        unsafe { mapping::unmap(self.base, self.bytes as usize) };
    }
}

/// The owner's side of a segment.
pub struct Segment {
    pub mapping: Mapping,
    writable: OwnedFd,
    readable: OwnedFd,
    pub(crate) allowance: memory::Allowance,
}

impl Segment {
    /// Makes a segment as large as the machine's memory, or as the address space allows.
    pub fn new() -> io::Result<Segment> {
        let wanted = memory::total_bytes().next_power_of_two().clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let mut bytes = wanted.min(isize::MAX as u64 / 16);
        loop {
            match Segment::with_bytes(bytes) {
                // A limit of the address space (ulimit -v, 32 bits): be content with less.
                Err(error) if bytes > SEGMENT_BYTES_MIN && error.kind() == io::ErrorKind::OutOfMemory => bytes /= 2,
                other => return other,
            }
        }
    }

    fn with_bytes(bytes: u64) -> io::Result<Segment> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let writable = above_standard(rustix::fs::memfd_create("hpvm", flags)?)?;
        rustix::fs::fchmod(&writable, Mode::RUSR)?;
        rustix::fs::ftruncate(&writable, bytes)?;
        rustix::fs::fcntl_add_seals(&writable, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::new(writable.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        mapping.header().magic.store(MAGIC, Ordering::Relaxed);
        mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
        let readable = read_only(&writable)?;
        Ok(Segment { mapping, writable, readable, allowance: memory::Allowance::new() })
    }

    /// Takes over an untouched segment that the daemon made for this process.
    pub fn adopt(writable: OwnedFd) -> io::Result<Segment> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a segment");
        let bytes = rustix::fs::fstat(&writable)?.st_size as u64;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
            return Err(wrong());
        }
        let mapping = Mapping::new(writable.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        if mapping.header().magic.load(Ordering::Relaxed) != MAGIC {
            return Err(wrong());
        }
        mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
        let readable = read_only(&writable)?;
        Ok(Segment { mapping, writable, readable, allowance: memory::Allowance::new() })
    }

    /// Gives the segment away: the writable and the readable descriptor.
    pub fn into_descriptors(self) -> (OwnedFd, OwnedFd) {
        self.mapping.header().pid.store(0, Ordering::Relaxed);
        (self.writable, self.readable)
    }

    /// A descriptor through which the segment can only be read.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Takes memory for a range of pages; fails instead of being killed when there is too little.
    pub fn commit(&self, offset: u64, bytes: u64) -> Result<(), crate::NoMemory> {
        if !self.allowance.take(bytes) {
            return Err(crate::NoMemory);
        }
        if rustix::fs::fallocate(&self.writable, FallocateFlags::KEEP_SIZE, offset, bytes).is_err() {
            self.give_back(offset, bytes);
            return Err(crate::NoMemory);
        }
        let address = self.mapping.address(offset, bytes).cast();
        // A page fault each would cost several microseconds a page on a virtual machine.
        // SAFETY: populating maps pages that the process owns and changes no byte.
        let _ = unsafe { rustix::mm::madvise(address, bytes as usize, Advice::LinuxPopulateWrite) };
        Ok(())
    }

    /// Gives the memory of a range of pages back to the system.
    pub fn give_back(&self, offset: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Failing costs memory, nothing else.
        let _ = rustix::fs::fallocate(&self.writable, flags, offset, bytes);
        self.allowance.give_back(bytes);
    }
}

/// Seals what its maker alone writes, by the mapping that it has made before: whoever gets a descriptor,
/// however it opens it, can only read. Systems before Linux 5.1 do without the last.
pub fn seal_for_readers(file: &OwnedFd) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    match rustix::fs::fcntl_add_seals(file, size | SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
        Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::fcntl_add_seals(file, size | SealFlags::SEAL)?),
        other => Ok(other?),
    }
}

/// Opens a memfd once more, for reading only; where /proc is missing, a plain duplicate.
pub fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC).or_else(|_| file.try_clone())
}

/// Opens what a descriptor leads to once more, with flags and a position of its own.
pub fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    above_standard(rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_are_no_memory_for_segments() {
        assert!(!is_plain_memory(LARGE_PAGES_MAGIC) && !is_plain_memory(LARGE_PAGES_MAGIC as i32 as u64));
        let segment = Segment::new().unwrap();
        assert!(is_plain_memory(rustix::fs::fstatfs(segment.descriptor()).unwrap().f_type as u64));
    }
}
