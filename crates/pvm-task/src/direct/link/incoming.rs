//! The receiving side of a direct link.
use super::DirectLink;
use crate::direct::frames::{CHUNK_BYTES_MAX, Frame};
use crate::envelope::{Envelope, LinkMessage};
use crate::types::Filter;
use pvm_core::flows::pacing::is_paced;
use pvm_fmp::{Meta, count_copy};
use pvm_net::{Link, LinkError};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

/// The most memory that is reserved for a body before its first byte has arrived, in bytes: the announced length may be
/// false.
const RESERVED_BYTES: usize = 16 << 20;
/// A body of at least this length, in bytes, uses the memory of an earlier one.
const SPARE_BYTES_MIN: usize = 4 << 10;
/// The most messages that are read from one link before other links are polled.
const MESSAGES_IN_TURN_MAX: usize = 64;
/// After this many bytes of bodies have been read from one link, other links are polled.
const BYTES_IN_TURN_MAX: usize = 4 << 20;
/// How long a receive waits for the next bytes of a message that it reads into the receiver's memory.
const STALL_TIME_MAX: Duration = Duration::from_millis(2);
/// While at least this many bytes come between two waits, a receive of a long message spins in the next wait, for this
/// time, before it sleeps.
pub(crate) const FAST_BYTES: usize = 16 << 10;
const SPIN_TIME: Duration = Duration::from_micros(100);

/// The waits of a receive for the next bytes of a long message.
#[derive(Default)]
struct Pause {
    /// How many bytes have come since the last wait.
    bytes: usize,
    /// When this wait has begun, if it spins.
    since: Option<Instant>,
}

impl Pause {
    /// Notes that bytes have come.
    fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.since = None;
    }

    /// Lets other processes run. Returns false if it is time to sleep.
    fn spin(&mut self) -> bool {
        if self.since.is_none() && self.bytes < FAST_BYTES {
            self.bytes = 0;
            return false;
        }
        self.bytes = 0;
        let spins = self.since.get_or_insert_with(Instant::now).elapsed() < SPIN_TIME;
        std::thread::yield_now();
        spins
    }
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

/// When a read of a link ends, although there is more to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Until {
    /// Not before other links have their turn.
    #[default]
    Turn,
    /// As `Turn`, but the link also reads the messages that wait for the peer's route switch
    /// ([`DirectLink::on_route_switch`]). For a send that waits: the peer may wait in a send, too, for this task to read.
    Ahead,
    /// Before the body of a message.
    Body,
    /// As well once this number of messages is acknowledged.
    Acknowledged(u32),
}

/// What a read of a link may do, and what it has done.
#[derive(Default)]
pub(crate) struct ReadOutcome {
    pub messages: usize,
    pub until: Until,
    /// How many bytes of bodies have been read.
    pub bytes: usize,
    /// Memory of an earlier body, with any content, for one that begins. What is left of it.
    pub spare: Vec<u8>,
    /// Whether the peer's hello has arrived.
    pub usable: bool,
}

/// What has arrived of long messages, for the pacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongNews {
    /// A message with this number, of this many bytes, begins.
    Begun(u32, usize),
    /// This many bytes more of the message with this number have arrived.
    Arrived(u32, usize),
}

/// A message that has been read in part.
struct PartialMessage {
    meta: Meta,
    /// The length of the body, in bytes.
    bytes: usize,
    /// How many bytes of the body have been read.
    done: usize,
    /// The first bytes that have been read, and memory for more.
    body: Vec<u8>,
    /// Whether the whole body is in the first frame.
    is_whole: bool,
    /// Whether the body was in the memory of a posted receive and was moved to memory of its own. It stays there.
    was_moved: bool,
    /// The number of the message, and how many of its bytes have been reported to the pacer.
    number: u32,
    counted: usize,
}

/// What has been read from a link.
#[derive(Default)]
pub(crate) struct Incoming {
    partial: Option<PartialMessage>,
    last_number: u32,
    news: Vec<LongNews>,
    /// Whether there was no memory for the rest of the partial message.
    lacks_memory: bool,
    /// Whether a grant has arrived since the last look.
    pub has_grant: bool,
}

impl Incoming {
    /// Notes how much of the partial message has arrived since the last call.
    fn count(&mut self) {
        if let Some(partial) = self.partial.as_mut().filter(|partial| partial.done > partial.counted) {
            let more = partial.done - std::mem::replace(&mut partial.counted, partial.done);
            if is_paced(partial.bytes) {
                self.news.push(LongNews::Arrived(partial.number, more));
            }
        }
    }

    #[cfg(test)]
    pub fn lose_body(&mut self) {
        self.partial.as_mut().expect("a message has begun").body = Vec::new();
    }

    /// Returns whether a message has begun and not ended.
    pub fn has_begun(&self) -> bool {
        self.partial.is_some()
    }

    /// Begins a message.
    fn begin(&mut self, meta: Meta, bytes: usize, first: usize) {
        self.last_number = self.last_number.wrapping_add(1);
        let number = self.last_number;
        if is_paced(bytes) {
            self.news.push(LongNews::Begun(number, bytes));
        }
        self.partial = Some(PartialMessage {
            meta,
            bytes,
            done: 0,
            body: Vec::new(),
            is_whole: bytes == first,
            was_moved: false,
            number,
            counted: 0,
        });
    }

