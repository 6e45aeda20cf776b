//! Multicasts whose body travels from host to host along a tree.
//!
//! The sender's daemon announces the message to each host, in the flow to the receivers there: so the message keeps its
//! place among all others and takes credit as they do. An announcement has no body. It names the host's parent in the
//! [`Tree`], and the receiving daemon **fetches** the body from there ([`Fetches`]), unless the parent is the sender's host, which sends the body without a
//! request. The parent sends each part of the
//! body as soon as it has it ([`Bodies`]). Messages behind the announced one are held until the body is there
//! ([`InOrder`]).
//!
//! The sender's host keeps the body until each host has reported that it has received it. A host that loses its parent,
//! or gets nothing or wrong bytes from it, fetches from the sender's host. So no other host can withhold or change the
//! body.
mod advice;
mod bodies;
mod broadcast;
mod choice;
pub mod datagram;
mod fetches;
mod in_order;
mod left_out;
mod parts;
#[cfg(test)]
mod random_tests;
mod tree;

pub use advice::Advice;
pub(super) use bodies::Bodies;
pub(super) use broadcast::Broadcasts;
pub use broadcast::PartToSend;
pub(super) use choice::Choice;
pub use fetches::Fetches;
pub use in_order::InOrder;
pub use parts::REPORT_RANGES_MAX;
pub use tree::McastRoute;
pub(super) use tree::Tree;

use super::DataFrame;
use crate::tid::Tid;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The length of a [`BodyKey::secret`] in bytes.
pub const BODY_SECRET_BYTES: usize = 16;
/// The length of the digest of a body in bytes.
pub const DIGEST_BYTES: usize = 32;

/// The shortest parts in which a body is broadcast, in bytes. With shorter ones, headers would be most of the traffic.
pub const PART_BYTES_MIN: usize = 512;
/// The ways are measured with bodies of at least this many bytes. The credit for shorter ones returns late.
const MEASURED_BYTES_MIN: usize = 64 << 10;
/// A broadcast to fewer hosts is not worth its reports.
pub const LISTENERS_MIN: usize = 3;

/// The body of a multicast, as hosts name it to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyKey {
    /// The sender's host.
    pub origin: Tid,
    /// Random bytes. Only the hosts of receivers learn them, so no other host can fetch the body.
    pub secret: [u8; BODY_SECRET_BYTES],
}

impl std::fmt::Debug for BodyKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "body of {}", self.origin)
    }
}

/// What an announcement says about the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// The body.
    pub key: BodyKey,
    /// The digest of the body. The receiver checks it unless all bytes come from the sender's host by its data link.
    pub digest: [u8; DIGEST_BYTES],
    /// The host from which the receiver fetches the body. If it is the sender's host, it sends the body without a request.
    pub parent: Tid,
    /// The number of hosts that will probably fetch the body from the receiver.
    pub children: u32,
    /// If the sender's host broadcasts the body: the length of its parts in bytes. There is no parent then.
    pub part_bytes: Option<u32>,
}

/// A request or report about a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyRequest {
    /// Send the body, from this position on.
    Fetch {
        /// The position in bytes.
        at: u64,
    },
    /// Send no more of the body.
    Cancel,
    /// The sender of the report has received the whole body. Only the origin gets this report.
    Received,
    /// The sender of the report will not send the body, or no more of it.
    Unavailable,
    /// The sender of the report has memory for a body that is to be broadcast. Only the origin gets this report.
    Ready,
    /// What the sender of the report lacks at the end of a round of a broadcast. Only the origin gets this report.
    Report {
        /// The round.
        round: u32,
        /// The parts that are missing, in ascending order: [`REPORT_RANGES_MAX`] ranges at most.
        missing: Vec<Range<u32>>,
    },
}

/// How a multicast will travel. The default: from the sender's host to each host.
#[derive(Default)]
pub struct Plan {
    /// The way that was chosen, unless all ways are the same.
    pub way: Option<McastRoute>,
    pub(super) tree: Option<Tree>,
    pub(super) listeners: Option<Listeners>,
    /// The number of the measurement, if this multicast is measured.
    pub(super) measurement: Option<u32>,
}

