//! How far the queue of a dead peer is read: to the end of what the peer left, and no ring twice, even if the last ring
//! leads back to an earlier one.
use crate::peer::Inbound;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a dead peer has left in its queue: each ring is read at most once, and at most to its end.
#[derive(Default)]
pub(super) struct DeadQueue {
    /// All rings so far, including the present one: the end address of each, by its start address.
    rings: BTreeMap<usize, usize>,
    /// `ring`: the addresses of the present ring. `end`: the read count, in half-slots, at the end of this ring.
    ring: Range<usize>,
    end: u64,
}

impl DeadQueue {
    /// Returns whether the next entry can be one of those that the peer left.
    pub fn may_hold_next(&mut self, inbound: &Inbound) -> bool {
        let place = inbound.place();
        if place != self.ring {
            let below = self.rings.range(..place.end).next_back();
            if below.is_some_and(|(_, end)| *end > place.start) {
                return false;
            }
            self.rings.insert(place.start, place.end);
            (self.ring, self.end) = (place, inbound.consumed + inbound.capacity());
        }
        inbound.consumed < self.end
    }
}
