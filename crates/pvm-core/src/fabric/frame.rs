//! The frames of a link on a fabric. All numbers are little endian.
//!
//! A frame begins with the link's name, a word with the kind (8 bits), the wishes (8 bits) and the serial number (48 bits),
//! and two counters. An offer continues with the body's length, and the length, address, key and tag of the body's first piece;
//! a further piece with the same. The content follows. A frame with several messages consists of the header and, for each
//! message, a word with its kind (8 bits) and length (24 bits) and what would follow the header in a frame of its own. The
//! first frame of an eager body continues with the lengths of body (64 bits) and content (32 bits), the content, and the
//! first bytes of the body; the others with further bytes. A wanted message is named by how many messages went before it
//! (64 bits), and words that the owners of the link agree on.
use super::transfers::Wishes;

/// The length of a header in bytes, without what an offer adds.
pub const HEADER_BYTES: usize = 24;
/// The length of what an offer adds.
pub const OFFER_BYTES: usize = 32 + PIECE_TAG_BYTES;
/// The length of a piece's tag in bytes.
pub const PIECE_TAG_BYTES: usize = 16;
/// Serial numbers are smaller than this.
const SERIALS: u64 = 1 << 48;
/// The length of what the first frame of an eager body adds.
pub const EAGER_HEAD_BYTES: usize = 12;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole message.
    Short = 1,
    /// A message whose body the receiver reads from the sender's memory.
    Offer = 2,
    /// Counters only; needs no credit.
    Grant = 3,
    /// Counters only.
    Taken = 4,
    /// A further piece of the body that the last offer has begun.
    Piece = 5,
    /// Several messages: short ones and offers.
    Several = 6,
    /// A message with the first bytes of its body.
    Eager = 7,
    /// Further bytes of the body of the last message.
    More = 8,
    /// A receive waits for a message of the other side.
    Wanted = 9,
}

impl Kind {
    fn from_number(number: u64) -> Option<Kind> {
        Some(match number {
            1 => Kind::Short,
            2 => Kind::Offer,
            3 => Kind::Grant,
            4 => Kind::Taken,
            5 => Kind::Piece,
            6 => Kind::Several,
            7 => Kind::Eager,
            8 => Kind::More,
            9 => Kind::Wanted,
            _ => return None,
        })
    }
}

/// The length of the word in front of each of several messages.
pub const PART_HEAD_BYTES: usize = 4;
/// A message among several is shorter than this.
const PART_BYTES_END: usize = 1 << 24;

/// Where a body or a piece of it lies in its sender's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// The length in bytes.
    pub bytes: u64,
    /// The address, as the sender's provider names it.
    pub address: u64,
    /// The key of the memory.
    pub key: u64,
}

/// A piece of a body, as an offer or a frame of its own names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The length of the whole body in bytes.
    pub body_bytes: u64,
    /// Where the piece lies.
    pub place: Offered,
    /// What proves that the piece is the sender's, if bodies are sealed; otherwise zeroes.
    pub tag: [u8; PIECE_TAG_BYTES],
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The name that the receiver has given to the link.
    pub link: u64,
    /// The kind.
    pub kind: Kind,
    /// How the receiver is to send its bodies.
    pub wishes: Wishes,
    /// How many frames went before on this link in this direction.
    pub serial: u64,
    /// How many counted frames the receiver may have sent in all, modulo 2^32.
    pub allowed: u32,
    /// How many pieces the sender has taken, modulo 2^32. A message without body, or with a body of one piece, is one
    /// piece.
    pub taken: u32,
}

impl Header {
    /// Returns the header's bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.link.to_le_bytes());
        let word = (self.kind as u64) << 56 | u64::from(self.wishes.0) << 48 | self.serial % SERIALS;
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.allowed.to_le_bytes());
        bytes[20..].copy_from_slice(&self.taken.to_le_bytes());
        bytes
    }

    /// Splits a frame into header and rest. Returns `None` if it has no valid header.
    pub fn read(frame: &[u8]) -> Option<(Header, &[u8])> {
        let (link, rest) = frame.split_first_chunk()?;
        let (word, rest) = rest.split_first_chunk()?;
        let (allowed, rest) = rest.split_first_chunk()?;
        let (taken, rest) = rest.split_first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let kind = Kind::from_number(word >> 56)?;
        let header = Header {
            link: u64::from_le_bytes(*link),
            kind,
            wishes: Wishes((word >> 48) as u8),
            serial: word % SERIALS,
            allowed: u32::from_le_bytes(*allowed),
            taken: u32::from_le_bytes(*taken),
        };
        Some((header, rest))
    }

    /// Returns the link to which a frame says that it belongs. Nothing else of the frame is checked.
    pub fn link_of(frame: &[u8]) -> Option<u64> {
        frame.first_chunk().map(|link| u64::from_le_bytes(*link))
    }
}

