//! Bodies on their way out, piece by piece. A sealed body is sealed so, in memory that is used again when the peer has read
//! the piece: so sealing, transfer and opening go on at the same time, and what is sealed is still in a cache when the
//! provider sends it. The first piece of a body in clear is copied if its sender does not know yet whether a receive waits:
//! the peer reads it while the sender learns that.
use super::no_region;
use super::offers::{Body, Offer, offered, own_region};
use super::sealed::Seals;
use pvm_core::fabric::{Link, PIECE_TAG_BYTES};
use pvm_fmp::{Block, count_copy};
use pvm_net::fabric::{Endpoint, Failure, Memory, RegionId, SendError, Start};
use std::collections::VecDeque;
use std::sync::Arc;

/// The longest and the shortest sealed piece in bytes. Each piece costs an offer, its answer, and system calls of both sides.
const PIECE_BYTES_MAX: usize = 384 << 10;
const PIECE_BYTES_MIN: usize = 128 << 10;
/// The lengths of pieces but the last are multiples of this.
const PIECE_BYTES_ALIGN: usize = 4 << 10;
/// The memory for sealed pieces of a link: more than the peer may leave unreported and two further pieces, so that there is
/// always one to read. It fits the cache of a processor.
const SEALED_BYTES: usize = 2 << 20;
/// The length of the copied piece in bytes: its transfer takes about as long as a frame of the peer.
const FIRST_BYTES: usize = 64 << 10;
/// The memory for copied pieces of a link in clear: two of them.
const CLEAR_BYTES: usize = 2 * FIRST_BYTES;

/// Returns the length of the next sealed piece of a body; `left` bytes of the body are still to be sealed. The last pieces are
/// the shortest, because no other step overlaps with the opening of the very last one.
fn sealed_piece_bytes(left: usize) -> usize {
    let half = (left / 2).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) / PIECE_BYTES_ALIGN * PIECE_BYTES_ALIGN;
    if left < half + PIECE_BYTES_MIN / 2 { left } else { half }
}

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

    /// Lets `make` write to memory of the endpoint from bytes of the body.
    fn make<T>(
        &self,
        at: usize,
        endpoint: &mut Endpoint,
        to: (RegionId, usize),
        bytes: usize,
        make: impl FnOnce(&mut [u8], &[u8]) -> T,
    ) -> Option<T> {
        count_copy(bytes);
        match self {
            Source::At(start) => endpoint.write_part_with(start.after(at), to, bytes, make),
            Source::Bytes(body) => Some(make(endpoint.part_mut(to.0, to.1, bytes)?, &body[at..at + bytes])),
            Source::Block(block) => Some(make(endpoint.part_mut(to.0, to.1, bytes)?, &block.lend(at..at + bytes))),
        }
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
    ring: Ring,
}

/// Which parts of a ring buffer are in use by pieces that the peer may read.
#[derive(Default)]
struct Ring {
    bytes: usize,
    /// The numbers of the pieces, where they begin, and where they end.
    used: VecDeque<(u64, usize, usize)>,
}

impl Ring {
    /// Returns where the next piece of this length has room.
    fn room(&self, bytes: usize) -> Option<usize> {
        let (Some((_, first, _)), Some((_, last, end))) = (self.used.front(), self.used.back()) else {
            // From the beginning, whose bytes are most likely in a cache.
            return (bytes <= self.bytes).then_some(0);
        };
        let fits = |start: usize, limit: usize| (start + bytes <= limit).then_some(start);
        match last >= first {
            true => fits(*end, self.bytes).or_else(|| fits(0, *first)),
            false => fits(*end, *first),
        }
    }

