//! One end of a direct link.
//!
//! Each side says hello when it has the link and is in the library. Who has heard the other's hello
//! knows that what it sends will be read. It puts a last message on the default route, the *turn*,
//! and sends all that follows on the link; the other side reads the link when the turn has come to
//! it. So nothing overtakes what went before, and nobody waits for anybody.
//!
//! Each message says how many the sender has taken in from the other side; one who takes in much and sends nothing
//! says so by itself now and then. What has not been acknowledged is kept, see `back`.
use super::send_queue::{QueuedBody, QueuedMessage, SendQueue};
use super::stall::Stall;
use super::{Body, LENT_BYTES_MIN};
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::types::Filter;
use pvm_core::proto::Direct;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::{Carried, Identity, KeyPair, Link, LinkError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Words of a message's envelope that travel with it.
const WORDS: usize = 5;
/// Bytes of a body for which memory is made ready at a time.
const GROWTH_BYTES: usize = 256 << 10;
/// Bytes of a body for which memory is reserved before any have come: what its head says may be false.
const RESERVED_BYTES: usize = 16 << 20;
/// Messages taken from one link before others have their turn.
const MESSAGES_IN_TURN_MAX: usize = 64;
/// Bytes of long messages taken from one link before others have their turn.
const BYTES_IN_TURN_MAX: usize = 4 << 20;
/// How long a receive waits for the next bytes of a message that goes straight to where it belongs.
const STALL_TIME_MAX: Duration = Duration::from_millis(2);

/// So much is taken in before it is acknowledged by itself, in bytes and in messages.
const ACKNOWLEDGED_BYTES: usize = 256 << 10;
const ACKNOWLEDGED_MESSAGES: u32 = 256;
/// What is kept is seen through for what has been acknowledged whenever it has grown by so much, in bytes and in messages.
const SEEN_BYTES: usize = 512 << 10;
const SEEN_MESSAGES: usize = 512;

/// Bytes of a message's header: the words of the envelope, and what is acknowledged.
const HEADER_BYTES: usize = 4 * (WORDS + 1);
/// The longest frame: a body, and the words before it.
const FRAME_BYTES_MAX: usize = i32::MAX as usize + HEADER_BYTES;

mod kind {
    /// The sender has the link, and reads it.
    pub const HELLO: u8 = 1;
    /// Header: context, tag, wait id, encoding, format; how many messages the sender has taken in.
    pub const MESSAGE: u8 = 2;
    /// Header: how many messages the sender has taken in.
    pub const TAKEN: u8 = 3;
}

/// A message that has come as a whole.
pub(crate) struct LinkMessage {
    pub peer: Tid,
    pub meta: Meta,
    pub body: Vec<u8>,
}

impl LinkMessage {
    pub fn envelope(&self, own: i32) -> Envelope {
        envelope(self.peer, own, self.meta)
    }
}

fn envelope(peer: Tid, own: i32, meta: Meta) -> Envelope {
    let [ctx, tag, wid, enc, format, _] = meta.map(|word| word as i32);
    Envelope { src: peer.0 as i32, dst: own, ctx, tag, wid, enc, format }
}

/// Somebody waits for a message, and has room for it.
pub(crate) struct PostedReceive<'a> {
    pub filter: &'a Filter,
    pub own: i32,
    pub room: &'a mut [u8],
    /// Whether a message is nobody's to receive.
    pub is_intercepted: &'a dyn Fn(&Envelope) -> bool,
    /// The words of the message that came, and its length.
    pub found: Option<(Envelope, usize)>,
}

/// A message of which a part has come.
struct PartialMessage {
    meta: Meta,
    bytes: usize,
    body: Vec<u8>,
}

