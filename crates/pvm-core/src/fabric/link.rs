//! One side of a link.
use super::frame::{HEADER_BYTES, Header, Kind, OFFER_BYTES, Offered};
use super::introduction::Introduction;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// How many uncounted frames of one side can be under way: a grant is sent only after half of the credits have been
/// used since the last one, and the peer cannot use more than all of them without having read a grant.
pub const UNCOUNTED_MAX: u32 = 2;

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
    /// A message has arrived: its content, and the body if it was offered. The messages are in the sender's order.
    Message {
        /// What the sender passed as content.
        content: Vec<u8>,
        /// The body that was read from the sender's memory.
        body: Option<Vec<u8>>,
    },
    /// The body of the message with this number is to be read, and passed to [`Link::body_arrived`]. If it cannot be
    /// read, the link is to be ended: the sender then still has the message.
    Read(u64, Offered),
    /// The peer has taken all messages with smaller numbers; the memory of their bodies is free.
    Taken(u64),
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

/// What a peer may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The bytes are no frame of this link.
    NoFrame,
    /// A frame came twice, or its number is beyond those for which the sender had credits.
    Serial,
    /// A frame without credit.
    NoCredit,
    /// A grant that grants too little, or more than there are buffers.
    Grant,
    /// It reports messages as taken that were not sent.
    Taken,
    /// It offers a body that is longer than any.
    Length,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::NoFrame => "the bytes are no frame",
            Violation::Serial => "a frame came twice or far too early",
            Violation::NoCredit => "a frame without credit",
            Violation::Grant => "a wrong grant",
            Violation::Taken => "messages were reported as taken that were not sent",
            Violation::Length => "a body that is too long",
        })
    }
}

impl std::error::Error for Violation {}

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
    /// For a body that is read: where it lies, until it is there.
    awaited: Option<Offered>,
    body: Option<Vec<u8>>,
}

