//! Messages on their way out.
use super::heap::HeapParts;
use super::offers::{Body, Offer, offered, own_region};
use super::pieces::{Pieces, Source};
use super::{Broken, FabricEvent, FabricLinks, LinkName, Neighbour, no_region, send_frame};
use pvm_core::fabric::{Message, Transfer};
use pvm_fmp::{Block, count_copy};
use pvm_net::fabric::{Endpoint, Failure, RegionId, Remote, SendError};
use std::sync::Arc;
use std::time::Instant;

/// The shortest body that is read from the task's heap, in bytes.
const HEAP_BYTES_MIN: usize = 64 << 10;

impl FabricLinks {
    /// Returns how many bytes content and body may have together to travel in one frame. Longer bodies are read by the
    /// peer.
    pub fn short_bytes_max(&self, name: LinkName) -> usize {
        self.neighbours.get(&name).map_or(0, |to| to.link.short_bytes_max(to.frame_seal_bytes()))
    }

    /// Returns how a body of this length would travel, and whether it would be sealed; `None` if there is no such link.
    pub fn transfer_of(&self, name: LinkName, bytes: usize) -> Option<(Transfer, bool)> {
        let to = self.neighbours.get(&name)?;
        Some((to.link.wishes_of_peer().transfer_of(bytes), to.seals.is_some()))
    }

    /// Sends a message whose whole content fits a frame. Returns its number, or `None` if there is no such link.
    pub fn send_short(&mut self, name: LinkName, content: Vec<u8>) -> Option<u64> {
        let to = self.neighbours.get_mut(&name)?;
        assert!(content.len() <= to.link.short_bytes_max(to.frame_seal_bytes()), "the content fits a frame");
        let number = to.link.send(Message::Short(content));
        self.transmit(name);
        Some(number)
    }

    /// Sends a message with a body that does not fit a frame: in several frames, or the peer reads it. Returns its number, or
    /// `None` if there is no such link.
    pub fn send_long(&mut self, name: LinkName, content: Vec<u8>, body: Body) -> Result<Option<u64>, Failure> {
        let Some(to) = self.neighbours.get_mut(&name) else { return Ok(None) };
        assert!(content.len() <= to.link.offer_content_bytes_max(to.frame_seal_bytes()), "the content fits a frame");
        let bytes = body.len();
        if let Body::InRegion(region, offset, bytes) = &body {
            self.endpoint.remote(*region, *offset, *bytes).ok_or_else(no_region)?;
        }
        let number = match (to.link.wishes_of_peer().transfer_of(bytes), body) {
            (Transfer::Eager, body) => {
                to.bodies.eager.push_back(Source::from(body));
                to.link.send_eager(content, bytes)
            }
            (Transfer::Read, body) if (to.seals.is_some() || matches!(body, Body::Lent(..))) && bytes > 0 => {
                let spare = to.seals.is_some().then_some(&mut self.spare_stages);
                to.pieces.push(Source::from(body), &mut self.endpoint, spare)?;
                to.link.send_in_pieces(content, bytes as u64)
            }
            (Transfer::Read, body) => {
                let endpoint = &mut self.endpoint;
                let (region, offset, offer) = match body {
                    Body::InRegion(region, offset, _) => (region, offset, Offer::Kept),
                    Body::Bytes(body) => own_region(endpoint, body)?,
                    Body::InBlock(block, bytes) => block_region(&mut self.heap, endpoint, &block, bytes)?,
                    Body::Lent(..) => return Err(no_region()),
                };
                let remote = endpoint.remote(region, offset, bytes).ok_or_else(no_region)?;
                to.offer(content, remote, bytes, offer)
            }
        };
        self.active_at = Some(Instant::now());
        self.transmit(name);
        Ok(Some(number))
    }

