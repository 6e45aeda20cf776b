//! The messages of a lane that the peer's library has not acknowledged.
//!
//! A lane delivers in order, so messages carry no numbers: both sides count them.
use std::collections::VecDeque;

/// Messages that may have to be sent again, the oldest first.
#[derive(Debug)]
pub struct Unacknowledged<M> {
    messages: VecDeque<M>,
    /// How many of them the lane has taken.
    written: usize,
    /// How many messages have been acknowledged since the lane began. Wraps around.
    acknowledged: u32,
}

impl<M> Default for Unacknowledged<M> {
    fn default() -> Unacknowledged<M> {
        Unacknowledged { messages: VecDeque::new(), written: 0, acknowledged: 0 }
    }
}

impl<M> Unacknowledged<M> {
    /// Adds a message. `written`: whether the lane has taken this message and all before it.
    pub fn push(&mut self, message: M, written: bool) {
        assert!(!written || self.all_written(), "a message has been written before its turn");
        self.written += usize::from(written);
        self.messages.push_back(message);
    }

    /// Returns the next message to write.
    pub fn next_unwritten(&mut self) -> Option<&mut M> {
        self.messages.get_mut(self.written)
    }

    /// Notes that the lane has taken the next message.
    pub fn mark_written(&mut self) {
        self.written += 1;
        assert!(self.written <= self.messages.len());
    }

    /// Returns whether the lane has taken all messages.
    pub fn all_written(&self) -> bool {
        self.written == self.messages.len()
    }

    /// Returns the messages that this count acknowledges, which are kept no longer, or `None` if the count cannot be true.
    #[must_use]
    pub fn acknowledge(&mut self, count: u32) -> Option<impl Iterator<Item = M> + '_> {
        let more = count.wrapping_sub(self.acknowledged) as usize;
        if more > self.written {
            return None;
        }
        self.written -= more;
        self.acknowledged = count;
        Some(self.messages.drain(..more))
    }

    /// Returns how many messages have been acknowledged.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged
    }

    /// Returns how many messages have been sent or queued since the lane began.
    pub fn sent_count(&self) -> u32 {
        self.acknowledged.wrapping_add(self.messages.len() as u32)
    }

    /// Returns the newest message.
    pub fn last(&mut self) -> Option<&mut M> {
        self.messages.back_mut()
    }

    /// Returns the oldest message, which is to be sent again first.
    pub fn first(&self) -> Option<&M> {
        self.messages.front()
    }

    /// Removes the oldest message, which has been sent by the default route.
    pub fn pop_front(&mut self) -> Option<M> {
        self.written = self.written.saturating_sub(1);
        self.messages.pop_front()
    }

    /// Returns whether all messages are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns how many messages are not acknowledged.
    pub fn len(&self) -> usize {
        self.messages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_wrap_around_and_false_ones_are_refused() {
        let mut queue = Unacknowledged { acknowledged: u32::MAX - 1, ..Unacknowledged::default() };
        (0..4).for_each(|number| queue.push(number, number < 3));
        assert_eq!((queue.sent_count(), queue.len()), (2, 4));
        assert!(queue.acknowledge(2).is_none(), "the fourth one was not written");
        assert!(queue.acknowledge(u32::MAX - 2).is_none(), "fewer than before");
        assert_eq!(queue.acknowledge(0).map(Iterator::collect), Some(vec![0, 1]));
        assert_eq!((queue.acknowledged(), queue.sent_count(), queue.first()), (0, 2, Some(&2)));
        assert!(!queue.all_written());
        assert_eq!(queue.next_unwritten(), Some(&mut 3));
        queue.mark_written();
        assert!(queue.all_written());
        assert_eq!(queue.acknowledge(2).map(Iterator::collect), Some(vec![2, 3]));
        assert!(queue.is_empty());
    }

    #[test]
    fn what_was_sent_again_is_kept_no_longer() {
        let mut queue = Unacknowledged::default();
        (0..3).for_each(|number| queue.push(number, number < 1));
        assert_eq!(
            (queue.pop_front(), queue.pop_front(), queue.pop_front(), queue.pop_front()),
            (Some(0), Some(1), Some(2), None)
        );
        assert!(queue.all_written() && queue.is_empty());
    }
}
