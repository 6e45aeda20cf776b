//! One-call sends of long messages: the body is sent from its place in the program's memory, during the call.
//!
//! If a receive waits for this very message, the peer reads the body there, and no processor copies it. Otherwise a first
//! piece is copied and offered, and the rest lent once the receive tells that it waits; if it does not tell soon, the rest
//! is copied too. Frames and sealed pieces are made from the program's memory; what the peer has not taken at the end of the
//! call is copied then, behind what was sent. Nobody waits long for a receiver that does not wait itself.
use super::posted::{LENT_BYTES_MIN, SPIN_TIME, is_wanted, time_for};
use super::waiting::Patience;
use super::{FabricRoute, State, header_of};
use crate::direct::Body;
use crate::direct::send_queue::{QueuedBody, QueuedMessage};
use pvm_core::codes::Code;
use pvm_core::fabric::Transfer;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::fabric::SourceLender;
use std::time::{Duration, Instant};

/// The shortest message that is sent from the program's memory in frames, in bytes.
const FRAMES_BYTES_MIN: usize = 16 << 10;
/// A sender waits at most this long for what a receive tells; a shorter message for less.
const AWAIT_TIME_MAX: Duration = Duration::from_micros(50);

/// How a message is sent from the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The peer waits for it, and reads it there.
    Wanted,
    /// The peer reads a copied piece, and the rest there if it waits.
    Begun,
    /// In frames.
    Frames,
    /// In sealed pieces.
    Sealed,
}

impl FabricRoute {
    /// Returns how this message to that peer is sent from the program's memory, if it is, and what lends the memory.
    fn way_of(&mut self, to: Tid, meta: &Meta, bytes: usize) -> Option<(Way, SourceLender)> {
        let at = self.position(to).ok()?;
        let link = &self.links[at];
        let name = link.name;
        let State::Open(fabric) = &self.state else { return None };
        if !link.lane.carries() || link.lane.falls_back() || link.is_blocked {
            return None;
        }
        let way = match fabric.transfer_of(name, bytes)? {
            (Transfer::Eager, _) if bytes >= FRAMES_BYTES_MIN => Way::Frames,
            (Transfer::Read, true) if bytes >= LENT_BYTES_MIN => Way::Sealed,
            (Transfer::Read, false) if bytes >= LENT_BYTES_MIN && fabric.may_lend() => Way::Begun,
            _ => return None,
        };
        if way == Way::Frames {
            return Some((way, fabric.source_lender()));
        }
        self.poll();
        let (at, State::Open(fabric)) = (self.position(to).ok()?, &self.state) else { return None };
        let link = &mut self.links[at];
        if fabric.wanted_by_peer(name).is_some_and(|words| is_wanted(words, meta, bytes)) {
            link.lends.note(true);
            return Some((Way::Wanted, fabric.source_lender()));
        }
        if !link.lends.allows() {
            return None;
        }
        if !fabric.is_all_sent(name) {
            link.lends.note(false);
            return None;
        }
        Some((way, fabric.source_lender()))
    }

    /// Sends a message from the memory that is lent. If the peer does not take what it reads there, the link, or the fabric,
    /// is given up after this call. `reserved`: the queued message, whose body is not copied yet.
    fn send_lent(&mut self, to: Tid, reserved: QueuedMessage, way: Way) {
        let (Ok(at), State::Open(fabric)) = (self.position(to), &mut self.state) else { return };
        let link = &mut self.links[at];
        let (meta, bytes) = (reserved.meta, reserved.length);
        link.queue.push(reserved, true);
        let count = link.queue.sent_count();
        let Ok(Some(number)) = fabric.send_lent(link.name, header_of(&meta).to_vec(), way == Way::Wanted) else {
            return self.give_up(at);
        };
        let is_taken = match way {
            Way::Frames => return,
            Way::Wanted => self.wait_until_taken(to, count, bytes),
            Way::Begun if !self.offer_lent(to, number, &meta, bytes) => false,
            Way::Begun => self.wait_until_taken(to, count, bytes),
            Way::Sealed => self.wait_while_moving(to, count, bytes),
        };
        if let Ok(at) = self.position(to) {
            self.links[at].lends.note(is_taken);
        }
    }

