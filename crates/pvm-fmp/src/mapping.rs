//! Shared memory in the address space of this process.
//!
//! By way of the C library, so that a sanitizer hears of it.
use rustix::mm::ProtFlags;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Maps the first bytes of a file, shared.
pub fn map(file: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<NonNull<c_void>> {
    let (protection, flags) = (protection.bits() as i32, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe { libc::mmap(null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::new(base).expect("mmap gives no null");
    #[cfg(one_mapping)]
    let base = one::join(file, bytes, protection, base)?;
    Ok(base)
}

/// Gives back what [`map`] gave.
///
/// # Safety
///
/// `base` came of [`map`] with so many bytes, and is not used any more.
pub unsafe fn unmap(base: NonNull<c_void>, bytes: usize) {
    #[cfg(one_mapping)]
    if !one::leave(base) {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(base.as_ptr(), bytes) };
}

/// For ThreadSanitizer, which tells bytes apart by their addresses: two tasks in one process would share
/// none, each having its own mapping of a segment. With `--cfg one_mapping` they get the same one.
#[cfg(one_mapping)]
mod one {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    struct Shared {
        inode: u64,
        base: usize,
        bytes: usize,
        protection: i32,
        users: usize,
    }

    static MAPPINGS: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

    /// The mapping of that file that is there already, instead of the fresh one.
    pub fn join(
        file: BorrowedFd<'_>,
        bytes: usize,
        protection: i32,
        fresh: NonNull<c_void>,
    ) -> io::Result<NonNull<c_void>> {
        let inode = rustix::fs::fstat(file)?.st_ino;
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |known: &&mut Shared| {
            known.inode == inode && known.bytes == bytes && known.protection & protection == protection
        };
        if let Some(known) = mappings.iter_mut().find(serves) {
            known.users += 1;
            // SAFETY: nobody has the fresh one.
            unsafe { libc::munmap(fresh.as_ptr(), bytes) };
            return Ok(NonNull::new(known.base as *mut c_void).expect("mmap gives no null"));
        }
        mappings.push(Shared { inode, base: fresh.as_ptr() as usize, bytes, protection, users: 1 });
        Ok(fresh)
    }

    /// Whether that was the last user of the mapping.
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
