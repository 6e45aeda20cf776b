//! One side of a link.
mod receiving;
mod sending;
#[cfg(test)]
mod tests;
mod wanting;

use super::frame::{HEADER_BYTES, Header, Kind, OFFER_BYTES, Offered, PIECE_TAG_BYTES, Piece};
use super::introduction::Introduction;
use super::transfers::{EAGER_BYTES_MAX, Transfer, Wishes};
use super::violation::Violation;
pub use receiving::BodyMemory;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

/// How many uncounted frames of one side can be under way: a grant is sent only after half of the credits have been
/// used since the last one, and the peer cannot use more than all of them without having read a grant.
pub const UNCOUNTED_MAX: u32 = 2;
/// After this many pieces, the sender is told that they were taken even while more are arriving.
pub const PIECES_UNTOLD_MAX: u64 = 8;
/// After this many bytes of pieces, a sender that makes more of them is told, too. It has memory for more.
pub const UNTOLD_BYTES_MAX: u64 = 512 << 10;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The whole message.
    Short(Vec<u8>),
    /// The message without its body, and where the body lies.
    Long(Vec<u8>, Offered),
}

/// The body of a message that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrivedBody {
    /// There is none beside the content.
    None,
    /// All its pieces were read.
    Read,
    /// It came in frames.
    Here(Vec<u8>),
    /// It came in frames, and the owner of the link has placed it ([`BodyMemory`]).
    Placed {
        /// Its length.
        bytes: usize,
    },
}

/// Bytes of an eager body that travel in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyPart {
    /// How many bytes of the body went before.
    pub at: usize,
    /// Their number.
    pub bytes: usize,
    /// Whether these are the last ones.
    pub is_last: bool,
}

/// What the owner of a link is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message has arrived. The messages are in the sender's order.
    Message {
        /// How many messages went before.
        number: u64,
        /// What the sender passed as content.
        content: Vec<u8>,
        /// Its body.
        body: ArrivedBody,
    },
    /// The first frame of a message with a body has arrived.
    Begun {
        /// How many messages went before.
        message: u64,
        /// The length of the body.
        bytes: u64,
        /// How it comes.
        transfer: Transfer,
    },
    /// There is no memory for an eager body. The link is to be ended.
    NoMemory,
    /// A piece is to be read. Pieces of one body come in the order of their places in it. If one cannot be read, the link
    /// is to be ended: the sender then still has the message.
    Read(ToRead),
    /// The peer has taken all messages with smaller numbers; the memory of their bodies is free.
    Taken(u64),
}

/// A piece to read. Its end is to be passed to [`Link::piece_arrived`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToRead {
    /// The number of the message.
    pub message: u64,
    /// The number of the piece: as many pieces went before on this link.
    pub number: u64,
    /// Where it lies.
    pub piece: Piece,
}

/// A piece that the owner is to make ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking {
    /// The number of the message.
    pub message: u64,
    /// The number of the piece.
    pub number: u64,
    /// How many bytes of the body went before.
    pub at: u64,
    /// How many bytes are left.
    pub bytes: u64,
}

/// The next frame: parts that are sent one after the other.
#[derive(Debug)]
pub struct Ready<'a> {
    head: [u8; HEADER_BYTES + OFFER_BYTES],
    head_bytes: usize,
    /// What follows the head.
    pub content: &'a [u8],
    /// The bytes that follow the content: a part of the oldest eager body that is not sent.
    pub body: Option<BodyPart>,
    /// The serial number, which no other frame of this side has.
    pub serial: u64,
}

impl Ready<'_> {
    /// Returns the first part.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }
}

/// The messages that a peer may not have, when a link ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Untaken {
    /// The number of the first one: as many messages went before, and the peer has reported them as taken.
    pub first: u64,
    /// The messages, in order.
    pub messages: Vec<Message>,
}

/// A message that has arrived, whose turn has not come.
#[derive(Debug)]
struct Arrival {
    content: Vec<u8>,
    body: ArrivedBody,
    /// The pieces that are still read, by number, with their lengths. An eager body is one piece.
    awaited: BTreeMap<u64, u64>,
    /// How many bytes of the body have not been offered, or have not come.
    bytes_to_come: u64,
    /// The number of its last piece so far; a message without a body has one.
    last_piece: u64,
}