/// One end of a direct link.
pub(crate) struct DirectLink {
    pub peer: Tid,
    connection: Link,
    /// This side begins.
    calls: bool,
    hello_sent: bool,
    hello_received: bool,
    /// What is sent goes this way.
    pub carries: bool,
    /// The other side's turn has come: what it sends comes this way.
    peer_switched: bool,
    partial: Option<PartialMessage>,
    /// Messages that are in the receiver's hands, not only read.
    received: Rc<Cell<u32>>,
    /// What the other side has been told of that, and bytes taken in since.
    reported: u32,
    unreported_bytes: usize,
    /// The beginning of the message of which a part has been sent, and how many bytes of it and its body have.
    header: Vec<u8>,
    written: usize,
    /// All bytes sent.
    total_written: u64,
    pub queue: SendQueue,
    /// How much was kept, in bytes and in messages, when it was seen through.
    polled_at: (usize, usize),
    /// The other side takes nothing at the moment.
    blocked: bool,
    stall: Stall,
    /// Nothing can be sent any more.
    write_failed: bool,
    /// Nothing more is read.
    pub read_closed: bool,
    /// What is sent goes by the default route again, as soon as what was kept has gone.
    pub falling_back: bool,
    /// The other side has been told so.
    pub fallback_sent: bool,
    /// There is more to read than was taken.
    pub has_more: bool,
    /// What is watched for on the socket.
    pub watched: PollFlags,
}

/// What a look at a link has brought.
#[derive(Default)]
pub(crate) struct ReadOutcome {
    pub messages: usize,
    /// The other side has said hello.
    pub usable: bool,
}

