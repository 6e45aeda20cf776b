//! The routes of messages between this task and a task of another host.
//!
//! The *default route* through the daemons always exists. A *lane* carries messages without the daemons, and may break:
//! a TCP connection (a direct link) or a link on a fabric. Two tasks have at most one lane.
//!
//! * [`Peers`] decides to which task this task requests a lane, of which kind, and how long it waits before it requests
//!   another one.
//! * [`Lane`] decides when messages switch to a lane, when they leave it, and which are sent again by the default route after
//!   it has broken.
//! * [`Receipts`] decides which of those messages have arrived before.
//! * [`Unacknowledged`] holds the messages that may have to be sent again.
//!
//! No task ever waits for an answer: each switch is announced by one message on the route that is left, so the order of
//! the messages is kept, none is lost and none comes twice (`docs/decisions/0023`, `docs/protocols/direct-links.md`).
mod backoff;
mod fallback;
mod lane;
mod peers;
mod traffic;
mod unacknowledged;

pub use backoff::PAUSE_FIRST;
pub use fallback::{Fallback, Receipt, Receipts};
pub use lane::{GivenUp, Lane, LaneEnd, Step};
pub use peers::{LaneKind, Peers, Wish};
pub use traffic::Bursts;
pub use unacknowledged::Unacknowledged;

#[cfg(test)]
mod tests;
