//! How long bodies are copied into blocks and out of them, learnt from the times of both copies
//! ([`crate::way_policy`]).
//!
//! Nobody knows the receiver of a packed body while it is packed, so one policy serves all receivers. The two copies do not
//! overlap. So the time of a message is the sum of the time that the sender has spent on the first copy, and of the time that
//! the receiver reports for the second one.
use super::Block;
use crate::copy::CopyMode;
use crate::way_policy::{BYTES_MIN, WAY_BITS, Way, WayPolicy};
use crate::ways;
use std::time::Instant;

/// A long copy into a block.
#[derive(Debug, Clone, Copy)]
pub struct CopiedIn {
    bytes: usize,
    way: Way,
    /// What the copy has taken, in ns, if the message is measured.
    ns: Option<u64>,
}

/// What a sender asks of the receiver of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyOrder {
    /// How to copy the fragment out.
    pub mode: CopyMode,
    /// Whether to report the time of that copy.
    pub is_timed: bool,
}

/// Where the number of the way lies in the word that holds the length of a fragment, and the bit that asks for a report.
const WAY_SHIFT: u32 = 48;
const TIMED: u64 = 1 << (WAY_SHIFT + WAY_BITS);
const WAY_MASK: u64 = ((1 << WAY_BITS) - 1) << WAY_SHIFT;

/// Splits the word of a fragment into its length in bytes, which may be a lie, and the order.
pub fn length_and_order(word: u64) -> (u64, CopyOrder) {
    let mode = Way::from_number((word >> WAY_SHIFT) as usize).copy_out;
    (word & !(WAY_MASK | TIMED), CopyOrder { mode, is_timed: word & TIMED != 0 })
}

impl Block {
    /// Returns whether copies of `bytes` bytes into a block are learnt.
    pub(super) fn learns(bytes: usize) -> bool {
        bytes >= BYTES_MIN
    }

    /// Does what [`Block::write`] does, by the way that was the quickest for messages of this length.
    pub(super) fn write_learnt(&self, offset: usize, data: &[u8]) {
        let (way, is_measured) = self.0.heap.borrow_mut().ways().choose(data.len());
        ways::note_way(way);
        let start = is_measured.then(Instant::now);
        self.write_by(way.copy_in, offset, data);
        let ns = start.map(|start| start.elapsed().as_nanos() as u64);
        self.0.copied_in.set(Some(CopiedIn { bytes: data.len(), way, ns }));
    }

    /// Returns the number of the way of the last long copy into the block.
    #[cfg(test)]
    pub(crate) fn way_number(&self) -> Option<usize> {
        self.0.copied_in.get().map(|copied| copied.way.number())
    }

    /// Returns the word for a receiver of the first `used` bytes, and whether it asks for a report, which it does only if
    /// `may_time` is set.
    pub(crate) fn order_for(&self, used: usize, may_time: bool) -> (u64, bool) {
        // A block that is filled by many copies is copied out by many copies, too.
        let whole = self.0.copied_in.get().filter(|copied| copied.bytes + copied.bytes / 8 >= used);
        let Some(CopiedIn { way, ns, .. }) = whole else { return (used as u64, false) };
        let is_timed = may_time && ns.is_some();
        (used as u64 | (way.number() as u64) << WAY_SHIFT | if is_timed { TIMED } else { 0 }, is_timed)
    }

    /// Learns from the time that a receiver has spent on its copy, in ns. A lie makes copies to all receivers slower, but no
    /// copy wrong. Returns whether the block was measured.
    pub(crate) fn record_copied_out(&self, ns: u64) -> bool {
        let Some(CopiedIn { bytes, way, ns: Some(spent) }) = self.0.copied_in.get() else { return false };
        self.0.heap.borrow_mut().ways().record(bytes, way, spent + ns);
        true
    }
}

impl<S: super::Source> super::Heap<S> {
    fn ways(&mut self) -> &mut WayPolicy {
        self.ways.get_or_insert_default()
    }

    /// Returns the way of packed bodies of `bytes` bytes, and its time in ns a byte; `None` before one was measured.
    pub fn way_of(&self, bytes: usize) -> Option<(Way, f32)> {
        self.ways.as_ref()?.best(bytes)
    }
}
