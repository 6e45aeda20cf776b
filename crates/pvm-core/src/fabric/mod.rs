//! Links between two tasks on a fabric: which frame is sent when, and what a frame of the peer does.
//!
//! A fabric delivers what one endpoint sends to another unchanged, but tells neither who sent it nor, with most
//! providers, that a peer has died; some report a short message before a longer one that was sent earlier; and each
//! frame needs a buffer that the receiver has posted. So:
//!
//! * A frame begins with a name that the receiver has chosen at random and that reached the sender through the daemons.
//!   What bears no known name is dropped.
//! * A sender has **credits**: it sends a counted frame only if the receiver has promised a buffer. Grants, which carry
//!   further credits, are not counted; there are never more than [`UNCOUNTED_MAX`] of them under way.
//! * Frames are numbered, and are taken in the order of their numbers.
//! * A message that fits a frame travels in it. Of a longer one, the frame says where the body lies, and the receiver reads
//!   it from there; or the body is *eager*: it travels in this frame and the next ones. The receiver measures which is
//!   quicker, and each of its frames says so ([`Transfers`]). Messages are delivered in the order in which they were sent.
//! * A body can be offered in pieces, each in a frame of its own, for a sender that makes one piece after the other ready
//!   and uses its memory again. Nothing else is sent between the pieces of a body.
//! * Messages that had to wait for a buffer of the peer travel together, as many as fit a frame.
//! * The sender keeps a message until the receiver has reported that it has taken it. So whoever leaves the fabric in
//!   the middle knows what is to be sent in another way ([`Link::into_untaken`]).
//! * A frame that breaks the rules ends the link that it names ([`Violation`]), and no other.
mod frame;
mod introduction;
mod link;
mod transfers;
mod violation;
mod wish;

pub use frame::{HEADER_BYTES, Header, Kind, OFFER_BYTES, Offered, PIECE_TAG_BYTES, Piece};
pub use introduction::{INTRODUCTION_BYTES_MAX, Introduction};
pub use link::{
    ArrivedBody, BodyMemory, BodyPart, Event, Lacking, Link, Message, Ready, ToRead, UNCOUNTED_MAX, UNTOLD_BYTES_MAX,
    Untaken,
};
pub use transfers::{EAGER_BYTES_MAX, Transfer, Transfers, Wishes};
pub use violation::Violation;
pub use wish::Wish;
