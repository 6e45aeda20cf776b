//! One side of a link.
use super::frame::{
    HEADER_BYTES, Header, Kind, OFFER_BYTES, Offered, PART_HEAD_BYTES, PIECE_TAG_BYTES, Piece, part_head, read_part,
};
use super::introduction::Introduction;
use super::violation::Violation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many uncounted frames of one side can be under way: a grant is sent only after half of the credits have been
/// used since the last one, and the peer cannot use more than all of them without having read a grant.
pub const UNCOUNTED_MAX: u32 = 2;
/// After this many pieces, the sender is told that they were taken even while more are arriving. It keeps at least twice as
/// many.
pub const PIECES_UNTOLD_MAX: u64 = 8;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The whole message.
    Short(Vec<u8>),
    /// The message without its body, and where the body lies.
    Long(Vec<u8>, Offered),
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
        /// Whether there is a body; all its pieces were read.
        has_body: bool,
    },
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

/// The next frame: two parts that are sent one after the other.
#[derive(Debug)]
pub struct Ready<'a> {
    head: [u8; HEADER_BYTES + OFFER_BYTES],
    head_bytes: usize,
    /// What follows the head.
    pub content: &'a [u8],
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
    has_body: bool,
    /// The numbers of the pieces that are still read.
    awaited: BTreeSet<u64>,
    /// How many bytes of the body have not been offered yet.
    bytes_to_offer: u64,
    /// The number of its last piece so far; a message without a body has one.
    last_piece: u64,
}

