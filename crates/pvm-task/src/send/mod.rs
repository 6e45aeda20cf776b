//! Sending (contract 2.2).
use crate::Task;
use crate::clock;
use crate::control::Member;
use crate::direct;
use crate::message::{BODY_BYTES_MAX, Large, Message, OWN_DSIG, gather, gather_in_block};
use crate::receive::Envelope;
use crate::requests::Purpose;
use crate::types::{Source, Submit};
use pvm_core::channel::LaneKind;
use pvm_core::codes::{Code, ENC_IN_PLACE, ENC_XDR, SM_FIRST, SM_STTASK};
use pvm_core::machine::limits::DAEMON_MESSAGE_BYTES_MAX;
use pvm_core::proto::{self, ByteBuf, Request, ToDaemon};
use pvm_core::tid::{DAEMON_BIT, Tid};
use pvm_fmp::{
    Block, Endpoint, FAR, INLINE_BYTES_MAX, Meta, SendError, Sent, SharedBody, WELL_KNOWN_HEADERS, count_copy,
};

mod multicast;

/// The tid and tag by which a program's send addresses the collector of trace events.
const TRACE_DESTINATION: (i32, i32) = (-1111, -2222);

/// A message of at least this many bytes to another host keeps the daemon busy for longer than a task spins.
const RELAYED_BYTES_MIN: usize = 64 << 10;

/// Messages of native bytes and of the default encoding travel with well-known header words.
const _: () = {
    assert!(WELL_KNOWN_HEADERS[0][1] == OWN_DSIG as u32 && WELL_KNOWN_HEADERS[1][1] == ENC_XDR as u32);
    assert!(WELL_KNOWN_HEADERS[0][2] == OWN_DSIG as u32 && WELL_KNOWN_HEADERS[1][2] == OWN_DSIG as u32);
};

/// How a message reaches its receiver.
#[derive(PartialEq)]
enum Route {
    /// Through shared memory.
    Shared,
    /// Through shared memory to the daemon, which relays it to another host.
    Default,
    /// On a direct link to a task of another host.
    Direct,
    /// To the queue of this task.
    Loopback,
    /// Through the daemon's socket.
    Daemon,
    /// No route yet: the daemon introduces the peer first.
    Introducing,
    /// No route: there is no such task.
    Gone,
}

/// The body of a message in the form in which it is sent.
enum Outgoing<'a> {
    Bytes(&'a [u8]),
    Blocks(&'a [(Block, usize)]),
    Gathered([(Block, usize); 1]),
    Short(Vec<u8>),
}

impl Outgoing<'_> {
    /// Puts the body into the queue to a connected peer.
    #[inline]
    fn send(&self, member: &mut Member, to: Tid, meta: Meta) -> Result<(), Code> {
        let sent = match self {
            Outgoing::Bytes(bytes) => return member.send_bytes(to, meta, bytes),
            Outgoing::Blocks(blocks) => member.endpoint.send_blocks(to.0, meta, blocks),
            Outgoing::Gathered(blocks) => member.endpoint.send_blocks(to.0, meta, blocks),
            Outgoing::Short(bytes) => member.endpoint.send_bytes(to.0, meta, bytes),
        };
        member.finish_send(to, sent)
    }

    /// Returns the body as a direct link takes it.
    fn as_body(&self) -> direct::Body<'_> {
        match self {
            Outgoing::Bytes(bytes) => direct::Body::Bytes(bytes),
            Outgoing::Blocks(blocks) => direct::Body::Blocks(blocks),
            Outgoing::Gathered(blocks) => direct::Body::Blocks(blocks),
            Outgoing::Short(bytes) => direct::Body::Bytes(bytes),
        }
    }

    /// Returns the body as several peers take it at the same instant; `None` for a long one that only one receiver can get.
    fn as_shared(&self) -> Option<SharedBody<'_>> {
        match self {
            Outgoing::Bytes(bytes) if bytes.len() > INLINE_BYTES_MAX => None,
            Outgoing::Bytes(bytes) => Some(SharedBody::Bytes(bytes)),
            Outgoing::Blocks(blocks) => Some(SharedBody::Blocks(blocks)),
            Outgoing::Gathered(blocks) => Some(SharedBody::Blocks(blocks)),
            Outgoing::Short(bytes) => Some(SharedBody::Bytes(bytes)),
        }
    }
}

