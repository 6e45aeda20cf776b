//! Multicasts whose body travels from host to host along a tree.
//!
//! The sender's daemon announces the message to each host, in the flow to the receivers there: so the message keeps its
//! place among all others and takes credit as they do. An announcement has no body. It names the host's parent in the
//! [`Tree`], and the receiving daemon **fetches** the body from there ([`Fetches`]). The parent sends each part of the
//! body as soon as it has it ([`Bodies`]). Messages behind the announced one are held until the body is there
//! ([`InOrder`]).
//!
//! The sender's host keeps the body until each host has reported that it has received it. A host that loses its parent,
//! or gets nothing or wrong bytes from it, fetches from the sender's host. So no other host can withhold or change the
//! body.
mod bodies;
mod choice;
mod fetches;
mod in_order;
#[cfg(test)]
mod random_tests;
mod tree;

pub(super) use bodies::Bodies;
pub(super) use choice::Choice;
pub use fetches::Fetches;
pub use in_order::InOrder;
pub use tree::McastRoute;
use tree::Tree;

use super::flow::Consumed;
use super::{DataFrame, Flow, Flows, MULTICAST_WAIT_BYTES_MAX, QueuedMessage, cost};
use crate::tid::Tid;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The length of a [`BodyKey::secret`] in bytes.
pub const BODY_SECRET_BYTES: usize = 16;
/// The length of the digest of a body in bytes.
pub const DIGEST_BYTES: usize = 32;

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
    /// The digest of the body. The receiver checks it unless it gets the body from the sender's host.
    pub digest: [u8; DIGEST_BYTES],
    /// The host from which the receiver fetches the body.
    pub parent: Tid,
    /// The number of hosts that will probably fetch the body from the receiver.
    pub children: u32,
}

/// A request or report about a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// How a multicast will travel. The default: from the sender's host to each host.
#[derive(Default)]
pub struct Plan {
    tree: Option<Tree>,
    /// The number of the measurement, if this multicast is measured.
    pub(super) measurement: Option<u32>,
}

impl Plan {
    /// Returns whether the body travels along a tree. Such a body needs a name and a digest.
    pub fn has_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Gives the body its name and digest. Nobody else may know `key.secret` yet.
    pub fn with_body(self, key: BodyKey, digest: [u8; DIGEST_BYTES]) -> Delivery {
        let relayed = self.tree.map(|tree| Relayed { key, digest, tree: RefCell::new(tree), ends: RefCell::default() });
        Delivery { relayed, measurement: self.measurement }
    }

    /// Returns the delivery of a body that travels to each host.
    pub fn to_each_host(self) -> Delivery {
        // A measurement of the tree would be wrong.
        Delivery { relayed: None, measurement: self.measurement.filter(|_| self.tree.is_none()) }
    }
}

/// How a multicast travels. The default: from the sender's host to each host.
#[derive(Default)]
pub struct Delivery {
    pub(super) relayed: Option<Relayed>,
    pub(super) measurement: Option<u32>,
}

/// A multicast along a tree, as its sender's daemon makes it.
pub(super) struct Relayed {
    key: BodyKey,
    digest: [u8; DIGEST_BYTES],
    tree: RefCell<Tree>,
    /// For each host a receiver there, and the position at which the message ends in that receiver's flow.
    ends: RefCell<HashMap<Tid, (Tid, u64)>>,
}

impl Relayed {
    /// Notes where the message ends in the flow of a receiver.
    pub(super) fn note_end(&self, dst: Tid, end: u64) {
        self.ends.borrow_mut().insert(dst.host(), (dst, end));
    }

    /// Makes the announcement for a host. Returns `None` if the message was announced to the host before.
    pub(super) fn announce(&self, host: Tid, near: &[Tid]) -> Option<Announcement> {
        let (parent, children) = self.tree.borrow_mut().announce(host, |other| near.contains(&other))?;
        Some(Announcement { key: self.key, digest: self.digest, parent, children })
    }
}

impl<P> Flows<P> {
    /// Plans how a multicast of `bytes` bytes from the host `own` to these tasks travels: along a tree, or else from
    /// `own` to each host. `dsts` must be in ascending order. `node` returns the number of a host in the physical
    /// network, if it is known.
    pub fn plan_multicast(
        &mut self,
        route: McastRoute,
        own: Tid,
        dsts: &[Tid],
        bytes: usize,
        node: impl Fn(Tid) -> Option<u32>,
    ) -> Plan {
        let mut hosts: Vec<Tid> = dsts.iter().map(|dst| dst.host()).collect();
        hosts.dedup();
        if !Tree::suits(hosts.len(), bytes) {
            return Plan::default();
        }
        let (mut route, mut measurement) = (route, None);
        if route == McastRoute::Automatic {
            let is_idle = |dst: &Tid| self.flow(*dst).is_none_or(|flow| flow.items.is_empty() && flow.in_flight == 0);
            let can_measure = dsts.iter().all(is_idle);
            (route, measurement) = self.choice.choose(self.now, bytes, hosts.len(), can_measure.then_some(dsts.len()));
        }
        let tree = match route {
            McastRoute::Automatic | McastRoute::Iterative => None,
            McastRoute::Binomial => Some(Tree::binomial(own, &hosts)),
            McastRoute::Hypercube => Some(Tree::hypercube(own, &hosts, node)),
        };
        Plan { tree, measurement }
    }

