//! Bodies on their way out, piece by piece. A sealed body is sealed so, in memory that is used again when the peer has read
//! the piece: so sealing, transfer and opening go on at the same time, and what is sealed is still in a cache when the
//! provider sends it. The first piece of a body in clear is copied if its sender does not know yet whether a receive waits:
//! the peer reads it while the sender learns that.
use super::no_region;
use super::sealed::Seals;
use super::sending::{Body, Offer, offered, own_region};
use pvm_core::fabric::{Link, PIECE_TAG_BYTES};
use pvm_fmp::{Block, count_copy};
use pvm_net::fabric::{Endpoint, Failure, Memory, RegionId, SendError, Start};
use std::collections::VecDeque;
use std::sync::Arc;

/// The longest sealed piece in bytes.
const PIECE_BYTES: usize = 128 << 10;
/// How many sealed pieces of a link are ready at a time: twice as many as the peer may leave unreported, so that there is
/// always one to read.
const STAGES: usize = 16;
/// The length of the copied piece in bytes: its transfer takes about as long as a frame of the peer.
const FIRST_BYTES: usize = 64 << 10;
/// How many copied pieces of a link in clear are kept.
const CLEAR_STAGES: usize = 2;

/// Where a body is.
pub(super) enum Source {
    /// There.
    At(Start),
    /// Here.
    Bytes(Arc<Vec<u8>>),
    /// In the task's heap: the first bytes of a block.
    Block(Block),
}

impl From<Body> for Source {
    fn from(body: Body) -> Source {
        match body {
            Body::InRegion(region, offset, _) => Source::At(Start::InRegion(region, offset)),
            Body::Lent(loan, _) => Source::At(Start::Lent(loan, 0)),
            Body::Bytes(bytes) => Source::Bytes(bytes),
            Body::InBlock(block, _) => Source::Block(block),
        }
    }
}

impl Source {
    /// Returns whether the body is in memory that is lent.
    pub fn is_lent(&self) -> bool {
        matches!(self, Source::At(Start::Lent(..)))
    }

    /// Copies bytes of the body to memory of the endpoint.
    fn copy(&self, at: usize, endpoint: &mut Endpoint, to: (RegionId, usize), bytes: usize) -> Option<()> {
        count_copy(bytes);
        match self {
            Source::At(start) => return endpoint.copy(start.after(at), to, bytes),
            Source::Bytes(body) => endpoint.part_mut(to.0, to.1, bytes)?.copy_from_slice(&body[at..at + bytes]),
            Source::Block(block) => {
                endpoint.part_mut(to.0, to.1, bytes)?.copy_from_slice(&block.lend(at..at + bytes));
            }
        }
        Some(())
    }

    /// Calls `send` with the bytes, or with the place from which the endpoint is to take them.
    pub fn with_bytes(
        &self,
        at: usize,
        bytes: usize,
        send: impl FnOnce(&[u8], Option<Start>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        match self {
            Source::At(start) => send(&[], Some(start.after(at))),
            Source::Bytes(body) => send(&body[at..at + bytes], None),
            Source::Block(block) => send(&block.lend(at..at + bytes), None),
        }
    }
}

/// The bodies of one link that are not offered to their ends, and the memory in which their pieces are.
#[derive(Default)]
pub(super) struct Pieces {
    sources: VecDeque<Source>,
    stages: Option<RegionId>,
    free: Vec<usize>,
    /// The numbers of pieces that the peer may read, and their stages.
    used: VecDeque<(u64, usize)>,
}

impl Pieces {
    /// Queues a body. `spare` has memory of sealed links that have ended; `None` for a link in clear.
    pub fn push(
        &mut self,
        source: Source,
        endpoint: &mut Endpoint,
        spare: Option<&mut Vec<RegionId>>,
    ) -> Result<(), Failure> {
        if self.stages.is_none() {
            let no_memory = |_| Failure { call: "mmap", words: "no memory for pieces".into() };
            let count = if spare.is_some() { STAGES } else { CLEAR_STAGES };
            self.stages = Some(match spare.and_then(Vec::pop) {
                Some(region) => region,
                None => endpoint.register(Memory::anonymous(count * PIECE_BYTES).map_err(no_memory)?)?,
            });
            self.free = (0..count).rev().collect();
        }
        self.sources.push_back(source);
        Ok(())
    }

    /// Makes the memory of pieces free that the peer has taken.
    pub fn taken(&mut self, link: &Link) {
        let is_taken = |(number, _): &&(u64, usize)| *number < link.pieces_taken_by_peer();
        let taken = self.used.iter().take_while(is_taken).count();
        self.free.extend(self.used.drain(..taken).map(|(_, stage)| stage));
    }

    /// Returns whether the peer may read pieces.
    pub fn is_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// Returns whether there is a piece to make ready, and memory for it.
    pub fn can_make(&self, link: &Link, is_sealed: bool) -> bool {
        let is_possible = match self.sources.front() {
            None => false,
            Some(_) if is_sealed => !self.free.is_empty(),
            Some(source) => !source.is_lent() || (self.is_whole(link) && !self.free.is_empty()),
        };
        is_possible && link.lacking().is_some()
    }

