//! Taking bodies that senders offer in their own memory.
use crate::buffers::Store;
use crate::message::Large;
use pvm_fmp::{BodyInTransit, NotTaken};

/// Takes an offer into `data`. Returns the full length; `None` if there is no message (yet).
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

/// Takes an offer into memory of the task, for a receive that has ended.
#[cold]
pub(crate) fn keep_offer(offer: BodyInTransit<'_>, store: &mut Store) -> Option<Large> {
    // Without memory the offer is dropped. The sender then sends the body through its heap.
    let mut data = store.take_spare(offer.len());
    data.try_reserve_exact(offer.len()).ok()?;
    match offer.take_all(&mut data) {
        Ok(()) => Some(Large::Bytes(data)),
        Err(NotTaken::Eager(remote)) => Some(Large::Remote(remote)),
        Err(NotTaken::Later | NotTaken::Lost) => None,
    }
}
