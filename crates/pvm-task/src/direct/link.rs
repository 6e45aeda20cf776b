//! This side of a direct link.
//!
//! Each side sends a hello once it has the link and its program calls the library. A side that has received the peer's
//! hello knows that the peer will read from the link. It sends one last message on the default route, the *route
//! switch*, and all later messages on the link. The peer reads messages from the link once the route switch has
//! arrived. Thus no message overtakes an earlier one, and neither side waits.
//!
//! Each message acknowledges how many messages its sender has received. A side that receives much and sends nothing
//! sends an acknowledgement without a message from time to time. Unacknowledged messages stay in the send queue, see
//! `fallback`.
use super::send_queue::{QueuedBody, QueuedMessage, SendQueue};
use super::stall::Stall;
use super::{Body, UNCOPIED_BYTES_MIN};
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::types::Filter;
use pvm_core::proto::Direct;
use pvm_core::tid::Tid;
use pvm_fmp::{Meta, count_copy};
use pvm_net::{Carried, Identity, KeyPair, Link, LinkError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How many header words travel with a message.
const WORDS: usize = 5;
/// A body is read in steps of this size, in bytes.
const GROWTH_BYTES: usize = 256 << 10;
/// The most memory that is reserved for a body before its first byte has arrived, in bytes: the announced length may be
/// false.
const RESERVED_BYTES: usize = 16 << 20;
/// The most messages that are read from one link before other links are polled.
const MESSAGES_IN_TURN_MAX: usize = 64;
/// After this many bytes of bodies have been read from one link, other links are polled.
const BYTES_IN_TURN_MAX: usize = 4 << 20;
/// How long a receive waits for the next bytes of a message that it reads into the receiver's memory.
const STALL_TIME_MAX: Duration = Duration::from_millis(2);

/// After receiving this many bytes or this many messages, a side sends an acknowledgement without a message.
const ACKNOWLEDGED_BYTES: usize = 256 << 10;
const ACKNOWLEDGED_MESSAGES: u32 = 256;
/// If the send queue has grown by this many bytes or this many messages, acknowledgements are read, even if the program
/// receives nothing.
const UNPOLLED_BYTES_MAX: usize = 512 << 10;
const UNPOLLED_MESSAGES_MAX: usize = 512;

/// The length of a message's header: the header words and the acknowledgement, in bytes.
const HEADER_BYTES: usize = 4 * (WORDS + 1);
/// The longest frame: a header and a body, in bytes.
const FRAME_BYTES_MAX: usize = i32::MAX as usize + HEADER_BYTES;

mod kind {
    /// Hello: the sender has the link and reads from it.
    pub const HELLO: u8 = 1;
    /// A message. Header: context, tag, wait id, encoding, format; how many messages the sender has received.
    pub const MESSAGE: u8 = 2;
    /// An acknowledgement. Header: how many messages the sender has received.
    pub const ACKNOWLEDGEMENT: u8 = 3;
}

/// A message that has been read completely.
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

/// A receive that waits, with memory for its message.
pub(crate) struct PostedReceive<'a> {
    pub filter: &'a Filter,
    pub own: i32,
    pub room: &'a mut [u8],
    /// Returns whether a message must not be given to a receive, for example because a handler takes it.
    pub is_intercepted: &'a dyn Fn(&Envelope) -> bool,
    /// The envelope and the length of the received message, if one was received.
    pub found: Option<(Envelope, usize)>,
}

/// A message that has been read in part.
struct PartialMessage {
    meta: Meta,
    bytes: usize,
    body: Vec<u8>,
}

/// This side of a direct link.
pub(crate) struct DirectLink {
    pub peer: Tid,
    connection: Link,
    /// Whether this side sends the first hello.
    is_caller: bool,
    hello_sent: bool,
    hello_received: bool,
    /// Whether this side sends its messages on the link.
    pub carries: bool,
    /// Whether the peer's route switch has arrived: then the peer sends its messages on the link.
    peer_switched: bool,
    partial: Option<PartialMessage>,
    /// How many messages of this link have been delivered to the program's message queue or receive. A message that has
    /// only been read from the socket does not count.
    received: Rc<Cell<u32>>,
    /// How many of these messages have been acknowledged, and how many bytes were received since then.
    reported: u32,
    unreported_bytes: usize,
    /// The header of a partly written message, and how many bytes of header and body have been written.
    header: Vec<u8>,
    written: usize,
    /// How many bytes have been written since the link began.
    total_written: u64,
    pub queue: SendQueue,
    /// The size of the send queue, in bytes and in messages, when acknowledgements were last read.
    polled_at: (usize, usize),
    /// Whether the peer does not read at the moment.
    blocked: bool,
    stall: Stall,
    /// Whether a write to the connection has failed: then no more can be written.
    write_failed: bool,
    /// Whether this side has stopped reading from the connection.
    pub read_closed: bool,
    /// Whether this side falls back to the default route: there it first sends the messages of its send queue, then new
    /// ones.
    pub falling_back: bool,
    /// Whether the fallback message has been sent to the peer.
    pub fallback_sent: bool,
    /// Whether there may be more to read even if the socket is not reported readable.
    pub has_more: bool,
    /// The events that epoll watches for on the socket.
    pub watched: PollFlags,
}

