//! What a receiver learns about a body that it could not take.
use crate::remote::Remote;

/// Why a [`crate::BodyInTransit`] was not taken.
pub enum NotTaken {
    /// The sender has fallen back to eager: here is the body.
    Eager(Remote),
    /// The message will arrive once more, through the sender's heap; this arrival does not count.
    Later,
    /// The sender died before it had sent the message completely, or has withdrawn it.
    Lost,
}
