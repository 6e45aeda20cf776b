//! How messages get on the fabric.
use super::waiting::pause;
use super::{FabricRoute, HEADER_BYTES, State, header_of};
use crate::direct::Body;
use crate::direct::send_queue::{QueuedBody, QueuedMessage};
use crate::fabric::Body as LongBody;
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use std::time::{Duration, Instant};

/// While more than this is on its way to a peer, a sender waits for the peer, in bytes and messages.
const UNTAKEN_BYTES: usize = 4 << 20;
const UNTAKEN_MESSAGES: usize = 512;
/// How long a sender waits for a peer that takes nothing.
const SEND_WAIT_MAX: Duration = Duration::from_millis(20);
/// Bodies up to this length, in bytes, are copied once more: that takes less than a place of their own. Several of them may
/// travel in one frame.
const COPIED_BYTES: usize = 4 << 10;
/// While fewer messages than this are on their way, a sender that only sends does not look what has arrived.
const UNPOLLED_MESSAGES: usize = 8;

/// Returns a copy of a body behind these bytes.
fn whole(lead: &[u8], body: Body<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lead.len() + body.len());
    bytes.extend_from_slice(lead);
    body.with_pieces([(&[][..], 0..body.len())].into_iter(), |parts| {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
    });
    bytes
}

impl FabricRoute {
    /// Sends a message, or queues it until the peer has buffers for it. If the link has ended, the message is queued to be
    /// sent on the default route.
    pub fn send(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        // If the link is gone, its peer has ended, and the message is dropped.
        let Ok(at) = self.position(to) else { return Ok(()) };
        let sends_from_heap = self.sends_from_heap();
        let link = &mut self.links[at];
        if link.is_blocked && !link.queue.has_room(body.len()) {
            return Err(Code::NoMem);
        }
        let short_bytes_max = match &self.state {
            State::Open(fabric) if !link.lane.falls_back() => fabric.short_bytes_max(link.name),
            _ => 0,
        };
        if HEADER_BYTES + body.len() <= short_bytes_max && body.len() <= COPIED_BYTES {
            let mut copy = QueuedBody::reserve(body, &mut link.queue.pool)?;
            copy.fill(body);
            link.queue.push(QueuedMessage { meta, body: copy, length: body.len() }, true);
            self.put_short(at, &meta, body);
        } else {
            let (queued, sent) = match body {
                // It stays where it was packed.
                Body::Blocks([(block, used)]) if sends_from_heap => {
                    (QueuedBody::reserve(body, &mut link.queue.pool)?, LongBody::InBlock(block.clone(), *used))
                }
                _ => {
                    let copy = QueuedBody::shared(body, &mut link.queue.pool)?;
                    (QueuedBody::Shared(copy.clone()), LongBody::Bytes(copy))
                }
            };
            self.bodies_used_at = Some(Instant::now());
            link.queue.push(QueuedMessage { meta, body: queued, length: body.len() }, true);
            if link.lane.falls_back() {
                return Ok(());
            }
            self.put_long(at, &meta, sent);
        }
        self.wait_for_peer(to, body.len());
        Ok(())
    }

    /// Hands a message to the fabric that fits a frame.
    fn put_short(&mut self, at: usize, meta: &Meta, body: Body<'_>) {
        if let State::Open(fabric) = &mut self.state {
            fabric.send_short(self.links[at].name, whole(&header_of(meta), body));
        }
    }

    /// Returns whether packed bodies may be sent from where they lie.
    fn sends_from_heap(&self) -> bool {
        matches!(&self.state, State::Open(fabric) if fabric.may_lend())
    }

    /// Hands a long message to the fabric, with the memory in which its body is queued.
    fn put_long(&mut self, at: usize, meta: &Meta, body: LongBody) {
        let State::Open(fabric) = &mut self.state else { return };
        if fabric.send_long(self.links[at].name, header_of(meta).to_vec(), body).is_err() {
            // There is no memory that the peer could read.
            self.give_up(at);
        }
    }

    /// Waits while much is on its way and the peer goes on taking it. Meanwhile takes in what arrives.
    pub(super) fn wait_for_peer(&mut self, peer: Tid, last_bytes: usize) {
        // When the peer was last seen to take something, and how much it had taken then.
        let mut progress: Option<(Instant, u32)> = None;
        loop {
            let Ok(at) = self.position(peer) else { return };
            let link = &self.links[at];
            if link.queue.len() < UNPOLLED_MESSAGES && last_bytes < UNTAKEN_BYTES && progress.is_none() {
                return;
            }
            self.poll();
            let Ok(at) = self.position(peer) else { return };
            let link = &mut self.links[at];
            let is_much = link.queue.bytes() > UNTAKEN_BYTES + last_bytes || link.queue.len() > UNTAKEN_MESSAGES;
            if !is_much || link.is_blocked || link.lane.falls_back() {
                return;
            }
            let taken = link.queue.acknowledged();
            match progress {
                Some((since, before)) if before == taken => {
                    if since.elapsed() >= SEND_WAIT_MAX {
                        link.is_blocked = true;
                        return;
                    }
                }
                _ => progress = Some((Instant::now(), taken)),
            }
            self.rest();
        }
    }

    /// Waits for what arrives next, but not long.
    pub fn rest(&mut self) {
        if let State::Open(fabric) = &mut self.state {
            let wait = fabric.how_to_wait(Instant::now());
            pause(wait, fabric.endpoint().descriptor());
        }
    }
}
