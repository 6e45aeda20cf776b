//! A side tells its peer that a receive waits for the peer's next message. The peer may then send it from memory that is
//! needed only until it was read.
use super::{ArrivedBody, Link, Violation};

/// The longest description of a wanted message, in bytes. The owner of the link makes it.
pub const WANTED_BYTES_MAX: usize = 32;
/// How many bytes say how many messages went before.
const COUNT_BYTES: usize = 8;

impl Link {
    /// Tells the peer that the owner waits for its next message, and what for. Nothing is told if the peer could do nothing
    /// with it, since the message has arrived, or its whole body is offered. Returns whether it is told.
    pub fn want(&mut self, words: &[u8]) -> bool {
        assert!(words.len() <= WANTED_BYTES_MAX, "so few words fit any frame");
        if !self.awaits_next_message() || self.taken >= self.deliverable {
            return false;
        }
        self.wanted = Some([&self.taken.to_le_bytes()[..], words].concat());
        true
    }

    /// Returns whether nothing of the next message has arrived, or only pieces of its body are offered so far.
    fn awaits_next_message(&self) -> bool {
        let is_partial = |first: &super::Arrival| first.bytes_to_come > 0 && first.body == ArrivedBody::Read;
        self.arrivals.front().is_none_or(is_partial)
    }

    /// Returns whether the peer is to be told.
    pub(super) fn tells_wanted(&self) -> bool {
        let told = |wanted: &Vec<u8>| wanted.starts_with(&self.taken.to_le_bytes());
        self.awaits_next_message() && self.wanted.as_ref().is_some_and(told)
    }

    /// Returns what the peer waits for, if it waits for the message that is sent next.
    pub fn wanted_by_peer(&self) -> Option<&[u8]> {
        self.wanted_of(self.taken_by_peer + self.kept.len() as u64)
    }

    /// Returns what the peer waits for, if it waits for the message with this number.
    pub fn wanted_of(&self, message: u64) -> Option<&[u8]> {
        self.wanted_by_peer.as_ref().filter(|(count, _)| *count == message).map(|(_, words)| &words[..])
    }

    /// Takes in what the peer wants.
    pub(super) fn take_wanted(&mut self, rest: &[u8]) -> Result<(), Violation> {
        let (count, words) = rest.split_first_chunk::<COUNT_BYTES>().ok_or(Violation::NoFrame)?;
        let count = u64::from_le_bytes(*count);
        // It cannot have taken more than was sent.
        if words.len() > WANTED_BYTES_MAX || count > self.taken_by_peer + self.in_flight as u64 {
            return Err(Violation::Wanted);
        }
        self.wanted_by_peer = Some((count, words.to_vec()));
        Ok(())
    }
}