    /// Notes the time, for measurements. The daemon calls this before each step.
    pub fn note_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Marks the end of a multicast that is measured in the flows of its receivers.
    pub(super) fn measure(&mut self, dsts: &[Tid], number: u32) {
        for dst in dsts {
            if let Some(flow) = self.hosts.get_mut(&dst.host()).and_then(|host_flows| host_flows.flows.get_mut(dst)) {
                flow.measured = Some((flow.queued, number));
            }
        }
    }

    /// Handles what a task of another host has consumed.
    pub(super) fn on_consumed(&mut self, host: Tid, consumed: Consumed) {
        if let Some(number) = consumed.measurement {
            self.choice.consumed(self.now, number);
        }
        // What a task has consumed, its host has received, even if the host does not report it.
        consumed.bodies.into_iter().for_each(|key| self.body_received(host, key));
    }

    /// Keeps the body of a multicast along a tree for the hosts of its receivers.
    pub(super) fn keep_body(&mut self, src: Tid, relayed: &Relayed, bytes: usize, body: &Rc<P>) {
        let held = self.budgets.charge(src, 0);
        self.bodies.keep(relayed.key, body.clone(), bytes, (src, held), relayed.tree.borrow().hosts());
    }

    /// Returns the hosts that can be parents of `host` although the message was not announced to them yet, if the flow
    /// of `dst` begins with a multicast that is to be announced.
    pub(super) fn near_parents(&self, dst: Tid) -> Vec<Tid> {
        let Some(message) = self.flow(dst).and_then(|flow| flow.items.front()?.message()) else { return Vec::new() };
        let Some(relayed) = &message.relayed else { return Vec::new() };
        let ancestors = relayed.tree.borrow().unannounced_ancestors(dst.host());
        ancestors.into_iter().filter(|host| self.is_near(*host, relayed, message)).collect()
    }

    /// Returns whether the message will be announced to a host soon.
    fn is_near(&self, host: Tid, relayed: &Relayed, message: &QueuedMessage<P>) -> bool {
        let ends = relayed.ends.borrow();
        let Some((dst, end)) = ends.get(&host) else { return false };
        let is_close = |flow: &Flow<P>| end - flow.begun <= MULTICAST_WAIT_BYTES_MAX + cost(message.bytes);
        self.flow(*dst).is_some_and(|flow| flow.makes_progress() && is_close(flow))
    }

    /// Offers a body that this host is receiving to its children in the tree.
    pub fn relay_body(&mut self, key: BodyKey, bytes: usize, children: u32, body: P) {
        self.bodies.relay(key, Rc::new(body), bytes, children);
    }

    /// Notes that this host has the first `bytes` bytes of a body that it relays.
    pub fn body_grows(&mut self, key: BodyKey, bytes: usize) {
        self.bodies.grow(key, bytes);
    }

    /// Notes that this host will not relay a body: it does not receive it, or its children have it.
    pub fn refuse_body(&mut self, key: BodyKey) {
        self.bodies.refuse(key);
    }

    /// Queues a request or report about a body for a host.
    pub fn send_body_request(&mut self, host: Tid, key: BodyKey, request: BodyRequest) {
        self.bodies.send(host, key, request);
    }

    /// Handles a request for a body.
    pub fn fetch_body(&mut self, from: Tid, key: BodyKey, at: u64) {
        self.bodies.fetch(from, key, at);
    }

    /// Handles the cancellation of a request for a body.
    pub fn cancel_body(&mut self, from: Tid, key: BodyKey) {
        self.bodies.cancel(from, key);
    }

    /// Handles the report that a host has received a body of this host.
    pub fn body_received(&mut self, from: Tid, key: BodyKey) {
        if let Some((src, held)) = self.bodies.received(from, key) {
            self.budgets.release(src, held);
        }
    }

    /// Drops what a host that has gone wanted.
    pub(super) fn forget_body_host(&mut self, host: Tid) {
        for (src, held) in self.bodies.host_gone(host) {
            self.budgets.release(src, held);
        }
    }

    /// Drops bodies that no host has fetched for a while. The daemon calls this about once a second.
    pub fn tick_bodies(&mut self) {
        self.bodies.tick();
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
