//! Sending: a body goes into the queue, or into the heap with its descriptor in the queue.

use super::passed::{PIPELINED_BYTES_MIN as PASSED_PIPELINED_BYTES_MIN, pass_at_once};
use super::wake::{Ringer, ring};
use super::{BYTES_PER_POLL, Endpoint, PIPELINED_BYTES_MIN, SEND_BYTES};
use crate::arrival::FRAGMENTS_MAX;
use crate::copy::touch_pages;
use crate::heap::Block;
use crate::pair_memory::{CELL_BYTES_MAX, CELLS};
use crate::peer::{Outbound, Peer};
use crate::pipelined;
use crate::queue::{FIRST_BYTES, Kind};
use crate::traffic::{Route, route_by};
use crate::{INLINE_BYTES_MAX, Immediate, Meta, NoMemory, SendError, Sent};

impl Endpoint {
    /// Allocates a block of at least `bytes` in this endpoint's heap.
    pub fn allocate(&mut self, bytes: usize) -> Result<Block, NoMemory> {
        Block::allocate(&self.heap, bytes)
    }

    /// Sends a message by the shortest path, if it fits in the queue. Otherwise returns `None`: the caller then needs
    /// [`Endpoint::send_bytes`], which also checks whether the peer lives.
    #[inline(always)]
    pub fn send_in_queue(&mut self, to: u32, meta: &Meta, body: &[u8]) -> Option<Sent> {
        if body.len() > INLINE_BYTES_MAX {
            return None;
        }
        let index = self.index_of(to)?;
        let peer = self.peers[index].as_deref_mut().filter(|peer| peer.is_in_order())?;
        let sent = if body.len() <= FIRST_BYTES { peer.push_short(meta, body) } else { peer.push_message(meta, body) };
        if !sent {
            return None;
        }
        self.uncollected += SEND_BYTES;
        self.traffic.sent(route_by(to), body.len());
        Some(ring(peer, self.barriers))
    }

    /// Does what [`Endpoint::send_in_queue`] does, for a longer body and a peer with whom this task shares a cell.
    #[inline]
    pub fn send_in_cell(&mut self, to: u32, meta: &Meta, body: &[u8]) -> Option<Sent> {
        // While tasks outnumber the cores, the receiver would often have to wait for us in the middle of a long body.
        let is_long = body.len() >= PASSED_PIPELINED_BYTES_MIN && self.crowded();
        if is_long || body.len() >= self.rendezvous_bytes_min {
            return None;
        }
        let index = self.index_of(to)?;
        let peer = self.peers[index].as_deref_mut().filter(|peer| peer.is_in_order())?;
        let sent = pass_at_once(peer, self.barriers, meta, body)?;
        self.uncollected += SEND_BYTES;
        self.traffic.sent(Route::Memory, body.len());
        Some(sent)
    }

    /// Sends an immediate message to a task; all code of this path is inlined. Returns whether the caller must then
    /// wake the peer ([`Endpoint::wake`]), or `None` if the message was not sent.
    #[inline(always)]
    pub fn send_immediate(&mut self, to: u32, immediate: &Immediate) -> Option<bool> {
        let index = self.index_of(to)?;
        let peer = self.peers[index].as_mut().filter(|peer| !crate::is_daemon(to) && peer.is_in_order())?;
        if !peer.push_immediate(immediate) {
            return None;
        }
        self.uncollected += SEND_BYTES;
        self.traffic.sent(Route::Memory, immediate.len());
        Some(peer.owner.mapping.header().parker.0.parked(self.barriers).is_some())
    }

    /// Sends bytes: in the queue if they are few, straight from `body` if they are many and the peer waits for them,
    /// else through the heap. The caller may reuse `body` when the call returns. Waits for the receiver only in a
    /// rendezvous, which needs a receiver that has announced that it waits for this message.
    #[inline]
    pub fn send_bytes(&mut self, to: u32, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        self.send_with(to, meta, body, None)
    }

    /// Does what [`Endpoint::send_bytes`] does, for a caller that can ask the daemon to ring during the call. This
    /// makes a rendezvous possible even if the peer sleeps and this task has not kept the peer's doorbell.
    #[inline]
    pub fn send_bytes_ringing(
        &mut self,
        to: u32,
        meta: Meta,
        body: &[u8],
        ring_by_daemon: &mut dyn FnMut(),
    ) -> Result<Sent, SendError> {
        self.send_with(to, meta, body, Some(ring_by_daemon))
    }

    #[inline]
    fn send_with(&mut self, to: u32, meta: Meta, body: &[u8], ringer: Ringer<'_>) -> Result<Sent, SendError> {
        let sent = match body.len() {
            ..=INLINE_BYTES_MAX => self.queue(to, Kind::Message, &meta, body),
            _ => self.send_long(to, meta, body, ringer),
        };
        self.counted(to, body.len(), sent)
    }