    /// Ends the partial message, which has arrived wholly.
    fn finish(&mut self) -> Option<PartialMessage> {
        self.count();
        self.partial.take()
    }

    /// Returns whether bytes that have been read are not there: a signal handler has left a receive by `longjmp` while
    /// they were in the receiver's memory.
    fn lacks_bytes(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.done > partial.body.len())
    }

    /// Returns how many bytes of the partial message have not been read.
    fn left(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.bytes - partial.done)
    }

    /// Reads what has arrived of the frame's bytes. Returns whether these are all. `spare`: memory for a body that begins.
    fn read_body(&mut self, connection: &mut Link, spare: &mut Vec<u8>) -> Result<bool, LinkError> {
        let Some(PartialMessage { bytes, done, body, .. }) = &mut self.partial else { return Ok(true) };
        if body.capacity() == 0 && *bytes >= SPARE_BYTES_MIN && (*bytes..=2 * *bytes).contains(&spare.capacity()) {
            *body = std::mem::take(spare);
            body.truncate(*bytes);
        }
        let end = *done + connection.body_left();
        while *done < end {
            let room = end.min(*done + CHUNK_BYTES_MAX);
            let reserved = RESERVED_BYTES.max(2 * room).min(*bytes);
            if body.capacity() < room && body.try_reserve_exact(reserved - body.len()).is_err() {
                // The rest of the body stays in the socket until there is memory.
                self.lacks_memory = true;
                return Ok(false);
            }
            if body.len() < room {
                body.resize(room, 0);
            }
            match take(connection, &mut body[*done..room], end < *bytes)? {
                0 => return Ok(false),
                count => *done += count,
            }
        }
        Ok(true)
    }
}

/// Takes bytes of a frame's body. `continues`: whether the next frame continues the message.
fn take(connection: &mut Link, into: &mut [u8], continues: bool) -> Result<usize, LinkError> {
    if continues { connection.take_continued(into) } else { connection.take(into) }
}

impl DirectLink {
    /// Adds the messages that have arrived to `arrived`. After an error, no more messages arrive; the messages that
    /// were read before the error are in `arrived`.
    pub fn read(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        posted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if self.lane.is_read_closed() || self.ends_behind {
            return Ok(());
        }
        self.flush();
        // A due acknowledgement is not sent at once but at the next read: until then a message of this side may carry
        // it.
        self.acknowledge_if_due();
        let result = self.read_frames(arrived, posted, outcome);
        self.incoming.count();
        if std::mem::take(&mut self.incoming.has_grant) {
            self.flush();
        }
        result
    }