impl Piece {
    /// Returns the only piece of a body that lies there.
    pub fn whole(place: Offered) -> Piece {
        Piece { body_bytes: place.bytes, place, tag: [0; PIECE_TAG_BYTES] }
    }

    /// Returns the bytes that follow the header of an offer.
    pub fn bytes(&self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        let words = [self.body_bytes, self.place.bytes, self.place.address, self.place.key];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..].copy_from_slice(&self.tag);
        bytes
    }

    /// Splits what follows the header of an offer.
    pub fn read(rest: &[u8]) -> Option<(Piece, &[u8])> {
        let (body_bytes, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let [body_bytes, bytes, address, key] = [body_bytes, bytes, address, key].map(|word| u64::from_le_bytes(*word));
        Some((Piece { body_bytes, place: Offered { bytes, address, key }, tag: *tag }, rest))
    }
}

/// Returns what follows the header of an eager body's first frame.
pub fn eager_head(body_bytes: u64, content_bytes: usize) -> [u8; EAGER_HEAD_BYTES] {
    let mut bytes = [0; EAGER_HEAD_BYTES];
    bytes[..8].copy_from_slice(&body_bytes.to_le_bytes());
    bytes[8..].copy_from_slice(&(content_bytes as u32).to_le_bytes());
    bytes
}

/// Splits what follows the header of an eager body's first frame: the length of the body, the content, and the first bytes.
pub fn read_eager(rest: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (body_bytes, rest) = rest.split_first_chunk()?;
    let (content_bytes, rest) = rest.split_first_chunk()?;
    let (content, body) = rest.split_at_checked(u32::from_le_bytes(*content_bytes) as usize)?;
    Some((u64::from_le_bytes(*body_bytes), content, body))
}

/// Returns the word in front of a message of this kind and length among several.
pub fn part_head(kind: Kind, bytes: usize) -> [u8; PART_HEAD_BYTES] {
    assert!(bytes < PART_BYTES_END, "a message in a frame is shorter");
    ((kind as u32) << 24 | bytes as u32).to_le_bytes()
}

/// Splits the first of several messages off: its kind, what would follow its header, and the others.
pub fn read_part(rest: &[u8]) -> Option<(Kind, &[u8], &[u8])> {
    let (word, rest) = rest.split_first_chunk()?;
    let word = u32::from_le_bytes(*word);
    let (part, rest) = rest.split_at_checked(word as usize % PART_BYTES_END)?;
    Some((Kind::from_number((word >> 24).into())?, part, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        for kind in (1..=9).filter_map(Kind::from_number) {
            let (wishes, serial) = (Wishes(0x5a), SERIALS - 2);
            let header = Header { link: u64::MAX - 1, kind, wishes, serial, allowed: u32::MAX, taken: 7 };
            let mut frame = header.bytes().to_vec();
            frame.extend_from_slice(b"content");
            assert_eq!(Header::read(&frame), Some((header, &b"content"[..])));
            assert_eq!(Header::link_of(&frame), Some(header.link));
            assert!((0..HEADER_BYTES).all(|end| Header::read(&frame[..end]).is_none()));
            for wrong in [0, 10, 255] {
                frame[15] = wrong;
                assert_eq!(Header::read(&frame), None);
            }
        }
        let place = Offered { bytes: 1 << 40, address: u64::MAX, key: 3 };
        let piece = Piece { body_bytes: 1 << 41, place, tag: [9; PIECE_TAG_BYTES] };
        let bytes = piece.bytes();
        assert_eq!(Piece::read(&bytes), Some((piece, &[][..])));
        assert!((0..OFFER_BYTES).all(|end| Piece::read(&bytes[..end]).is_none()));
    }

    #[test]
    fn the_first_frame_of_an_eager_body_is_split_as_it_was_put_together() {
        let rest = [&eager_head(1 << 40, 3)[..], b"onetwo"].concat();
        assert_eq!(read_eager(&rest), Some((1 << 40, &b"one"[..], &b"two"[..])));
        assert!((0..EAGER_HEAD_BYTES + 3).all(|end| read_eager(&rest[..end]).is_none()));
    }

    #[test]
    fn several_messages_are_told_apart() {
        let several = [&part_head(Kind::Short, 3)[..], b"one", &part_head(Kind::Offer, 0)].concat();
        let (kind, part, rest) = read_part(&several).unwrap();
        assert_eq!((kind, part), (Kind::Short, &b"one"[..]));
        assert_eq!(read_part(rest), Some((Kind::Offer, &[][..], &[][..])));
        assert!((0..7).all(|end| read_part(&several[..end]).is_none()));
        assert_eq!(read_part(&[0, 0, 0, 10]), None);
    }
}
