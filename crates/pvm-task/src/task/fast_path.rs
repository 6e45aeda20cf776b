//! The fast path of immediate messages, for calls where nanoseconds count. Each function does either all that the
//! ordinary path does or nothing; the ordinary path handles every unusual case.
//!
//! Every instruction costs time, and stores cost most: until a processor owns a cache line of the queue, it can buffer
//! only some dozens of stores. Therefore a buffer that would be freed and allocated again is refilled in place, and
//! words that already have the right value are not written.
use super::Task;
use super::send::is_answer;
use crate::member::Member;
use crate::message::{Large, Message, OWN_DSIG};
use crate::state::State;
use crate::types::{ANY, Delivered, Filter, Kind};
use pvm_core::codes::{DATA_DEFAULT, DATA_RAW, ENC_XDR, SYSCTX_TC};
use pvm_core::tid::Tid;
use pvm_fmp::{IMMEDIATE_BYTES, INLINE_BYTES_MAX, Immediate, RecentImmediate, Sent, WELL_KNOWN_HEADERS, is_daemon};

/// The encodings of the entries of [`WELL_KNOWN_HEADERS`].
const ENCODINGS: [i32; WELL_KNOWN_HEADERS.len()] = [WELL_KNOWN_HEADERS[0][1] as i32, WELL_KNOWN_HEADERS[1][1] as i32];
/// The index of the encoding for native bytes (`PvmDataRaw`) in [`WELL_KNOWN_HEADERS`] and [`ENCODINGS`].
const NATIVE: usize = 0;
/// The index of the default encoding in both tables.
const DEFAULT: usize = 1;
const _: () = assert!(ENCODINGS[NATIVE] == OWN_DSIG && ENCODINGS[DEFAULT] == ENC_XDR);
/// The most bytes that one fast call packs.
const PIECE_BYTES_MAX: usize = 8;

/// The result of a send on the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum FastSend {
    /// The message was not sent: take the ordinary path.
    NotDone,
    /// The message was sent.
    Done,
    /// The message was sent; call [`Task::wake`] for the receiver, which sleeps.
    Wake,
}

impl Task {
    /// As [`Task::init_send`], if the last send buffer can be refilled in place.
    #[inline(always)]
    pub fn init_send_fast(&mut self, encoding: i32) -> Option<i32> {
        let enc = match encoding {
            DATA_DEFAULT => ENC_XDR,
            DATA_RAW => OWN_DSIG,
            _ => return None,
        };
        let own = self.own_tid();
        let store = &mut self.state.store;
        let mid = store.send;
        let message = store.reusable(mid)?;
        if message.src != own || !is_plain(message) || message.position != 0 {
            return None;
        }
        if message.ctx != 0 {
            message.ctx = 0;
        }
        message.enc = enc;
        (message.tag, message.dst) = (0, 0);
        message.small.clear();
        Some(mid)
    }

    /// As [`Task::pack`], for a few items of a short message. Returns whether it packed them.
    #[inline(always)]
    pub fn pack_fast(&mut self, kind: Kind, items: &[u8]) -> bool {
        let store = &mut self.state.store;
        let Some(message) = store.reusable(store.send) else { return false };
        let native = message.enc == OWN_DSIG;
        let alike = message.enc == ENC_XDR && message.format == OWN_DSIG && has_same_layout(kind, items.len());
        if !(native || alike) {
            return false;
        }
        let small = &mut message.small;
        let room = small.capacity().min(INLINE_BYTES_MAX).saturating_sub(small.len());
        if room < PIECE_BYTES_MAX {
            return false;
        }
        // In each arm the length is known, so that the compiler emits no call of `memcpy`.
        match *items {
            [a, b, c, d, e, f, g, h] => small.extend_from_slice(&[a, b, c, d, e, f, g, h]),
            [a, b, c, d] => small.extend_from_slice(&[a, b, c, d]),
            _ => return false,
        }
        true
    }

    /// As [`Task::send`], for an immediate message to a connected peer. Does nothing if the task is due to poll.
    #[inline(always)]
    pub fn send_fast(&mut self, to: i32, tag: i32) -> FastSend {
        let State { store, context, .. } = &mut self.state;
        let Some(message) = store.reusable(store.send) else { return FastSend::NotDone };
        let well_known = if message.enc == ENC_XDR { DEFAULT } else { NATIVE };
        if !is_plain(message) || message.enc != ENCODINGS[well_known] || is_answer(tag) {
            return FastSend::NotDone;
        }
        let immediate = Immediate::of_numbers([*context as u32, tag as u32], well_known, &message.small);
        let sent = send(&mut self.member, to, tag, immediate);
        if sent != FastSend::NotDone {
            (message.ctx, message.tag, message.dst) = (*context, tag, to);
        }
        sent
    }

