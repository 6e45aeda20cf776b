//! Frames and pieces of bodies that only the two tasks of a link can read.
use pvm_core::fabric::{HEADER_BYTES, Header, Link};
use pvm_net::{SECRET_BYTES, Seal, TAG_BYTES};

/// How many bytes longer a sealed frame is.
pub(super) const FRAME_SEAL_BYTES: usize = TAG_BYTES;
/// Numbers of pieces are distinguished from those of frames by this bit.
const OF_PIECE: u64 = 1 << 63;

/// The secrets of a link, which the daemons give to both tasks. One for each direction, so that no number is used twice
/// with one of them.
pub struct Secrets {
    /// Seals what this task sends.
    pub sending: [u8; SECRET_BYTES],
    /// Seals what the peer sends.
    pub receiving: [u8; SECRET_BYTES],
}

pub(super) struct Seals {
    sending: Seal,
    receiving: Seal,
}

impl Seals {
    pub fn new(secrets: &Secrets) -> Seals {
        Seals { sending: Seal::new(&secrets.sending, true), receiving: Seal::new(&secrets.receiving, true) }
    }

    /// Seals a frame in place. The header stays readable, and cannot be changed.
    pub fn seal_frame(&self, serial: u64, frame: &mut Vec<u8>) {
        self.sending.seal(serial, HEADER_BYTES, frame);
    }

    /// Opens a frame in place. Returns `None` if it is not the peer's, or a repetition by somebody else.
    pub fn open_frame<'a>(&self, frame: &'a mut [u8], link: &Link) -> Option<&'a [u8]> {
        let (header, _) = Header::read(frame)?;
        if !link.awaits(header.serial) {
            return None;
        }
        let bytes = self.receiving.open(header.serial, HEADER_BYTES, frame)?.len();
        Some(&frame[..HEADER_BYTES + bytes])
    }

    /// Seals a piece of a body in place, and returns its tag, which travels in the frame.
    pub fn seal_piece(&self, number: u64, piece: &mut [u8]) -> [u8; TAG_BYTES] {
        self.sending.seal_apart(OF_PIECE | number, piece)
    }

    /// Opens a piece in place. Returns false if it is not the peer's.
    pub fn open_piece(&self, number: u64, tag: [u8; TAG_BYTES], piece: &mut [u8]) -> bool {
        // Nothing was sealed if there is nothing; the frame has said so.
        piece.is_empty() || self.receiving.open_apart(OF_PIECE | number, tag, piece)
    }
}
