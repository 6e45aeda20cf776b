//! Multicasts in the flows: how each one travels, and the bodies that this host keeps, passes on and broadcasts.
use super::flow::{Flow, QueuedMessage};
use super::multicast::{
    Advice, BodyKey, BodyRequest, LISTENERS_MIN, Listeners, McastRoute, PART_BYTES_MIN, PartToSend, Plan, Relayed, Tree,
};
use super::{Flows, MULTICAST_WAIT_BYTES_MAX, cost};
use crate::tid::Tid;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// A multicast is measured if the bytes that are under way to each receiver are at most this part of it. The credit for
/// short messages, which programs send between multicasts, returns late.
const MEASURED_PART_IN_FLIGHT: u64 = 8;

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