    /// Counts a message that was sent.
    #[inline]
    pub(super) fn counted(&self, to: u32, bytes: usize, sent: Result<Sent, SendError>) -> Result<Sent, SendError> {
        if sent.is_ok() {
            self.traffic.sent(route_by(to), bytes);
        }
        sent
    }

    fn send_long(&mut self, to: u32, meta: Meta, body: &[u8], mut ringer: Ringer<'_>) -> Result<Sent, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        self.order_after_frames(index)?;
        let waits = !crate::is_daemon(to);
        if body.len() > CELL_BYTES_MAX {
            if let Some(sent) = self.send_streamed(index, &meta, body, &mut ringer) {
                return sent;
            }
        }
        touch_pages(body);
        let reached = |peer: &Peer| ringer.is_some() || peer.bell.is_some();
        let rendezvous =
            waits && body.len() >= self.rendezvous_bytes_min && self.peers[index].as_deref().is_some_and(reached);
        if rendezvous && self.peer_waits_for(index, &meta) {
            let sent = self.send_rendezvous(index, meta, body, ringer);
            // Tasks that answer each other soon stream such bodies instead: that is twice as fast.
            self.note_unpassed(index, body.len(), CELLS);
            return sent;
        }
        // A daemon answers nobody.
        if let Some(sent) = waits.then(|| self.send_passed(index, &meta, body)).flatten() {
            return sent;
        }
        let sent = self.send_through_heap(index, to, meta, body);
        if waits {
            self.note_unpassed(index, body.len(), CELLS);
        }
        sent
    }

    fn send_through_heap(&mut self, index: usize, to: u32, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        // A body to a daemon is not pipelined, since a daemon never waits for the end of a body. While tasks outnumber
        // the cores, no body is pipelined: the peer would often have to wait for us in the middle of the body.
        if !crate::is_daemon(to) && body.len() >= PIPELINED_BYTES_MIN && !self.crowded() {
            return self.send_pipelined(index, meta, body);
        }
        let block = self.allocate(body.len()).map_err(|_| SendError::NoMemory)?;
        block.write(0, body);
        self.queue_blocks(to, meta, &[(block, body.len())])
    }

    /// Sends through the heap, chunk by chunk: the peer can copy the first chunks out while we copy the next ones in.
    fn send_pipelined(&mut self, index: usize, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        let block = self.allocate(pipelined::HEAD_BYTES + body.len()).map_err(|_| SendError::NoMemory)?;
        let progress = block.head_word();
        pipelined::advance(progress, 0);
        let peer = self.peers[index].as_mut().expect("connected");
        let (to, token) = (peer.tid, peer.outstanding.add([block.clone()]));
        let mut words = [0u8; 24];
        for (place, word) in words.chunks_exact_mut(8).zip([u64::from(token), block.offset(), body.len() as u64]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let first = self.queue(to, Kind::Pipelined, &meta, &words);
        let peer = self.peers[index].as_mut().expect("connected");
        if first.is_err() {
            peer.outstanding.remove(token);
            return first;
        }
        let piece_bytes = pipelined_chunk_bytes(body.len());
        peer.pair
            .copies_in
            .write(&block, pipelined::HEAD_BYTES, body, piece_bytes, |done| pipelined::advance(progress, done));
        self.uncollected += body.len();
        // The peer may have gone to sleep because the body was incomplete.
        Ok(if ring(peer, self.barriers) == Sent::RingByDaemon { Sent::RingByDaemon } else { first? })
    }

    /// Sends the content of blocks (each with its used length), without a copy. The blocks may be sent again, also to
    /// others. Do not overwrite the bytes that were sent while a receiver may still read them; append behind them
    /// instead.
    pub fn send_blocks(&mut self, to: u32, meta: Meta, body: &[(Block, usize)]) -> Result<Sent, SendError> {
        let bytes = body.iter().map(|(_, used)| used).sum();
        let sent = match body.len() {
            ..=FRAGMENTS_MAX => self.queue_blocks(to, meta, body),
            _ => match self.join(body) {
                Ok(joined) => self.queue_blocks(to, meta, &[joined]),
                Err(NoMemory) => Err(SendError::NoMemory),
            },
        };
        self.counted(to, bytes, sent)
    }

    /// Queues the descriptor of at most [`FRAGMENTS_MAX`] blocks.
    fn queue_blocks(&mut self, to: u32, meta: Meta, body: &[(Block, usize)]) -> Result<Sent, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        let peer = self.peers[index].as_mut().expect("connected");
        let token = peer.outstanding.add(body.iter().map(|(block, _)| block.clone()));
        let sent = match body {
            [one] => self.queue(to, Kind::Blocks, &meta, &descriptor::<24>(token, std::slice::from_ref(one))),
            _ => {
                let bytes = descriptor::<{ 8 + 16 * FRAGMENTS_MAX }>(token, body);
                self.queue(to, Kind::Blocks, &meta, &bytes[..8 + 16 * body.len()])
            }
        };
        if sent.is_err() {
            self.peers[index].as_mut().expect("connected").outstanding.remove(token);
        }
        self.uncollected += body.iter().map(|(_, used)| used).sum::<usize>();
        sent
    }