impl DirectLink {
    pub fn new(direct: &Direct, socket: OwnedFd) -> Result<DirectLink, LinkError> {
        let mut connection = match &direct.secret {
            None => Link::clear(socket),
            Some(secret) => {
                // Both sides have the same key, and nobody else has it.
                let pair = KeyPair::from_secret(secret);
                let public = pair.public();
                let identity = Identity::new(pair);
                identity.known().add(public);
                match direct.calls {
                    true => Link::secure_to(socket, &identity, public)?,
                    false => Link::secure_from(socket, &identity)?,
                }
            }
        };
        connection.set_frame_bytes_max(FRAME_BYTES_MAX);
        connection.set_queued_bytes_max(usize::MAX);
        Ok(DirectLink {
            peer: direct.peer,
            connection,
            calls: direct.calls,
            hello_sent: false,
            hello_received: false,
            carries: false,
            peer_switched: false,
            partial: None,
            received: Rc::default(),
            reported: 0,
            unreported_bytes: 0,
            header: Vec::new(),
            written: 0,
            total_written: 0,
            queue: SendQueue::default(),
            polled_at: (0, 0),
            blocked: false,
            stall: Stall::default(),
            write_failed: false,
            read_closed: false,
            falling_back: false,
            fallback_sent: false,
            has_more: false,
            watched: PollFlags::empty(),
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Whether the other side is known to read the link, and has yet to be told that all comes this
    /// way from now on.
    pub fn may_switch(&self) -> bool {
        self.hello_received && !self.carries && !self.falling_back
    }

    /// Whether it may come to be used.
    pub fn has_pending(&self) -> bool {
        !self.carries && !self.falling_back
    }

    /// Counts the messages taken in.
    pub fn received_count(&self) -> Rc<Cell<u32>> {
        self.received.clone()
    }

    /// The other side's turn has come.
    pub fn on_route_switch(&mut self) {
        self.peer_switched = true;
        self.has_more = true;
    }

    /// Whether what comes is read: what came before on the default route is there.
    pub fn is_reading(&self) -> bool {
        self.peer_switched && !self.read_closed
    }

    /// Whether the other side has yet to be told that what is sent does not come here any more.
    pub fn owes_fallback(&self) -> bool {
        self.falling_back && !self.fallback_sent
    }

    /// What is to be watched for on the socket. Before the turn what comes must not be read.
    pub fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.read_closed && (!self.hello_received || self.peer_switched));
        flags.set(PollFlags::OUT, !self.is_flushed());
        flags
    }

    // ----- receiving

    /// Takes what has come. After an error nothing more comes; what came before is among `arrived`.
    pub fn read(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        wanted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if self.read_closed {
            return Ok(());
        }
        self.flush();
        // Not as soon as it was taken in: then an answer may carry it.
        self.acknowledge_if_due();
        self.read_frames(arrived, wanted, outcome)
    }

    fn read_frames(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        mut wanted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if !self.hello_sent {
            if !self.connection.handshake()? {
                return Ok(());
            }
            self.connection.trust_as_it_is();
            if self.calls {
                self.send_hello()?;
            }
        }
        self.has_more = false;
        let (mut messages, mut bytes) = (0, 0);
        while messages < MESSAGES_IN_TURN_MAX && bytes < BYTES_IN_TURN_MAX {
            if self.partial.is_some() {
                let Some(whole) = self.continue_message()? else { return Ok(()) };
                messages += 1;
                bytes += whole.body.len();
                outcome.messages += 1;
                arrived.extend([whole]);
                continue;
            }
            if self.hello_received && !self.peer_switched {
                return Ok(());
            }
            let Some(head) = self.connection.receive()? else { return Ok(()) };
            match (head.kind, <&[u8; HEADER_BYTES]>::try_from(head.header())) {
                (kind::HELLO, _) if !self.hello_received && head.body_bytes == 0 => {
                    self.hello_received = true;
                    outcome.usable = true;
                    if !self.hello_sent {
                        self.send_hello()?;
                    }
                }
                (kind::TAKEN, _) if head.body_bytes == 0 => {
                    let count = head.header().try_into().map_err(|_| LinkError::Malformed)?;
                    self.on_acknowledgement(u32::from_le_bytes(count))?;
                }
                (kind::MESSAGE, Ok(header)) => {
                    let (words, count) = parts_of(header);
                    self.on_acknowledgement(count)?;
                    self.partial = Some(PartialMessage { meta: words, bytes: head.body_bytes, body: Vec::new() });
                    // One that came before may be what is waited for.
                    if let Some(wanted) = wanted.as_deref_mut().filter(|_| messages == 0) {
                        self.read_posted(wanted)?;
                        if wanted.found.is_some() {
                            self.has_more = self.connection.has_unread();
                            return Ok(());
                        }
                    }
                }
                _ => return Err(LinkError::Malformed),
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// The one who was called waits for the caller's: before, the caller's daemon may still read from
    /// the connection.
    fn send_hello(&mut self) -> Result<(), LinkError> {
        self.hello_sent = true;
        self.connection.send(kind::HELLO, &[], &[])
    }

    /// Goes on with the current message; gives it when it is whole.
    fn continue_message(&mut self) -> Result<Option<LinkMessage>, LinkError> {
        let Some(PartialMessage { meta, bytes, body }) = &mut self.partial else { return Ok(None) };
        let (meta, bytes) = (*meta, *bytes);
        let mut done = bytes - self.connection.body_left();
        while done < bytes {
            let room = bytes.min(done + GROWTH_BYTES);
            let reserved = bytes.min(RESERVED_BYTES.max(2 * room));
            if body.capacity() < room && body.try_reserve_exact(reserved - body.len()).is_err() {
                // It stays in the socket until there is memory.
                return Ok(None);
            }
            body.resize(room, 0);
            match self.connection.take(&mut body[done..room])? {
                0 => {
                    body.truncate(done);
                    return Ok(None);
                }
                count => done += count,
            }
        }
        body.truncate(bytes);
        Ok(self.partial.take().map(|current| LinkMessage { peer: self.peer, meta, body: current.body }))
    }

    /// Reads the message that begins to where somebody waits for it, if it fits there. When its bytes
    /// keep one waiting it becomes one like the others.
    fn read_posted(&mut self, wanted: &mut PostedReceive<'_>) -> Result<(), LinkError> {
        let Some(PartialMessage { meta, bytes, body }) = &mut self.partial else { return Ok(()) };
        let envelope = envelope(self.peer, wanted.own, *meta);
        let fits = accepts(wanted.filter, envelope.src, envelope.tag, envelope.ctx) && *bytes <= wanted.room.len();
        if !fits || (wanted.is_intercepted)(&envelope) {
            return Ok(());
        }
        let (bytes, mut done) = (*bytes, 0);
        while done < bytes {
            let count = self.connection.take(&mut wanted.room[done..bytes])?;
            done += count;
            let stalls = count == 0 && !ready(&self.connection, PollFlags::IN, STALL_TIME_MAX);
            // Without memory for a copy it stays where it is.
            if stalls && body.try_reserve_exact(bytes).is_ok() {
                body.extend_from_slice(&wanted.room[..done]);
                return Ok(());
            }
        }
        self.partial = None;
        self.count_received(bytes);
        wanted.found = Some((envelope, bytes));
        Ok(())
    }

    /// A message is in the receiver's hands.
    pub fn count_received(&mut self, bytes: usize) {
        self.received.set(self.received.get().wrapping_add(1));
        self.unreported_bytes += bytes;
        if bytes >= LENT_BYTES_MIN {
            self.acknowledge_if_due();
        }
    }

    /// The other side has taken in so many messages.
    fn on_acknowledgement(&mut self, count: u32) -> Result<(), LinkError> {
        // What has gone another way is nobody's to acknowledge here.
        if self.falling_back || self.queue.acknowledge(count) { Ok(()) } else { Err(LinkError::Malformed) }
    }

    /// Why nothing more is read: the other side's task has ended, and all that it sent here has come.
    pub fn has_ended(&self) -> bool {
        self.connection.has_ended() && !self.write_failed && self.hello_received
    }

    /// Whether the other side has said hello: only then it can have sent, or read, anything.
    pub fn is_established(&self) -> bool {
        self.hello_received
    }

    /// Ends the connection for all who hold it, the daemons among them.
    pub fn shut_down(&self) {
        // It may have ended.
        let _ = rustix::net::shutdown(&self.connection, Shutdown::Both);
    }

    // ----- sending

    /// Writes what waits for the socket. A link that takes nothing any more may still have something
    /// to read.
    pub fn flush(&mut self) {
        if self.is_flushed() {
            return;
        }
        let before = self.progress();
        self.write_failed = self.connection.flush().is_err();
        let mut taken = true;
        while let Some(message) = self.queue.next_unwritten().filter(|_| taken) {
            let (meta, body) = (message.meta, std::mem::replace(&mut message.body, QueuedBody::Bytes(Vec::new())));
            taken = self.write(meta, body.body());
            self.queue.next_unwritten().expect("it is still there").body = body;
            if taken {
                self.queue.mark_written();
            }
        }
        self.blocked &= self.progress() == before;
        self.acknowledge_if_due();
    }

    /// Whether nothing waits for the socket.
    pub fn is_flushed(&self) -> bool {
        self.is_send_closed() || (!self.connection.wants_write() && self.queue.all_written())
    }

    /// Whether nothing is sent here any more.
    pub fn is_send_closed(&self) -> bool {
        self.write_failed || self.falling_back
    }

    /// Whether it is of no use any more, and that has not been seen to.
    pub fn is_broken(&self) -> bool {
        self.write_failed && !self.falling_back
    }

    /// Changes when something that was sent has gone to the socket.
    pub fn progress(&self) -> u64 {
        self.total_written.wrapping_sub(self.connection.queued_bytes() as u64)
    }

    /// [`DirectLink::write_header`] by itself.
    #[cfg(any(test, fuzzing))]
    pub fn header(meta: Meta, bytes: usize, taken: u32) -> Vec<u8> {
        let mut head = Vec::new();
        DirectLink::write_header(meta, bytes, taken, &mut head);
        head
    }

    /// Appends the header of a message to `into`: `bytes` is the length of its body, `taken` acknowledges the messages
    /// received so far.
    pub fn write_header(meta: Meta, bytes: usize, taken: u32, into: &mut Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        let words = meta.into_iter().take(WORDS).chain([taken]);
        for (place, word) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Link::write_frame_head(kind::MESSAGE, &header, bytes, into);
    }

    /// Sends as much of the next message as the socket takes. Says whether that was all of it.
    pub fn write(&mut self, meta: Meta, body: Body<'_>) -> bool {
        if self.is_send_closed() {
            return false;
        }
        if self.header.is_empty() {
            (self.reported, self.unreported_bytes) = (self.received.get(), 0);
            DirectLink::write_header(meta, body.len(), self.reported, &mut self.header);
        }
        let whole = self.header.len() + body.len();
        let mut step = Vec::new();
        while self.written < whole {
            let lead = &self.header[self.written.min(self.header.len())..];
            let piece = body.from(self.written.saturating_sub(self.header.len()), &mut step);
            match self.connection.offer(&[lead, piece]) {
                Ok(0) => return false,
                Ok(count) => {
                    self.written += count;
                    self.total_written += count as u64;
                }
                Err(_) => {
                    self.write_failed = true;
                    return false;
                }
            }
        }
        self.header.clear();
        self.written = 0;
        self.blocked = false;
        true
    }

    /// Tells what was taken in if that is much. Not within a message.
    pub fn acknowledge_if_due(&mut self) {
        let taken = self.received.get();
        let much =
            self.unreported_bytes >= ACKNOWLEDGED_BYTES || taken.wrapping_sub(self.reported) >= ACKNOWLEDGED_MESSAGES;
        if much && self.header.is_empty() && !self.is_send_closed() {
            (self.reported, self.unreported_bytes) = (taken, 0);
            self.write_failed = self.connection.send(kind::TAKEN, &taken.to_le_bytes(), &[]).is_err();
        }
    }

    /// A message goes to those that are kept. `written`: the link has taken it.
    pub fn enqueue(&mut self, message: QueuedMessage, written: bool) {
        self.blocked |= !written;
        self.queue.push(message, written);
    }

    /// Whether the acknowledgements are to be read that may have come: who only sends does not read otherwise.
    pub fn should_poll(&mut self) -> bool {
        let (bytes, messages) = (self.queue.bytes(), self.queue.len());
        // Acknowledged since.
        self.polled_at = (self.polled_at.0.min(bytes), self.polled_at.1.min(messages));
        let much = bytes - self.polled_at.0 >= SEEN_BYTES || messages - self.polled_at.1 >= SEEN_MESSAGES;
        if much {
            self.polled_at = (bytes, messages);
        }
        much && !self.read_closed
    }

    /// Whether a sender leaves its message here without waiting.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// What the connection has carried; nothing where it does not say.
    pub fn carried(&self) -> Carried {
        self.connection.carried().unwrap_or_default()
    }

    /// Whether the connection has ended before this side began to read it. The other side may have lost the link before
    /// it read this side's hello; then it sends nothing here, and nothing else tells of the end.
    pub fn has_ended_before_switch(&self) -> bool {
        if !self.hello_received || self.peer_switched || self.read_closed || self.falling_back {
            return false;
        }
        let connection = &mut [PollFd::new(&self.connection, PollFlags::RDHUP)];
        rustix::event::poll(connection, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Whether nothing has got through for too long. `waits`: what comes counts too, for one who waits for the last
    /// words of a task that is dead.
    pub fn has_stalled(&mut self, waits: bool, now: Instant) -> bool {
        if self.read_closed || (self.queue.is_empty() && !waits) {
            self.stall.reset();
            return false;
        }
        let carried = self.carried();
        self.stall.is_expired(carried, waits, now)
    }
}

/// The words of a message, and how many its sender has taken in.
fn parts_of(header: &[u8; HEADER_BYTES]) -> (Meta, u32) {
    let mut words = header.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
    let mut meta = Meta::default();
    meta.iter_mut().zip(words.by_ref().take(WORDS)).for_each(|(word, value)| *word = value);
    (meta, words.next().expect("one more"))
}

/// Waits until the socket is ready; says whether it was in time.
fn ready(link: &Link, flags: PollFlags, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let result = rustix::event::poll(&mut [PollFd::new(link, flags)], Some(&timeout));
    // An interruption is no stall.
    result != Ok(0)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
