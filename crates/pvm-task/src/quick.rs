//! The shortest ways of tiny messages, for the calls of which nanoseconds count. Each does all or
//! nothing of what the ordinary way does, which is left to do what is unusual in any respect.
//!
//! What counts are instructions, and stores above all: a processor holds some dozens of them back until
//! a line of the queue is its own. So a buffer that would be freed and taken anew is filled anew where
//! it lies, and words that are right already are left alone.
use crate::Task;
use crate::control::Member;
use crate::message::{Message, OWN_DSIG};
use crate::send::is_answer;
use crate::task::State;
use crate::types::{ANY, Delivered, Filter, Kind};
use pvm_core::codes::{DATA_DEFAULT, DATA_RAW, ENC_XDR, SYSCTX_TC};
use pvm_fmp::{IMMEDIATE_BYTES, INLINE_BYTES_MAX, Immediate, RecentImmediate, WELL_KNOWN_HEADERS, is_daemon};

/// The encodings of the entries of [`WELL_KNOWN_HEADERS`].
const ENCODINGS: [i32; WELL_KNOWN_HEADERS.len()] = [WELL_KNOWN_HEADERS[0][1] as i32, WELL_KNOWN_HEADERS[1][1] as i32];
/// The number there of native bytes.
const NATIVE: usize = 0;
/// That of the default encoding.
const DEFAULT: usize = 1;
const _: () = assert!(ENCODINGS[NATIVE] == OWN_DSIG && ENCODINGS[DEFAULT] == ENC_XDR);
/// The longest items that are packed this way, in bytes.
const PIECE_BYTES_MAX: usize = 8;

/// What a quick send did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Quick {
    /// Nothing.
    NotDone,
    /// All.
    Done,
    /// All but to [`Task::wake`] the receiver, which sleeps.
    Wake,
}