    /// As [`Task::send`], for a body that fits in the queue to a connected peer. Returns whether the message was sent. Does
    /// nothing if the task is due to poll.
    #[inline(never)]
    pub fn send_at_once(&mut self, to: i32, tag: i32) -> bool {
        let State { store, context, .. } = &mut self.state;
        let (Ok(message), Some(member)) = (store.sending(), &mut self.member) else { return false };
        let to = Tid(to as u32);
        if !matches!(message.large, Large::None) || is_answer(tag) || !may_send_at_once(member, to, tag) {
            return false;
        }
        let sent = member.endpoint.send_in_queue(to.0, &message.meta_with(*context, tag), &message.small);
        if sent.is_some() {
            (message.ctx, message.tag, message.dst) = (*context, tag, to.0 as i32);
        }
        // After a failure, the ordinary path reports it.
        sent.is_some_and(|sent| sent == Sent::Done || member.ring_by_daemon(to).is_ok())
    }

    /// As [`Task::psend`], for an immediate message to a connected peer. Does nothing if the task is due to poll.
    #[inline(always)]
    pub fn psend_fast(&mut self, to: i32, tag: i32, body: &[u8]) -> FastSend {
        self.send_bytes_fast(to, self.state.context, tag, body)
    }

    /// Sends native bytes in any context, as [`Task::psend_fast`] does in the current one.
    #[inline(always)]
    pub(crate) fn send_bytes_fast(&mut self, to: i32, ctx: i32, tag: i32, body: &[u8]) -> FastSend {
        let immediate = Immediate::of_numbers([ctx as u32, tag as u32], NATIVE, body);
        send(&mut self.member, to, tag, immediate)
    }

    /// As [`Task::psend`], for a body that fits in the queue to a connected peer, or in a cell that this task shares with it.
    /// Returns whether the message was sent. Does nothing if the task is due to poll.
    #[inline]
    pub fn psend_at_once(&mut self, to: i32, tag: i32, body: &[u8]) -> bool {
        let Some(member) = &mut self.member else { return false };
        let to = Tid(to as u32);
        if !may_send_at_once(member, to, tag) {
            return false;
        }
        let meta = [self.state.context, tag, 0, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32);
        let sent = match body.len() {
            ..=INLINE_BYTES_MAX => member.endpoint.send_in_queue(to.0, &meta, body),
            _ => member.endpoint.send_in_cell(to.0, &meta, body),
        };
        // After a failure, the ordinary path reports it.
        sent.is_some_and(|sent| sent == Sent::Done || member.ring_by_daemon(to).is_ok())
    }

    /// As [`Task::try_precv`], for a message in the queue or in a cell that has arrived from the peer that sent last, or
    /// arrives at once.
    #[inline]
    pub fn precv_at_once(&mut self, filter: &Filter, data: &mut [u8]) -> Option<Delivered> {
        let (envelope, recent, _) = self.probe_recent(filter, true, true)?;
        Some(envelope.delivered(recent.take(data)?))
    }

    /// As [`Task::try_precv`], for an immediate message that has arrived or arrives at once.
    #[inline(always)]
    pub fn precv_fast(&mut self, filter: &Filter, data: &mut [u8]) -> Option<Delivered> {
        let (src, recent) = probe_recent_immediate(&self.state, &mut self.member, filter)?;
        if !recent.immediate.copy_numbers_to(data) {
            return None;
        }
        let immediate = recent.take();
        Some(Delivered { src, tag: immediate.first[1] as i32, wid: 0, len: immediate.len(), failure: None })
    }

