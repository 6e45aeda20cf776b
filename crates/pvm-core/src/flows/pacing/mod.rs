//! Pacing of long messages by their receiver.
//!
//! If many hosts send long messages to one host at once, the port of the switch before that host overflows, or the
//! hosts collide on a shared wire. Therefore a host sends the bodies of long messages only up to a **limit**, a position
//! among all such bytes that it has sent to the other host. The receiving daemon moves the limits of its senders by
//! **grants**, so that the sum under way to it stays near the product of bandwidth and delay.
//!
//! * A host that alone sends long messages has a limit far ahead, so it never waits.
//! * If several hosts send, each may begin a message: the beginning announces the length. The rest of the messages is
//!   granted to few hosts at a time, first to the one whose message is nearest to its end, so that most messages arrive
//!   early (shortest remaining processing time, as in Homa). A share goes to the oldest message, so that none starves.
//! * A host that is granted bytes and does not send them holds up nobody: after a while its grant does not count.
//!
//! Short messages are not paced. The window of a flow (`FLOW_WINDOW_BYTES`) bounds memory and remains as it is; a limit
//! bounds only what is under way. So neither side can break a rule of pacing, and no frame about it is a violation.

mod path;
mod receiver;
#[cfg(test)]
mod tests;

pub use receiver::{Grant, Pacer};

use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// When receivers pace long messages. All hosts of a machine have the same setting.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pacing {
    /// Never.
    Off,
    /// From the time on at which several senders lose packets at once, until no two hosts have sent at the same time for
    /// a while.
    #[default]
    OnLoss,
    /// From the first message on.
    Always,
}

impl Pacing {
    /// Returns the bytes of long messages that a host may send to another one before the first grant.
    pub fn first_limit(self) -> u64 {
        if self == Pacing::Always { FIRST_LIMIT_BYTES } else { u64::MAX }
    }
}

/// A message with at most this many bytes is not paced: it is no longer than a few packets.
pub const UNPACED_BYTES_MAX: usize = 4 << 10;
/// With [`Pacing::Always`], the bytes of long messages that a host may send to another one before the first grant. All
/// hosts of a machine may do so at the same time, so these and the header fit in one packet.
pub const FIRST_LIMIT_BYTES: u64 = 1 << 10;

/// Returns whether a message of this length is paced.
pub fn is_paced(bytes: usize) -> bool {
    bytes > UNPACED_BYTES_MAX
}

/// The limit that a receiver has set, at the sending side.
pub struct SendLimit {
    /// The number of paced bytes that were sent to the receiver.
    sent: u64,
    /// The number of paced bytes that may be sent.
    up_to: u64,
    /// The flows whose next chunk waits for a grant.
    pub waiting: Vec<Tid>,
}

impl SendLimit {
    /// Makes a limit.
    pub fn new(up_to: u64) -> SendLimit {
        SendLimit { sent: 0, up_to, waiting: Vec::new() }
    }

    /// Sets the limit. It may become lower than the number of bytes that were sent.
    pub fn set(&mut self, up_to: u64) {
        self.up_to = up_to;
    }

    /// Returns whether a chunk of a message has to wait.
    pub fn holds(&self, message_bytes: usize) -> bool {
        is_paced(message_bytes) && self.sent >= self.up_to
    }

    /// Returns how many bytes of a message may be sent now.
    pub fn room(&self, message_bytes: usize) -> usize {
        if !is_paced(message_bytes) {
            return usize::MAX;
        }
        usize::try_from(self.up_to.saturating_sub(self.sent)).unwrap_or(usize::MAX)
    }

    /// Counts bytes of a message as sent.
    pub fn count(&mut self, message_bytes: usize, sent: usize) {
        if is_paced(message_bytes) {
            self.sent += sent as u64;
        }
    }

    /// Returns how many of `wanted` bytes of a message may be sent now, and counts them as sent.
    pub fn take(&mut self, message_bytes: usize, wanted: usize) -> usize {
        let taken = wanted.min(self.room(message_bytes));
        self.count(message_bytes, taken);
        taken
    }

    /// Notes that a flow waits for a grant.
    pub fn wait(&mut self, dst: Tid) {
        if !self.waiting.contains(&dst) {
            self.waiting.push(dst);
        }
    }
}