impl Task {
    /// [`Task::init_send`] in the place of the last send buffer.
    #[inline(always)]
    pub fn init_send_quickly(&mut self, encoding: i32) -> Option<i32> {
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

    /// [`Task::pack`] of a few items behind others in a short message; says whether it did.
    #[inline(always)]
    pub fn pack_quickly(&mut self, kind: Kind, items: &[u8]) -> bool {
        let store = &mut self.state.store;
        let Some(message) = store.reusable(store.send) else { return false };
        let native = message.enc == OWN_DSIG;
        let alike = message.enc == ENC_XDR && message.format == OWN_DSIG && lies_alike(kind, items.len());
        if !(native || alike) {
            return false;
        }
        let small = &mut message.small;
        let room = small.capacity().min(INLINE_BYTES_MAX).saturating_sub(small.len());
        if room < PIECE_BYTES_MAX {
            return false;
        }
        // Known lengths, so that no memory is copied by a call.
        match *items {
            [a, b, c, d, e, f, g, h] => small.extend_from_slice(&[a, b, c, d, e, f, g, h]),
            [a, b, c, d] => small.extend_from_slice(&[a, b, c, d]),
            _ => return false,
        }
        true
    }

    /// [`Task::send`] of a tiny message to a peer that is known, while nothing else is to be done; says
    /// whether it did.
    #[inline(always)]
    pub fn send_quickly(&mut self, to: i32, tag: i32) -> Quick {
        let State { store, context, .. } = &mut self.state;
        let Some(message) = store.reusable(store.send) else { return Quick::NotDone };
        let usual = if message.enc == ENC_XDR { DEFAULT } else { NATIVE };
        if !is_plain(message) || message.enc != ENCODINGS[usual] || is_answer(tag) {
            return Quick::NotDone;
        }
        let tiny = Immediate::of_numbers([*context as u32, tag as u32], usual, &message.small);
        let sent = send(&mut self.member, to, tag, tiny);
        if sent != Quick::NotDone {
            (message.ctx, message.tag, message.dst) = (*context, tag, to);
        }
        sent
    }

    /// [`Task::psend`] of a tiny message to a peer that is known, while nothing else is to be done; says
    /// whether it did.
    #[inline(always)]
    pub fn psend_quickly(&mut self, to: i32, tag: i32, body: &[u8]) -> Quick {
        let tiny = Immediate::of_numbers([self.state.context as u32, tag as u32], NATIVE, body);
        send(&mut self.member, to, tag, tiny)
    }

    /// [`Task::try_precv`] of a tiny message that is there or comes at once.
    #[inline(always)]
    pub fn precv_quickly(&mut self, filter: &Filter, data: &mut [u8]) -> Option<Delivered> {
        let (src, first) = probe_recent_immediate(&self.state, &mut self.member, filter)?;
        if !first.immediate.copy_numbers_to(data) {
            return None;
        }
        let tiny = first.take();
        Some(Delivered { src, tag: tiny.first[1] as i32, wid: 0, len: tiny.len(), failure: None })
    }

    /// [`Task::try_receive`] of a tiny message that is there or comes at once, in the place of the
    /// active receive buffer.
    #[inline(always)]
    pub fn receive_quickly(&mut self, filter: &Filter) -> Option<i32> {
        let mid = self.state.store.receive;
        if self.state.store.reusable(mid)?.small.capacity() < IMMEDIATE_BYTES {
            return None;
        }
        let (src, first) = probe_recent_immediate(&self.state, &mut self.member, filter)?;
        let tiny = first.take();
        let dst = self.own_tid();
        let message = self.state.store.reusable(mid)?;
        (message.ctx, message.tag, message.wid) = (tiny.first[0] as i32, tiny.first[1] as i32, 0);
        (message.enc, message.format) = (ENCODINGS[tiny.well_known], OWN_DSIG);
        (message.src, message.dst, message.position) = (src, dst, 0);
        message.small.clear();
        message.small.extend_from_slice(&tiny.filled_body());
        message.small.truncate(tiny.len());
        Some(mid)
    }

    /// [`Task::unpack`] of a few items of a short message, if they are there; says whether it did.
    #[inline(always)]
    pub fn unpack_quickly(&mut self, kind: Kind, items: &mut [u8]) -> bool {
        let store = &mut self.state.store;
        let Some(message) = store.reusable(store.receive) else { return false };
        let native = message.enc == OWN_DSIG;
        let alike = message.enc == ENC_XDR && message.format == OWN_DSIG && lies_alike(kind, items.len());
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

/// Whether wait id and format are those of the entries of [`WELL_KNOWN_HEADERS`].
#[inline(always)]
fn is_plain(message: &Message) -> bool {
    message.wid == 0 && message.format == OWN_DSIG
}

/// Whether the default encoding neither widens nor pads such items.
#[inline(always)]
fn lies_alike(kind: Kind, bytes: usize) -> bool {
    match kind {
        Kind::Short | Kind::Ushort => false,
        Kind::Byte => bytes % 4 == 0,
        // Of 32 bits they are widened.
        Kind::Long | Kind::Ulong => size_of::<usize>() == 8,
        _ => true,
    }
}

#[inline(always)]
fn send(member: &mut Option<Member>, to: i32, tag: i32, tiny: Option<Immediate>) -> Quick {
    let (Some(member), Some(tiny)) = (member, tiny) else { return Quick::NotDone };
    if tag < 0 || member.link.is_none() || member.endpoint.should_poll() {
        return Quick::NotDone;
    }
    match member.endpoint.send_immediate(to as u32, &tiny) {
        Some(false) => Quick::Done,
        Some(true) => Quick::Wake,
        None => Quick::NotDone,
    }
}

/// The message to be received next, and who sent it, if it is tiny and the filter accepts it: no other is
/// queued before it, and nobody else may want it. What can be known of it before it comes is looked at
/// before, while there is time.
#[inline(always)]
fn probe_recent_immediate<'a>(
    state: &State,
    member: &'a mut Option<Member>,
    filter: &Filter,
) -> Option<(i32, RecentImmediate<'a>)> {
    if !state.store.queue.is_empty() || state.handlers.are_special() || state.output.any() {
        return None;
    }
    let member = member.as_mut()?;
    let from = member.endpoint.most_recent_peer()?;
    let may_come = filter.src == from as i32 || filter.src == ANY;
    if !may_come || is_daemon(from) || filter.ctx == ANY || filter.ctx == SYSCTX_TC {
        return None;
    }
    let first = member.endpoint.probe_recent_immediate()?;
    let [ctx, tag] = first.immediate.first.map(|word| word as i32);
    if ctx != filter.ctx || (tag != filter.tag && filter.tag != ANY) {
        return None;
    }
    member.idle_since = None;
    Some((from as i32, first))
}

#[cfg(test)]
#[path = "quick_tests.rs"]
mod tests;