/// The hosts that a broadcast reaches.
pub(super) struct Listeners {
    pub(super) hosts: BTreeSet<Tid>,
    pub(super) part_bytes: usize,
    /// How long the broadcast may take. After that, the hosts fetch what they lack.
    pub(super) time_limit: Option<Duration>,
}

impl Plan {
    /// Returns whether hosts get the body otherwise than from the sender's host alone. Such a body needs a name and a
    /// digest.
    pub fn is_announced(&self) -> bool {
        self.tree.is_some() || self.listeners.is_some()
    }

    /// Sets the body's name and digest. Nobody else may know `key.secret` yet.
    pub fn with_body(self, key: BodyKey, digest: [u8; DIGEST_BYTES]) -> Delivery {
        let is_announced = self.is_announced();
        let relayed = is_announced.then(|| Relayed {
            key,
            digest,
            tree: RefCell::new(self.tree.unwrap_or_else(|| Tree::binomial(key.origin, &[]))),
            unannounced: RefCell::new(self.listeners.iter().flat_map(|one| one.hosts.iter().copied()).collect()),
            listeners: self.listeners,
            ends: RefCell::default(),
        });
        Delivery { relayed, measurement: self.measurement }
    }

    /// Returns the delivery of a body that travels to each host.
    pub fn to_each_host(self) -> Delivery {
        // A measurement of another way would be wrong.
        Delivery { relayed: None, measurement: self.measurement.filter(|_| !self.is_announced()) }
    }
}

/// How a multicast travels. The default: from the sender's host to each host.
#[derive(Default)]
pub struct Delivery {
    pub(super) relayed: Option<Relayed>,
    pub(super) measurement: Option<u32>,
}

/// An announced multicast, as its sender's daemon makes it.
pub(super) struct Relayed {
    pub(super) key: BodyKey,
    digest: [u8; DIGEST_BYTES],
    /// The hosts that are not listeners.
    pub(super) tree: RefCell<Tree>,
    pub(super) listeners: Option<Listeners>,
    /// The listeners to which the message was not announced yet.
    unannounced: RefCell<BTreeSet<Tid>>,
    /// For each host a receiver there, and the position at which the message ends in that receiver's flow.
    pub(super) ends: RefCell<HashMap<Tid, (Tid, u64)>>,
}

impl Relayed {
    /// Notes where the message ends in the flow of a receiver.
    pub(super) fn note_end(&self, dst: Tid, end: u64) {
        self.ends.borrow_mut().insert(dst.host(), (dst, end));
    }

    /// Makes the announcement for a host. Returns `None` if the message was announced to the host before.
    pub(super) fn announce(&self, host: Tid, near: &[Tid]) -> Option<Announcement> {
        let (key, digest) = (self.key, self.digest);
        if let Some(listeners) = self.listeners.as_ref().filter(|_| self.unannounced.borrow_mut().remove(&host)) {
            let part_bytes = Some(listeners.part_bytes as u32);
            return Some(Announcement { key, digest, parent: key.origin, children: 0, part_bytes });
        }
        let (parent, children) = self.tree.borrow_mut().announce(host, |other| near.contains(&other))?;
        Some(Announcement { key, digest, parent, children, part_bytes: None })
    }
}

/// A part of a body, as it is sent.
pub(super) struct BodyPart<P> {
    pub key: BodyKey,
    pub range: Range<usize>,
    pub body: Rc<P>,
}

impl<P> From<BodyPart<P>> for DataFrame<P> {
    fn from(BodyPart { key, range, body }: BodyPart<P>) -> DataFrame<P> {
        DataFrame::Part { key, range, body }
    }
}

/// What happened to a body when a part of it was stored.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    /// The part was not wanted.
    Unwanted,
    /// The host has this number of bytes of the body now.
    Partial(usize),
    /// The body is complete. Check it against this digest, if there is one.
    Complete(Option<[u8; DIGEST_BYTES]>),
}