    /// Returns what has arrived of long messages since the last call.
    pub fn take_news(&mut self) -> impl Iterator<Item = LongNews> + '_ {
        self.incoming.news.drain(..)
    }

    fn read_frames(
        &mut self,
        arrived: &mut impl Extend<LinkMessage>,
        mut posted: Option<&mut PostedReceive<'_>>,
        outcome: &mut ReadOutcome,
    ) -> Result<(), LinkError> {
        if !self.lane.has_said_hello() {
            if !self.connection.handshake()? {
                return Ok(());
            }
            self.connection.trust_as_it_is();
            if self.is_caller {
                self.send_hello()?;
            }
        }
        if self.incoming.lacks_bytes() {
            // The message has not been counted, so the peer sends it again by the default route.
            return Err(LinkError::Malformed);
        }
        self.has_more = false;
        let (mut messages, mut bytes) = (0, 0);
        while messages < MESSAGES_IN_TURN_MAX && bytes < BYTES_IN_TURN_MAX {
            if self.holds_message() && outcome.until != Until::Ahead {
                return Ok(());
            }
            if self.is_over(outcome.until) {
                // The send returns, and the next call may bring memory for the body.
                self.has_more = true;
                return Ok(());
            }
            // Only the first message of this poll can go directly to the receiver's memory: if there was one before, it
            // may be the message for which the receive waits.
            if let Some(posted) = posted.as_deref_mut().filter(|_| messages == 0) {
                self.read_posted(posted, outcome)?;
                if posted.found.is_some() {
                    self.has_more = self.connection.has_unread();
                    return Ok(());
                }
            }
            let left = self.incoming.left();
            let is_read = self.incoming.read_body(&mut self.connection, &mut outcome.spare);
            let count = left - self.incoming.left();
            (bytes, outcome.bytes) = (bytes + count, outcome.bytes + count);
            if !is_read? {
                self.has_more = std::mem::take(&mut self.incoming.lacks_memory);
                return Ok(());
            }
            if self.incoming.left() == 0 {
                if let Some(PartialMessage { meta, body, .. }) = self.incoming.finish() {
                    messages += 1;
                    outcome.messages += 1;
                    let message = LinkMessage { peer: self.peer, meta, body };
                    match self.lane.peer_has_switched() {
                        true => arrived.extend([message]),
                        false => self.read_ahead.push(message),
                    }
                    continue;
                }
            }
            let Some(head) = self.connection.receive()? else { return Ok(()) };
            let frame = Frame::read(&head).ok_or(LinkError::Malformed)?;
            self.on_frame(frame, outcome)?;
        }
        self.has_more = true;
        Ok(())
    }

    /// Returns whether such a read ends here.
    fn is_over(&self, until: Until) -> bool {
        match until {
            Until::Turn | Until::Ahead => false,
            Until::Body => self.incoming.has_begun(),
            Until::Acknowledged(count) => self.incoming.has_begun() || self.queue.acknowledged() == count,
        }
    }

    /// Handles a frame, apart from the bytes of a body.
    fn on_frame(&mut self, frame: Frame, outcome: &mut ReadOutcome) -> Result<(), LinkError> {
        match frame {
            Frame::Hello { up_to } if !self.lane.is_established() => {
                self.lane.handle_hello();
                outcome.usable = true;
                self.limit.set(up_to);
                if !self.lane.has_said_hello() {
                    self.send_hello()?;
                }
            }
            Frame::Message { meta, received, bytes, first } if self.incoming.partial.is_none() => {
                self.on_acknowledgement(received)?;
                self.incoming.begin(meta, bytes, first);
            }
            Frame::Continuation { bytes } if bytes <= self.incoming.left() => {}
            Frame::Acknowledgement { received } => self.on_acknowledgement(received)?,
            Frame::Grant { up_to } => {
                self.limit.set(up_to);
                (self.is_held, self.incoming.has_grant) = (false, true);
            }
            Frame::Leaving if self.incoming.partial.is_none() => self.lane.handle_leaving(),
            _ => return Err(LinkError::Malformed),
        }
        Ok(())
    }

    /// Sends the hello. The called side waits for the hello of the calling side first: until then the peer's daemon may
    /// still read from the connection.
    fn send_hello(&mut self) -> Result<(), LinkError> {
        self.lane.say_hello();
        self.send_frame(Frame::Hello { up_to: self.granted })
    }

    /// Reads the body of the partial message directly into the memory of the posted receive, if there is one that the
    /// receive accepts, and copies there what has been read before. If the next bytes are late, copies the bytes read so far
    /// into the partial message; the remaining bytes are then read as for any other message.
    fn read_posted(&mut self, posted: &mut PostedReceive<'_>, outcome: &mut ReadOutcome) -> Result<(), LinkError> {
        let Some(partial) = &mut self.incoming.partial else { return Ok(()) };
        let (bytes, envelope) = (partial.bytes, Envelope::new(self.peer.0, posted.own, partial.meta));
        // The rest of it may not wait for a grant: while a message is read in this way, other links are not.
        let may_be_posted = !partial.was_moved && (partial.is_whole || self.granted == u64::MAX);
        let fits = posted.filter.accepts(envelope.src, envelope.tag, envelope.ctx) && bytes <= posted.room.len();
        if !may_be_posted || !fits || (posted.is_intercepted)(&envelope) {
            return Ok(());
        }
        let before = std::mem::take(&mut partial.body);
        count_copy(partial.done);
        posted.room[..partial.done].copy_from_slice(&before[..partial.done]);
        if before.capacity() > outcome.spare.capacity() {
            outcome.spare = before;
        }
        let mut pause = Pause::default();
        while self.incoming.left() > 0 {
            let done = bytes - self.incoming.left();
            let end = done + self.connection.body_left();
            let count = match end > done {
                true => take(&mut self.connection, &mut posted.room[done..end], end < bytes)?,
                false => 0,
            };
            let Some(partial) = &mut self.incoming.partial else { return Ok(()) };
            partial.done += count;
            if count > 0 || (done == end && self.read_next_head(outcome)?) {
                pause.note(count);
                continue;
            }
            if pause.spin() {
                continue;
            }
            let stalls = !is_ready(&self.connection, PollFlags::IN, STALL_TIME_MAX);
            let Some(PartialMessage { done, body, was_moved, .. }) = &mut self.incoming.partial else { return Ok(()) };
            // If there is no memory for a copy, the receive waits for the remaining bytes.
            if stalls && body.try_reserve_exact(bytes).is_ok() {
                *was_moved = true;
                count_copy(*done);
                body.extend_from_slice(&posted.room[..*done]);
                return Ok(());
            }
        }
        self.incoming.finish();
        self.count_received(bytes);
        posted.found = Some((envelope, bytes));
        Ok(())
    }

    /// Handles the next frame, in the middle of a message. Returns `false` if none has arrived.
    fn read_next_head(&mut self, outcome: &mut ReadOutcome) -> Result<bool, LinkError> {
        let Some(head) = self.connection.receive()? else { return Ok(false) };
        let frame = Frame::read(&head).ok_or(LinkError::Malformed)?;
        self.on_frame(frame, outcome)?;
        Ok(true)
    }
}

/// Waits until the socket is ready. Returns `false` if the time is over first.
pub(super) fn is_ready(link: &Link, flags: PollFlags, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let result = rustix::event::poll(&mut [PollFd::new(link, flags)], Some(&timeout));
    // An interruption by a signal is no stall.
    result != Ok(0)
}