    /// Returns whether nothing of the next body is offered.
    fn is_whole(&self, link: &Link) -> bool {
        link.lacking().is_some_and(|lacking| lacking.at == 0)
    }

    /// Seals the next piece, if [`Pieces::can_make`]. Returns whether it did.
    pub fn seal(&mut self, link: &mut Link, seals: &Seals, endpoint: &mut Endpoint) -> Result<bool, Failure> {
        let Some(lacking) = link.lacking() else { return Ok(false) };
        self.stage(link, endpoint, PIECE_BYTES, |piece| seals.seal_piece(lacking.number, piece))
    }

    /// Copies the next piece, of at most `bytes_max` bytes, to free memory, and makes it ready. Returns whether there was
    /// one.
    fn stage(
        &mut self,
        link: &mut Link,
        endpoint: &mut Endpoint,
        bytes_max: usize,
        tag_of: impl FnOnce(&mut [u8]) -> [u8; PIECE_TAG_BYTES],
    ) -> Result<bool, Failure> {
        let (Some(lacking), Some(stages)) = (link.lacking(), self.stages) else { return Ok(false) };
        let Some(stage) = self.free.pop() else { return Ok(false) };
        let (at, left) = (lacking.at as usize, lacking.bytes as usize);
        let (bytes, start) = (left.min(bytes_max), stage * PIECE_BYTES);
        let source = self.sources.front().expect("each body has a source until its last piece");
        source.copy(at, endpoint, (stages, start), bytes).ok_or_else(no_region)?;
        let tag = tag_of(endpoint.part_mut(stages, start, bytes).ok_or_else(no_region)?);
        let remote = endpoint.remote(stages, start, bytes).ok_or_else(no_region)?;
        link.add_piece(offered(remote, bytes), tag);
        self.used.push_back((lacking.number, stage));
        if bytes == left {
            self.sources.pop_front();
        }
        Ok(true)
    }

    /// Offers the next piece of a body in clear, if [`Pieces::can_make`]: a copied piece of one that is lent, or all that is
    /// left of another one. Returns whether it did.
    pub fn offer(
        &mut self,
        link: &mut Link,
        endpoint: &mut Endpoint,
        offers: &mut VecDeque<(u64, Offer)>,
    ) -> Result<bool, Failure> {
        let Some(lacking) = link.lacking() else { return Ok(false) };
        let copy = match self.sources.front() {
            Some(Source::Bytes(copy)) => copy.clone(),
            Some(source) if source.is_lent() && lacking.at == 0 => {
                return self.stage(link, endpoint, FIRST_BYTES, |_| [0; PIECE_TAG_BYTES]);
            }
            _ => return Ok(false),
        };
        let (region, _, offer) = own_region(endpoint, copy)?;
        self.offer_rest(link, endpoint, (region, lacking.at as usize), offers, offer)
    }

    /// Offers what is left of the body that is lent, in its own memory. Returns false if that is not possible yet.
    pub fn offer_lent(
        &mut self,
        link: &mut Link,
        endpoint: &mut Endpoint,
        offers: &mut VecDeque<(u64, Offer)>,
    ) -> Result<bool, Failure> {
        let Some(lacking) = link.lacking() else { return Ok(false) };
        if !self.sources.front().is_some_and(Source::is_lent) {
            return Ok(false);
        }
        let region = endpoint.register_lent(lacking.at as usize)?.ok_or_else(no_region)?;
        self.offer_rest(link, endpoint, (region, 0), offers, Offer::Own(region))
    }

    fn offer_rest(
        &mut self,
        link: &mut Link,
        endpoint: &Endpoint,
        (region, offset): (RegionId, usize),
        offers: &mut VecDeque<(u64, Offer)>,
        offer: Offer,
    ) -> Result<bool, Failure> {
        let Some(lacking) = link.lacking() else { return Ok(false) };
        let bytes = lacking.bytes as usize;
        // Kept in any case, so that the registration ends with the message, or with the link.
        offers.push_back((lacking.message, offer));
        let remote = endpoint.remote(region, offset, bytes).ok_or_else(no_region)?;
        link.add_piece(offered(remote, bytes), [0; PIECE_TAG_BYTES]);
        self.sources.pop_front();
        Ok(true)
    }

    /// Replaces the memory that is lent by a copy of the body.
    pub fn keep(&mut self, copy: &Arc<Vec<u8>>) {
        replace_lent(&mut self.sources, copy);
    }

    /// Returns the memory, when the link has ended. That of sealed pieces stays registered: a provider in software may go on
    /// sending from it, and what the old peer may still read is sealed for others.
    pub fn into_stages(self) -> Option<RegionId> {
        self.stages
    }
}

/// Replaces bodies in memory that is lent by this copy: there is one at most.
pub(super) fn replace_lent(sources: &mut VecDeque<Source>, copy: &Arc<Vec<u8>>) {
    for source in sources.iter_mut().filter(|source| source.is_lent()) {
        *source = Source::Bytes(copy.clone());
    }
}