    /// Sends what the peer has buffers for. Seals one piece at the most: the provider has its turn before the next one.
    pub(super) fn transmit(&mut self, name: LinkName) {
        let mut may_make = true;
        while let Some(to) = self.neighbours.get_mut(&name) {
            if may_make {
                match to.make_piece(&mut self.endpoint) {
                    Ok(has_made) => may_make = !has_made,
                    Err(failure) => return self.give_up(name, Broken::Provider(failure)),
                }
            }
            let Some(ready) = to.link.ready(to.frame_seal_bytes()) else { break };
            let (is_end, copied) = ready.body.map_or((false, 0), |part| (part.is_last, part.bytes));
            let source = to.bodies.eager.front();
            match send_frame(&mut self.endpoint, to.peer, to.seals.as_ref(), &ready, source) {
                Ok(()) => {
                    to.link.sent();
                    count_copy(copied);
                    if is_end {
                        to.bodies.eager.pop_front();
                    }
                }
                Err(SendError::Full) => return self.mark_due(name),
                Err(SendError::TooLong) => unreachable!("a frame is not longer than the peer's buffers, nor ours"),
                Err(SendError::Failed(failure)) => return self.give_up(name, Broken::Provider(failure)),
            }
        }
        if self.neighbours.get(&name).is_some_and(Neighbour::can_make_piece) {
            self.mark_due(name);
        }
    }

    pub(super) fn mark_due(&mut self, name: LinkName) {
        if !self.due.contains(&name) {
            self.due.push(name);
        }
    }

    /// Returns whether there is a piece to make ready, and memory for it.
    pub(super) fn can_make_piece(&self) -> bool {
        let can = |name: &LinkName| self.neighbours.get(name).is_some_and(Neighbour::can_make_piece);
        self.due.iter().any(can)
    }

    /// Frees the memory of the bodies that the peer has taken.
    pub(super) fn taken(&mut self, name: LinkName, up_to: u64) {
        let Some(to) = self.neighbours.get_mut(&name) else { return };
        while to.offers.front().is_some_and(|(number, _)| *number < up_to) {
            if let Some((_, offer)) = to.offers.pop_front() {
                offer.taken(&mut self.heap, &mut self.endpoint);
            }
        }
        self.events.push_back(FabricEvent::Sent(name, up_to));
    }
}

/// Registers the part of the heap with this body. A short body is copied: that takes less time. So is one where the heap cannot
/// be registered, since the process may lock no more memory, or the pages of the system are longer than those of the heap.
fn block_region(
    heap: &mut HeapParts,
    endpoint: &mut Endpoint,
    block: &Block,
    bytes: usize,
) -> Result<(RegionId, usize, Offer), Failure> {
    let offered = if bytes < HEAP_BYTES_MIN { None } else { heap.offer(block, endpoint).ok() };
    match offered {
        Some((region, offset)) => Ok((region, offset, Offer::InHeap(region))),
        None => {
            count_copy(bytes);
            own_region(endpoint, Arc::new(block.lend(0..bytes).to_vec()))
        }
    }
}

impl Neighbour {
    /// Offers a body to the peer. Returns the number of the message.
    pub(super) fn offer(&mut self, content: Vec<u8>, remote: Remote, bytes: usize, offer: Offer) -> u64 {
        let number = self.link.send(Message::Long(content, offered(remote, bytes)));
        self.offers.push_back((number, offer));
        number
    }

    /// Makes the next piece of a body ready, if there is one. Returns whether it did.
    fn make_piece(&mut self, endpoint: &mut Endpoint) -> Result<bool, Failure> {
        match &self.seals {
            Some(seals) => self.pieces.seal(&mut self.link, seals, endpoint),
            None => self.pieces.offer(&mut self.link, endpoint, &mut self.offers),
        }
    }

    fn can_make_piece(&self) -> bool {
        self.pieces.can_make(&self.link, self.seals.is_some())
    }

    /// Frees the memory of all bodies when the link has ended.
    pub(super) fn free_bodies(
        offers: impl Iterator<Item = Offer>,
        pieces: Pieces,
        is_sealed: bool,
        (endpoint, heap, spare): (&mut Endpoint, &mut HeapParts, &mut Vec<RegionId>),
    ) {
        offers.for_each(|offer| offer.left(heap, endpoint));
        match pieces.into_stages() {
            // What the old peer may still read there is sealed for others.
            Some(stages) if is_sealed => spare.push(stages),
            Some(stages) => endpoint.retire(stages),
            None => {}
        }
    }
}
