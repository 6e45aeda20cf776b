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
pub(crate) mod incoming;

use super::Body;
use super::frames::{FRAME_BYTES_MAX, Frame};
use super::outgoing::Outgoing;
use super::send_queue::{QueuedBody, QueuedMessage, SendQueue};
use super::stall::Stall;
use crate::envelope::LinkMessage;
use incoming::Incoming;
use pvm_core::channel::{Bursts, Lane};
use pvm_core::codes::Code;
use pvm_core::flows::pacing::SendLimit;
use pvm_core::proto::{Direct, LinkCause};
use pvm_core::tid::Tid;
use pvm_explorer::CircuitBreaker;
use pvm_fmp::Meta;
use pvm_net::{Carried, Identity, KeyPair, Link, LinkError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// After receiving this many bytes or this many messages, a side sends an acknowledgement without a message.
const ACKNOWLEDGED_BYTES: usize = 256 << 10;
const ACKNOWLEDGED_MESSAGES: u32 = 256;
/// If the send queue has grown by this many bytes or this many messages, acknowledgements are read, even if the program
/// receives nothing.
const UNPOLLED_BYTES_MAX: usize = 512 << 10;
const UNPOLLED_MESSAGES_MAX: usize = 512;

/// Bodies of at least this size, in bytes, are not copied if the peer acknowledges them soon. A shorter one is copied in less
/// time than the acknowledgement takes, which is a frame of its own.
pub(super) const AWAITED_BYTES_MIN: usize = 512 << 10;

/// This side of a direct link.
pub(crate) struct DirectLink {
    pub peer: Tid,
    /// Why there is the link.
    pub cause: LinkCause,
    pub(super) connection: Link,
    /// Whether this side sends the first hello.
    pub(super) is_caller: bool,
    /// Which messages go on the link, in both directions.
    pub lane: Lane,
    /// Whether the link cannot be made yet, since the calls so far had too little stack.
    pub(super) lacks_stack: bool,
    /// Bursts of messages that this side sends on the link.
    pub(super) bursts: Bursts,
    pub(super) incoming: Incoming,
    /// Messages that were read while a send waited, before the peer's route switch: earlier ones may still be on the default
    /// route. The peer leaves the link only when all its messages were passed on, so all of these wait for the same switch.
    pub(super) read_ahead: Vec<LinkMessage>,
    /// Whether a read behind them has failed: the link ends when they are passed on.
    pub(super) ends_behind: bool,
    /// How many bytes of long messages the peer may have sent in all; the maximum if that is not limited.
    pub(super) granted: u64,
    /// Whether the peer has to be told that.
    owes_grant: bool,
    /// How many packets had arrived out of order at the last check.
    out_of_order: u32,
    /// How many messages that this task has taken over were acknowledged, and how many bytes it has taken over since then.
    reported: u32,
    unreported_bytes: usize,
    /// The message that is being written, or the next one.
    outgoing: Outgoing,
    /// How many bytes of long messages this side may send.
    pub(super) limit: SendLimit,
    /// Whether nothing of the next message may be sent before a grant.
    pub(super) is_held: bool,
    /// How many bytes have been written since the link began.
    total_written: u64,
    pub queue: SendQueue,
    /// The size of the send queue, in bytes and in messages, when acknowledgements were last read.
    polled_at: (usize, usize),
    /// Whether the peer does not read at the moment.
    blocked: bool,
    /// Whether the peer acknowledged bodies when this side has waited for that before a copy.
    pub(super) awaits: CircuitBreaker,
    stall: Stall,
    /// Whether a write to the connection has failed: then no more can be written.
    write_failed: bool,
    /// Whether there may be more to read even if the socket is not reported readable.
    pub has_more: bool,
    /// The events that epoll watches for on the socket.
    pub watched: PollFlags,
}

impl DirectLink {
    /// Takes over a socket that the daemons have connected. The peer may send `granted` bytes of long messages before
    /// its first grant.
    pub fn new(direct: &Direct, socket: OwnedFd, granted: u64) -> Result<DirectLink, LinkError> {
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
            cause: direct.cause,
            connection,
            is_caller: direct.calls,
            lane: Lane::default(),
            lacks_stack: false,
            bursts: Bursts::default(),
            incoming: Incoming::default(),
            read_ahead: Vec::new(),
            ends_behind: false,
            granted,
            owes_grant: false,
            out_of_order: 0,
            reported: 0,
            unreported_bytes: 0,
            outgoing: Outgoing::default(),
            // The peer's hello, which arrives before anything is sent, sets the limit.
            limit: SendLimit::new(0),
            is_held: false,
            total_written: 0,
            queue: SendQueue::default(),
            polled_at: (0, 0),
            blocked: false,
            awaits: CircuitBreaker::default(),
            stall: Stall::default(),
            write_failed: false,
            has_more: false,
            watched: PollFlags::empty(),
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Returns whether the peer has taken in all that was sent on the link, so that this side can leave it.
    pub fn may_leave(&self) -> bool {
        self.lane.may_leave(self.queue.is_empty()) && !self.is_send_closed() && !self.outgoing.is_in_frame()
    }

    /// Leaves the link for the default route, if the peer has taken in all that was sent on the link: then a message on
    /// the default route cannot overtake another one.
    pub fn leave(&mut self) -> bool {
        let may_leave = self.may_leave();
        if may_leave {
            self.write_failed = self.send_frame(Frame::Leaving).is_err();
            if !self.write_failed {
                self.lane.handle_left();
            }
        }
        may_leave && !self.write_failed
    }

    /// Returns whether the link has to be read even if its socket is not reported readable: there may be more in its
    /// buffer, an acknowledgement is due, or a call had too little stack.
    pub fn needs_read(&self) -> bool {
        self.has_more || self.lacks_stack || self.owes_acknowledgement()
    }

    /// Handles the peer's route switch. Returns the messages that were read before it, if they are next.
    pub fn on_route_switch(&mut self) -> Vec<LinkMessage> {
        self.lane.handle_route_switch();
        self.has_more = true;
        if self.lane.peer_has_switched() { std::mem::take(&mut self.read_ahead) } else { Vec::new() }
    }

    /// Returns whether a message waits to be read until the peer's route switch arrives.
    pub(super) fn holds_message(&self) -> bool {
        !self.lane.peer_has_switched() && self.has_message()
    }

    /// Returns whether a message has begun to arrive that was not passed on.
    pub(super) fn has_message(&self) -> bool {
        self.incoming.has_begun() || !self.read_ahead.is_empty()
    }

    /// Returns the events to watch for on the socket.
    pub fn interest(&self) -> PollFlags {
        self.interest_of(false)
    }

    /// Does the same. Without `reads_ahead`, no message is read before the peer's route switch.
    pub(super) fn interest_of(&self, reads_ahead: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        let holds = self.holds_message() && !reads_ahead;
        let may_read = !self.lane.is_read_closed() && !self.ends_behind && !self.lacks_stack;
        flags.set(PollFlags::IN, may_read && !holds);
        flags.set(PollFlags::OUT, !self.is_flushed());
        flags
    }

    /// Counts a message that has been delivered to the program's message queue or receive.
    pub fn count_received(&mut self, bytes: usize) {
        self.lane.count_received();
        self.unreported_bytes += bytes;
        if bytes >= AWAITED_BYTES_MIN {
            self.acknowledge_if_due();
        }
    }

    /// Handles an acknowledgement.
    pub(super) fn on_acknowledgement(&mut self, count: u32) -> Result<(), LinkError> {
        let is_true = !self.lane.takes_acknowledgements() || self.queue.acknowledge(count);
        if is_true { Ok(()) } else { Err(LinkError::Malformed) }
    }

    /// Returns whether the link has ended without loss: the peer has exited, and all its messages on the link have
    /// arrived.
    pub fn has_ended(&self) -> bool {
        self.connection.has_ended() && !self.write_failed && self.lane.is_established()
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
        self.send_grant();
        self.acknowledge_if_due();
    }

    /// Returns whether nothing waits for room in the socket.
    pub fn is_flushed(&self) -> bool {
        let is_done = self.queue.all_written() || self.is_held;
        self.is_send_closed() || (is_done && !self.connection.wants_write())
    }

    /// Returns whether this side writes nothing to the connection any more.
    pub fn is_send_closed(&self) -> bool {
        self.write_failed || self.lane.falls_back()
    }

    /// Returns whether the connection has failed and the fallback has not begun.
    pub fn is_broken(&self) -> bool {
        self.write_failed && !self.lane.falls_back()
    }

    /// Returns a count that changes whenever the socket has taken bytes.
    pub fn progress(&self) -> u64 {
        self.total_written.wrapping_sub(self.connection.queued_bytes() as u64)
    }

    /// Writes as much of the next message as the socket takes and the peer's limit allows. Returns whether the socket
    /// has taken all of it.
    pub fn write(&mut self, meta: Meta, body: Body<'_>) -> bool {
        let bytes = body.len();
        while !self.is_send_closed() {
            self.send_grant();
            let received = self.lane.received();
            self.is_held = !self.outgoing.plan(meta, bytes, received, &self.limit);
            if self.is_held {
                return false;
            }
            let is_new = self.outgoing.is_new();
            // Whether in clear or encrypted, the bytes are read where they lie, without a copy.
            match self.outgoing.write_planned(body, |parts| self.connection.try_write(parts)) {
                Ok(0) => return false,
                Ok(count) => {
                    self.total_written += count as u64;
                    if is_new {
                        (self.reported, self.unreported_bytes) = (received, 0);
                    }
                    if self.outgoing.advance(count, bytes, &mut self.limit) {
                        self.blocked = false;
                        // What had to wait for the end of the frame. There may be nothing else to write for a long time.
                        self.send_grant();
                        self.acknowledge_if_due();
                        return true;
                    }
                }
                Err(_) => self.write_failed = true,
            }
        }
        false
    }

    /// Sends a frame without a body. There must be no partly written frame.
    pub(super) fn send_frame(&mut self, frame: Frame) -> Result<(), LinkError> {
        match self.connection.write_or_queue(&[frame.lead().as_slice()])? {
            true => Ok(()),
            false => Err(Errno::NOMEM.into()),
        }
    }

    /// Returns whether so much was received since the last acknowledgement that the next one is due.
    fn owes_acknowledgement(&self) -> bool {
        self.unreported_bytes >= ACKNOWLEDGED_BYTES
            || self.lane.received().wrapping_sub(self.reported) >= ACKNOWLEDGED_MESSAGES
    }

    /// Sends an acknowledgement if one is due and no frame is partly written.
    pub fn acknowledge_if_due(&mut self) {
        let received = self.lane.received();
        if self.owes_acknowledgement() && !self.outgoing.is_in_frame() && !self.is_send_closed() {
            (self.reported, self.unreported_bytes) = (received, 0);
            self.write_failed = self.send_frame(Frame::Acknowledgement { received }).is_err();
        }
    }

    /// Sets how many bytes of long messages the peer may have sent in all, and tells it as soon as possible.
    pub fn grant(&mut self, up_to: u64) {
        // Before that, the hello tells it.
        self.owes_grant = self.lane.has_said_hello();
        self.granted = up_to;
        self.send_grant();
    }

    /// Sends a grant if the peer has to be told about one and no frame is partly written.
    fn send_grant(&mut self) {
        if self.owes_grant && !self.outgoing.is_in_frame() && !self.is_send_closed() {
            self.owes_grant = false;
            self.write_failed = self.send_frame(Frame::Grant { up_to: self.granted }).is_err();
        }
    }

    /// Returns whether packets from the peer were lost since the last call, as far as the system reports it.
    pub fn has_new_losses(&mut self) -> bool {
        let count = self.carried().out_of_order;
        count > std::mem::replace(&mut self.out_of_order, count)
    }

    /// Reserves memory for the copy of a message.
    pub fn reserve(&mut self, body: Body<'_>) -> Result<QueuedBody, Code> {
        // While a peer does not read, messages to it are queued as long as there is memory.
        match self.blocked && !self.queue.has_room(body.len()) {
            true => Err(Code::NoMem),
            false => QueuedBody::reserve(body, &mut self.queue.pool),
        }
    }

    /// Returns whether the peer is known to have taken in the last route switch: it has acknowledged a message since.
    pub fn has_heard_switch(&self) -> bool {
        self.lane.has_heard_switch(self.queue.acknowledged())
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
        much && !self.lane.is_read_closed()
    }

    /// Returns whether the peer does not read at the moment. If so, a sender does not wait, but queues its message.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether nothing of the next message may be sent before a grant.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns whether a grant would be read, if one is needed.
    pub fn can_hear_grants(&self) -> bool {
        !self.is_held || !(self.lane.is_read_closed() || self.ends_behind)
    }

    /// Returns how much the connection has carried, as far as the system reports it.
    pub fn carried(&self) -> Carried {
        self.connection.carried().unwrap_or_default()
    }

    /// Returns whether the connection has carried nothing for too long. `waits`: whether this task waits for the last
    /// messages of a peer that has exited; if so, received bytes count as progress, too.
    pub fn has_stalled(&mut self, waits: bool, now: Instant) -> bool {
        if self.lane.is_read_closed() || (self.queue.is_empty() && !waits) {
            self.stall.reset();
            return false;
        }
        let carried = self.carried();
        self.stall.is_expired(carried, waits, now)
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