/// Returns the daemon's tid as a peer in shared memory.
fn to_daemon(member: &Member) -> Tid {
    member.tid.host()
}

impl Member {
    /// Finishes a send: asks the daemon to ring the receiver if this task cannot ring it.
    #[inline]
    pub(crate) fn finish_send(&mut self, to: Tid, sent: Result<Sent, SendError>) -> Result<(), Code> {
        match sent {
            Ok(Sent::Done) => Ok(()),
            Ok(Sent::RingByDaemon) => self.ring_by_daemon(to),
            Err(SendError::NoMemory) => Err(Code::NoMem),
            // The peer has ended since the route was chosen.
            Err(SendError::NotConnected) => Ok(()),
        }
    }

    /// Notes that the daemon relays a message of `bytes` bytes.
    fn note_relayed(&mut self, bytes: usize) {
        self.relay_pending |= bytes >= RELAYED_BYTES_MIN;
    }

    /// Starts an introduction to a peer that will be needed, unless the peer is connected or cannot be connected.
    pub(crate) fn introduce(&mut self, to: Tid) {
        // A later send to the peer reports the failure.
        let _ = self.route(to);
    }

    /// Returns whether messages can take the default route now. If not, asks the daemon to introduce itself.
    pub(crate) fn has_default_route(&mut self) -> bool {
        let daemon = to_daemon(self);
        let is_connected = self.endpoint.is_connected(daemon.0);
        // After a refusal, only a send asks again, because a send can report the failure.
        if !is_connected && !self.introductions.is_refused(daemon) {
            let _ = self.request_introduction(daemon);
        }
        is_connected
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn ring_by_daemon(&mut self, to: Tid) -> Result<(), Code> {
        self.send(&ToDaemon::Ring(to));
        self.check_descriptors()
    }

    /// Returns the route to a tid; starts an introduction if one is needed.
    #[inline]
    fn route(&mut self, to: Tid) -> Result<Route, Code> {
        if self.endpoint.is_connected(to.0) {
            return Ok(Route::Shared);
        }
        self.route_to_unconnected(to)
    }

    #[cold]
    fn route_to_unconnected(&mut self, to: Tid) -> Result<Route, Code> {
        if to == self.tid {
            return Ok(Route::Loopback);
        }
        if !to.is_task() || to.is_service() {
            return Ok(Route::Daemon);
        }
        let here = self.tid.host();
        if to.host() == here {
            return self.request_introduction(to);
        }
        if self.has_link_to(to) {
            self.leave_links_in_company();
            if self.has_link_to(to) {
                return Ok(Route::Direct);
            }
        }
        if self.endpoint.is_connected(here.0) {
            self.leave_links_beside(to);
            return Ok(Route::Default);
        }
        self.request_introduction(here)
    }

    /// Asks the daemon to introduce a peer of this host, or itself.
    fn request_introduction(&mut self, to: Tid) -> Result<Route, Code> {
        match self.introductions.take_refusal(to) {
            Some(Code::OutOfRes) => return Err(Code::OutOfRes),
            Some(_) => return Ok(Route::Gone),
            None => {}
        }
        if to.is_task() && !self.endpoint.ports().is_some_and(|ports| ports.alive(to.0)) {
            return Ok(Route::Gone);
        }
        if to.is_task() {
            self.leave_unasked_links(|_| true);
        }
        if !self.requests.is_introducing(to) {
            self.request(Request::Connect(to), Purpose::Introduction(to))?;
        }
        Ok(Route::Introducing)
    }
}

impl Message {
    /// Checks the length of an in-place body. Other bodies are checked when they are packed.
    fn check_length(&self) -> Result<(), Code> {
        let Large::Pieces(pieces) = &self.large else { return Ok(()) };
        let bytes: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
        if bytes > BODY_BYTES_MAX { Err(Code::NoMem) } else { Ok(()) }
    }

