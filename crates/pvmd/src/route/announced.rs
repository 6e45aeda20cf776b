//! Announced multicasts: their bodies are heard or fetched from other hosts, and relayed to them.
use super::egress::Body;
use super::link_failure::LinkFailure;
use super::receive::{Incoming, OnComplete};
use super::{Message, Payload, Route, RouteContext};
use pvm_core::flows::multicast::{Announcement, BodyKey, BodyRequest, Stored};
use pvm_core::flows::{MessageHeader, ProtocolViolation};
use pvm_core::tid::Tid;
use pvm_fmp::Block;

impl Route {
    /// Begins to fetch the body of an announced message. Without a block no task of this host wants the message.
    pub(super) fn on_announcement(
        &mut self,
        from: Tid,
        header: MessageHeader,
        announcement: Announcement,
        block: Option<Block>,
        context: &mut dyn RouteContext,
    ) -> Result<(), ProtocolViolation> {
        let key = announcement.key;
        self.intake.admit(from, &header)?;
        let Some(block) = block else {
            self.egress_flows.flows.refuse_body(key);
            self.intake.fetches.decline(key);
            header.receivers().for_each(|dst| self.intake.dropped(dst, from, header.bytes));
            return Ok(());
        };
        // The parent may have left since, or this host may not know it yet.
        let has_parent = announcement.parent != self.own && context.is_member(announcement.parent);
        let (bytes, receivers) = (header.bytes, header.receivers().collect::<Vec<Tid>>());
        self.intake.fetches.begin(header, &announcement, has_parent, Some(block.clone()))?;
        self.egress_flows.flows.relay_body(key, bytes, announcement.children, Body::Relayed(block, bytes));
        receivers.into_iter().for_each(|dst| self.held.announced(from, dst, key));
        if announcement.part_bytes.is_some() {
            self.listen(key, context);
        }
        Ok(())
    }

    /// Handles a request or report about a body.
    pub(super) fn on_body_request(&mut self, from: Tid, key: BodyKey, request: BodyRequest) -> Result<(), LinkFailure> {
        let flows = &mut self.egress_flows.flows;
        match request {
            BodyRequest::Fetch { at } => flows.fetch_body(from, key, at),
            BodyRequest::Cancel => flows.cancel_body(from, key),
            BodyRequest::Received if key.origin == self.own => flows.body_received(from, key),
            BodyRequest::Received => return Err(LinkFailure::ProtocolViolation),
            BodyRequest::Unavailable => self.intake.fetches.unavailable(from, key),
            BodyRequest::Ready | BodyRequest::Report { .. } if key.origin != self.own => {
                return Err(LinkFailure::ProtocolViolation);
            }
            BodyRequest::Ready => flows.body_ready(from, key),
            BodyRequest::Report { round, missing } => flows.body_report(from, key, round, &missing),
        }
        Ok(())
    }

    /// Returns where the next part of a body goes. A part that is not wanted is read and dropped.
    pub(super) fn place_part(&self, from: Tid, key: BodyKey, at: u64, bytes: usize) -> Incoming {
        let (block, at, then) = match self.intake.fetches.place(from, key, at, bytes) {
            Some(place) => (place.block.clone(), place.at, OnComplete::AddPart { key, at: place.at, bytes }),
            None => (None, 0, OnComplete::Drop),
        };
        Incoming { block, at, left: bytes, transfer: None, counted: at, then }
    }

    /// Handles a part of a body that is in its place.
    pub(super) fn on_part(&mut self, from: Tid, key: BodyKey, at: usize, bytes: usize, context: &mut dyn RouteContext) {
        match self.intake.fetches.placed(from, key, at, bytes) {
            Stored::Unwanted => {}
            Stored::Partial(bytes) => {
                self.egress_flows.flows.body_grows(key, bytes);
                self.add_to_digest(key, bytes);
            }
            Stored::Complete(digest) => self.on_complete_body(key, digest, context),
        }
    }

    /// Delivers a body that is complete. If its digest is wrong, this host fetches it from the sender's host.
    pub(super) fn on_complete_body(
        &mut self,
        key: BodyKey,
        digest: Option<[u8; pvm_net::Digest::BYTES]>,
        context: &mut dyn RouteContext,
    ) {
        if digest.is_some_and(|digest| !self.check_digest(key, digest)) {
            self.egress_flows.flows.refuse_body(key);
            return self.intake.fetches.discard(key);
        }
        let Some((header, Some(block))) = self.intake.fetches.finish(key) else { return };
        self.egress_flows.flows.body_grows(key, header.bytes);
        self.deliver_announced(key, &header, &Payload::Block(block), context);
    }

    /// Adds the first `bytes` bytes of a body to its digest, if the digest is to be checked.
    fn add_to_digest(&mut self, key: BodyKey, bytes: usize) {
        let fetches = &self.intake.fetches;
        if let Some((_, Some(block))) = fetches.get(key).filter(|_| fetches.is_doubtful(key)) {
            self.digests.grow(key, block, bytes);
        }
    }

    /// Checks the digest of a complete body.
    fn check_digest(&mut self, key: BodyKey, digest: [u8; pvm_net::Digest::BYTES]) -> bool {
        let Some((header, Some(block))) = self.intake.fetches.get(key) else { return false };
        self.digests.finish(key, block, header.bytes) == digest
    }

    fn deliver_announced(
        &mut self,
        key: BodyKey,
        header: &MessageHeader,
        payload: &Payload,
        context: &mut dyn RouteContext,
    ) {
        let from = key.origin;
        if !header.others.is_empty() {
            // What one receiver does in response must not overtake the message to another.
            self.make_gaps(from, None, context);
        }
        for dst in header.receivers() {
            let message = Message::new(from, dst, header, payload);
            if let Some(message) = self.held.complete(from, dst, key, message) {
                self.deliver_next(message, context);
            }
            // Deliver what no announced message precedes any more.
            while let Some(message) = self.held.pop(from, dst) {
                self.deliver_next(message, context);
            }
        }
    }

    /// Queues the requests for bodies. If a body comes from another host from now on, a part of it that is being read
    /// must not be stored any more.
    pub(super) fn send_body_requests(&mut self) {
        while let Some((host, key, request)) = self.intake.fetches.poll_request() {
            if matches!(request, BodyRequest::Fetch { .. }) {
                let others = self.data_links.iter_mut().filter(|(other, _)| **other != host);
                others.for_each(|(_, data_link)| data_link.receive.drop_part(key));
            }
            self.egress_flows.flows.send_body_request(host, key, request);
        }
        self.request_missing_links();
    }

    /// Fetches bodies that have made no progress from the senders' hosts, and drops bodies that nobody has fetched for
    /// a while. The daemon calls this about once a second.
    pub fn tick(&mut self) {
        self.is_due = true;
        self.intake.fetches.tick();
        self.digests.retain(|key| self.intake.fetches.get(key).is_some());
        self.egress_flows.flows.tick_bodies();
        self.send_body_requests();
    }
}
