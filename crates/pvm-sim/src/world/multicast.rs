//! Announced multicasts, and the bodies that daemons fetch from each other.
use crate::event::Event;
use crate::ids::NodeId;
use crate::node::NodeState;
use crate::program::QueuedMessage;
use crate::queue::{MILLISECOND, Nanos};
use crate::world::World;
use pvm_core::flows::MessageHeader;
use pvm_core::flows::multicast::{
    Announcement, BODY_SECRET_BYTES, BodyKey, BodyRequest, DIGEST_BYTES, Delivery, McastRoute, Stored,
};
use pvm_core::tid::Tid;
use std::ops::Range;
use std::rc::Rc;

/// How long a daemon withholds a report, at most. The patience of the sender's daemon ends before that, or later.
const WITHHELD_MOST: Nanos = 300 * MILLISECOND;

impl World {
    /// Plans how a multicast of a daemon reaches the hosts of its receivers.
    pub fn plan_multicast(&mut self, node: NodeId, dsts: &[Tid], bytes: usize, message: &QueuedMessage) -> Delivery {
        let own = self.nodes[node].tid;
        let route = McastRoute::from_word(self.prng.below(5) as u32).expect("five routes");
        let now = self.time(node);
        self.nodes[node].flows.note_time(now);
        let part_bytes = Some(self.part_bytes(bytes));
        let plan = self.nodes[node].flows.plan_multicast(route, own, dsts, bytes, |_| None, || part_bytes);
        let several = {
            let mut hosts = dsts.iter().map(|dst| dst.host());
            let first = hosts.next();
            hosts.any(|host| Some(host) != first)
        };
        match route {
            _ if !plan.is_announced() => self.tried.iterative += u64::from(several),
            McastRoute::Binomial => self.tried.binomial += 1,
            McastRoute::Hypercube => self.tried.hypercube += 1,
            _ => {}
        }
        if !plan.is_announced() {
            return plan.to_each_host();
        }
        let mut secret = [0; BODY_SECRET_BYTES];
        secret[..8].copy_from_slice(&(self.bodies.len() as u64).to_le_bytes());
        let key = BodyKey { origin: own, secret };
        self.bodies.insert(key, Rc::new(message.clone()));
        plan.with_body(key, [0; DIGEST_BYTES])
    }

    /// Handles the announcement of a multicast.
    pub fn announced(&mut self, node: NodeId, from: Tid, header: &MessageHeader, announcement: &Announcement) {
        let (key, body) = (announcement.key, self.bodies[&announcement.key].clone());
        let wanted = header.receivers().any(|dst| self.nodes[node].tasks.contains_key(&dst));
        let one = &mut self.nodes[node];
        one.inbound.admit(from, header).expect("flows keep to their windows");
        if !wanted {
            one.flows.refuse_body(key);
            one.inbound.fetches.decline(key);
            header.receivers().for_each(|dst| one.inbound.dropped(dst, from, header.bytes));
            return self.send_body_requests(node);
        }
        let has_parent = one.known.contains_key(&announcement.parent);
        self.tried.broadcast += u64::from(announcement.part_bytes.is_some());
        header.receivers().for_each(|dst| one.held.announced(from, dst, key));
        one.flows.relay_body(key, header.bytes, announcement.children, (*body).clone());
        one.inbound.fetches.begin(header.clone(), announcement, has_parent, body).expect("each body is announced once");
        self.send_body_requests(node);
    }

    /// Handles a request or report about a body.
    pub fn body_request(&mut self, node: NodeId, from: Tid, key: BodyKey, request: BodyRequest) {
        let now = self.time(node);
        let one = &mut self.nodes[node];
        one.flows.note_time(now);
        match request {
            BodyRequest::Fetch { at } => one.flows.fetch_body(from, key, at),
            BodyRequest::Cancel => one.flows.cancel_body(from, key),
            BodyRequest::Received => one.flows.body_received(from, key),
            BodyRequest::Unavailable => one.inbound.fetches.unavailable(from, key),
            BodyRequest::Ready => one.flows.body_ready(from, key),
            BodyRequest::Report { round, missing } => one.flows.body_report(from, key, round, &missing),
        }
        self.send_body_requests(node);
        self.carry(node, from);
    }