    /// Returns the header words of the message.
    #[inline]
    fn meta(&self) -> Meta {
        self.meta_with(self.ctx, self.tag)
    }

    #[inline(always)]
    pub(crate) fn meta_with(&self, ctx: i32, tag: i32) -> Meta {
        let enc = if self.enc == ENC_IN_PLACE { OWN_DSIG } else { self.enc };
        [ctx, tag, self.wid, enc, self.format, 0].map(|word| word as u32)
    }

    /// Returns the body in the form in which it is sent to the given number of receivers.
    #[inline]
    fn outgoing(&mut self, heap: &mut Endpoint, receivers: usize) -> Result<Outgoing<'_>, Code> {
        if matches!(self.large, Large::Remote(_) | Large::Cell(_))
            || (matches!(self.large, Large::Bytes(_)) && receivers > 1)
        {
            self.share(heap)?;
        }
        match &self.large {
            Large::None => Ok(Outgoing::Bytes(&self.small)),
            Large::Bytes(bytes) => Ok(Outgoing::Bytes(bytes)),
            Large::Blocks(blocks) => Ok(Outgoing::Blocks(blocks)),
            Large::Pieces(pieces) => outgoing_pieces(pieces, heap, receivers),
            Large::Remote(_) | Large::Cell(_) => Err(Code::NoMem),
        }
    }

    /// Sends the body in the cell where it lies, if it lies in one that the receiver shares.
    #[inline]
    fn send_in_cell(&mut self, member: &mut Member, to: Tid, meta: &Meta) -> Option<Result<(), Code>> {
        let Large::Cell(cell) = &mut self.large else { return None };
        let sent = member.endpoint.send_cell(to.0, meta, cell)?;
        Some(member.finish_send(to, sent))
    }
}

/// Returns the present contents of pieces in the user's memory.
fn outgoing_pieces<'a>(
    pieces: &'a [Box<dyn Source>],
    heap: &mut Endpoint,
    receivers: usize,
) -> Result<Outgoing<'a>, Code> {
    let length: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
    match pieces {
        [] => return Ok(Outgoing::Bytes(&[])),
        [one] if receivers == 1 || length <= INLINE_BYTES_MAX => return Ok(Outgoing::Bytes(one.bytes())),
        _ => {}
    }
    if length <= INLINE_BYTES_MAX {
        return Ok(Outgoing::Short(gather(pieces)?));
    }
    gather_in_block(pieces, heap).map(|block| Outgoing::Gathered([block]))
}

/// Sending. Each call checks everything before it sends anything; see [`Submit`].
impl Task {
    /// `pvm_send` of the active send buffer.
    #[inline]
    pub fn send(&mut self, to: i32, tag: i32) -> Result<Submit, Code> {
        if !self.may_send(Tid(to as u32), tag) {
            return if (to, tag) == TRACE_DESTINATION { self.send_user_event() } else { Err(Code::BadParam) };
        }
        let context = self.state.context;
        let message = self.state.store.sending()?;
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        let to = Tid(to as u32);
        if matches!(message.large, Large::None) && !is_answer(tag) {
            let meta = message.meta_with(context, tag);
            if let Some(sent) = member.endpoint.send_in_queue(to.0, &meta, &message.small) {
                (message.ctx, message.tag, message.dst) = (context, tag, to.0 as i32);
                return self.sent_short(to, sent);
            }
        }
        message.check_length()?;
        let route = if is_answer(tag) { Route::Daemon } else { member.route(to)? };
        let (peer, far) = match route {
            Route::Shared => (to, 0),
            Route::Default => (to_daemon(member), to.0),
            Route::Direct => (to, 0),
            Route::Introducing => return Ok(Submit::Again),
            Route::Gone => return Ok(Submit::Done),
            Route::Loopback | Route::Daemon => return self.send_slow(to, tag),
        };
        (message.ctx, message.tag, message.dst) = (context, tag, to.0 as i32);
        let mut meta = message.meta();
        meta[FAR] = far;
        if let Some(sent) = message.send_in_cell(member, peer, &meta) {
            sent?;
            self.collect_returned_blocks();
            return Ok(Submit::Done);
        }
        let body = message.outgoing(&mut member.endpoint, 1)?;
        let bytes = body.as_body().len();
        if route == Route::Direct {
            member.send_direct(to, meta, body.as_body())?;
        } else {
            if route == Route::Default {
                member.note_relayed(bytes);
            }
            body.send(member, peer, meta)?;
            if let Outgoing::Blocks(blocks) = body {
                member.endpoint.note_packed(peer.0, blocks.iter().map(|(_, used)| used).sum());
            }
        }
        self.collect_returned_blocks();
        if far != 0 {
            self.update_route(to, bytes);
        }
        Ok(Submit::Done)
    }

