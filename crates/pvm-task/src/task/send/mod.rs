//! Sending (contract 2.2).
use crate::clock;
use crate::direct;
use crate::envelope::Envelope;
use crate::member::{Member, Route};
use crate::message::{BODY_BYTES_MAX, Large, Message, OWN_DSIG, gather, gather_in_block};
use crate::task::Task;
use crate::types::{Source, Submit};
use pvm_core::channel::LaneKind;
use pvm_core::codes::{Code, ENC_XDR, SM_FIRST, SM_STTASK};
use pvm_core::machine::limits::DAEMON_MESSAGE_BYTES_MAX;
use pvm_core::tid::Tid;
use pvm_fmp::{Block, Endpoint, FAR, INLINE_BYTES_MAX, Meta, Sent, SharedBody, WELL_KNOWN_HEADERS, count_copy};

mod multicast;

/// The tid and tag by which a program's send addresses the collector of trace events.
const TRACE_DESTINATION: (i32, i32) = (-1111, -2222);

/// Messages of native bytes and of the default encoding travel with well-known header words.
const _: () = {
    assert!(WELL_KNOWN_HEADERS[0][1] == OWN_DSIG as u32 && WELL_KNOWN_HEADERS[1][1] == ENC_XDR as u32);
    assert!(WELL_KNOWN_HEADERS[0][2] == OWN_DSIG as u32 && WELL_KNOWN_HEADERS[1][2] == OWN_DSIG as u32);
};

/// The body of a message in the form in which it is sent.
enum Outgoing<'a> {
    Bytes(&'a [u8]),
    Blocks(&'a [(Block, usize)]),
    Gathered([(Block, usize); 1]),
    Short(Vec<u8>),
}

impl<'a> Outgoing<'a> {
    /// Returns the body of a message in the form in which it is sent to the given number of receivers.
    #[inline]
    fn of(message: &'a mut Message, heap: &mut Endpoint, receivers: usize) -> Result<Outgoing<'a>, Code> {
        if matches!(message.large, Large::Remote(_) | Large::Cell(_))
            || (matches!(message.large, Large::Bytes(_)) && receivers > 1)
        {
            message.share(heap)?;
        }
        match &message.large {
            Large::None => Ok(Outgoing::Bytes(&message.small)),
            Large::Bytes(bytes) => Ok(Outgoing::Bytes(bytes)),
            Large::Blocks(blocks) => Ok(Outgoing::Blocks(blocks)),
            Large::Pieces(pieces) => outgoing_pieces(pieces, heap, receivers),
            Large::Remote(_) | Large::Cell(_) => Err(Code::NoMem),
        }
    }

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

/// Sends the body of a message in the cell where it lies, if it lies in one that the receiver shares.
#[inline]
fn send_in_cell(message: &mut Message, member: &mut Member, to: Tid, meta: &Meta) -> Option<Result<(), Code>> {
    let Large::Cell(cell) = &mut message.large else { return None };
    let sent = member.endpoint.send_cell(to.0, meta, cell)?;
    Some(member.finish_send(to, sent))
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
            Route::Default => (member.tid.host(), to.0),
            Route::Direct => (to, 0),
            Route::Introducing => return Ok(Submit::Again),
            Route::Gone => return Ok(Submit::Done),
            Route::Loopback | Route::Daemon => return self.send_slow(to, tag),
        };
        (message.ctx, message.tag, message.dst) = (context, tag, to.0 as i32);
        let mut meta = message.meta();
        meta[FAR] = far;
        if let Some(sent) = send_in_cell(message, member, peer, &meta) {
            sent?;
            self.collect_returned_blocks();
            return Ok(Submit::Done);
        }
        let body = Outgoing::of(message, &mut member.endpoint, 1)?;
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
                let (daemon, mut meta) = (member.tid.host(), meta);
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
                let envelope = Envelope::new(to.0, self.state.own, meta);
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
        let envelope = Envelope::new(to.0, self.state.own, meta);
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

/// Returns whether a message with this tag is a registered server's answer to a task's request. The daemon, which has
/// passed the request on to the server, also passes the answer on to the task.
#[inline]
pub(crate) fn is_answer(tag: i32) -> bool {
    (SM_FIRST..=SM_STTASK).contains(&tag)
}