    /// Handles a part of a body.
    pub fn body_part(&mut self, node: NodeId, from: Tid, key: BodyKey, range: &Range<usize>) {
        let one = &mut self.nodes[node];
        let fetches = &mut one.inbound.fetches;
        if fetches.place(from, key, range.start as u64, range.len()).is_none() {
            return;
        }
        let stored = fetches.placed(from, key, range.start, range.len());
        let is_relayed = from != key.origin;
        self.tried.relayed += u64::from(is_relayed);
        if stored != Stored::Unwanted {
            self.checks.body_part(one.tid, key, range);
        }
        // The relay dies in the middle: this host has a part of the body, and lacks another.
        if self.relays_to_kill > 0 && is_relayed && matches!(stored, Stored::Partial(_)) {
            self.kill_relay(from);
        }
        let one = &mut self.nodes[node];
        match stored {
            Stored::Unwanted => {}
            Stored::Partial(bytes) => one.flows.body_grows(key, bytes),
            Stored::Complete(_) => self.body_complete(node, key),
        }
        self.send_body_requests(node);
        self.carry_all(node);
    }

    /// Kills a daemon that relays a body, unless it has to do with the office of the master: without that, the machine ends.
    fn kill_relay(&mut self, host: Tid) {
        let relay = self.nodes.iter().position(|node| node.tid == host && node.state != NodeState::Dead);
        let Some(relay) = relay.filter(|relay| !self.is_in_office(*relay)) else { return };
        self.relays_to_kill -= 1;
        self.tried.relays_killed += 1;
        self.checks.fault_of(self.nodes[relay].place);
        self.end_daemon(relay, "is killed while it relays a body", true);
    }

    /// Delivers a complete body.
    pub fn body_complete(&mut self, node: NodeId, key: BodyKey) {
        let one = &mut self.nodes[node];
        let Some((header, message)) = one.inbound.fetches.finish(key) else { return };
        one.flows.body_grows(key, header.bytes);
        self.checks.body_complete(one.tid, key, header.bytes);
        if !header.others.is_empty() {
            self.make_gaps(node, key.origin, None);
        }
        for dst in header.receivers() {
            let to_one = MessageHeader { dst, others: Vec::new(), ..header.clone() };
            let held = (to_one.clone(), message.clone());
            if self.nodes[node].held.complete(key.origin, dst, key, held).is_some() {
                self.hand_out(node, key.origin, &to_one, &message);
            }
            // Deliver what no announced message precedes any more.
            while let Some((header, message)) = self.nodes[node].held.pop(key.origin, dst) {
                self.make_gaps(node, key.origin, Some(&[dst]));
                self.hand_out(node, key.origin, &header, &message);
            }
        }
    }

    /// Forgets a task that may have messages behind an announced one.
    pub fn forget_held(&mut self, node: NodeId, task: Tid) {
        for (from, (header, _)) in self.nodes[node].held.task_gone(task) {
            self.nodes[node].inbound.dropped(task, from, header.bytes);
        }
    }

    /// Sends the requests for bodies.
    pub fn send_body_requests(&mut self, node: NodeId) {
        while let Some((host, key, request)) = self.nodes[node].inbound.fetches.poll_request() {
            // A fetch from the sender's host that does not begin at the start follows one from another host.
            let resumes = matches!(request, BodyRequest::Fetch { at } if at > 0);
            self.tried.fetched_again += u64::from(resumes && host == key.origin);
            let is_report = matches!(request, BodyRequest::Report { .. } | BodyRequest::Received);
            if is_report && self.network.is_late(self.nodes[node].place) {
                self.tried.withheld += 1;
                let at = self.now + self.prng.span(0, WITHHELD_MOST);
                self.queue.push(at, Event::LateReport { node, host, report: Box::new((key, request)) });
            } else {
                self.send_body_request(node, host, key, request);
            }
        }
    }

    /// Sends a request for a body, or a report about one.
    pub fn send_body_request(&mut self, node: NodeId, host: Tid, key: BodyKey, request: BodyRequest) {
        self.nodes[node].flows.send_body_request(host, key, request);
        self.carry(node, host);
    }

    /// Lets a daemon notice that bodies make no progress. Daemons do this about once a second.
    pub fn tick_bodies(&mut self, node: NodeId) {
        self.nodes[node].inbound.fetches.tick();
        self.nodes[node].flows.tick_bodies();
        self.send_body_requests(node);
        self.carry_all(node);
    }
}
