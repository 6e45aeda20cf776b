//! Sealed bodies on their way out. A body is sealed piece by piece, in memory that is used again when the peer has read
//! the piece: so sealing, transfer and opening go on at the same time, and what is sealed is still in a cache when the
//! provider sends it.
use super::sealed::Seals;
use super::{Body, no_region};
use pvm_core::fabric::{Link, Offered};
use pvm_net::fabric::{Endpoint, Failure, Memory, RegionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// The longest piece in bytes.
const PIECE_BYTES: usize = 128 << 10;
/// How many pieces of a link are ready at a time: twice as many as the peer may leave unreported, so that there is always
/// one to read.
const STAGES: usize = 16;

/// Where a body is.
pub(super) enum Source {
    /// In a region, from this position on.
    InRegion(RegionId, usize),
    /// Here.
    Bytes(Arc<Vec<u8>>),
}

impl From<Body> for Source {
    fn from(body: Body) -> Source {
        match body {
            Body::InRegion(region, offset, _) => Source::InRegion(region, offset),
            Body::Bytes(bytes) => Source::Bytes(bytes),
        }
    }
}

/// The bodies of one link that are not sealed to their ends, and the memory in which they are.
#[derive(Default)]
pub(super) struct Pieces {
    sources: VecDeque<Source>,
    stages: Option<RegionId>,
    free: Vec<usize>,
    /// The numbers of pieces that the peer may read, and their stages.
    used: VecDeque<(u64, usize)>,
}

impl Pieces {
    /// Queues a body. `spare` has memory of links that have ended.
    pub fn push(&mut self, source: Source, endpoint: &mut Endpoint, spare: &mut Vec<RegionId>) -> Result<(), Failure> {
        if self.stages.is_none() {
            let no_memory = |_| Failure { call: "mmap", words: "no memory for sealed pieces".into() };
            self.stages = Some(match spare.pop() {
                Some(region) => region,
                None => endpoint.register(Memory::anonymous(STAGES * PIECE_BYTES).map_err(no_memory)?)?,
            });
            self.free = (0..STAGES).rev().collect();
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

    /// Returns whether there is a piece to seal, and memory for it.
    pub fn can_seal(&self, link: &Link) -> bool {
        !self.free.is_empty() && link.lacking().is_some()
    }

    /// Seals the next piece, if [`Pieces::can_seal`]. Returns whether it did.
    pub fn seal(&mut self, link: &mut Link, seals: &Seals, endpoint: &mut Endpoint) -> Result<bool, Failure> {
        let (Some(lacking), Some(stages)) = (link.lacking(), self.stages) else { return Ok(false) };
        let Some(stage) = self.free.pop() else { return Ok(false) };
        let (at, left) = (lacking.at as usize, lacking.bytes as usize);
        let (bytes, start) = (left.min(PIECE_BYTES), stage * PIECE_BYTES);
        let source = self.sources.front().expect("each body has a source until its last piece");
        if let Source::InRegion(region, offset) = source {
            endpoint.copy((*region, offset + at), (stages, start), bytes).ok_or_else(no_region)?;
        }
        let piece = endpoint.part_mut(stages, start, bytes).ok_or_else(no_region)?;
        if let Source::Bytes(body) = source {
            piece.copy_from_slice(&body[at..at + bytes]);
        }
        let tag = seals.seal_piece(lacking.number, piece);
        let remote = endpoint.remote(stages, start, bytes).ok_or_else(no_region)?;
        link.add_piece(Offered { bytes: bytes as u64, address: remote.address, key: remote.key }, tag);
        self.used.push_back((lacking.number, stage));
        if bytes == left {
            self.sources.pop_front();
        }
        Ok(true)
    }

    /// Returns the memory, when the link has ended. It stays registered: a provider in software may go on sending from
    /// it, and what the old peer may still read is sealed for others.
    pub fn into_stages(self) -> Option<RegionId> {
        self.stages
    }
}
