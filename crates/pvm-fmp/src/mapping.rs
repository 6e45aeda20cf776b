//! Shared memory in the address space of this process.
//!
//! Calls go through the C library, so that sanitizers see them.
use rustix::mm::ProtFlags;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicU8, Ordering};

/// Maps `bytes` bytes of a file from `start` on, shared. Core dumps leave them out.
pub fn map(file: BorrowedFd<'_>, start: u64, bytes: usize, protection: ProtFlags) -> io::Result<NonNull<c_void>> {
    let (protection, flags) = (protection.bits() as i32, libc::MAP_SHARED | libc::MAP_NORESERVE);
    let start_in_file = libc::off_t::try_from(start).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe { libc::mmap(null_mut(), bytes, protection, flags, file.as_raw_fd(), start_in_file) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is ours; the advice changes nothing but what a core dump holds.
    let _ = unsafe { libc::madvise(base, bytes, libc::MADV_DONTDUMP) };
    let base = NonNull::new(base).expect("mmap gives no null");
    #[cfg(one_mapping)]
    let base = one::join(file, start, bytes, protection, base)?;
    Ok(base)
}

/// Unmaps what [`map`] or [`map_behind`] has mapped.
///
/// # Safety
///
/// One of these two functions returned `base` for this number of bytes, and nobody uses the mapping any more.
pub unsafe fn unmap(base: NonNull<c_void>, bytes: usize) {
    #[cfg(one_mapping)]
    if !one::leave(base) {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(base.as_ptr(), bytes) };
}

/// Maps more of the file that is mapped at `page`, with the same rights, without a descriptor: `bytes` bytes that begin
/// `distance` bytes behind the start of that page. Does not check whether the file reaches that far.
///
/// # Safety
///
/// `page` is a page of a mapping that [`map`] or this function made.
pub unsafe fn map_behind(page: NonNull<c_void>, distance: usize, bytes: usize) -> io::Result<NonNull<c_void>> {
    let whole = distance.checked_add(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: an old length of 0 leaves the mapping as it is and makes another one, at an address of the
    // kernel's choice.
    let base = unsafe { libc::mremap(page.as_ptr(), 0, whole, libc::MREMAP_MAYMOVE) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if distance > 0 {
        // SAFETY: nobody knows of the new mapping yet.
        unsafe { libc::munmap(base, distance) };
    }
    Ok(NonNull::new(base).expect("mremap gives no null").map_addr(|base| base.saturating_add(distance)))
}

/// Returns whether [`map_behind`] works here: valgrind, some sandboxes and old systems do not have it.
///
/// # Safety
///
/// As [`map_behind`].
pub unsafe fn can_map_behind(page: NonNull<c_void>) -> bool {
    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    /// The result of the first try.
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    if cfg!(one_mapping) {
        return false;
    }
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == YES;
    }
    // SAFETY: the caller's promise; the new mapping is nobody's yet.
    let works = match unsafe { map_behind(page, 0, 1) } {
        Ok(copy) => {
            // SAFETY: as above.
            unsafe { libc::munmap(copy.as_ptr(), 1) };
            true
        }
        // There is no address space for this try, so the answer stays unknown, and a later call tries again. The
        // present caller maps from the file.
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return false,
        Err(_) => false,
    };
    KNOWN.store(if works { YES } else { NO }, Ordering::Relaxed);
    works
}

/// Returns whether the file behind a mapping reaches that page. The system reads the page for this, and reports an
/// error where an access by this process would be fatal.
pub fn is_there(page: NonNull<c_void>) -> bool {
    const NO_SUCH_CHANGE: i32 = -1;
    // SAFETY: the kernel reads eight bytes, if it can, and then refuses to change anything.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, page.as_ptr(), null::<c_void>(), 8usize) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// With `--cfg one_mapping`, all tasks in a process share one mapping of a segment. Normally each task has its own
/// mapping; ThreadSanitizer, which identifies bytes by their addresses, would then not see that the tasks share bytes.
#[cfg(one_mapping)]
mod one {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    struct Shared {
        inode: u64,
        start: u64,
        base: usize,
        bytes: usize,
        protection: i32,
        users: usize,
    }

    static MAPPINGS: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

    /// Returns the existing mapping of that part of the file, if any, instead of the fresh one.
    pub fn join(
        file: BorrowedFd<'_>,
        start: u64,
        bytes: usize,
        protection: i32,
        fresh: NonNull<c_void>,
    ) -> io::Result<NonNull<c_void>> {
        let inode = rustix::fs::fstat(file)?.st_ino;
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |known: &&mut Shared| {
            (known.inode, known.start, known.bytes) == (inode, start, bytes)
                && known.protection & protection == protection
        };
        if let Some(known) = mappings.iter_mut().find(serves) {
            known.users += 1;
            // SAFETY: nobody has the fresh one.
            unsafe { libc::munmap(fresh.as_ptr(), bytes) };
            return Ok(NonNull::new(known.base as *mut c_void).expect("mmap gives no null"));
        }
        mappings.push(Shared { inode, start, base: fresh.as_ptr() as usize, bytes, protection, users: 1 });
        Ok(fresh)
    }

    /// Removes one user of the mapping. Returns whether that was the last one.
    pub fn leave(base: NonNull<c_void>) -> bool {
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let place = mappings.iter().position(|known| known.base == base.as_ptr() as usize).expect("it was mapped");
        mappings[place].users -= 1;
        let is_last = mappings[place].users == 0;
        if is_last {
            mappings.swap_remove(place);
        }
        is_last
    }
}
