//! Memory of a caller that an endpoint uses for the time of a call: one body is read into it, or peers read it. So no processor
//! copies the body.
use super::super::memory::Memory;
use super::{Endpoint, PlaceId, ReadError, RegionId};
use crate::fabric::Failure;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Names a loan of memory for peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentRegionId(u64);

/// What an endpoint and a lender know of the memory. All is used by the thread that uses the endpoint.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// Null while none is lent, and once it is used.
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// How often memory was lent, or returned.
    changes: AtomicU64,
    /// How many uses have begun and not ended: reads that write there, or the registration for peers.
    uses: AtomicUsize,
}

impl Lent {
    /// Returns whether the memory that was lent in this loan is lent still.
    pub fn is_in(&self, loan: u64) -> bool {
        self.changes.load(Relaxed) == loan
    }

    pub fn use_begins(&self) {
        self.uses.fetch_add(1, Relaxed);
    }

    pub fn use_ends(&self) {
        self.uses.fetch_sub(1, Relaxed);
    }

    /// Notes that the provider uses no memory any more.
    pub fn forget_uses(&self) {
        self.uses.store(0, Relaxed);
    }

    /// Returns where the memory is, if it is lent and not used yet.
    fn take(&self, bytes_min: usize) -> Option<(NonNull<u8>, usize)> {
        let bytes = self.bytes.load(Relaxed);
        let start = NonNull::new(self.start.load(Relaxed)).filter(|_| bytes >= bytes_min)?;
        self.start.store(ptr::null_mut(), Relaxed);
        Some((start, bytes))
    }

    /// Returns where a part of the memory is, as long as the loan lasts and the memory is not used otherwise.
    pub fn part(&self, loan: LentRegionId, at: usize, bytes: usize) -> Option<*mut u8> {
        let start = NonNull::new(self.start.load(Relaxed)).filter(|_| self.is_in(loan.0))?;
        at.checked_add(bytes).filter(|end| *end <= self.bytes.load(Relaxed))?;
        // SAFETY: the memory has this many bytes.
        Some(unsafe { start.as_ptr().add(at) })
    }

    /// Lends memory while `work` runs.
    fn lend<O: ?Sized, T>(
        &self,
        (start, bytes): (*mut u8, usize),
        owner: &mut O,
        discard: impl FnMut(&mut O),
        work: impl FnOnce(&mut O) -> T,
    ) -> T {
        self.changes.fetch_add(1, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.start.store(start, Relaxed);
        let loan = Loan { lent: self, owner, discard };
        work(&mut *loan.owner)
    }
}

/// Memory that is lent, into which a processor copies a body.
#[derive(Debug)]
pub struct Room {
    start: NonNull<u8>,
    bytes: usize,
    loan: u64,
}

/// Makes a [`Room`] of memory that is lent, and writes to it.
#[derive(Debug)]
pub struct Rooms<'a>(pub(super) &'a Lent);

impl Rooms<'_> {
    /// Takes the memory that is lent. Returns `None` if none is lent, the body is longer, or the memory is used already.
    pub fn take(&self, bytes: usize) -> Option<Room> {
        let loan = self.0.changes.load(Relaxed);
        self.0.take(bytes).map(|(start, _)| Room { start, bytes, loan })
    }

    /// Returns the first bytes, or `None` if the memory is the caller's again, or ends before.
    pub fn read<'b>(&self, room: &'b Room, bytes: usize) -> Option<&'b [u8]> {
        if !self.0.is_in(room.loan) || bytes > room.bytes {
            return None;
        }
        // SAFETY: the memory is lent, nothing writes to it while the room is borrowed, and it has this many bytes.
        Some(unsafe { std::slice::from_raw_parts(room.start.as_ptr(), bytes) })
    }

    /// Returns this part, or `None` if the memory is the caller's again, or ends before.
    pub fn part_mut<'b>(&self, room: &'b mut Room, at: usize, bytes: usize) -> Option<&'b mut [u8]> {
        if !self.0.is_in(room.loan) || at.checked_add(bytes).is_none_or(|end| end > room.bytes) {
            return None;
        }
        // SAFETY: the memory is lent for writing, nothing else uses it while the room is borrowed, and it has these bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(room.start.as_ptr().add(at), bytes) })
    }
}