/// One side of a link. Numbers of frames and messages count from the first one on.
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
    kept: VecDeque<Message>,
    in_flight: usize,
    /// How many messages the peer has taken.
    taken_by_peer: u64,

    /// Frames and counted frames that have arrived, without those in `early`.
    frames_received: u64,
    counted_received: u64,
    /// What the peer was told it may send, and how many messages it was told we have taken.
    told_allowed: u64,
    told_taken: u64,
    /// How many messages were delivered, and how many may be.
    taken: u64,
    deliverable: u64,
    /// Whether the peer is to be told soon what we have taken.
    owes_taken: bool,
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
            taken_by_peer: 0,
            frames_received: 0,
            counted_received: 0,
            told_allowed: ours.credits.into(),
            told_taken: 0,
            taken: 0,
            deliverable: u64::MAX,
            owes_taken: false,
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
        let limit = match message {
            Message::Short(_) => self.short_bytes_max(0),
            Message::Long(..) => self.offer_content_bytes_max(0),
        };
        let (Message::Short(content) | Message::Long(content, _)) = &message;
        assert!(content.len() <= limit, "the content fits a frame");
        self.kept.push_back(message);
        self.taken_by_peer + self.kept.len() as u64 - 1
    }

    /// Returns the next frame, if there is something to send and the peer has a buffer for it.
    pub fn ready(&self) -> Option<Ready<'_>> {
        let has_credit = self.counted_sent < self.allowed;
        let grant = || (self.grantable() >= self.grant_step()).then_some(Kind::Grant);
        let kind = match self.kept.get(self.in_flight) {
            Some(Message::Short(_)) if has_credit => Kind::Short,
            Some(Message::Long(..)) if has_credit => Kind::Offer,
            _ if has_credit && self.owes_taken => grant().unwrap_or(Kind::Taken),
            _ => grant()?,
        };
        let header = Header {
            link: self.peer_link,
            kind,
            serial: self.frames_sent,
            allowed: (self.counted_received + u64::from(self.credits)) as u32,
            taken: self.taken as u32,
        };
        let mut ready = Ready {
            head: [0; HEADER_BYTES + OFFER_BYTES],
            head_bytes: HEADER_BYTES,
            content: &[],
            serial: self.frames_sent,
        };
        ready.head[..HEADER_BYTES].copy_from_slice(&header.bytes());
        match (kind, self.kept.get(self.in_flight)) {
            (Kind::Short, Some(Message::Short(content))) => ready.content = content,
            (Kind::Offer, Some(Message::Long(content, offered))) => {
                ready.head[HEADER_BYTES..].copy_from_slice(&offered.bytes());
                ready.head_bytes += OFFER_BYTES;
                ready.content = content;
            }
            _ => {}
        }
        Some(ready)
    }

    /// Records that the frame of [`Link::ready`] was sent.
    pub fn sent(&mut self) {
        let Some(ready) = self.ready() else { return };
        let kind = Header::read(ready.head()).map(|(header, _)| header.kind);
        self.frames_sent += 1;
        self.counted_sent += u64::from(kind != Some(Kind::Grant));
        self.in_flight += usize::from(matches!(kind, Some(Kind::Short | Kind::Offer)));
        self.told_allowed = self.counted_received + u64::from(self.credits);
        self.told_taken = self.taken;
        self.owes_taken = false;
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
        self.owes_taken |= self.taken > self.told_taken;
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
            Kind::Short => self.arrivals.push_back(Arrival { content: rest.to_vec(), awaited: None, body: None }),
            Kind::Offer => {
                let (offered, content) = Offered::read(rest).ok_or(Violation::NoFrame)?;
                if offered.bytes > self.body_bytes_max {
                    return Err(Violation::Length);
                }
                let number = self.taken + self.arrivals.len() as u64;
                self.arrivals.push_back(Arrival { content: content.to_vec(), awaited: Some(offered), body: None });
                self.events.push_back(Event::Read(number, offered));
            }
            Kind::Taken | Kind::Grant => {}
        }
        self.deliver();
        Ok(())
    }

    /// Takes over the counters of a frame. Returns how many further frames it allows.
    fn take_counters(&mut self, header: &Header) -> Result<u64, Violation> {
        let further = u64::from(header.allowed.wrapping_sub(self.allowed as u32));
        if self.allowed + further > self.counted_sent + u64::from(self.peer_credits) {
            return Err(Violation::Grant);
        }
        let taken = u64::from(header.taken.wrapping_sub(self.taken_by_peer as u32));
        if taken > self.in_flight as u64 {
            return Err(Violation::Taken);
        }
        self.allowed += further;
        if taken > 0 {
            self.kept.drain(..taken as usize);
            self.in_flight -= taken as usize;
            self.taken_by_peer += taken;
            self.events.push_back(Event::Taken(self.taken_by_peer));
        }
        Ok(further)
    }

    /// Records that the body of a message was read.
    pub fn body_arrived(&mut self, number: u64, body: Vec<u8>) {
        let index = number.checked_sub(self.taken).and_then(|index| usize::try_from(index).ok());
        if let Some(arrival) = index.and_then(|index| self.arrivals.get_mut(index)) {
            if arrival.awaited.take().is_some() {
                arrival.body = Some(body);
            }
        }
        self.deliver();
    }

    /// Delivers only so many messages of the peer until [`Link::release`]. Later ones wait, and do not count as taken.
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
        let is_complete = |arrival: &Arrival| arrival.awaited.is_none();
        while self.taken < self.deliverable && self.arrivals.front().is_some_and(is_complete) {
            let Some(arrival) = self.arrivals.pop_front() else { return };
            self.taken += 1;
            // The peer waits for this report before it can use the body's memory again.
            self.owes_taken |= arrival.body.is_some();
            self.events.push_back(Event::Message { content: arrival.content, body: arrival.body });
        }
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
        Untaken { first: self.taken_by_peer, messages: self.kept.into() }
    }
}
