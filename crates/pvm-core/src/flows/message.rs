//! Messages that arrive from other hosts.
use super::Meta;
use crate::tid::Tid;

/// A message between hosts, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHeader {
    /// The sender.
    pub src: Tid,
    /// The receiver.
    pub dst: Tid,
    /// Further receivers on the same host.
    pub others: Vec<Tid>,
    /// The words that travel with the message.
    pub meta: Meta,
    /// The length of the body, in bytes.
    pub bytes: usize,
}

impl MessageHeader {
    /// Returns all receivers.
    pub fn receivers(&self) -> impl Iterator<Item = Tid> + '_ {
        std::iter::once(self.dst).chain(self.others.iter().copied())
    }
}

/// The other daemon breaks the rules of the protocol, so nothing more from it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolViolation;

/// The place of a chunk.
pub struct Chunk<'a, B> {
    /// The memory of the body.
    pub block: &'a B,
    /// The offset in that memory.
    pub at: usize,
}
