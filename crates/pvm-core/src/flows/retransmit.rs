//! Retransmission on a link of two daemons, so that its connection can break and be remade.
//!
//! Both daemons count the units on the link (bytes, for example) since the link was first made; a new connection does
//! not start a new count. The sender keeps all items that are not acknowledged ([`RetransmitQueue`]). On a new
//! connection each side sends the position up to which it has received ([`AckTracker`]), and the other side continues
//! exactly there: nothing is lost, duplicated or reordered.
use super::ProtocolViolation;
use std::collections::VecDeque;

/// The items to send on a link. They are kept until the other side has acknowledged them. An item has one or more
/// units.
pub struct RetransmitQueue<T> {
    /// The items and their lengths.
    items: VecDeque<(T, u64)>,
    /// The position at which the first item begins.
    first: u64,
    /// The position at which the last item ends.
    end: u64,
    acknowledged: u64,
    /// The greatest position up to which any connection has sent.
    sent: u64,
    /// The position up to which the current connection has sent.
    at: u64,
    /// The index of the item that is sent next, and the position at which this item begins.
    index: usize,
    start: u64,
}

impl<T> Default for RetransmitQueue<T> {
    fn default() -> Self {
        let items = VecDeque::new();
        RetransmitQueue { items, first: 0, end: 0, acknowledged: 0, sent: 0, at: 0, index: 0, start: 0 }
    }
}

impl<T> RetransmitQueue<T> {
    /// Appends an item.
    pub fn push(&mut self, item: T, length: u64) {
        self.items.push_back((item, length));
        self.end += length;
    }

    /// Returns the item that is sent next, and how many of its units were sent.
    pub fn current(&self) -> Option<(&T, u64)> {
        let (item, _) = self.items.get(self.index)?;
        Some((item, self.at - self.start))
    }

    /// Extends the last item. Panics if this item was sent completely, or if units must be sent again first. `change`
    /// returns the number of added units, and must not change any unit that was sent.
    pub fn extend_last(&mut self, change: impl FnOnce(&mut T) -> u64) {
        assert!(self.has_only_new() && !self.is_all_sent(), "sent units do not change");
        let Some((item, length)) = self.items.back_mut() else { return };
        let more = change(item);
        (*length, self.end) = (*length + more, self.end + more);
    }

    /// Counts units of the current item as sent. Returns whether the item is complete.
    pub fn advance(&mut self, count: u64) -> bool {
        let length = self.items.get(self.index).map_or(0, |(_, length)| *length);
        self.at += count;
        self.sent = self.sent.max(self.at);
        let done = self.at - self.start;
        assert!(done <= length, "no more units than the item has");
        if done == length && length > 0 {
            (self.index, self.start) = (self.index + 1, self.at);
        }
        done == length
    }

    /// Returns whether everything has been sent.
    pub fn is_all_sent(&self) -> bool {
        self.at == self.end
    }

    /// Returns whether none of the units that are still to be sent was sent on an earlier connection.
    pub fn has_only_new(&self) -> bool {
        self.at == self.sent
    }

    /// Returns the number of unacknowledged units.
    pub fn unacknowledged(&self) -> u64 {
        self.end - self.acknowledged
    }

    /// Returns the position up to which the other side has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Handles an acknowledgement up to a position. Calls `free` with each item that is no longer needed.
    pub fn acknowledge(&mut self, position: u64, mut free: impl FnMut(T)) -> Result<(), ProtocolViolation> {
        if position > self.at {
            return Err(ProtocolViolation);
        }
        // An acknowledgement from an earlier connection can be below the position at which this connection began.
        self.acknowledged = self.acknowledged.max(position);
        while let Some((_, length)) = self.items.front().filter(|_| self.index > 0) {
            if self.first + length > self.acknowledged {
                break;
            }
            self.first += length;
            self.index -= 1;
            self.items.pop_front().into_iter().for_each(|(item, _)| free(item));
        }
        Ok(())
    }

    /// Continues on a new connection, from the position up to which the other side has received.
    pub fn resume(&mut self, position: u64, free: impl FnMut(T)) -> Result<(), ProtocolViolation> {
        if position < self.acknowledged || position > self.sent {
            return Err(ProtocolViolation);
        }
        // Skip the items that the other side has.
        (self.at, self.index, self.start) = (position, 0, self.first);
        for (_, length) in &self.items {
            if self.start + length > position {
                break;
            }
            (self.index, self.start) = (self.index + 1, self.start + length);
        }
        self.acknowledge(position, free)
    }
}

/// The position up to which units were received on a link, and the position up to which they were acknowledged.
#[derive(Debug)]
pub struct AckTracker {
    received: u64,
    acknowledged: u64,
    /// How many of the units received after the acknowledged position belong to acknowledgements. If no other units
    /// were received, no acknowledgement is needed.
    acknowledgements: u64,
    /// The number of units after which an acknowledgement is due.
    every: u64,
    /// Whether an acknowledgement must be sent because it has been delayed long enough.
    overdue: bool,
}