/// Returns the memory at the end of the call, also if it panics.
struct Loan<'a, O: ?Sized, D: FnMut(&mut O)> {
    lent: &'a Lent,
    owner: &'a mut O,
    discard: D,
}

impl<O: ?Sized, D: FnMut(&mut O)> Drop for Loan<'_, O, D> {
    fn drop(&mut self) {
        self.lent.start.store(ptr::null_mut(), Relaxed);
        self.lent.changes.fetch_add(1, Relaxed);
        if self.lent.uses.load(Relaxed) > 0 {
            (self.discard)(self.owner);
        }
        if self.lent.uses.load(Relaxed) > 0 {
            std::process::abort();
        }
    }
}

/// Lends memory to an endpoint, into which a body is read.
#[derive(Debug, Clone)]
pub struct Lender(Arc<Lent>);

impl Lender {
    /// Lends memory to the endpoint while `work` runs. If a read has not ended then, `discard` is called, which drops the
    /// endpoint: there is no other way to keep the provider from writing to memory that is the caller's again.
    ///
    /// Ends the process if a read goes on in spite of that.
    pub fn lend<O: ?Sized, T>(
        &self,
        room: &mut [u8],
        owner: &mut O,
        discard: impl FnMut(&mut O),
        work: impl FnOnce(&mut O) -> T,
    ) -> T {
        self.0.lend((room.as_mut_ptr(), room.len()), owner, discard, work)
    }
}

/// Lends memory to an endpoint, which peers read.
#[derive(Debug, Clone)]
pub struct SourceLender(Arc<Lent>);

impl SourceLender {
    /// Lends memory to the endpoint while `work` runs. If peers may read it still, `discard` is called, which drops the endpoint:
    /// there is no other way to keep the provider from sending what the caller writes there afterwards.
    ///
    /// Ends the process if the memory is used in spite of that.
    pub fn lend<O: ?Sized, T>(
        &self,
        source: &[u8],
        owner: &mut O,
        discard: impl FnMut(&mut O),
        work: impl FnOnce(&mut O) -> T,
    ) -> T {
        self.0.lend((source.as_ptr().cast_mut(), source.len()), owner, discard, work)
    }
}

impl Endpoint {
    /// Returns what lends memory to this endpoint for a body that is read.
    pub fn lender(&self) -> Lender {
        Lender(self.lent.clone())
    }

    /// Returns what lends memory to this endpoint for peers.
    pub fn source_lender(&self) -> SourceLender {
        SourceLender(self.lent_source.clone())
    }

    /// Makes the place of a body in the memory that is lent. Returns `None` if none is lent, the body is longer, or the memory
    /// has a place already.
    pub fn make_place_in_room(&mut self, bytes: usize) -> Result<Option<PlaceId>, ReadError> {
        let loan = self.lent.changes.load(Relaxed);
        let Some((start, _)) = self.lent.take(bytes) else { return Ok(None) };
        let registration = self.register_body(start.as_ptr(), bytes).map_err(ReadError::Failed)?;
        Ok(Some(self.add_place(Vec::new(), start.as_ptr(), bytes, registration, Some(loan))))
    }

    /// Returns the loan of memory for peers that lasts, and the length of the memory.
    pub fn source_loan(&self) -> Option<(LentRegionId, usize)> {
        let lent = &self.lent_source;
        let is_lent = !lent.start.load(Relaxed).is_null();
        is_lent.then(|| (LentRegionId(lent.changes.load(Relaxed)), lent.bytes.load(Relaxed)))
    }

    /// Registers the memory that is lent for peers, from `offset` on, so that they can read it until [`Endpoint::unregister`].
    /// Returns `None` if none is lent, it is registered already, or it ends there.
    pub fn register_lent(&mut self, offset: usize) -> Result<Option<RegionId>, Failure> {
        let Some((start, bytes)) = self.lent_source.take(offset + 1) else { return Ok(None) };
        // SAFETY: the memory is longer.
        let start = unsafe { start.add(offset) };
        let region = self.register(Memory::lent(start, bytes - offset))?;
        self.lent_source.use_begins();
        Ok(Some(region))
    }
}
