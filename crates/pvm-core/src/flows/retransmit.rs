//! What two daemons remember of the data link between them, so that it can break and be made again.
//!
//! Both count what goes over the link from the first day on, in whatever unit they agree upon; a new connection
//! does not begin a new count. The sender keeps what the other daemon has not acknowledged ([`RetransmitQueue`]). When a
//! new connection stands each side says how far it has come ([`AckTracker`]), and the other goes on from just there:
//! nothing is lost, doubled, or turned round.
use super::ProtocolViolation;
use std::collections::VecDeque;

/// What was put on a link, kept until the other side has acknowledged it. An item can be of several units.
pub struct RetransmitQueue<T> {
    /// With their lengths.
    items: VecDeque<(T, u64)>,
    /// Where the first of them begins.
    first: u64,
    /// Where the last of them ends.
    end: u64,
    acknowledged: u64,
    /// What some connection has taken.
    sent: u64,
    /// What the connection that stands has taken.
    at: u64,
    /// The item that it takes next, and where that begins.
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
    /// Puts an item behind all others.
    pub fn push(&mut self, item: T, length: u64) {
        self.items.push_back((item, length));
        self.end += length;
    }

    /// The item that is to be sent next, and how much of it has been.
    pub fn current(&self) -> Option<(&T, u64)> {
        let (item, _) = self.items.get(self.index)?;
        Some((item, self.at - self.start))
    }

    /// The last item, if some of it has never been sent: it becomes longer by as much as `change` says. Nothing
    /// that has been sent may change.
    pub fn extend_last(&mut self, change: impl FnOnce(&mut T) -> u64) {
        assert!(self.has_only_new() && !self.is_all_sent(), "what was sent stays as it is");
        let Some((item, length)) = self.items.back_mut() else { return };
        let more = change(item);
        (*length, self.end) = (*length + more, self.end + more);
    }

    /// The connection has taken so much of the current item. Says whether that was the rest of it.
    pub fn advance(&mut self, count: u64) -> bool {
        let length = self.items.get(self.index).map_or(0, |(_, length)| *length);
        self.at += count;
        self.sent = self.sent.max(self.at);
        let done = self.at - self.start;
        assert!(done <= length, "no more than there is");
        if done == length && length > 0 {
            (self.index, self.start) = (self.index + 1, self.at);
        }
        done == length
    }

    /// Whether everything has been sent.
    pub fn is_all_sent(&self) -> bool {
        self.at == self.end
    }

    /// Whether what comes next was never sent before.
    pub fn has_only_new(&self) -> bool {
        self.at == self.sent
    }

    /// How much is kept.
    pub fn unacknowledged(&self) -> u64 {
        self.end - self.acknowledged
    }

    /// The other side has come so far. What is not needed any more goes to `free`.
    pub fn acknowledge(&mut self, position: u64, mut free: impl FnMut(T)) -> Result<(), ProtocolViolation> {
        if position > self.at {
            return Err(ProtocolViolation);
        }
        // One that was sent on an earlier connection says less than the beginning of this one did.
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

    /// A new connection stands, and the other side has come so far: there it goes on.
    pub fn resume(&mut self, position: u64, free: impl FnMut(T)) -> Result<(), ProtocolViolation> {
        if position < self.acknowledged || position > self.sent {
            return Err(ProtocolViolation);
        }
        // Past the items that it has.
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

/// How far a link's other end has been read, and how much of that it has been told.
#[derive(Debug)]
pub struct AckTracker {
    came: u64,
    told: u64,
    /// Of what came since then, so much was acknowledgements: those alone are none worth.
    words: u64,
    /// It is to be told when so much has come.
    every: u64,
    make_due: bool,
}

impl AckTracker {
    /// Nothing has come yet. The other side is told each time that so much has come.
    pub fn new(every: u64) -> AckTracker {
        AckTracker { came: 0, told: 0, words: 0, every, make_due: false }
    }

    /// So much has come.
    pub fn count_received(&mut self, count: u64) {
        self.came += count;
    }

    /// So much of what has come was an acknowledgement.
    pub fn count_acknowledgement(&mut self, count: u64) {
        self.words += count;
    }

    /// Whether there is anything to acknowledge.
    pub fn has_unacknowledged(&self) -> bool {
        self.came - self.told > self.words
    }

    /// Whether the other side is to be told though there is nothing else to be sent.
    pub fn is_due(&self) -> bool {
        self.came - self.told >= self.every || self.make_due
    }

    /// A while has passed: what there is to acknowledge is due.
    pub fn make_due(&mut self) {
        self.make_due = self.has_unacknowledged();
    }

    /// What to tell the other side, which is told now.
    pub fn take_position(&mut self) -> u64 {
        (self.told, self.words, self.make_due) = (self.came, 0, false);
        self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn whatever_breaks_when_each_unit_arrives_once_and_in_order() {
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
                    // The connection breaks: what is on its way is lost.
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
            assert!(kept <= 1 + (made - came) as usize, "what is acknowledged is let go");
        }
    }

    #[test]
    fn who_acknowledges_what_was_not_sent_is_found_out() {
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