impl AckTracker {
    /// Makes a tracker at position 0. An acknowledgement is due each time that `every` units have arrived.
    pub fn new(every: u64) -> AckTracker {
        AckTracker { received: 0, acknowledged: 0, acknowledgements: 0, every, overdue: false }
    }

    /// Counts received units.
    pub fn count_received(&mut self, count: u64) {
        self.received += count;
    }

    /// Notes that `count` of the received units belong to an acknowledgement.
    pub fn count_acknowledgement(&mut self, count: u64) {
        self.acknowledgements += count;
    }

    /// Returns the position up to which everything has been received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether there is anything to acknowledge.
    pub fn has_unacknowledged(&self) -> bool {
        self.received - self.acknowledged > self.acknowledgements
    }

    /// Returns whether an acknowledgement must be sent even if nothing else is sent.
    pub fn is_due(&self) -> bool {
        self.received - self.acknowledged >= self.every || self.overdue
    }

    /// Makes an acknowledgement due if there is anything to acknowledge. The caller does this after a delay.
    pub fn make_due(&mut self) {
        self.overdue = self.has_unacknowledged();
    }

    /// Returns the position to acknowledge, and counts it as acknowledged.
    pub fn take_position(&mut self) -> u64 {
        (self.acknowledged, self.acknowledgements, self.overdue) = (self.received, 0, false);
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn each_unit_arrives_once_and_in_order_wherever_the_link_breaks() {
        for seed in 1..=300 {
            let mut prng = Prng(seed);
            let (mut out, mut back) = (RetransmitQueue::default(), AckTracker::new(7));
            let (mut made, mut came, mut wire, mut kept) = (0_u64, 0_u64, VecDeque::<u64>::new(), 0);
            while came < 500 {
                match prng.below(12) {
                    0 | 1 if made < 500 => {
                        let length = prng.below(9) + 1;
                        out.push((made..made + length).collect::<Vec<u64>>(), length);
                        (made, kept) = (made + length, kept + 1);
                    }
                    2 if made < 500 && out.has_only_new() && out.current().is_some() => out.extend_last(|item| {
                        item.extend([made, made + 1]);
                        made += 2;
                        2
                    }),
                    // The connection breaks, and the units in flight are lost.
                    3 => {
                        wire.clear();
                        assert_eq!(out.resume(back.take_position(), |_| kept -= 1), Ok(()));
                    }
                    4 => {
                        let told = back.take_position();
                        assert_eq!(out.acknowledge(told, |_| kept -= 1), Ok(()));
                        assert_eq!(out.unacknowledged(), made - told);
                    }
                    5..8 => {
                        if let Some((item, done)) = out.current() {
                            let rest = &item[done as usize..];
                            let count = 1 + prng.below(rest.len() as u64) as usize;
                            wire.extend(&rest[..count]);
                            out.advance(count as u64);
                        }
                    }
                    _ => {
                        if let Some(unit) = wire.pop_front() {
                            assert_eq!(unit, came, "seed {seed}");
                            came += 1;
                            back.count_received(1);
                        }
                    }
                }
            }
            assert_eq!(out.resume(back.take_position(), |_| kept -= 1), Ok(()));
            assert!(kept <= 1 + (made - came) as usize, "acknowledged items are released");
        }
    }

    #[test]
    fn an_acknowledgement_of_unsent_units_is_a_violation() {
        let mut out = RetransmitQueue::default();
        out.push((), 10);
        out.advance(4);
        assert_eq!(out.acknowledge(5, drop), Err(ProtocolViolation));
        assert_eq!(out.acknowledge(3, drop), Ok(()));
        assert_eq!(out.resume(5, drop), Err(ProtocolViolation), "never sent");
        assert_eq!(out.resume(2, drop), Err(ProtocolViolation), "acknowledged before");
        assert_eq!(out.resume(3, drop), Ok(()));
        assert_eq!(out.acknowledge(4, drop), Err(ProtocolViolation), "not sent by this connection yet");
        assert_eq!(out.acknowledge(1, drop), Ok(()), "an old one");
        assert_eq!((out.unacknowledged(), out.current().map(|(_, at)| at)), (7, Some(3)));
    }

    #[test]
    fn acknowledgements_alone_are_not_acknowledged() {
        let mut back = AckTracker::new(100);
        back.count_received(13);
        back.count_acknowledgement(13);
        back.make_due();
        assert!(!back.has_unacknowledged() && !back.is_due());
        back.count_received(1);
        assert!(back.has_unacknowledged() && !back.is_due());
        back.make_due();
        assert!(back.is_due());
        assert_eq!(back.take_position(), 14);
        assert!(!back.is_due());
        back.count_received(100);
        assert!(back.is_due());
    }
}