/// A message that the peer has not taken.
#[derive(Debug)]
struct Kept {
    message: Message,
    /// Whether the owner makes the body ready piece by piece.
    is_in_pieces: bool,
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
    /// What the last frame of [`Link::ready`] is: its kind, and the number of messages if there are several.
    prepared: Option<(Kind, usize)>,
    /// Several messages, as one frame has them.
    several: Vec<u8>,
    /// Of the first message that is not sent: how many bytes of its body were, and the next piece, if it is ready.
    offered_bytes: u64,
    next_piece: Option<Piece>,
    /// How many messages and pieces the peer has taken.
    taken_by_peer: u64,
    pieces_taken_by_peer: u64,

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
    /// Whether a piece was taken since the peer was told of the last one.
    has_untold_piece: bool,
    /// Frames that have overtaken others, by serial number. Providers that keep the order of messages may still report
    /// the end of a short one before that of a longer one.
    early: BTreeMap<u64, Vec<u8>>,
    arrivals: VecDeque<Arrival>,
    events: VecDeque<Event>,
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
            prepared: None,
            several: Vec::new(),
            offered_bytes: 0,
            next_piece: None,
            taken_by_peer: 0,
            pieces_taken_by_peer: 0,
            frames_received: 0,
            counted_received: 0,
            pieces_received: 0,
            told_allowed: ours.credits.into(),
            told_taken: 0,
            taken: 0,
            deliverable: u64::MAX,
            owes_taken: false,
            has_untold_piece: false,
            early: BTreeMap::new(),
            arrivals: VecDeque::new(),
            events: VecDeque::new(),
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
        self.keep(message, false)
    }

    /// Queues a message whose body has this length, at least 1, and is made ready piece by piece ([`Link::lacking`]).
    /// Returns its number.
    pub fn send_in_pieces(&mut self, content: Vec<u8>, body_bytes: u64) -> u64 {
        assert!(body_bytes > 0, "a body has bytes");
        self.keep(Message::Long(content, Offered { bytes: body_bytes, address: 0, key: 0 }), true)
    }

    fn keep(&mut self, message: Message, is_in_pieces: bool) -> u64 {
        let limit = match message {
            Message::Short(_) => self.short_bytes_max(0),
            Message::Long(..) => self.offer_content_bytes_max(0),
        };
        let (Message::Short(content) | Message::Long(content, _)) = &message;
        assert!(content.len() <= limit, "the content fits a frame");
        self.kept.push_back(Kept { message, is_in_pieces });
        self.taken_by_peer + self.kept.len() as u64 - 1
    }

    /// Returns the piece that is to be made ready next, if the peer has a buffer for its frame.
    pub fn lacking(&self) -> Option<Lacking> {
        let next = self.kept.get(self.in_flight).filter(|next| next.is_in_pieces && self.next_piece.is_none())?;
        let Message::Long(_, whole) = next.message else { return None };
        (self.counted_sent < self.allowed).then_some(Lacking {
            message: self.taken_by_peer + self.in_flight as u64,
            number: self.pieces_sent,
            at: self.offered_bytes,
            bytes: whole.bytes - self.offered_bytes,
        })
    }

    /// Takes the piece that was lacking, with at least one byte and not more than were left.
    pub fn add_piece(&mut self, place: Offered, tag: [u8; PIECE_TAG_BYTES]) {
        let lacking = self.lacking().expect("a piece is lacking");
        assert!((1..=lacking.bytes).contains(&place.bytes), "the piece fits its body");
        self.next_piece = Some(Piece { body_bytes: lacking.at + lacking.bytes, place, tag });
    }

    /// Returns the next frame, if there is something to send and the peer has a buffer for it. `seal_bytes` are added to
    /// each frame.
    pub fn ready(&mut self, seal_bytes: usize) -> Option<Ready<'_>> {
        let has_credit = self.counted_sent < self.allowed;
        let count = if has_credit { self.gather(self.short_bytes_max(seal_bytes)) } else { 0 };
        let grant = (self.grantable() >= self.grant_step()).then_some(Kind::Grant);
        let kind = match self.next_to_send().filter(|_| has_credit) {
            Some(_) if count > 1 => Kind::Several,
            Some((kind, ..)) => kind,
            None if has_credit && self.owes_taken => grant.unwrap_or(Kind::Taken),
            None => grant?,
        };
        self.prepared = Some((kind, count));
        let (content, piece) = match kind {
            Kind::Several => (&self.several[..], None),
            Kind::Grant | Kind::Taken => (&[][..], None),
            Kind::Short | Kind::Offer | Kind::Piece => {
                self.next_to_send().map(|(_, content, piece)| (content, piece))?
            }
        };
        let header = Header {
            link: self.peer_link,
            kind,
            serial: self.frames_sent,
            allowed: (self.counted_received + u64::from(self.credits)) as u32,
            taken: self.pieces_taken() as u32,
        };
        let mut ready = Ready {
            head: [0; HEADER_BYTES + OFFER_BYTES],
            head_bytes: HEADER_BYTES,
            content,
            serial: self.frames_sent,
        };
        ready.head[..HEADER_BYTES].copy_from_slice(&header.bytes());
        if let Some(piece) = piece {
            ready.head[HEADER_BYTES..].copy_from_slice(&piece.bytes());
            ready.head_bytes += OFFER_BYTES;
        }
        Some(ready)
    }

    /// Puts the next messages together, as many as fit into this many bytes. Returns their number, if there are several;
    /// if not, nothing was done.
    fn gather(&mut self, bytes_max: usize) -> usize {
        let mut count = 0;
        if self.kept.len() < self.in_flight + 2 {
            return count;
        }
        self.several.clear();
        for Kept { message, is_in_pieces } in self.kept.range(self.in_flight..) {
            let (kind, content, piece) = match message {
                Message::Short(content) => (Kind::Short, content, None),
                Message::Long(..) if *is_in_pieces => break,
                Message::Long(content, place) => (Kind::Offer, content, Some(Piece::whole(*place).bytes())),
            };
            let fields = piece.as_ref().map_or(&[][..], |piece| &piece[..]);
            if self.several.len() + PART_HEAD_BYTES + fields.len() + content.len() > bytes_max {
                break;
            }
            self.several.extend_from_slice(&part_head(kind, fields.len() + content.len()));
            self.several.extend_from_slice(fields);
            self.several.extend_from_slice(content);
            count += 1;
        }
        count
    }

    /// Returns what is next of the messages: the kind of its frame, the content, and the piece of a body.
    fn next_to_send(&self) -> Option<(Kind, &[u8], Option<Piece>)> {
        let next = self.kept.get(self.in_flight)?;
        match &next.message {
            Message::Short(content) => Some((Kind::Short, content, None)),
            Message::Long(content, _) if next.is_in_pieces => match self.offered_bytes {
                0 => Some((Kind::Offer, content, Some(self.next_piece?))),
                _ => Some((Kind::Piece, &[], Some(self.next_piece?))),
            },
            Message::Long(content, place) => Some((Kind::Offer, content, Some(Piece::whole(*place)))),
        }
    }

    /// Records that the frame of [`Link::ready`] was sent.
    pub fn sent(&mut self) {
        let Some((kind, count)) = self.prepared.take() else { return };
        self.frames_sent += 1;
        self.counted_sent += u64::from(kind != Kind::Grant);
        match kind {
            Kind::Several => (0..count).for_each(|_| self.message_sent()),
            Kind::Short | Kind::Offer | Kind::Piece => match self.next_piece.take() {
                Some(piece) if self.offered_bytes + piece.place.bytes < piece.body_bytes => {
                    self.offered_bytes += piece.place.bytes;
                    self.pieces_sent += 1;
                }
                _ => self.message_sent(),
            },
            Kind::Grant | Kind::Taken => {}
        }
        self.told_allowed = self.counted_received + u64::from(self.credits);
        self.told_taken = self.pieces_taken();
        self.owes_taken = false;
        self.has_untold_piece &= !self.arrivals.is_empty();
    }

    /// Records that a message, or the last piece of its body, was sent.
    fn message_sent(&mut self) {
        self.pieces_sent += 1;
        self.in_flight += 1;
        self.offered_bytes = 0;
        self.ends.push_back(self.pieces_sent);
    }

    /// How many more frames the peer may be allowed than it knows of.
    fn grantable(&self) -> u64 {
        self.counted_received + u64::from(self.credits) - self.told_allowed
    }

    /// How many further credits are worth a grant. With less than half, more than [`UNCOUNTED_MAX`] could be under way.
    fn grant_step(&self) -> u64 {
        u64::from(self.credits).div_ceil(2)
    }

    /// Lets the next frame report what was taken, even if there is nothing else to send. To be called before the owner
    /// sleeps, so that the peer need not keep its messages.
    pub fn report_taken(&mut self) {
        self.owes_taken |= self.pieces_taken() > self.told_taken;
    }

    /// Does the same if pieces were taken, whose memory the peer would like to use again.
    pub fn report_taken_pieces(&mut self) {
        self.owes_taken |= self.has_untold_piece && self.pieces_taken() > self.told_taken;
    }

    /// Returns how many pieces were taken.
    fn pieces_taken(&self) -> u64 {
        let Some(first) = self.arrivals.front() else { return self.pieces_received };
        match first.awaited.first() {
            Some(awaited) => *awaited,
            None if first.bytes_to_offer > 0 => self.pieces_received,
            // A message that is held does not count as taken.
            None => first.last_piece,
        }
    }

    /// Takes a frame of the peer in. After an error the link is useless.
    pub fn receive(&mut self, frame: &[u8]) -> Result<(), Violation> {
        let (header, _) = Header::read(frame).ok_or(Violation::NoFrame)?;
        if !self.awaits(header.serial) {
            return Err(Violation::Serial);
        }
        if header.serial != self.frames_received {
            self.early.insert(header.serial, frame.to_vec());
            return Ok(());
        }
        self.take(frame)?;
        while let Some(next) = self.early.remove(&self.frames_received) {
            self.take(&next)?;
        }
        Ok(())
    }

    /// Returns whether the frame with this serial number has not arrived yet, and may be under way.
    pub fn awaits(&self, serial: u64) -> bool {
        let end = self.frames_received + u64::from(self.credits + UNCOUNTED_MAX);
        (self.frames_received..end).contains(&serial) && !self.early.contains_key(&serial)
    }

    /// Takes the next frame in.
    fn take(&mut self, frame: &[u8]) -> Result<(), Violation> {
        let (header, rest) = Header::read(frame).ok_or(Violation::NoFrame)?;
        self.frames_received += 1;
        let news = self.take_counters(&header)?;
        if header.kind == Kind::Grant {
            return if news >= u64::from(self.peer_credits).div_ceil(2) { Ok(()) } else { Err(Violation::Grant) };
        }
        if self.counted_received == self.told_allowed {
            return Err(Violation::NoCredit);
        }
        self.counted_received += 1;
        match header.kind {
            Kind::Several => {
                let mut rest = rest;
                while !rest.is_empty() {
                    let (kind, part, after) = read_part(rest).ok_or(Violation::NoFrame)?;
                    self.take_kind(kind, part)?;
                    rest = after;
                }
            }
            Kind::Piece => self.take_piece(Piece::read(rest).ok_or(Violation::NoFrame)?.0, false)?,
            Kind::Taken | Kind::Grant => {}
            kind => self.take_kind(kind, rest)?,
        }
        self.deliver();
        Ok(())
    }

    /// Takes a message in.
    fn take_kind(&mut self, kind: Kind, rest: &[u8]) -> Result<(), Violation> {
        match kind {
            Kind::Short => self.take_message(rest, None),
            Kind::Offer => {
                let (piece, content) = Piece::read(rest).ok_or(Violation::NoFrame)?;
                self.take_message(content, Some(piece))
            }
            _ => Err(Violation::NoFrame),
        }
    }

    /// Takes the content of a message in, and the first piece of its body if it has one.
    fn take_message(&mut self, content: &[u8], piece: Option<Piece>) -> Result<(), Violation> {
        if self.arrivals.back().is_some_and(|last| last.bytes_to_offer > 0) {
            return Err(Violation::Piece);
        }
        let bytes_to_offer = piece.map_or(0, |piece| piece.body_bytes);
        if bytes_to_offer > self.body_bytes_max {
            return Err(Violation::Length);
        }
        let content = content.to_vec();
        self.arrivals.push_back(Arrival {
            content,
            has_body: piece.is_some(),
            awaited: BTreeSet::new(),
            bytes_to_offer,
            last_piece: self.pieces_received,
        });
        match piece {
            Some(piece) => self.take_piece(piece, true),
            None => {
                self.pieces_received += 1;
                Ok(())
            }
        }
    }

    /// Takes a piece of the last message's body in.
    fn take_piece(&mut self, piece: Piece, is_first: bool) -> Result<(), Violation> {
        let message = self.taken + (self.arrivals.len() as u64).saturating_sub(1);
        let last = self.arrivals.back_mut().filter(|last| last.bytes_to_offer > 0 || is_first);
        let last = last.ok_or(Violation::Piece)?;
        let is_empty = piece.place.bytes == 0 && piece.body_bytes > 0;
        last.bytes_to_offer =
            last.bytes_to_offer.checked_sub(piece.place.bytes).filter(|_| !is_empty).ok_or(Violation::Piece)?;
        last.awaited.insert(self.pieces_received);
        last.last_piece = self.pieces_received;
        self.events.push_back(Event::Read(ToRead { message, number: self.pieces_received, piece }));
        self.pieces_received += 1;
        Ok(())
    }

    /// Takes over the counters of a frame. Returns how many further frames it allows.
    fn take_counters(&mut self, header: &Header) -> Result<u64, Violation> {
        let further = u64::from(header.allowed.wrapping_sub(self.allowed as u32));
        if self.allowed + further > self.counted_sent + u64::from(self.peer_credits) {
            return Err(Violation::Grant);
        }
        let taken = u64::from(header.taken.wrapping_sub(self.pieces_taken_by_peer as u32));
        if self.pieces_taken_by_peer + taken > self.pieces_sent {
            return Err(Violation::Taken);
        }
        self.allowed += further;
        self.pieces_taken_by_peer += taken;
        let messages = self.ends.iter().take_while(|end| **end <= self.pieces_taken_by_peer).count();
        if messages > 0 {
            self.ends.drain(..messages);
            self.kept.drain(..messages);
            self.in_flight -= messages;
            self.taken_by_peer += messages as u64;
            self.events.push_back(Event::Taken(self.taken_by_peer));
        }
        Ok(further)
    }

    /// Records that a piece was read.
    pub fn piece_arrived(&mut self, message: u64, number: u64) {
        let index = message.checked_sub(self.taken).and_then(|index| usize::try_from(index).ok());
        let arrival = index.and_then(|index| self.arrivals.get_mut(index));
        if arrival.is_none_or(|arrival| !arrival.awaited.remove(&number)) {
            return;
        }
        self.has_untold_piece = true;
        self.deliver();
        self.owes_taken |= self.pieces_taken() >= self.told_taken + PIECES_UNTOLD_MAX;
    }

    /// Delivers only this number of messages of the peer until [`Link::release`]. Later ones wait, and do not count as taken.
    pub fn hold_after(&mut self, messages: u64) {
        self.deliverable = messages;
    }

    /// Delivers the messages that were held, and later ones.
    pub fn release(&mut self) {
        self.deliverable = u64::MAX;
        self.deliver();
    }

    /// Delivers the messages whose turn has come.
    fn deliver(&mut self) {
        let is_complete = |arrival: &Arrival| arrival.awaited.is_empty() && arrival.bytes_to_offer == 0;
        while self.taken < self.deliverable && self.arrivals.front().is_some_and(is_complete) {
            let Some(Arrival { content, has_body, .. }) = self.arrivals.pop_front() else { return };
            self.events.push_back(Event::Message { number: self.taken, content, has_body });
            self.taken += 1;
        }
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
