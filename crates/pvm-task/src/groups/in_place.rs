//! Shares that are used in place, without a copy.
use crate::message::{Large, Message};
use crate::target::Target;
use pvm_fmp::{Arrival, BodyInTransit, INLINE_BYTES_MAX, NotTaken, Remote};

/// A share that is used piece by piece where the sender has put it. The receiver needs no memory for it and makes no
/// copy.
pub struct InPlace<'a> {
    bytes: usize,
    done: usize,
    each: &'a mut dyn FnMut(usize, *const u8, usize),
}

impl<'a> InPlace<'a> {
    /// Returns a place for a share of `bytes` bytes. For each piece of the share, in order, `each` is called with the
    /// offset of the piece in the share (a multiple of 64), a pointer to the piece, and its length. The piece can be
    /// read only during the call; a sender that breaks the rules may change it meanwhile. A share of another length, or
    /// a failure in place of a share, is not used at all. If the sender dies while it sends its share, a part of the
    /// share may have been used, but no share is received.
    pub fn new(bytes: usize, each: &'a mut dyn FnMut(usize, *const u8, usize)) -> InPlace<'a> {
        InPlace { bytes, done: 0, each }
    }

    /// Returns the length of the share in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn fits(&self, wid: i32, len: usize) -> bool {
        wid >= 0 && len == self.bytes
    }

    /// Uses the part of a complete body that was not used while the sender was still writing the body.
    fn use_slice(&mut self, body: &[u8]) {
        let rest = &body[self.done..];
        (self.each)(self.done, rest.as_ptr(), rest.len());
        self.done = body.len();
    }

    fn use_remote(&mut self, remote: &Remote) {
        remote.use_pieces(&mut self.done, self.each);
    }

    fn use_in_transit(&mut self, body: BodyInTransit<'_>) -> Option<usize> {
        let len = body.len();
        match body.use_pieces(&mut self.done, self.each) {
            Ok(()) => Some(len),
            Err(NotTaken::Eager(remote)) => {
                self.use_remote(&remote);
                Some(len)
            }
            Err(NotTaken::Later | NotTaken::Lost) => None,
        }
    }
}

impl Target for InPlace<'_> {
    fn take(&mut self, wid: i32, body: Arrival<'_>) -> Option<usize> {
        match body {
            Arrival::Inline(inline) => {
                let mut body = [0u8; INLINE_BYTES_MAX];
                let len = inline.copy_to(&mut body);
                if self.fits(wid, len) {
                    self.use_slice(&body[..len]);
                }
                Some(len)
            }
            Arrival::Remote(remote) => {
                if self.fits(wid, remote.len()) {
                    self.use_remote(&remote);
                }
                Some(remote.len())
            }
            Arrival::InTransit(body) if self.fits(wid, body.len()) => self.use_in_transit(body),
            Arrival::InTransit(body) => Target::take(&mut [][..], wid, Arrival::InTransit(body)),
        }
    }

    fn take_queued(&mut self, message: &Message) {
        if !self.fits(message.wid, message.len()) {
            return;
        }
        match &message.large {
            Large::None => self.use_slice(&message.small),
            Large::Bytes(bytes) => self.use_slice(bytes),
            Large::Remote(remote) => self.use_remote(remote),
            Large::Blocks(_) | Large::Cell(_) | Large::Pieces(_) => {
                debug_assert!(false, "bodies of buffers, not of what came");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(wid: i32, body: Large) -> Message {
        Message { wid, large: body, ..Message::vacant() }
    }

    /// Returns the offsets and lengths of the pieces that are used.
    fn used(message: &Message, bytes: usize, done: usize) -> Vec<(usize, usize)> {
        let mut pieces = Vec::new();
        let mut each = |at: usize, _: *const u8, bytes: usize| pieces.push((at, bytes));
        let mut share = InPlace { done, ..InPlace::new(bytes, &mut each) };
        share.take_queued(message);
        pieces
    }

    #[test]
    fn a_queued_share_is_used_from_where_its_use_stopped() {
        assert_eq!(used(&message(0, Large::Bytes(vec![0; 1000])), 1000, 0), [(0, 1000)]);
        assert_eq!(used(&message(0, Large::Bytes(vec![0; 1000])), 1000, 640), [(640, 360)]);
        assert_eq!(used(&Message { small: vec![0; 8], ..message(0, Large::None) }, 8, 0), [(0, 8)]);
    }

    #[test]
    fn another_length_or_a_failure_is_not_used() {
        assert!(used(&message(0, Large::Bytes(vec![0; 1000])), 999, 0).is_empty());
        assert!(used(&message(0, Large::Bytes(vec![0; 1000])), 1001, 0).is_empty());
        assert!(used(&message(-5, Large::Bytes(vec![0; 1000])), 1000, 0).is_empty());
    }
}
