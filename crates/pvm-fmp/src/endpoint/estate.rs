//! How much of the queue of a dead peer is read: what it left, and nothing that was changed afterwards for ever.
use crate::peer::Inbound;
use std::collections::BTreeMap;
use std::ops::Range;

/// What the dead have left in their queue: each ring at most once, and of each at most all.
#[derive(Default)]
pub(super) struct Estate {
    /// First byte and end of the rings before.
    rings: BTreeMap<usize, usize>,
    /// The ring, and the count of half lines at which it is read to its end.
    ring: Range<usize>,
    end: u64,
}

impl Estate {
    /// Whether the next entry can be one of those that were there.
    pub fn holds(&mut self, inbound: &Inbound) -> bool {
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