    /// Like [`Task::try_receive`], but only for an immediate message that is there or arrives within some hundred
    /// nanoseconds. The message replaces the active receive buffer in place.
    #[inline(always)]
    pub fn receive_fast(&mut self, filter: &Filter) -> Option<i32> {
        let mid = self.state.store.receive;
        if self.state.store.reusable(mid)?.small.capacity() < IMMEDIATE_BYTES {
            return None;
        }
        let (src, recent) = probe_recent_immediate(&self.state, &mut self.member, filter)?;
        let immediate = recent.take();
        let dst = self.own_tid();
        let message = self.state.store.reusable(mid)?;
        (message.ctx, message.tag, message.wid) = (immediate.first[0] as i32, immediate.first[1] as i32, 0);
        (message.enc, message.format) = (ENCODINGS[immediate.well_known], OWN_DSIG);
        (message.src, message.dst, message.position) = (src, dst, 0);
        message.small.clear();
        message.small.extend_from_slice(&immediate.filled_body());
        message.small.truncate(immediate.len());
        Some(mid)
    }

    /// As [`Task::unpack`], for a few items of a short message. Returns whether it unpacked them.
    #[inline(always)]
    pub fn unpack_fast(&mut self, kind: Kind, items: &mut [u8]) -> bool {
        let store = &mut self.state.store;
        let Some(message) = store.reusable(store.receive) else { return false };
        let native = message.enc == OWN_DSIG;
        let alike = message.enc == ENC_XDR && message.format == OWN_DSIG && has_same_layout(kind, items.len());
        if !(native || alike) {
            return false;
        }
        let Some(rest) = message.small.get(message.position..) else { return false };
        message.position += match (items.len(), rest) {
            (8, &[a, b, c, d, e, f, g, h, ..]) => {
                items.copy_from_slice(&[a, b, c, d, e, f, g, h]);
                8
            }
            (4, &[a, b, c, d, ..]) => {
                items.copy_from_slice(&[a, b, c, d]);
                4
            }
            _ => return false,
        };
        true
    }
}

/// Returns whether a message may be sent now to a task.
#[inline(always)]
fn may_send_at_once(member: &Member, to: Tid, tag: i32) -> bool {
    tag >= 0 && !is_daemon(to.0) && member.daemon.is_some() && !member.endpoint.should_poll()
}

/// Returns whether the message has the wait id and the format of the entries of [`WELL_KNOWN_HEADERS`].
#[inline(always)]
fn is_plain(message: &Message) -> bool {
    message.wid == 0 && message.format == OWN_DSIG
}

/// Returns whether the default encoding neither widens nor pads such items.
#[inline(always)]
fn has_same_layout(kind: Kind, bytes: usize) -> bool {
    match kind {
        Kind::Short | Kind::Ushort => false,
        Kind::Byte => bytes % 4 == 0,
        // Longs of 32 bits are widened.
        Kind::Long | Kind::Ulong => size_of::<usize>() == 8,
        _ => true,
    }
}

#[inline(always)]
fn send(member: &mut Option<Member>, to: i32, tag: i32, immediate: Option<Immediate>) -> FastSend {
    let (Some(member), Some(immediate)) = (member, immediate) else { return FastSend::NotDone };
    if tag < 0 || member.daemon.is_none() || member.endpoint.should_poll() {
        return FastSend::NotDone;
    }
    match member.endpoint.send_immediate(to as u32, &immediate) {
        Some(false) => FastSend::Done,
        Some(true) => FastSend::Wake,
        None => FastSend::NotDone,
    }
}

/// Returns the next message and its sender, if it is an immediate message that the filter accepts, no message is queued
/// before it, and no handler or collector can intercept it. The conditions that do not depend on the message are
/// checked first, in the time before it arrives.
#[inline(always)]
fn probe_recent_immediate<'a>(
    state: &State,
    member: &'a mut Option<Member>,
    filter: &Filter,
) -> Option<(i32, RecentImmediate<'a>)> {
    if !state.store.queue.is_empty() || state.handlers.may_intercept() || state.output.collects_any() {
        return None;
    }
    let member = member.as_mut()?;
    let from = member.endpoint.most_recent_peer()?;
    let may_come = filter.src == from as i32 || filter.src == ANY;
    if !may_come || is_daemon(from) || filter.ctx == ANY || filter.ctx == SYSCTX_TC {
        return None;
    }
    let recent = member.endpoint.probe_recent_immediate(filter.src == ANY)?;
    let [ctx, tag] = recent.immediate.first.map(|word| word as i32);
    if ctx != filter.ctx || (tag != filter.tag && filter.tag != ANY) {
        return None;
    }
    member.idle_since = None;
    Some((from as i32, recent))
}

#[cfg(test)]
#[path = "fast_path_tests.rs"]
mod tests;