    /// Frees the parts of pieces with smaller numbers.
    fn free(&mut self, up_to: u64) {
        while self.used.front().is_some_and(|(number, ..)| *number < up_to) {
            self.used.pop_front();
        }
    }
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
            self.ring.bytes = if spare.is_some() { SEALED_BYTES } else { CLEAR_BYTES };
            self.stages = Some(match spare.and_then(Vec::pop) {
                Some(region) => region,
                None => endpoint.register(Memory::anonymous(self.ring.bytes).map_err(no_memory)?)?,
            });
        }
        self.sources.push_back(source);
        Ok(())
    }

    /// Makes the memory of pieces free that the peer has taken.
    pub fn taken(&mut self, link: &Link) {
        self.ring.free(link.pieces_taken_by_peer());
    }

    /// Returns whether the peer may read pieces.
    pub fn is_used(&self) -> bool {
        !self.ring.used.is_empty()
    }

    /// Returns whether there is a piece to make ready, and memory for it.
    pub fn can_make(&self, link: &Link, is_sealed: bool) -> bool {
        let (Some(source), Some(lacking)) = (self.sources.front(), link.lacking()) else { return false };
        let left = lacking.bytes as usize;
        match is_sealed {
            true => self.ring.room(sealed_piece_bytes(left)).is_some(),
            false if source.is_lent() => lacking.at == 0 && self.ring.room(left.min(FIRST_BYTES)).is_some(),
            false => true,
        }
    }

    /// Seals the next piece, if [`Pieces::can_make`]. Returns whether it did.
    pub fn seal(&mut self, link: &mut Link, seals: &Seals, endpoint: &mut Endpoint) -> Result<bool, Failure> {
        let Some(lacking) = link.lacking() else { return Ok(false) };
        let bytes = sealed_piece_bytes(lacking.bytes as usize);
        self.stage(link, endpoint, bytes, |place, piece| seals.seal_piece(lacking.number, piece, place))
    }

    /// Lets `make` write the next piece, of this many bytes or the rest, to free memory, and makes it ready with the tag that
    /// `make` returns. Returns whether there was memory.
    fn stage(
        &mut self,
        link: &mut Link,
        endpoint: &mut Endpoint,
        bytes_max: usize,
        make: impl FnOnce(&mut [u8], &[u8]) -> [u8; PIECE_TAG_BYTES],
    ) -> Result<bool, Failure> {
        let (Some(lacking), Some(stages)) = (link.lacking(), self.stages) else { return Ok(false) };
        let (at, left) = (lacking.at as usize, lacking.bytes as usize);
        let bytes = left.min(bytes_max);
        let Some(start) = self.ring.room(bytes) else { return Ok(false) };
        let source = self.sources.front().expect("each body has a source until its last piece");
        let tag = source.make(at, endpoint, (stages, start), bytes, make).ok_or_else(no_region)?;
        let remote = endpoint.remote(stages, start, bytes).ok_or_else(no_region)?;
        link.add_piece(offered(remote, bytes), tag);
        self.ring.used.push_back((lacking.number, start, start + bytes));
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
                return self.stage(link, endpoint, FIRST_BYTES, |place, piece| {
                    place.copy_from_slice(piece);
                    [0; PIECE_TAG_BYTES]
                });
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

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::fabric::UNTOLD_BYTES_MAX;

    #[test]
    fn pieces_become_shorter_towards_the_end_and_none_is_tiny() {
        for body in [1, 4095, 128 << 10, (128 << 10) + 1, (192 << 10) + 1, 1 << 20, (16 << 20) + 5, 100 << 20] {
            let (mut left, mut before) = (body, PIECE_BYTES_MAX);
            while left > 0 {
                let piece = sealed_piece_bytes(left);
                assert!(piece <= left && piece <= before.max(PIECE_BYTES_MIN * 3 / 2), "{piece} of {left}");
                assert!(piece >= PIECE_BYTES_MIN / 2 || body < PIECE_BYTES_MIN, "{piece} of {left}");
                (left, before) = (left - piece, piece);
            }
            assert!(before <= PIECE_BYTES_MIN * 3 / 2, "the last piece of {body}: {before}");
        }
        // While the peer has told of none, there is a further piece to read.
        const { assert!(SEALED_BYTES > UNTOLD_BYTES_MAX as usize + 3 * PIECE_BYTES_MAX) };
    }

    #[test]
    fn pieces_that_the_peer_may_read_never_overlap() {
        let mut ring = Ring { bytes: 1000, used: VecDeque::new() };
        let mut state = 1_u64;
        let mut random_below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        let (mut number, mut full, mut wrapped) = (0, 0, 0);
        for _ in 0..10_000 {
            let bytes = random_below(400) + 1;
            match ring.room(bytes) {
                Some(start) => {
                    assert!(start + bytes <= ring.bytes);
                    let apart = |(_, first, end): &(u64, usize, usize)| start + bytes <= *first || *end <= start;
                    assert!(ring.used.iter().all(apart), "{start} {bytes} {:?}", ring.used);
                    wrapped += u32::from(ring.used.back().is_some_and(|(_, last, _)| start < *last));
                    ring.used.push_back((number, start, start + bytes));
                    number += 1;
                }
                None => {
                    full += 1;
                    ring.free(number - random_below(ring.used.len()) as u64);
                }
            }
        }
        assert!(full > 100 && wrapped > 100);
        ring.free(number);
        assert_eq!((ring.room(1000), ring.room(1001)), (Some(0), None));
    }
}
