//! Bodies that do not fit a frame: where they are, and how they are offered to the peer.
use super::heap::HeapParts;
use pvm_core::fabric::Offered;
use pvm_fmp::Block;
use pvm_net::fabric::{Endpoint, Failure, LentRegionId, Memory, RegionId, Remote};
use std::sync::Arc;

/// Where a body is that does not fit a frame.
pub enum Body {
    /// In a region that was registered before, from this position on. It must not change until [`FabricEvent::Sent`](super::FabricEvent).
    InRegion(RegionId, usize, usize),
    /// Here. It is kept until the peer has taken it.
    Bytes(Arc<Vec<u8>>),
    /// The first bytes of a block of the task's heap. They must not change until [`FabricEvent::Sent`](super::FabricEvent).
    InBlock(Block, usize),
    /// In the memory that is lent, which has this length (`FabricLinks::source_lender`). Before it is no longer lent, it is
    /// to be replaced (`FabricLinks::keep_lent`).
    Lent(LentRegionId, usize),
}

impl Body {
    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Body::InRegion(_, _, bytes) | Body::InBlock(_, bytes) | Body::Lent(_, bytes) => *bytes,
            Body::Bytes(bytes) => bytes.len(),
        }
    }
}

/// What ends when the peer has taken a body.
pub(super) enum Offer {
    /// Nothing: the region was there before.
    Kept,
    /// The region, which is for this body alone.
    Own(RegionId),
    /// The offer of a part of the heap.
    InHeap(RegionId),
}

impl Offer {
    /// Ends the offer of a body that the peer has taken.
    pub fn taken(self, heap: &mut HeapParts, endpoint: &mut Endpoint) {
        match self {
            Offer::Kept => {}
            Offer::Own(region) => endpoint.unregister(region),
            Offer::InHeap(region) => heap.taken(region, endpoint),
        }
    }

    /// Ends the offer of a body that the peer may be reading, since the link has ended.
    pub fn left(self, heap: &mut HeapParts, endpoint: &mut Endpoint) {
        match self {
            Offer::Kept => {}
            Offer::Own(region) => endpoint.retire(region),
            Offer::InHeap(region) => heap.left(region, endpoint),
        }
    }
}

/// Registers a body for itself.
pub(super) fn own_region(endpoint: &mut Endpoint, body: Arc<Vec<u8>>) -> Result<(RegionId, usize, Offer), Failure> {
    let region = endpoint.register(Memory::from_vec(body))?;
    Ok((region, 0, Offer::Own(region)))
}

/// Returns a body as an offer names it.
pub(super) fn offered(remote: Remote, bytes: usize) -> Offered {
    Offered { bytes: bytes as u64, address: remote.address, key: remote.key }
}
