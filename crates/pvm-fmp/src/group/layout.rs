//! The layout of the two memfds of a group, and their mapping.
use super::barrier::{Barrier, MemberSlot};
use crate::segment_layout::Apart;
use crate::sync::{AtomicU32, AtomicU64, Ordering, ReadOnlyLoad};
use crate::{file, mapping};
use rustix::fs::SealFlags;
use rustix::mm::ProtFlags;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// The largest number of members of a group: as many as a host can have tasks.
pub const MEMBERS_MAX: usize = crate::SLOTS;

/// A type that can be laid over a memfd of zeroes: made of atomics only.
///
/// # Safety
/// Every bit pattern must be a valid value, and all changes must go through `&` (atomics).
pub(super) unsafe trait Shared {
    const MAGIC: u64;
    /// The least length of the file, in bytes. If a limit (`ulimit -f`) makes the file shorter than the type, the
    /// missing part is never used.
    const LEAST_BYTES: usize;
    fn magic(&self) -> &AtomicU64;
}

/// The membership page. Only the daemon writes it.
#[repr(C)]
pub(super) struct MembershipPage {
    magic: AtomicU64,
    /// Odd while a change is under way; see `GroupView::members`.
    pub version: Apart<AtomicU32>,
    pub size: AtomicU32,
    /// The highest instance in use, plus one.
    pub places: AtomicU32,
    /// Any of the bits `FROZEN`, `BROKEN`, `CLOSED`.
    pub state: AtomicU32,
    /// The tids of the members, by instance; 0 for a free instance. In a frozen group, the tid of a member that has
    /// gone has the bit [`GONE`].
    pub tids: Apart<[AtomicU32; MEMBERS_MAX]>,
}

/// A bit that is set in the tid of a member that has gone since its group was frozen. Nobody else gets the instance
/// number of this member, and tasks that froze the group while the member was there go on using its tid. No valid tid
/// has this bit.
pub(super) const GONE: u32 = 1 << 31;

/// Returns the tid, if the word is that of a member that has not gone.
#[inline]
pub(super) fn present(word: u32) -> Option<u32> {
    Some(word).filter(|word| *word != 0 && *word & GONE == 0)
}

/// The members of the group do not change any more.
pub(super) const FROZEN: u32 = 1;
/// A member of the frozen group has gone.
pub(super) const BROKEN: u32 = 2;
/// The group has ended.
pub(super) const CLOSED: u32 = 4;

/// The barrier page: the barrier and the slots of the members, by instance.
#[repr(C)]
pub(super) struct BarrierPage {
    magic: AtomicU64,
    pub barrier: Barrier,
    slots: [MemberSlot; MEMBERS_MAX],
}

const _: () = assert!(size_of::<MemberSlot>() == 64 && align_of::<Barrier>() == 64);

// SAFETY: atomics alone.
unsafe impl Shared for MembershipPage {
    const MAGIC: u64 = u64::from_be_bytes(*b"hpvmlist");
    const LEAST_BYTES: usize = Mapped::<MembershipPage>::BYTES;
    fn magic(&self) -> &AtomicU64 {
        &self.magic
    }
}

// SAFETY: atomics alone.
unsafe impl Shared for BarrierPage {
    const MAGIC: u64 = u64::from_be_bytes(*b"hpvmbord");
    const LEAST_BYTES: usize = 64 << 10;
    fn magic(&self) -> &AtomicU64 {
        &self.magic
    }
}

/// A mapped memfd that holds a `T`.
pub(super) struct Mapped<T: Shared> {
    base: NonNull<T>,
    /// The length of the file in bytes.
    file_bytes: usize,
    holds: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and `T` is made of atomics.
unsafe impl<T: Shared> Send for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    const BYTES: usize = size_of::<T>().next_multiple_of(4096);

    /// Makes a memfd and maps it writable. If `shared` is set, other processes may write to it, too.
    pub fn make(name: &str, shared: bool) -> io::Result<(Mapped<T>, OwnedFd)> {
        let most = usize::try_from(file::bytes_max()).unwrap_or(usize::MAX);
        let bytes = (most / 4096 * 4096).clamp(T::LEAST_BYTES, Self::BYTES);
        let file = file::make(name, bytes as u64)?;
        let mapped = Mapped::<T>::map(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE)?;
        if shared {
            file::seal(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        } else {
            file::seal_for_readers(&file)?;
        }
        mapped.magic().store(T::MAGIC, Ordering::Relaxed);
        Ok((mapped, file))
    }

    /// Maps a memfd that another process has made; refuses any other file.
    pub fn open(file: &OwnedFd, protection: ProtFlags) -> io::Result<Mapped<T>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not of a group");
        let file_bytes = rustix::fs::fstat(file)?.st_size as usize;
        if !file::keeps_length(file.as_fd()) || !(T::LEAST_BYTES..=Self::BYTES).contains(&file_bytes) {
            return Err(wrong());
        }
        let mapped = Mapped::<T>::map(file.as_fd(), protection)?;
        if mapped.magic().load_relaxed() != T::MAGIC {
            return Err(wrong());
        }
        Ok(mapped)
    }

    fn map(file: BorrowedFd<'_>, protection: ProtFlags) -> io::Result<Mapped<T>> {
        let file_bytes = rustix::fs::fstat(file)?.st_size as usize;
        Ok(Mapped { base: mapping::map(file, 0, Self::BYTES, protection)?.cast(), file_bytes, holds: PhantomData })
    }
}

impl Mapped<BarrierPage> {
    /// Returns the slot of a member; `None` if a limit has made the page too short for it. Panics for an instance that
    /// no group can have.
    #[inline]
    pub fn slot(&self, instance: usize) -> Option<&MemberSlot> {
        let end = std::mem::offset_of!(BarrierPage, slots) + (instance + 1) * size_of::<MemberSlot>();
        (end <= self.file_bytes).then(|| &self.slots[instance])
    }
}

impl<T: Shared> std::ops::Deref for Mapped<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mapping is at least as large as a `T`, page-aligned, and every bit pattern is a `T`. The part of
        // it that is used exists: the file's size was set or checked, and is sealed; see `Mapped::slot`.
        unsafe { self.base.as_ref() }
    }
}

impl<T: Shared> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: made by `map`; no reference outlives `self`.
        unsafe { mapping::unmap(self.base.cast(), Self::BYTES) };
    }
}