/// The result of reading a link.
#[derive(Default)]
pub(crate) struct ReadOutcome {
    pub messages: usize,
    /// Whether the peer's hello has arrived.
    pub usable: bool,
}

impl DirectLink {
    /// Takes over a socket that the daemons have connected.
    pub fn new(direct: &Direct, socket: OwnedFd) -> Result<DirectLink, LinkError> {
        let mut connection = match &direct.secret {
            None => Link::clear(socket),
            Some(secret) => {
                // Both sides have the same key, which only they know.
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
            is_caller: direct.calls,
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

    /// Returns whether this side can switch its messages to the link, because the peer reads from it.
    pub fn may_switch(&self) -> bool {
        self.hello_received && !self.carries && !self.falling_back
    }

    /// Returns whether this side does not use the link yet, but may do so later.
    pub fn has_pending(&self) -> bool {
        !self.carries && !self.falling_back
    }

    /// Returns the counter of received messages.
    pub fn received_count(&self) -> Rc<Cell<u32>> {
        self.received.clone()
    }

    /// Handles the peer's route switch.
    pub fn on_route_switch(&mut self) {
        self.peer_switched = true;
        self.has_more = true;
    }

    /// Returns whether messages are read from the link, because all earlier ones have arrived on the default route.
    pub fn is_reading(&self) -> bool {
        self.peer_switched && !self.read_closed
    }

    /// Returns whether the fallback message has still to be sent.
    pub fn owes_fallback(&self) -> bool {
        self.falling_back && !self.fallback_sent
    }

    /// Returns the events to watch for on the socket. Messages must not be read before the peer's route switch.
    pub fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.read_closed && (!self.hello_received || self.peer_switched));
        flags.set(PollFlags::OUT, !self.is_flushed());
        flags
    }

    // ----- receiving

    /// Adds the messages that have arrived to `arrived`. After an error, no more messages arrive; the messages that
    /// were read before the error are in `arrived`.
    pub fn read(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        posted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if self.read_closed {
            return Ok(());
        }
        self.flush();
        // A due acknowledgement is not sent at once but at the next read: until then a message of this side may carry
        // it.
        self.acknowledge_if_due();
        self.read_frames(arrived, posted, outcome)
    }

    fn read_frames(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        mut posted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if !self.hello_sent {
            if !self.connection.handshake()? {
                return Ok(());
            }
            self.connection.trust_as_it_is();
            if self.is_caller {
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
                (kind::ACKNOWLEDGEMENT, _) if head.body_bytes == 0 => {
                    let count = head.header().try_into().map_err(|_| LinkError::Malformed)?;
                    self.on_acknowledgement(u32::from_le_bytes(count))?;
                }
                (kind::MESSAGE, Ok(header)) => {
                    let (words, count) = parts_of(header);
                    self.on_acknowledgement(count)?;
                    self.partial = Some(PartialMessage { meta: words, bytes: head.body_bytes, body: Vec::new() });
                    // Only the first message of this poll can go directly to the receiver's memory: if there was one
                    // before, it may be the message for which the receive waits.
                    if let Some(posted) = posted.as_deref_mut().filter(|_| messages == 0) {
                        self.read_posted(posted)?;
                        if posted.found.is_some() {
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

    /// Sends the hello. The called side waits for the hello of the calling side first: until then the peer's daemon may
    /// still read from the connection.
    fn send_hello(&mut self) -> Result<(), LinkError> {
        self.hello_sent = true;
        self.connection.send(kind::HELLO, &[], &[])
    }

    /// Goes on reading the partial message. Returns the message when it is complete.
    fn continue_message(&mut self) -> Result<Option<LinkMessage>, LinkError> {
        let Some(PartialMessage { meta, bytes, body }) = &mut self.partial else { return Ok(None) };
        let (meta, bytes) = (*meta, *bytes);
        let mut done = bytes - self.connection.body_left();
        while done < bytes {
            let room = bytes.min(done + GROWTH_BYTES);
            let reserved = bytes.min(RESERVED_BYTES.max(2 * room));
            if body.capacity() < room && body.try_reserve_exact(reserved - body.len()).is_err() {
                // The rest of the body stays in the socket until there is memory.
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
        Ok(self.partial.take().map(|partial| LinkMessage { peer: self.peer, meta, body: partial.body }))
    }

    /// Reads the body of the next message directly into the memory of the posted receive, if the receive accepts it. If
    /// the next bytes are late, copies the bytes read so far into the partial message; the remaining bytes are then
    /// read as for any other message.
    fn read_posted(&mut self, posted: &mut PostedReceive<'_>) -> Result<(), LinkError> {
        let Some(PartialMessage { meta, bytes, body }) = &mut self.partial else { return Ok(()) };
        let envelope = envelope(self.peer, posted.own, *meta);
        let fits = accepts(posted.filter, envelope.src, envelope.tag, envelope.ctx) && *bytes <= posted.room.len();
        if !fits || (posted.is_intercepted)(&envelope) {
            return Ok(());
        }
        let (bytes, mut done) = (*bytes, 0);
        while done < bytes {
            let count = self.connection.take(&mut posted.room[done..bytes])?;
            done += count;
            let stalls = count == 0 && !ready(&self.connection, PollFlags::IN, STALL_TIME_MAX);
            // If there is no memory for a copy, the receive waits for the remaining bytes.
            if stalls && body.try_reserve_exact(bytes).is_ok() {
                count_copy(done);
                body.extend_from_slice(&posted.room[..done]);
                return Ok(());
            }
        }
        self.partial = None;
        self.count_received(bytes);
        posted.found = Some((envelope, bytes));
        Ok(())
    }

    /// Counts a message that has been delivered to the program's message queue or receive.
    pub fn count_received(&mut self, bytes: usize) {
        self.received.set(self.received.get().wrapping_add(1));
        self.unreported_bytes += bytes;
        if bytes >= UNCOPIED_BYTES_MIN {
            self.acknowledge_if_due();
        }
    }

    /// Handles an acknowledgement.
    fn on_acknowledgement(&mut self, count: u32) -> Result<(), LinkError> {
        // A side that falls back ignores acknowledgements on the link, since it sends the queued messages by the
        // default route.
        if self.falling_back || self.queue.acknowledge(count) { Ok(()) } else { Err(LinkError::Malformed) }
    }

    /// Returns whether the link has ended without loss: the peer has exited, and all its messages on the link have
    /// arrived.
    pub fn has_ended(&self) -> bool {
        self.connection.has_ended() && !self.write_failed && self.hello_received
    }

    /// Returns whether the peer's hello has arrived. Before that, the peer can neither have sent nor read messages.
    pub fn is_established(&self) -> bool {
        self.hello_received
    }

    /// Ends the connection for all processes that hold it, the daemons among them.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.connection, Shutdown::Both);
    }

    // ----- sending

    /// Writes as many queued bytes as the socket takes. A connection that fails to write may still be readable.
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

    /// Returns whether nothing waits to be written.
    pub fn is_flushed(&self) -> bool {
        self.is_send_closed() || (!self.connection.wants_write() && self.queue.all_written())
    }

    /// Returns whether this side writes nothing to the connection any more.
    pub fn is_send_closed(&self) -> bool {
        self.write_failed || self.falling_back
    }

    /// Returns whether the connection has failed and the fallback has not begun.
    pub fn is_broken(&self) -> bool {
        self.write_failed && !self.falling_back
    }

    /// Returns a count that changes whenever the socket has taken bytes.
    pub fn progress(&self) -> u64 {
        self.total_written.wrapping_sub(self.connection.queued_bytes() as u64)
    }

    /// Returns the header that [`DirectLink::write_header`] writes.
    #[cfg(any(test, fuzzing))]
    pub fn header(meta: Meta, bytes: usize, received: u32) -> Vec<u8> {
        let mut head = Vec::new();
        DirectLink::write_header(meta, bytes, received, &mut head);
        head
    }

    /// Appends the header of a message to `into`: `bytes` is the length of its body, `received` is how many messages
    /// have been received so far, which acknowledges them.
    pub fn write_header(meta: Meta, bytes: usize, received: u32, into: &mut Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        let words = meta.into_iter().take(WORDS).chain([received]);
        for (place, word) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Link::write_frame_head(kind::MESSAGE, &header, bytes, into);
    }

    /// Writes as much of the next message as the socket takes. Returns whether the socket has taken all of it.
    pub fn write(&mut self, meta: Meta, body: Body<'_>) -> bool {
        if self.is_send_closed() {
            return false;
        }
        if self.header.is_empty() {
            (self.reported, self.unreported_bytes) = (self.received.get(), 0);
            DirectLink::write_header(meta, body.len(), self.reported, &mut self.header);
        }
        let whole = self.header.len() + body.len();
        while self.written < whole {
            let lead = &self.header[self.written.min(self.header.len())..];
            let offset = self.written.saturating_sub(self.header.len());
            // Whether in clear or encrypted, the bytes are read where they lie, without a copy.
            match body.with_rest(lead, offset, |parts| self.connection.try_write(parts)) {
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

    /// Sends an acknowledgement if one is due and no message is partly written.
    pub fn acknowledge_if_due(&mut self) {
        let received = self.received.get();
        let much = self.unreported_bytes >= ACKNOWLEDGED_BYTES
            || received.wrapping_sub(self.reported) >= ACKNOWLEDGED_MESSAGES;
        if much && self.header.is_empty() && !self.is_send_closed() {
            (self.reported, self.unreported_bytes) = (received, 0);
            self.write_failed = self.connection.send(kind::ACKNOWLEDGEMENT, &received.to_le_bytes(), &[]).is_err();
        }
    }

    /// Adds a message to the send queue. `written`: whether the socket has taken the whole message.
    pub fn enqueue(&mut self, message: QueuedMessage, written: bool) {
        self.blocked |= !written;
        self.queue.push(message, written);
    }

    /// Returns whether acknowledgements should be read now. A task that only sends would otherwise not read them.
    pub fn should_poll(&mut self) -> bool {
        let (bytes, messages) = (self.queue.bytes(), self.queue.len());
        // If messages have been acknowledged since then, the queue may be shorter than `polled_at`.
        self.polled_at = (self.polled_at.0.min(bytes), self.polled_at.1.min(messages));
        let much =
            bytes - self.polled_at.0 >= UNPOLLED_BYTES_MAX || messages - self.polled_at.1 >= UNPOLLED_MESSAGES_MAX;
        if much {
            self.polled_at = (bytes, messages);
        }
        much && !self.read_closed
    }

    /// Returns whether the peer does not read at the moment. If so, a sender does not wait, but queues its message.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns how much the connection has carried, as far as the system reports it.
    pub fn carried(&self) -> Carried {
        self.connection.carried().unwrap_or_default()
    }

    /// Returns whether the connection has ended before the peer's route switch. If the peer lost the link before it
    /// read this side's hello, it sends no fallback message. This side does not read from the link yet, so it notices
    /// the end of the connection only here.
    pub fn has_ended_before_switch(&self) -> bool {
        if !self.hello_received || self.peer_switched || self.read_closed || self.falling_back {
            return false;
        }
        let connection = &mut [PollFd::new(&self.connection, PollFlags::RDHUP)];
        rustix::event::poll(connection, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Returns whether the connection has carried nothing for too long. `waits`: whether this task waits for the last
    /// messages of a peer that has exited; if so, received bytes count as progress, too.
    pub fn has_stalled(&mut self, waits: bool, now: Instant) -> bool {
        if self.read_closed || (self.queue.is_empty() && !waits) {
            self.stall.reset();
            return false;
        }
        let carried = self.carried();
        self.stall.is_expired(carried, waits, now)
    }
}

/// Returns the header words of a message, and how many messages its sender has received.
fn parts_of(header: &[u8; HEADER_BYTES]) -> (Meta, u32) {
    let mut words = header.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
    let mut meta = Meta::default();
    meta.iter_mut().zip(words.by_ref().take(WORDS)).for_each(|(word, value)| *word = value);
    (meta, words.next().expect("one more"))
}

/// Waits until the socket is ready. Returns `false` if the time is over first.
fn ready(link: &Link, flags: PollFlags, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let result = rustix::event::poll(&mut [PollFd::new(link, flags)], Some(&timeout));
    // An interruption by a signal is no stall.
    result != Ok(0)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