/// A message that the peer has not taken.
#[derive(Debug)]
struct Kept {
    message: Message,
    form: Form,
}

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// In one frame, with an offer of the whole body if there is one.
    Whole,
    /// The owner makes the body ready piece by piece.
    InPieces,
    /// The body follows in frames.
    Eager,
}

/// One side of a link. Numbers of frames, messages and pieces count from the first one on.
#[derive(Debug)]
pub struct Link {
    /// The peer's name for the link.
    peer_link: u64,
    peer_frame_bytes: usize,
    /// How many counted frames the peer lets us have under way, and we it.
    peer_credits: u32,
    credits: u32,
    /// The longest body that is accepted.
    body_bytes_max: u64,

    /// Frames and counted frames that were sent, and the count up to which the peer allows them.
    frames_sent: u64,
    counted_sent: u64,
    allowed: u64,
    /// The messages that the peer has not taken. The first `in_flight` of them are sent.
    kept: VecDeque<Kept>,
    in_flight: usize,
    /// For each of those, how many pieces were sent up to its end.
    ends: VecDeque<u64>,
    pieces_sent: u64,
    /// What the last frame of [`Link::ready`] is: its kind, and the number of messages if there are several, or of bytes of an
    /// eager body.
    prepared: Cell<Option<(Kind, usize)>>,
    /// Several messages, as one frame has them.
    several: Vec<u8>,
    /// Of the first message that is not sent: how many bytes of its body were offered or sent, and the next piece, if it is
    /// ready.
    offered_bytes: u64,
    next_piece: Option<Piece>,
    /// How many messages and pieces the peer has taken.
    taken_by_peer: u64,
    pieces_taken_by_peer: u64,
    /// How the peer is to send its bodies, and how it wishes ours.
    wishes: Wishes,
    wishes_of_peer: Wishes,

    /// Frames, counted frames and pieces that have arrived, without those in `early`.
    frames_received: u64,
    counted_received: u64,
    pieces_received: u64,
    /// What the peer was told it may send, and how many pieces it was told we have taken.
    told_allowed: u64,
    told_taken: u64,
    /// How many messages were delivered, and how many may be.
    taken: u64,
    deliverable: u64,
    /// Whether the peer is to be told soon what we have taken.
    owes_taken: bool,
    /// Whether a piece was taken since the peer was told of the last one, and the bytes of such pieces.
    has_untold_piece: bool,
    untold_bytes: u64,
    /// Frames that have overtaken others, by serial number. Providers that keep the order of messages may still report
    /// the end of a short one before that of a longer one.
    early: BTreeMap<u64, Vec<u8>>,
    arrivals: VecDeque<Arrival>,
    events: VecDeque<Event>,
    /// What this side wants and has not told, and what the peer wants.
    wanted: Option<Vec<u8>>,
    wanted_by_peer: Option<(u64, Vec<u8>)>,
}

impl Link {
    /// Makes this side of a link. `ours` is what the peer was told, `theirs` what it has told. Returns `None` if no message
    /// could ever be sent to it.
    pub fn new(ours: &Introduction, theirs: &Introduction, body_bytes_max: u64) -> Option<Link> {
        // The buffers to send from are as long as those to receive to.
        let peer_frame_bytes = theirs.frame_bytes.min(ours.frame_bytes) as usize;
        if peer_frame_bytes <= HEADER_BYTES + OFFER_BYTES || theirs.credits == 0 || theirs.provider != ours.provider {
            return None;
        }
        Some(Link {
            peer_link: theirs.link,
            peer_frame_bytes,
            peer_credits: theirs.credits,
            credits: ours.credits,
            body_bytes_max,
            frames_sent: 0,
            counted_sent: 0,
            allowed: theirs.credits.into(),
            kept: VecDeque::new(),
            in_flight: 0,
            ends: VecDeque::new(),
            pieces_sent: 0,
            prepared: Cell::new(None),
            several: Vec::new(),
            offered_bytes: 0,
            next_piece: None,
            taken_by_peer: 0,
            pieces_taken_by_peer: 0,
            wishes: Wishes::READ,
            wishes_of_peer: Wishes::READ,
            frames_received: 0,
            counted_received: 0,
            pieces_received: 0,
            told_allowed: ours.credits.into(),
            told_taken: 0,
            taken: 0,
            deliverable: u64::MAX,
            owes_taken: false,
            has_untold_piece: false,
            untold_bytes: 0,
            early: BTreeMap::new(),
            arrivals: VecDeque::new(),
            events: VecDeque::new(),
            wanted: None,
            wanted_by_peer: None,
        })
    }

