//! The blocks that the daemon lends to a task: the bodies of messages from other hosts.
use pvm_fmp::Block;
use std::collections::VecDeque;

/// A block that holds the body of a message.
struct LentBlock {
    /// The position in the task's queue at which the entry of the message ends.
    end: u64,
    /// Held here so that it is not used again.
    _block: Block,
    /// Whether the task was allowed to keep the body after it has read the entry.
    may_keep: bool,
}

/// The blocks lent to one task.
#[derive(Default)]
pub struct Lent {
    /// The blocks of messages that the task has not read, in order.
    unread: VecDeque<LentBlock>,
    /// The block of a message that the task has read and whose body it keeps in the block.
    kept: Option<LentBlock>,
}

impl Lent {
    /// Adds the block of a message whose entry ends at this position. Says whether the task was allowed to keep the body.
    pub fn add(&mut self, end: u64, block: Block, may_keep: bool) {
        self.unread.push_back(LentBlock { end, _block: block, may_keep });
    }

    /// Frees the blocks of the messages that the task has read, up to this position, but for the one whose entry ends at
    /// `kept`, if the task keeps one and was allowed to.
    pub fn free(&mut self, read: u64, kept: Option<u64>) {
        self.kept.take_if(|lent| Some(lent.end) != kept);
        while self.unread.front().is_some_and(|lent| lent.end <= read) {
            let first = self.unread.pop_front();
            if first.as_ref().is_some_and(|lent| lent.may_keep && Some(lent.end) == kept) {
                self.kept = first;
            }
        }
    }

    /// Returns whether the task keeps a block.
    pub fn has_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns whether no block is lent.
    pub fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.kept.is_none()
    }

    /// Returns the blocks.
    #[cfg(test)]
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.unread.iter().chain(&self.kept).map(|lent| &lent._block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_fmp::Endpoint;

    #[test]
    fn a_task_keeps_one_block_at_most_and_only_if_it_was_allowed_to() {
        let (mut endpoint, mut lent) = (Endpoint::new().unwrap(), Lent::default());
        for (end, may_keep) in [(2, true), (4, false), (6, true), (8, true)] {
            lent.add(end, endpoint.allocate(1000).unwrap(), may_keep);
        }
        let mut left = |read, kept| {
            lent.free(read, kept);
            (lent.blocks().count(), lent.has_kept())
        };
        assert_eq!(left(1, Some(2)), (4, false), "it was not read");
        assert_eq!(left(2, Some(2)), (4, true));
        assert_eq!(left(0, Some(2)), (4, true));
        assert_eq!(left(4, Some(4)), (2, false), "the task was not allowed to keep it");
        assert_eq!(left(8, Some(6)), (1, true));
        assert_eq!(left(8, Some(8)), (0, false), "a block that was freed does not come back");
        assert!(lent.is_empty());
    }
}
