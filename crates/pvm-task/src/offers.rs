//! Taking bodies that senders offer in their own memory.
use crate::buffers::Store;
use crate::message::Large;
use pvm_fmp::{BodyInTransit, NotTaken};

/// Takes an offer into `data`; the true length, or `None` when there is no message (yet).
pub(crate) fn take_offer(offer: BodyInTransit<'_>, data: &mut [u8]) -> Option<usize> {
    let len = offer.len();
    let count = len.min(data.len());
    match offer.take(&mut data[..count]) {
        Ok(()) => Some(len),
        Err(NotTaken::Eager(remote)) => {
            remote.read(0, &mut data[..count.min(remote.len())]);
            Some(remote.len())
        }
        Err(NotTaken::Later | NotTaken::Lost) => None,
    }
}

/// Takes an offer for which nobody waits any more.
#[cold]
pub(crate) fn keep_offer(offer: BodyInTransit<'_>, store: &mut Store) -> Option<Large> {
    // Without memory the offer is dropped; then the body comes again through the sender's heap.
    let mut data = store.take_spare(offer.len());
    data.try_reserve_exact(offer.len()).ok()?;
    match offer.take_all(&mut data) {
        Ok(()) => Some(Large::Bytes(data)),
        Err(NotTaken::Eager(remote)) => Some(Large::Remote(remote)),
        Err(NotTaken::Later | NotTaken::Lost) => None,
    }
}
