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
use tree::Tree;

use super::{DataFrame, Flow, Flows, MULTICAST_WAIT_BYTES_MAX, QueuedMessage, cost};
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
/// A multicast is measured if the bytes that are under way to each receiver are at most this part of it. The credit for
/// short messages, which programs send between multicasts, returns late.
const MEASURED_PART_IN_FLIGHT: u64 = 8;
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
    tree: Option<Tree>,
    listeners: Option<Listeners>,
    /// The number of the measurement, if this multicast is measured.
    pub(super) measurement: Option<u32>,
}

/// The hosts that a broadcast reaches.
struct Listeners {
    hosts: BTreeSet<Tid>,
    part_bytes: usize,
    /// How long the broadcast may take. After that, the hosts fetch what they lack.
    time_limit: Option<Duration>,
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
    key: BodyKey,
    digest: [u8; DIGEST_BYTES],
    /// The hosts that are not listeners.
    tree: RefCell<Tree>,
    listeners: Option<Listeners>,
    /// The listeners to which the message was not announced yet.
    unannounced: RefCell<BTreeSet<Tid>>,
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
        let (key, digest) = (self.key, self.digest);
        if let Some(listeners) = self.listeners.as_ref().filter(|_| self.unannounced.borrow_mut().remove(&host)) {
            let part_bytes = Some(listeners.part_bytes as u32);
            return Some(Announcement { key, digest, parent: key.origin, children: 0, part_bytes });
        }
        let (parent, children) = self.tree.borrow_mut().announce(host, |other| near.contains(&other))?;
        Some(Announcement { key, digest, parent, children, part_bytes: None })
    }
}

impl<P> Flows<P> {
    /// Plans how a multicast of `bytes` bytes from the host `own` to these tasks travels. `dsts` must be in ascending
    /// order. `node` returns the number of a host in the physical network, if it is known. `part_bytes` returns how many
    /// bytes of a body a datagram to all hosts can hold, if there are such datagrams.
    pub fn plan_multicast(
        &mut self,
        route: McastRoute,
        own: Tid,
        dsts: &[Tid],
        bytes: usize,
        node: impl Fn(Tid) -> Option<u32>,
        part_bytes: impl FnOnce() -> Option<usize>,
    ) -> Plan {
        let mut hosts: Vec<Tid> = dsts.iter().map(|dst| dst.host()).collect();
        hosts.dedup();
        if !Tree::suits(hosts.len(), bytes) {
            return Plan::default();
        }
        let route = if route == McastRoute::Automatic { self.host_route } else { route };
        let mut part_bytes = match route {
            McastRoute::Automatic | McastRoute::Broadcast => part_bytes(),
            McastRoute::Iterative | McastRoute::Binomial | McastRoute::Hypercube => None,
        };
        part_bytes = part_bytes.filter(|part_bytes| *part_bytes >= PART_BYTES_MIN);
        let listeners: BTreeSet<Tid> = match part_bytes {
            Some(_) => hosts.iter().copied().filter(|host| self.broadcasts.reaches(self.now, *host)).collect(),
            None => BTreeSet::new(),
        };
        let can_broadcast = listeners.len() >= LISTENERS_MIN;
        let (mut route, mut measurement, mut time_limit) = (route, None, None);
        if route == McastRoute::Automatic {
            let little = bytes as u64 / MEASURED_PART_IN_FLIGHT;
            let is_idle =
                |dst: &Tid| self.flow(*dst).is_none_or(|flow| flow.items.is_empty() && flow.in_flight <= little);
            let receivers = dsts.iter().all(is_idle).then_some(dsts.len());
            (route, measurement) = self.choice.choose(self.now, bytes, hosts.len(), receivers, can_broadcast);
            time_limit = measurement.and_then(|_| self.choice.time_limit(bytes, hosts.len()));
        }
        let way = if route == McastRoute::Broadcast && !can_broadcast { McastRoute::Binomial } else { route };
        self.choice.note_taken(way);
        let mut plan = Plan { way: Some(way), measurement, ..Plan::default() };
        match way {
            McastRoute::Automatic | McastRoute::Iterative => {}
            McastRoute::Hypercube => plan.tree = Some(Tree::hypercube(own, &hosts, node)),
            McastRoute::Broadcast => {
                hosts.retain(|host| !listeners.contains(host));
                plan.tree = Some(Tree::binomial(own, &hosts));
                plan.listeners = part_bytes.map(|part_bytes| Listeners { hosts: listeners, part_bytes, time_limit });
            }
            McastRoute::Binomial => plan.tree = Some(Tree::binomial(own, &hosts)),
        }
        plan
    }

    /// Returns lines about the ways of the multicasts so far, and counts from 0 again if `reset` is true.
    pub fn multicast_summary(&mut self, reset: bool) -> Vec<String> {
        let lines = self.choice.summary().collect();
        if reset {
            self.choice.reset_counts();
        }
        lines
    }

