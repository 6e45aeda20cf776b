//! Memory of a caller into which one body is read, for the time of a call: no processor copies the body then.
use super::{Endpoint, PlaceId, ReadError};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// What an endpoint and its [`Lender`]s know of the memory. All are used by the thread that uses the endpoint.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// Null while none is lent, and once a place was made there.
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// How often memory was lent, or returned.
    changes: AtomicU64,
    /// How many reads have begun and not ended that write there.
    reads: AtomicUsize,
}

impl Lent {
    /// Returns whether the memory that was lent in this loan is lent still.
    pub fn is_in(&self, loan: u64) -> bool {
        self.changes.load(Relaxed) == loan
    }

    pub fn read_begins(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    pub fn read_ends(&self) {
        self.reads.fetch_sub(1, Relaxed);
    }

    /// Notes that the provider writes nowhere any more.
    pub fn forget_reads(&self) {
        self.reads.store(0, Relaxed);
    }
}

/// Lends memory to an endpoint.
#[derive(Debug, Clone)]
pub struct Lender(Arc<Lent>);

/// Returns the memory at the end of the call, also if it panics.
struct Loan<'a, O: ?Sized, D: FnMut(&mut O)> {
    lent: &'a Lent,
    owner: &'a mut O,
    discard: D,
}

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
        self.0.changes.fetch_add(1, Relaxed);
        self.0.bytes.store(room.len(), Relaxed);
        self.0.start.store(room.as_mut_ptr(), Relaxed);
        let loan = Loan { lent: &self.0, owner, discard };
        work(&mut *loan.owner)
    }
}

impl<O: ?Sized, D: FnMut(&mut O)> Drop for Loan<'_, O, D> {
    fn drop(&mut self) {
        self.lent.start.store(ptr::null_mut(), Relaxed);
        self.lent.changes.fetch_add(1, Relaxed);
        if self.lent.reads.load(Relaxed) > 0 {
            (self.discard)(self.owner);
        }
        if self.lent.reads.load(Relaxed) > 0 {
            std::process::abort();
        }
    }
}

impl Endpoint {
    /// Returns what lends memory to this endpoint.
    pub fn lender(&self) -> Lender {
        Lender(self.lent.clone())
    }

    /// Makes the place of a body in the memory that is lent. Returns `None` if none is lent, the body is longer, or the memory
    /// has a place already.
    pub fn make_place_in_room(&mut self, bytes: usize) -> Result<Option<PlaceId>, ReadError> {
        let (start, loan) = (self.lent.start.load(Relaxed), self.lent.changes.load(Relaxed));
        if start.is_null() || bytes > self.lent.bytes.load(Relaxed) {
            return Ok(None);
        }
        let registration = self.register_body(start, bytes).map_err(ReadError::Failed)?;
        // No two places have bytes in common.
        self.lent.start.store(ptr::null_mut(), Relaxed);
        Ok(Some(self.add_place(Vec::new(), start, bytes, registration, Some(loan))))
    }
}
