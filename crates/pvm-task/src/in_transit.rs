//! Takes bodies in transit: those of a rendezvous, pipelined bodies, and bodies that the daemon lends.
use crate::message::Large;
use crate::store::Store;
use pvm_fmp::{BodyInTransit, NotTaken};

/// Copies a body in transit to `data`. Returns the full length; `None` if there is no message (yet).
pub(crate) fn take_in_transit(body: BodyInTransit<'_>, data: &mut [u8]) -> Option<usize> {
    let len = body.len();
    let count = len.min(data.len());
    match body.take(&mut data[..count]) {
        Ok(()) => Some(len),
        Err(NotTaken::Eager(remote)) => {
            remote.read(0, &mut data[..count.min(remote.len())]);
            Some(remote.len())
        }
        Err(NotTaken::Later | NotTaken::Lost) => None,
    }
}

/// Keeps a body in transit for a message that goes to the queue or to a receive buffer: copies it to memory of this
/// task, unless the sender has fallen back to eager, or the daemon allows the task to keep it where it lies.
#[cold]
pub(crate) fn keep_in_transit(body: BodyInTransit<'_>, store: &mut Store) -> Option<Large> {
    if let Some(remote) = body.keep() {
        return Some(Large::Remote(remote));
    }
    // If there is no memory, the body is dropped here, and the message arrives again later.
    let mut data = store.take_spare(body.len());
    data.try_reserve_exact(body.len()).ok()?;
    match body.take_all(&mut data) {
        Ok(()) => Some(Large::Bytes(data)),
        Err(NotTaken::Eager(remote)) => Some(Large::Remote(remote)),
        Err(NotTaken::Later | NotTaken::Lost) => None,
    }
}
