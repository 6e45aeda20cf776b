//! Egress: the messages that tasks send to other hosts.
use super::datagrams::part_bytes;
use super::digests::digest_of;
use super::{Route, RouteContext};
use pvm_core::flows::multicast::{BODY_SECRET_BYTES, BodyKey, Delivery, McastRoute};
use pvm_core::flows::{self, Flows};
use pvm_core::tid::Tid;
use pvm_fmp::{Arrival, Block, FAR, Meta, Remote, Sink, random_bytes};
use std::collections::HashMap;

/// The length, in bytes, of the list of a multicast's receivers on other hosts; each receiver takes four bytes.
///
/// * Filled by: each task
/// * Setting: none, no machine has a million tasks
/// * Reached: the message is sent to no receiver
/// * Test: `a_list_of_more_receivers_than_there_can_be_is_nobodys`
pub(super) const LIST_BYTES_MAX: usize = 4 << 20;

/// The body of a message of a task of this host.
pub(super) enum Body {
    /// A short body, which was in the queue itself.
    Bytes(Vec<u8>),
    /// A body in the sender's heap.
    Remote(Remote),
    /// A body of a multicast that this host relays, in the daemon's own heap, and its length.
    Relayed(Block, usize),
}

impl Body {
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Remote(remote) => remote.len(),
            Body::Relayed(_, bytes) => *bytes,
        }
    }

    /// Copies the bytes from a position on.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Body::Bytes(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Body::Remote(remote) => remote.read(at, into),
            Body::Relayed(block, _) => block.read(at, into),
        }
    }
}

/// The messages for other hosts.
pub(super) struct EgressFlows {
    pub own: Tid,
    pub flows: Flows<Body>,
    /// The receivers of each sender's next message, and how it reaches their hosts, by sender.
    pub lists: HashMap<Tid, (Vec<Tid>, McastRoute)>,
    /// Lines for the log about the ways of multicasts.
    pub notes: Vec<String>,
}

impl EgressFlows {
    pub fn new(own: Tid) -> EgressFlows {
        EgressFlows { own, flows: Flows::new(), lists: HashMap::new(), notes: Vec::new() }
    }
}

impl Route {
    /// Sets the route of multicasts of tasks that choose none.
    pub fn set_mcast_route(&mut self, route: McastRoute) {
        self.egress_flows.flows.set_host_route(route);
    }

    /// Returns lines about the ways of the multicasts so far, and counts from 0 again if `reset` is true.
    pub fn multicast_summary(&mut self, reset: bool) -> Vec<String> {
        self.egress_flows.flows.multicast_summary(reset)
    }
}

/// Takes the messages that tasks have queued, and puts them into flows.
pub(super) struct Egress<'a> {
    pub egress_flows: &'a mut EgressFlows,
    pub context: &'a dyn RouteContext,
}

impl Egress<'_> {
    /// Returns whether a tid can belong to a task of another host.
    fn is_remote_task(&self, tid: Tid) -> bool {
        tid.is_task() && tid.host() != self.egress_flows.own && self.context.is_member(tid.host())
    }

    fn keep_list(&mut self, from: Tid, route: McastRoute, body: &Body) {
        if body.len() > LIST_BYTES_MAX {
            self.egress_flows.lists.remove(&from);
            return;
        }
        let mut bytes = vec![0; body.len()];
        body.read(0, &mut bytes);
        let words = bytes.chunks_exact(4).map(|word| Tid(u32::from_ne_bytes(word.try_into().expect("four"))));
        let mut list: Vec<Tid> = words.filter(|tid| self.is_remote_task(*tid)).collect();
        list.sort_unstable();
        list.dedup();
        self.egress_flows.lists.insert(from, (list, route));
    }

    /// Plans how a multicast reaches the hosts of its receivers. A body in the queue itself is short, and never travels
    /// along a tree.
    fn plan(&mut self, from: Tid, list: &[Tid], route: McastRoute, body: &Body) -> Delivery {
        let Body::Remote(_) = body else { return Delivery::default() };
        let (context, EgressFlows { own, flows, notes, .. }) = (self.context, &mut *self.egress_flows);
        let part_bytes = || context.datagram_bytes().map(part_bytes);
        let plan = flows.plan_multicast(route, *own, list, body.len(), |host| context.node_number(host), part_bytes);
        if let Some(way) = plan.way.filter(|_| context.traces_routes()) {
            let (bytes, tasks) = (body.len(), list.len());
            notes.push(format!("multicast of {bytes} bytes from {from} to {tasks} tasks elsewhere: {}", way.name()));
        }
        let mut secret = [0; BODY_SECRET_BYTES];
        // Without random bytes the name of the body would not be secret.
        if !plan.is_announced() || random_bytes(&mut secret).is_err() {
            return plan.to_each_host();
        }
        let digest = digest_of(0..body.len(), |at, into| body.read(at, into));
        plan.with_body(BodyKey { origin: *own, secret }, digest)
    }
}

impl Sink for Egress<'_> {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let (held, body) = match body {
            Arrival::Inline(inline) => {
                let mut bytes = vec![0; inline.len()];
                inline.copy_to(&mut bytes);
                (bytes.len(), Body::Bytes(bytes))
            }
            Arrival::Remote(remote) => (0, Body::Remote(remote)),
            // Tasks send a daemon only whole bodies, never one that they are still copying.
            Arrival::InTransit(_) => return,
        };
        let (from, far, bytes) = (Tid(from), meta[FAR], body.len());
        let [ctx, tag, wid, enc, format, _] = meta;
        let meta = [ctx, tag, wid, enc, format];
        match far {
            flows::LIST => self.keep_list(from, McastRoute::from_word(tag).unwrap_or_default(), &body),
            flows::LISTED => {
                let (list, route) = self.egress_flows.lists.remove(&from).unwrap_or_default();
                let delivery = self.plan(from, &list, route, &body);
                self.egress_flows.flows.multicast(from, &list, meta, (bytes, held), body, delivery);
            }
            far if self.is_remote_task(Tid(far)) => {
                self.egress_flows.flows.send(from, Tid(far), meta, bytes, held, body)
            }
            // A message without a receiver is dropped, as in PVM.
            _ => {}
        }
    }

    fn wants(&self, from: u32) -> bool {
        self.egress_flows.flows.may_take(Tid(from))
    }
}
