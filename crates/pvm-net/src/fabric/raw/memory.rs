//! Memory that can be registered with a provider: it neither moves nor goes away while it is registered.
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The length of the smallest pages.
pub(super) const PAGE_BYTES_MIN: usize = 4096;

/// Why memory cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// The file may become shorter (it is not sealed against that, or is no memory file): whoever reads what is cut off
    /// dies of SIGBUS.
    MayShrink,
    /// The file is shorter than the length that was asked for.
    TooShort,
    /// The system refuses.
    System(Errno),
}

/// Memory that stays at its place.
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

enum Origin {
    /// Mapped, and others may read and write it.
    Shared,
    /// Mapped for this process alone.
    Private,
    /// The memory of a vector that other parts of this process only read, too.
    Vector(Arc<Vec<u8>>),
    /// Memory of a caller, for the time of a call.
    Lent,
}

// SAFETY: the mapping belongs to this value alone and can be used by any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps the first `bytes` bytes of a memory file, such as a task's heap, so that peers read what is written there.
    /// The file must be sealed against shrinking.
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Memory, MemoryError> {
        Memory::shared_part(file, 0, bytes)
    }

    /// Does the same with the bytes from `offset` on. The offset is a multiple of the length of the system's pages.
    pub fn shared_part(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<Memory, MemoryError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| MemoryError::MayShrink)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::MayShrink);
        }
        let size = rustix::fs::fstat(file).map_err(MemoryError::System)?.st_size;
        if offset.checked_add(bytes as u64).is_none_or(|end| u64::try_from(size).unwrap_or(0) < end) {
            return Err(MemoryError::TooShort);
        }
        // SAFETY: a new mapping at a place that the system chooses.
        let map = |access| unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset) };
        // Linux before 6.2 registers shared memory with RDMA devices only if the process may write there.
        let start = match map(ProtFlags::READ | ProtFlags::WRITE) {
            Err(Errno::ACCESS | Errno::PERM) => map(ProtFlags::READ),
            other => other,
        };
        Memory::from(start, bytes, Origin::Shared)
    }

    /// Makes memory that holds a copy of these bytes.
    pub fn of(bytes: &[u8]) -> Result<Memory, MemoryError> {
        let memory = Memory::anonymous(bytes.len())?;
        // SAFETY: the new memory has this length, and nobody else knows it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory.start.as_ptr(), bytes.len()) };
        Ok(memory)
    }

    /// Takes over the memory of a vector, without a copy. Nobody writes there.
    pub fn from_vec(vector: Arc<Vec<u8>>) -> Memory {
        let start = NonNull::new(vector.as_ptr().cast_mut()).expect("a vector's address is not null");
        Memory { start, bytes: vector.len(), origin: Origin::Vector(vector) }
    }

    /// Names memory of a caller, which nobody writes to while this value exists.
    pub(super) fn lent(start: NonNull<u8>, bytes: usize) -> Memory {
        Memory { start, bytes, origin: Origin::Lent }
    }

    /// Makes memory of zeroes, with all its pages.
    pub fn anonymous(bytes: usize) -> Result<Memory, MemoryError> {
        Memory::map_anonymous(bytes, MapFlags::PRIVATE | MapFlags::POPULATE)
    }

    /// Makes memory of zeroes that gets its pages when they are used. It is not to be registered.
    pub(super) fn sparse(bytes: usize) -> Result<Memory, MemoryError> {
        Memory::map_anonymous(bytes, MapFlags::PRIVATE)
    }

    fn map_anonymous(bytes: usize, flags: MapFlags) -> Result<Memory, MemoryError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the system chooses.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes.max(1), access, flags) };
        Memory::from(start, bytes, Origin::Private)
    }

    fn from(start: Result<*mut std::ffi::c_void, Errno>, bytes: usize, origin: Origin) -> Result<Memory, MemoryError> {
        let start = NonNull::new(start.map_err(MemoryError::System)?.cast()).expect("no mapping is at address 0");
        Ok(Memory { start, bytes, origin })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Makes the system give the memory all its pages. Reading is enough for pages of files; those of other memory are
    /// there from the beginning.
    pub(super) fn fetch_pages(&self) {
        for offset in (0..self.bytes).step_by(PAGE_BYTES_MIN) {
            // SAFETY: the byte is in the mapping.
            unsafe { self.start.as_ptr().add(offset).read_volatile() };
        }
    }

    /// Frees the pages if no other process uses the memory. The memory stays mapped at the same address and reads as zeros.
    /// Returns whether it did so.
    pub(super) fn discard_pages(&mut self) -> bool {
        match &self.origin {
            // The pages belong to a file, or to the caller.
            Origin::Shared | Origin::Lent => return true,
            Origin::Vector(vector) if Arc::strong_count(vector) > 1 => return false,
            Origin::Vector(_) | Origin::Private => {}
        }
        // SAFETY: the call has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let start = self.start.as_ptr() as usize;
        let (first, end) = (start.next_multiple_of(page), (start + self.bytes) / page * page);
        if first < end {
            let at = self.start.as_ptr().wrapping_add(first - start).cast();
            // SAFETY: these whole pages are in the memory, which is this value's own, and any bytes are valid there. A provider
            // may still send them, for somebody who has ended. If the system refuses, the pages stay.
            let _ = unsafe { rustix::mm::madvise(at, end - first, Advice::LinuxDontNeed) };
        }
        true
    }

    /// Returns the place of a part; `None` if the memory ends before.
    pub(super) fn part(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        offset.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        // SAFETY: the memory has this many bytes.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }

    pub(super) fn is_lent(&self) -> bool {
        matches!(self.origin, Origin::Lent)
    }

    /// Returns whether others may write there.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.origin, Origin::Shared)
    }

    /// Returns whether this process may write there.
    pub(super) fn is_private(&self) -> bool {
        matches!(self.origin, Origin::Private)
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &mut self.origin {
            Origin::Vector(vector) => {
                *vector = Arc::default();
                return;
            }
            Origin::Lent => return,
            Origin::Shared | Origin::Private => {}
        }
        // SAFETY: the mapping is this value's own. Whoever registers memory keeps the value until the registration has
        // been closed.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes.max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;

    #[test]
    fn only_files_that_cannot_shrink_are_mapped() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert_eq!(Memory::shared(file.as_fd(), 4096).err(), Some(MemoryError::MayShrink));
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(Memory::shared(file.as_fd(), 8193).err(), Some(MemoryError::TooShort));
        let memory = Memory::shared(file.as_fd(), 8192).unwrap();
        rustix::io::pwrite(&file, b"later", 100).unwrap();
        // SAFETY: the mapping has 8192 bytes.
        assert_eq!(unsafe { std::slice::from_raw_parts(memory.start().add(100), 5) }, b"later");
        let page = rustix::param::page_size();
        rustix::fs::ftruncate(&file, 2 * page as u64).unwrap();
        rustix::io::pwrite(&file, b"second page", page as u64).unwrap();
        let part = Memory::shared_part(file.as_fd(), page as u64, page).unwrap();
        // SAFETY: the mapping has a page.
        assert_eq!(unsafe { std::slice::from_raw_parts(part.start(), 11) }, b"second page");
        for (offset, bytes, error) in [
            (page as u64, page + 1, MemoryError::TooShort),
            (u64::MAX, 2, MemoryError::TooShort),
            (1, 1, MemoryError::System(Errno::INVAL)),
        ] {
            assert_eq!(Memory::shared_part(file.as_fd(), offset, bytes).err(), Some(error));
        }
        let pipe = rustix::pipe::pipe().unwrap();
        assert_eq!(Memory::shared(pipe.0.as_fd(), 1).err(), Some(MemoryError::MayShrink));
    }
    #[test]
    fn pages_are_given_back_when_nobody_else_has_the_bytes() {
        let bytes = 1 << 20;
        let vector = Arc::new(vec![7_u8; bytes]);
        let mut memory = Memory::from_vec(vector.clone());
        assert!(!memory.discard_pages() && vector.iter().all(|byte| *byte == 7));
        drop(vector);
        assert!(memory.discard_pages());
        // SAFETY: the vector has this many bytes.
        let left = unsafe { std::slice::from_raw_parts(memory.start(), bytes) };
        let pages = left.chunks(rustix::param::page_size()).filter(|page| page.iter().all(|byte| *byte == 0)).count();
        assert!(pages >= bytes / rustix::param::page_size() - 2, "{pages}");
    }
}
