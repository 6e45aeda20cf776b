//! The memory that the daemon holds for each local sender.
use super::{HELD_BYTES_MAX, MESSAGE_BYTES};
use crate::tid::Tid;
use std::collections::HashMap;

#[derive(Default)]
struct Sender {
    bytes: u64,
    /// Whether the sender is over its budget. Once set, the flag stays set until half of the budget is free.
    full: bool,
}

/// The number of bytes that the daemon holds for each sender.
#[derive(Default)]
pub(super) struct SenderBudgets {
    senders: HashMap<Tid, Sender>,
    freed: Vec<Tid>,
    total: u64,
}

impl SenderBudgets {
    /// Adds the cost of a message to the bytes of its sender. Returns the cost.
    pub fn charge(&mut self, src: Tid, bytes: usize) -> u64 {
        let bytes = bytes as u64 + MESSAGE_BYTES;
        let sender = self.senders.entry(src).or_default();
        sender.bytes += bytes;
        sender.full |= sender.bytes >= HELD_BYTES_MAX;
        self.total += bytes;
        bytes
    }

    /// After a message was sent, subtracts its cost from the bytes of its sender.
    pub fn release(&mut self, src: Tid, bytes: u64) {
        self.total -= bytes;
        let Some(sender) = self.senders.get_mut(&src) else { return };
        sender.bytes -= bytes;
        if sender.full && sender.bytes <= HELD_BYTES_MAX / 2 {
            sender.full = false;
            self.freed.push(src);
        }
        if sender.bytes == 0 {
            self.senders.remove(&src);
        }
    }

    pub fn may_take(&self, src: Tid) -> bool {
        self.senders.get(&src).is_none_or(|sender| !sender.full)
    }

    pub fn take_freed(&mut self) -> Vec<Tid> {
        std::mem::take(&mut self.freed)
    }

    pub fn total(&self) -> u64 {
        self.total
    }
}