    /// `pvm_psend`.
    #[inline(always)]
    pub fn psend(&mut self, to: i32, tag: i32, body: &[u8]) -> Result<Submit, Code> {
        let to = Tid(to as u32);
        if !self.may_send(to, tag) {
            return Err(Code::BadParam);
        }
        self.send_slice(to, [self.state.context, tag, 0, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32), body)
    }

    /// Sends a body that the caller has written in the default encoding, in any context and with any tag.
    pub fn send_body(&mut self, to: Tid, ctx: i32, tag: i32, wid: i32, body: &[u8]) -> Result<Submit, Code> {
        self.send_encoded(to, [ctx, tag, wid, ENC_XDR], body)
    }

    /// Does what [`Task::send_body`] does, in any encoding. `words`: context, tag, wait id, encoding.
    pub(crate) fn send_encoded(&mut self, to: Tid, words: [i32; 4], body: &[u8]) -> Result<Submit, Code> {
        let [ctx, tag, wid, enc] = words;
        self.send_slice(to, [ctx, tag, wid, enc, OWN_DSIG, 0].map(|word| word as u32), body)
    }

    #[inline(always)]
    pub(crate) fn send_slice(&mut self, to: Tid, meta: Meta, body: &[u8]) -> Result<Submit, Code> {
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        match member.endpoint.send_in_queue(to.0, &meta, body) {
            Some(sent) => self.sent_short(to, sent),
            None => self.send_long_slice(to, meta, body),
        }
    }

    /// Finishes a send that took the shortest path.
    #[inline(always)]
    fn sent_short(&mut self, to: Tid, sent: Sent) -> Result<Submit, Code> {
        if sent == Sent::RingByDaemon {
            self.member.as_mut().map_or(Ok(()), |member| member.ring_by_daemon(to))?;
        }
        self.collect_returned_blocks();
        Ok(Submit::Done)
    }