    /// Returns what tasks of this host should know about multicasts, if it has changed since the last call.
    pub fn take_new_advice(&mut self) -> Option<Advice> {
        let advice = match self.host_route {
            McastRoute::Automatic => self.choice.advice(),
            _ => Advice::DAEMONS,
        };
        (advice != std::mem::replace(&mut self.told_advice, advice)).then_some(advice)
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

    /// Keeps the body of a multicast along a tree for the hosts of its receivers.
    pub(super) fn keep_body(&mut self, src: Tid, relayed: &Relayed, bytes: usize, body: &Rc<P>) {
        let held = self.budgets.charge(src, 0);
        let listeners = relayed.listeners.iter().flat_map(|one| one.hosts.iter().copied());
        let hosts: BTreeSet<Tid> = relayed.tree.borrow().hosts().chain(listeners).collect();
        self.bodies.keep(relayed.key, body.clone(), bytes, (src, held), hosts);
        if let Some(Listeners { hosts, part_bytes, time_limit }) = &relayed.listeners {
            self.broadcasts.begin(relayed.key, bytes, *part_bytes, hosts.iter().copied(), self.now, *time_limit);
        }
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

    /// Returns whether this host is receiving a body that it relays.
    pub fn is_relaying(&self) -> bool {
        self.bodies.is_relaying()
    }

    /// Notes that this host will not relay a body: it does not receive it, or its children have it.
    pub fn refuse_body(&mut self, key: BodyKey) {
        self.bodies.refuse(key);
    }

    /// Queues a request or report about a body for a host.
    pub fn send_body_request(&mut self, host: Tid, key: BodyKey, request: BodyRequest) {
        self.bodies.send(host, key, request);
    }

    /// Begins to send bodies to the hosts whose parent this host is: none of them has to request the body. The daemon
    /// calls this when it has sent all announcements that it can send: so a body for one host does not delay the
    /// announcement of it for another one. Returns whether there is something to send.
    pub fn begin_pushes(&mut self) -> bool {
        let mut begun = false;
        for (host, key) in std::mem::take(&mut self.pushes) {
            // Without the body, all its hosts have it or have gone.
            if self.bodies.get(key).is_some() {
                self.bodies.fetch(host, key, 0);
                begun = true;
            }
        }
        begun
    }

    /// Handles a request for a body.
    pub fn fetch_body(&mut self, from: Tid, key: BodyKey, at: u64) {
        self.broadcasts.leave(self.now, from, key);
        self.bodies.fetch(from, key, at);
    }

    /// Handles the cancellation of a request for a body.
    pub fn cancel_body(&mut self, from: Tid, key: BodyKey) {
        self.bodies.cancel(from, key);
    }

    /// Handles the report that a host has received a body of this host.
    pub fn body_received(&mut self, from: Tid, key: BodyKey) {
        self.broadcasts.received(self.now, from, key);
        if let Some((src, held)) = self.bodies.received(from, key) {
            self.budgets.release(src, held);
        }
    }

    /// Handles the report that a host has memory for a body that is to be broadcast.
    pub fn body_ready(&mut self, from: Tid, key: BodyKey) {
        self.broadcasts.ready(self.now, from, key);
        self.send_dropped();
    }

    /// Handles the report of a host about the parts of a body that it lacks.
    pub fn body_report(&mut self, from: Tid, key: BodyKey, round: u32, missing: &[Range<u32>]) {
        self.broadcasts.report(self.now, from, key, round, missing);
        self.send_dropped();
    }

    /// Returns the next datagram to all hosts, if one can be sent now.
    pub fn next_datagram(&mut self) -> Option<Datagram<P>> {
        let part = self.broadcasts.next(self.now);
        if self.broadcasts.take_gave_up() {
            self.choice.broadcast_given_up();
        }
        self.send_dropped();
        let part = part?;
        // A body is kept until all its hosts have it; those that listen are among them.
        let body = self.bodies.get(part.key).expect("a body that is broadcast is kept");
        Some(Datagram { part, body })
    }

    /// Returns whether [`Flows::next_datagram`] has nothing to do.
    pub fn has_no_broadcasts(&self) -> bool {
        self.broadcasts.is_done()
    }

    /// Returns when [`Flows::next_datagram`] must be called next, even if nothing arrives.
    pub fn next_wakeup(&self) -> Option<Duration> {
        self.broadcasts.next_wakeup()
    }

    /// Ends all broadcasts: this host cannot send datagrams.
    pub fn broadcasts_fail(&mut self) {
        self.broadcasts.fail();
        self.send_dropped();
    }

    /// Tells the hosts that were dropped that they must fetch.
    fn send_dropped(&mut self) {
        while let Some((host, key)) = self.broadcasts.poll_dropped() {
            self.bodies.refuse_host(host, key);
        }
    }

    /// Drops what a host that has gone wanted.
    pub(super) fn forget_body_host(&mut self, host: Tid) {
        self.pushes.retain(|(to, _)| *to != host);
        self.broadcasts.host_gone(self.now, host);
        for (src, held) in self.bodies.host_gone(host) {
            self.budgets.release(src, held);
        }
    }

    /// Drops bodies that no host has fetched for a while. The daemon calls this about once a second.
    pub fn tick_bodies(&mut self) {
        self.bodies.tick();
    }
}

/// A datagram to all hosts.
pub struct Datagram<P> {
    /// The part of the body.
    pub part: PartToSend,
    /// The body.
    pub body: Rc<P>,
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
