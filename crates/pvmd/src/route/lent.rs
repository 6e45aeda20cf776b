//! The blocks that the daemon lends to a task: the bodies of messages from other hosts.
use pvm_fmp::Block;
use std::collections::VecDeque;

/// A block, and the position in the task's queue at which the entry of its message ends.
type LentBlock = (u64, Block);

/// The blocks lent to one task.
#[derive(Default)]
pub struct Lent {
    /// The blocks of messages that the task has not read, in order.
    unread: VecDeque<LentBlock>,
    /// The block of a message that the task has read and whose body it keeps in the block.
    kept: Option<LentBlock>,
}

impl Lent {
    /// Adds the block of a message whose entry ends at this position.
    pub fn add(&mut self, end: u64, block: Block) {
        self.unread.push_back((end, block));
    }

    /// Frees the blocks of the messages that the task has read, up to this position, but for the one whose entry ends at
    /// `kept`, if the task keeps one.
    pub fn free(&mut self, read: u64, kept: Option<u64>) {
        self.kept.take_if(|(end, _)| Some(*end) != kept);
        while self.unread.front().is_some_and(|(end, _)| *end <= read) {
            let first = self.unread.pop_front();
            if first.as_ref().map(|(end, _)| *end) == kept {
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
        self.unread.iter().chain(&self.kept).map(|(_, block)| block)
    }
}