    /// Lends the rest of a message once a receive waits for it. Returns false if none tells so soon. What the receive tells may be
    /// on its way: a peer that answers does so at once. So it is awaited for a part of the time that a copy takes.
    fn offer_lent(&mut self, to: Tid, number: u64, meta: &Meta, bytes: usize) -> bool {
        let (begun, limit) = (Instant::now(), Duration::from_nanos(bytes as u64 / 32).min(AWAIT_TIME_MAX));
        loop {
            self.poll();
            let (Ok(at), State::Open(fabric)) = (self.position(to), &mut self.state) else { return false };
            let name = self.links[at].name;
            if fabric.wanted_of(name, number).is_some_and(|words| is_wanted(words, meta, bytes)) {
                match fabric.offer_lent(name) {
                    Ok(true) => return true,
                    Ok(false) => {}
                    Err(_) => {
                        self.give_up(at);
                        return false;
                    }
                }
            }
            if self.links[at].lane.falls_back() || begun.elapsed() >= limit {
                return false;
            }
        }
    }

    /// Returns whether the peer has taken the first `count` messages, or the link has ended, after it was polled.
    fn has_ended(&mut self, to: Tid, count: u32) -> Option<bool> {
        self.poll();
        match self.position(to) {
            Ok(at) if self.links[at].queue.acknowledged() == count => Some(true),
            Ok(at) if !self.links[at].lane.falls_back() => None,
            _ => Some(false),
        }
    }

    /// Polls until the peer has taken the first `count` messages. Returns whether it has.
    fn wait_until_taken(&mut self, to: Tid, count: u32, bytes: usize) -> bool {
        let begun = Instant::now();
        let mut patience = Patience::new(time_for(bytes), begun);
        while !patience.is_over(Instant::now()) {
            if let Some(is_taken) = self.has_ended(to, count) {
                return is_taken;
            }
            if begun.elapsed() > SPIN_TIME {
                self.rest();
            }
        }
        false
    }

    /// Polls until the peer has taken the first `count` messages, as long as pieces move: at most the time that a copy takes
    /// passes without. Returns whether it has taken them.
    fn wait_while_moving(&mut self, to: Tid, count: u32, bytes: usize) -> bool {
        let (mut since, mut before) = (Instant::now(), None);
        let limit = Duration::from_nanos(bytes as u64 / 8);
        loop {
            if let Some(is_taken) = self.has_ended(to, count) {
                return is_taken;
            }
            let (Ok(at), State::Open(fabric)) = (self.position(to), &self.state) else { return false };
            let moved = fabric.pieces_moved(self.links[at].name);
            if before.replace(moved) != Some(moved) {
                since = Instant::now();
            } else if since.elapsed() >= limit {
                return false;
            }
        }
    }

    /// Copies the body of the message whose memory was lent, unless the peer has taken it: what it sends next is to find its
    /// receive, so nothing more is taken in then.
    fn keep_lent(&mut self, to: Tid, body: &[u8]) {
        let Ok(at) = self.position(to) else { return };
        let link = &mut self.links[at];
        let Some(message) = link.queue.last() else { return };
        message.body.fill(Body::Bytes(body));
        if let (Some(copy), State::Open(fabric)) = (message.body.share(), &mut self.state) {
            fabric.keep_lent(link.name, &copy);
        }
        self.wait_for_peer(to, body.len());
    }

    /// Sends a message from the program's memory, if that is quicker. Returns whether it did.
    pub fn send_in_place(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<bool, Code> {
        let Body::Bytes(bytes) = body else { return Ok(false) };
        if bytes.len() < FRAMES_BYTES_MIN {
            return Ok(false);
        }
        let way = self.way_of(to, &meta, bytes.len());
        let (Some((way, lender)), Ok(at)) = (way, self.position(to)) else { return Ok(false) };
        // Memory that is not touched if the peer takes the message during the call.
        let copy = QueuedBody::reserve(body, &mut self.links[at].queue.pool)?;
        let reserved = QueuedMessage { meta, body: copy, length: bytes.len() };
        lender.lend(bytes, self, FabricRoute::discard, |fabric| fabric.send_lent(to, reserved, way));
        self.keep_lent(to, bytes);
        Ok(true)
    }
}