    /// Joins fragments in one block: a descriptor has room for so many only.
    pub(super) fn join(&mut self, body: &[(Block, usize)]) -> Result<(Block, usize), NoMemory> {
        let bytes = body.iter().map(|(_, used)| used).sum();
        let whole = self.allocate(bytes)?;
        let mut done = 0;
        for (block, used) in body {
            whole.fill_from(done, block, *used);
            done += used;
        }
        Ok((whole, bytes))
    }

    /// Puts an entry into the queue to `to`, and wakes that peer if it sleeps.
    #[inline]
    pub(super) fn queue(&mut self, to: u32, kind: Kind, meta: &Meta, body: &[u8]) -> Result<Sent, SendError> {
        match self.queue_unrung(to, kind, meta, body)? {
            Some(index) => Ok(ring(self.peers[index].as_ref().expect("connected"), self.barriers)),
            None => Ok(Sent::Done),
        }
    }

    /// Puts an entry into the queue to `to`. Returns the peer's index, or `None` if the peer is dead.
    #[inline]
    pub(super) fn queue_unrung(
        &mut self,
        to: u32,
        kind: Kind,
        meta: &Meta,
        body: &[u8],
    ) -> Result<Option<usize>, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
            return Ok(None);
        }
        self.order_after_frames(index)?;
        self.uncollected += SEND_BYTES;
        let peer = self.peers[index].as_mut().expect("connected");
        peer.push(self.tid, &self.heap, kind, meta, body).map_err(|NoMemory| SendError::NoMemory)?;
        Ok(Some(index))
    }

    /// Wakes a peer if it sleeps; sends no message.
    pub fn wake(&mut self, to: u32) -> Sent {
        match self.index_of(to).and_then(|index| self.peers[index].as_ref()) {
            Some(peer) => ring(peer, self.barriers),
            None => Sent::RingByDaemon,
        }
    }

    /// Returns how many half-slots have been written to a peer: [`Endpoint::has_read`] returns whether the peer has
    /// read them.
    pub fn written(&self, to: u32) -> u64 {
        let peer = self.index_of(to).and_then(|index| self.peers[index].as_ref());
        peer.and_then(|peer| peer.out.as_ref()).map_or(0, Outbound::written)
    }

    /// Returns whether a peer has read the queue up to `written`, or is gone.
    pub fn has_read(&mut self, to: u32, written: u64) -> bool {
        let us = self.tid;
        match self.index_of(to).and_then(|index| self.peers[index].as_mut()) {
            Some(peer) => peer.consumed(us) >= written || !self.ports.as_ref().is_some_and(|ports| ports.alive(to)),
            None => true,
        }
    }

    /// Returns whether so much has been sent since the last [`Endpoint::poll`] that the caller should poll, to collect
    /// blocks that receivers have released.
    #[inline(always)]
    pub fn should_poll(&self) -> bool {
        self.uncollected >= BYTES_PER_POLL
    }
}

/// Returns the size of a chunk: with small chunks the receiver begins earlier, with large ones it polls less often.
fn pipelined_chunk_bytes(bytes: usize) -> usize {
    (bytes / 8).clamp(4 << 10, 32 << 10) / 64 * 64
}

/// Returns the descriptor that tells a receiver where a body is: token, number of fragments, offset and length of each
/// fragment, and how to copy it.
pub(super) fn descriptor<const BYTES: usize>(token: u32, body: &[(Block, usize)]) -> [u8; BYTES] {
    let mut bytes = [0u8; BYTES];
    bytes[..4].copy_from_slice(&token.to_ne_bytes());
    bytes[4..8].copy_from_slice(&(body.len() as u32).to_ne_bytes());
    let mut may_time = true;
    for ((block, used), place) in body.iter().zip(bytes[8..].chunks_exact_mut(16)) {
        let (word, is_timed) = block.order_for(*used, may_time);
        may_time &= !is_timed;
        place[..8].copy_from_slice(&block.offset().to_ne_bytes());
        place[8..].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
