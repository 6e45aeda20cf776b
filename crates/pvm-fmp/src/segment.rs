//! A task's segment: a file of memory that only its owner writes.
//!
//! A segment begins small and grows as the heap needs it; it never shrinks, so a peer that has mapped a part of it never faults
//! there, whatever the owner does. Memory is taken page by page on first use and given back by punching holes.
use crate::extents::Mapping;
use crate::segment_layout::{FIRST_BYTES, MAGIC, PAGE_BYTES, SEGMENT_BYTES_MAX};
use crate::sync::Ordering;
use crate::{file, memory};
use pvm_descriptor::OwnDescriptor;
use rustix::fs::{Mode, SealFlags};
use rustix::mm::Advice;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The least growth of a segment, in bytes, unless a limit allows less.
const GROWTH_BYTES: u64 = 256 << 10;

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