    #[inline(never)]
    fn send_long_slice(&mut self, to: Tid, meta: Meta, body: &[u8]) -> Result<Submit, Code> {
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(Code::NoMem);
        }
        match member.route(to)? {
            Route::Shared => {
                member.send_bytes(to, meta, body)?;
                self.collect_returned_blocks();
            }
            Route::Default => {
                let (daemon, mut meta) = (to_daemon(member), meta);
                meta[FAR] = to.0;
                member.note_relayed(body.len());
                let sent = member.endpoint.send_bytes(daemon.0, meta, body);
                member.finish_send(daemon, sent)?;
                self.collect_returned_blocks();
                self.update_route(to, body.len());
            }
            Route::Direct => {
                member.send_direct(to, meta, direct::Body::Bytes(body))?;
                self.collect_returned_blocks();
            }
            Route::Introducing => return Ok(Submit::Again),
            Route::Gone => {}
            Route::Loopback => {
                let envelope = self_envelope(member.tid, meta);
                let mut copy = Vec::new();
                copy.try_reserve_exact(body.len()).map_err(|_| Code::NoMem)?;
                count_copy(body.len());
                copy.extend_from_slice(body);
                self.deliver_to_self(envelope, copy);
            }
            Route::Daemon if body.len() > DAEMON_MESSAGE_BYTES_MAX => return Err(Code::NoMem),
            Route::Daemon => member.send_to_daemon(to, meta, body.to_vec())?,
        }
        Ok(Submit::Done)
    }

    /// Returns whether a message with this tag may be sent to this tid.
    #[inline]
    fn may_send(&self, to: Tid, tag: i32) -> bool {
        (to.is_task() && tag >= 0) || (self.state.settings.reserved != 0 && to != Tid::NONE)
    }

    /// Sends to this task itself or to the daemon.
    fn send_slow(&mut self, to: Tid, tag: i32) -> Result<Submit, Code> {
        let context = self.state.context;
        let message = self.state.store.sending()?;
        (message.ctx, message.tag, message.dst) = (context, tag, to.0 as i32);
        let (meta, body) = (message.meta(), message.body()?);
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        if to != member.tid {
            member.send_to_daemon(to, meta, body)?;
            return Ok(Submit::Done);
        }
        let envelope = self_envelope(member.tid, meta);
        self.deliver_to_self(envelope, body);
        Ok(Submit::Done)
    }

    /// Queues a message of this task to itself.
    pub(crate) fn deliver_to_self(&mut self, envelope: Envelope, body: Vec<u8>) {
        // What others have sent before comes first.
        self.take_in_all();
        self.state.on_message_bytes(envelope, body);
        // The message is never in flight, so the program sees it at once.
        self.reveal_all();
        self.note_news();
    }

    /// Once in many calls, collects the blocks that receivers have returned, and takes in messages that have arrived.
    #[inline(always)]
    fn collect_returned_blocks(&mut self) {
        if self.member.as_ref().is_some_and(|member| member.endpoint.should_poll()) {
            self.take_in_now();
        }
    }

    /// Called after a message of `bytes` bytes has been sent by the default route. Requests a direct link, or takes over a link that has
    /// been made already. Multicasts request no links.
    pub(crate) fn update_route(&mut self, to: Tid, bytes: usize) {
        let Some(member) = &mut self.member else { return };
        member.report_problem();
        let now = clock::now();
        member.count_message(to, bytes, now);
        let lacks = member.wanted_lane(to, true, now).is_some();
        if lacks {
            // The peer may have requested a link already. Then the frame with this link may wait in this task's socket.
            member.request_socket_poll();
        }
        if lacks || member.direct.has_pending() || member.fabric.has_pending() {
            self.take_in_now();
        }
        let Some(member) = self.member.as_mut().filter(|_| lacks) else { return };
        let wants_fabric = member.wanted_lane(to, true, now) == Some(LaneKind::Fabric);
        let is_asked = wants_fabric && member.request_fabric_link(&self.state, to);
        if !is_asked && member.wanted_lane(to, false, now).is_some() {
            member.request_direct_link(to);
        }
    }

    #[inline(never)]
    fn take_in_now(&mut self) {
        self.take_in();
    }
}

impl Member {
    /// Sends a message to a daemon, through the socket.
    fn send_to_daemon(&mut self, dst: Tid, meta: Meta, body: Vec<u8>) -> Result<(), Code> {
        let [ctx, tag, wid, enc, format, ..] = meta.map(|word| word as i32);
        if body.len() > DAEMON_MESSAGE_BYTES_MAX {
            return Err(Code::NoMem);
        }
        let dst = if dst.is_task() { dst } else { Tid(dst.0 | DAEMON_BIT) };
        let body = ByteBuf::from(body);
        self.send(&ToDaemon::Message(proto::Message { src: self.tid, dst, ctx, tag, wid, enc, format, body }));
        if self.daemon.is_none() { Err(Code::SysErr) } else { Ok(()) }
    }
}

/// Returns whether a message with this tag is a registered server's answer to a task's request. The daemon, which has
/// passed the request on to the server, also passes the answer on to the task.
#[inline]
pub(crate) fn is_answer(tag: i32) -> bool {
    (SM_FIRST..=SM_STTASK).contains(&tag)
}

fn self_envelope(own: Tid, meta: Meta) -> Envelope {
    Envelope::new(own.0, own.0 as i32, meta)
}
