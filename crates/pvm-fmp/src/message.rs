//! Messages, and the results of sends.

/// Opaque words that travel with a message: the users of this crate put context, tag and so on there. The last one is
/// the far end of a message between hosts, see [`FAR`].
pub type Meta = [u32; 6];

/// The index, among the meta words, of the far end: the receiver in a message to the daemon, the sender in a message
/// from the daemon, 0 between tasks of a host.
pub const FAR: usize = 5;

/// The longest body that a task takes from a peer.
///
/// * Filled by: each task of the host
/// * Default: 2 GiB - 1 byte
/// * Setting: none, lengths are C `int`s
/// * Reached: the queue of the peer is read no further
/// * Test: `a_body_longer_than_any_message_is_damage`
pub const BODY_BYTES_MAX: usize = i32::MAX as usize;

/// The longest body that travels in the queue itself, in bytes.
pub const INLINE_BYTES_MAX: usize = 504;

/// There is no memory for the request: the limit of the segment or of the host's memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

/// Why a message could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No peer of that tid is known. Ask the daemon to introduce it, then try again.
    NotConnected,
    /// Nothing was sent.
    NoMemory,
}

/// What is left to do after a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Nothing is left to do.
    Done,
    /// The peer sleeps, and this task does not keep the peer's doorbell open: ask the daemon to ring it.
    RingByDaemon,
}

/// What a task waits for in a one-call receive, so that a sender can open a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// The sender, or 0 for any.
    pub from: u32,
    /// Which bits of the meta words must match.
    pub mask: Meta,
    /// The values of these bits.
    pub value: Meta,
}
