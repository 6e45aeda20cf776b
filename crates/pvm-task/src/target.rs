//! Where a one-call receive puts the body of its message.
use crate::message::Message;
use pvm_fmp::{Arrival, BodyInTransit, NotTaken};

/// The place for the message of a one-call receive (`pvm_precv`).
pub(crate) trait Target {
    /// Takes a body out of shared memory. Returns its full length; `None` if there is no message (yet).
    fn take(&mut self, wid: i32, body: Arrival<'_>) -> Option<usize>;
    /// Takes the body of a queued message.
    fn take_queued(&mut self, message: &Message);
    /// Returns memory into which a body may be read, if there is any.
    fn room(&mut self) -> Option<&mut [u8]> {
        None
    }
    /// Returns whether the target takes this body, which has just arrived; otherwise the message is queued.
    #[inline(always)]
    fn accepts(&mut self, _body: &Arrival<'_>) -> bool {
        true
    }
    /// Returns whether the target takes a queued message with a body of that length; otherwise the message stays queued.
    #[inline(always)]
    fn accepts_queued(&mut self, _bytes: usize) -> bool {
        true
    }
}

/// Memory of the caller. It receives the first bytes of a body, as many as fit.
impl Target for [u8] {
    #[inline]
    fn take(&mut self, _wid: i32, body: Arrival<'_>) -> Option<usize> {
        match body {
            Arrival::Inline(inline) => {
                inline.copy_to(self);
                Some(inline.len())
            }
            Arrival::Remote(remote) => {
                let count = remote.len().min(self.len());
                remote.read(0, &mut self[..count]);
                Some(remote.len())
            }
            Arrival::InTransit(body) => take_in_transit(body, self),
        }
    }

    #[inline]
    fn take_queued(&mut self, message: &Message) {
        let count = message.len().min(self.len());
        message.copy_out(0, &mut self[..count]);
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }
}

/// Copies a body in transit to `data`. Returns the full length; `None` if there is no message (yet).
fn take_in_transit(body: BodyInTransit<'_>, data: &mut [u8]) -> Option<usize> {
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
