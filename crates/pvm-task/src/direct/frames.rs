//! The frames of direct links (`docs/protocols/direct-links.md`).
use crate::message::BODY_BYTES_MAX;
use pvm_fmp::Meta;
use pvm_net::{Head, Lead};

/// How many header words travel with a message.
const WORDS: usize = 5;
/// The length of the header of a message that is in one frame, in bytes: the header words and the acknowledgement.
const MESSAGE_BYTES: usize = 4 * (WORDS + 1);
/// The length of the header of a message's first frame, in bytes: as above, and the length of the whole body.
const BEGINNING_BYTES: usize = MESSAGE_BYTES + 4;
/// The most bytes of a body in one frame. Between two frames, a side can send what does not belong to the message. A
/// body is read in steps of this size, so shorter frames would cost more system calls.
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// The longest frame, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = CHUNK_BYTES_MAX + BEGINNING_BYTES;

/// The kinds of frames.
mod kind {
    pub const HELLO: u8 = 1;
    pub const MESSAGE: u8 = 2;
    pub const ACKNOWLEDGEMENT: u8 = 3;
    pub const BEGINNING: u8 = 4;
    pub const CONTINUATION: u8 = 5;
    pub const GRANT: u8 = 6;
    pub const LEAVING: u8 = 7;
}

/// A frame, without the bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The sender has the link and reads from it. The other side may send this number of bytes of long messages before
    /// the first grant.
    Hello { up_to: u64 },
    /// A message, or its first bytes: its header words, the number of messages that the sender has received, and the
    /// length of its body. The frame ends with the first `first` bytes of the body.
    Message { meta: Meta, received: u32, bytes: usize, first: usize },
    /// The next bytes of the message that has begun.
    Continuation { bytes: usize },
    /// How many messages the sender has received.
    Acknowledgement { received: u32 },
    /// How many bytes of long messages the other side may have sent in all.
    Grant { up_to: u64 },
    /// Later messages of the sender take the default route, until its next route switch there.
    Leaving,
}

impl Frame {
    /// Returns the frame that begins in this way, or `None` if no frame does.
    pub fn read(head: &Head) -> Option<Frame> {
        let body_bytes = head.body_bytes;
        match (head.kind, head.header()) {
            (kind::HELLO, header) if body_bytes == 0 => Some(Frame::Hello { up_to: u64_of(header)? }),
            (kind::MESSAGE, header) if header.len() == MESSAGE_BYTES => {
                let (meta, received, _) = words_of(header);
                Some(Frame::Message { meta, received, bytes: body_bytes, first: body_bytes })
            }
            (kind::BEGINNING, header) if header.len() == BEGINNING_BYTES => {
                let (meta, received, bytes) = words_of(header);
                let bytes = usize::try_from(bytes?).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?;
                (body_bytes < bytes).then_some(Frame::Message { meta, received, bytes, first: body_bytes })
            }
            (kind::CONTINUATION, []) if body_bytes > 0 => Some(Frame::Continuation { bytes: body_bytes }),
            (kind::ACKNOWLEDGEMENT, header) if body_bytes == 0 => {
                Some(Frame::Acknowledgement { received: u32::from_le_bytes(header.try_into().ok()?) })
            }
            (kind::LEAVING, []) if body_bytes == 0 => Some(Frame::Leaving),
            (kind::GRANT, header) if body_bytes == 0 => Some(Frame::Grant { up_to: u64_of(header)? }),
            _ => None,
        }
    }

    /// Returns the beginning of the frame, which the bytes of the body follow.
    pub fn lead(&self) -> Lead {
        match *self {
            Frame::Hello { up_to } => Lead::new(kind::HELLO, &up_to.to_le_bytes(), 0),
            Frame::Message { meta, received, bytes, first } if bytes == first => {
                Lead::new(kind::MESSAGE, &header_of(meta, received, bytes)[..MESSAGE_BYTES], first)
            }
            Frame::Message { meta, received, bytes, first } => {
                Lead::new(kind::BEGINNING, &header_of(meta, received, bytes), first)
            }
            Frame::Continuation { bytes } => Lead::new(kind::CONTINUATION, &[], bytes),
            Frame::Acknowledgement { received } => Lead::new(kind::ACKNOWLEDGEMENT, &received.to_le_bytes(), 0),
            Frame::Grant { up_to } => Lead::new(kind::GRANT, &up_to.to_le_bytes(), 0),
            Frame::Leaving => Lead::new(kind::LEAVING, &[], 0),
        }
    }
}

fn u64_of(header: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(header.try_into().ok()?))
}

/// Returns the header words of a message, how many messages its sender has received, and the word behind these.
fn words_of(header: &[u8]) -> (Meta, u32, Option<u32>) {
    let mut words = header.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
    let mut meta = Meta::default();
    meta.iter_mut().zip(words.by_ref().take(WORDS)).for_each(|(word, value)| *word = value);
    (meta, words.next().unwrap_or_default(), words.next())
}

fn header_of(meta: Meta, received: u32, bytes: usize) -> [u8; BEGINNING_BYTES] {
    let mut header = [0; BEGINNING_BYTES];
    let words = meta.into_iter().take(WORDS).chain([received, bytes as u32]);
    for (place, word) in header.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