    /// Returns the length of the longest content of a short message. `seal_bytes` are added to each frame.
    pub fn short_bytes_max(&self, seal_bytes: usize) -> usize {
        self.peer_frame_bytes.saturating_sub(HEADER_BYTES + seal_bytes)
    }

    /// Returns the length of the longest content of an offer.
    pub fn offer_content_bytes_max(&self, seal_bytes: usize) -> usize {
        self.peer_frame_bytes.saturating_sub(HEADER_BYTES + OFFER_BYTES + seal_bytes)
    }

    /// Queues a message, and returns its number. Its content must not be longer than a frame allows.
    pub fn send(&mut self, message: Message) -> u64 {
        self.keep(message, Form::Whole)
    }

    /// Queues a message whose body has this length, at least 1, and is made ready piece by piece ([`Link::lacking`]).
    /// Returns its number.
    pub fn send_in_pieces(&mut self, content: Vec<u8>, body_bytes: u64) -> u64 {
        assert!(body_bytes > 0, "a body has bytes");
        self.keep(Message::Long(content, Offered { bytes: body_bytes, address: 0, key: 0 }), Form::InPieces)
    }

    /// Queues a message whose body has this length, at least 1 and at most [`EAGER_BYTES_MAX`], and travels in frames: the
    /// owner adds it to them ([`Ready::body`]). Returns its number.
    pub fn send_eager(&mut self, content: Vec<u8>, body_bytes: usize) -> u64 {
        assert!((1..=EAGER_BYTES_MAX).contains(&body_bytes), "an eager body has bytes, but not many");
        self.keep(Message::Long(content, Offered { bytes: body_bytes as u64, address: 0, key: 0 }), Form::Eager)
    }

    /// Returns whether the next frame can wait for a message of the owner, which then tells the same: it only grants credits,
    /// and the peer has some.
    pub fn can_wait(&self) -> bool {
        let left = self.told_allowed.saturating_sub(self.counted_received);
        self.is_all_sent() && !self.owes_taken && left > u64::from(self.credits) / 4
    }

    /// Lets the next frames tell the peer how to send its bodies.
    pub fn wish(&mut self, wishes: Wishes) {
        self.wishes = wishes;
    }

    /// Returns how the peer wishes bodies.
    pub fn wishes_of_peer(&self) -> Wishes {
        self.wishes_of_peer
    }

    fn keep(&mut self, message: Message, form: Form) -> u64 {
        let limit = match message {
            Message::Short(_) => self.short_bytes_max(0),
            Message::Long(..) => self.offer_content_bytes_max(0),
        };
        let (Message::Short(content) | Message::Long(content, _)) = &message;
        assert!(content.len() <= limit, "the content fits a frame");
        self.kept.push_back(Kept { message, form });
        self.taken_by_peer + self.kept.len() as u64 - 1
    }

    /// Returns how many pieces were sent.
    pub fn pieces_sent(&self) -> u64 {
        self.pieces_sent
    }

    /// Returns how many pieces the peer has taken: the memory of those with smaller numbers is free.
    pub fn pieces_taken_by_peer(&self) -> u64 {
        self.pieces_taken_by_peer
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns how many messages were delivered.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether everything was handed over to the provider.
    pub fn is_all_sent(&self) -> bool {
        self.in_flight == self.kept.len()
    }

    /// Returns whether the peer has taken everything that was sent.
    pub fn is_all_taken(&self) -> bool {
        self.kept.is_empty()
    }

    /// Ends the link, and returns the messages that the peer may not have.
    pub fn into_untaken(self) -> Untaken {
        Untaken { first: self.taken_by_peer, messages: self.kept.into_iter().map(|kept| kept.message).collect() }
    }
}
