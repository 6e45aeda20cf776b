//! What a task does with its links on a fabric: it asks for them, answers, switches its messages to them and back, and
//! passes on the messages that arrive.
use super::{Loss, Member};
use crate::clock;
use crate::direct::Body;
use crate::envelope::HeldMessages;
use crate::fabric::route::RouteEvent;
use crate::requests::Purpose;
use crate::state::State;
use pvm_core::channel::{Fallback, LaneKind};
use pvm_core::codes::Code;
use pvm_core::proto::{ByteBuf, FabricOffer, LinkCause, Reply, Request, ToDaemon};
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_fmp::traffic::Route;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a leaving task waits for peers that go on taking messages, and without progress.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(1);
const LEAVE_STALL_MAX: Duration = Duration::from_millis(20);

impl Member {
    /// Asks for a link on a fabric. Returns false if there is no fabric, or no room for a peer.
    pub fn request_fabric_link(&mut self, state: &State, to: Tid) -> bool {
        if state.route_switches.receipts.is_open(to) {
            return false;
        }
        self.peers.handle_request(LaneKind::Fabric, to);
        let request = self.fabric.ask(to, self.direct.cause());
        self.report_problem();
        let Some(request) = request else {
            self.on_fabric_link_break(to);
            return false;
        };
        if self.request(request, Purpose::FabricLink(to)).is_err() {
            self.fabric.withdraw(to);
            return false;
        }
        true
    }

    /// Tells the daemon why the fabric that the user has named cannot be used.
    pub fn report_problem(&mut self) {
        if let Some(problem) = self.fabric.take_problem() {
            self.send(&ToDaemon::NoFabric(ByteBuf::from(problem.into_bytes())));
        }
    }

    /// Handles the answer to a question for a link.
    pub fn on_fabric_reply(&mut self, state: &mut State, peer: Tid, reply: &Reply) {
        let made = match reply {
            Reply::Fabric { introduction, sealed } => {
                // There may be an earlier link to this peer that was given up, or a direct one that was made meanwhile.
                let is_free = !self.direct.has_link(peer) && !state.route_switches.receipts.is_open(peer);
                let made = is_free && self.fabric.on_answer(peer, introduction, *sealed);
                if !made {
                    // The peer has made its side.
                    self.send_fallback(peer, Fallback::ANSWER);
                }
                made
            }
            _ => false,
        };
        match made {
            true => self.add_fabric_link(state, peer),
            false => {
                self.fabric.withdraw(peer);
                match reply {
                    Reply::Company => self.peers.handle_company(LaneKind::Fabric, peer, clock::now()),
                    _ => self.on_fabric_link_break(peer),
                }
            }
        }
    }

    fn on_fabric_link_break(&mut self, peer: Tid) {
        self.peers.handle_break(LaneKind::Fabric, peer, clock::now());
    }

    /// Answers a peer that asks for a link.
    pub fn on_fabric_question(
        &mut self,
        state: &mut State,
        number: u32,
        (peer, cause): (Tid, LinkCause),
        offer: &FabricOffer,
    ) {
        // There may be an earlier link to this peer that the peer has given up. It is handled first.
        self.poll_default_route(state);
        self.deliver_from_links(state);
        // If both have asked, the question from the host with the lower number counts.
        let is_second = self.tid.host() < peer.host() && self.fabric.has_asked(peer);
        let is_free = self.direct.allows_links()
            && !is_second
            && !self.direct.has_link(peer)
            && !self.awaits_direct_link(peer)
            && !self.fabric.has_link(peer)
            && !state.route_switches.receipts.is_open(peer);
        let ours = if is_free { self.fabric.on_question((peer, cause), offer) } else { None };
        self.report_problem();
        let introduction = ours.as_ref().map(|ours| ByteBuf::from(ours.encode()));
        if ours.is_some() {
            self.add_fabric_link(state, peer);
        }
        let purpose = if ours.is_some() { Purpose::FabricAnswer(peer) } else { Purpose::Ignored };
        let answer = Request::FabricAnswer { number, peer, introduction };
        // If the daemon is gone, so is the link, as the daemon of the peer reports.
        let _ = self.request(answer, purpose);
    }

    /// Handles the daemon's answer to an answer that offered a link: after an error, the peer does not know of the link.
    pub fn on_fabric_answered(&mut self, state: &mut State, peer: Tid, reply: &Reply) {
        if let (Reply::Error(_), Ok(at)) = (reply, self.fabric.position(peer)) {
            if !self.fabric.links[at].lane.is_established() {
                self.fabric.remove(at);
                state.route_switches.receipts.remove(peer);
            }
        }
    }

    fn add_fabric_link(&mut self, state: &mut State, peer: Tid) {
        let Ok(at) = self.fabric.position(peer) else { return };
        let link = &self.fabric.links[at];
        state.route_switches.receipts.open(peer, link.lane.received_counter(), Some(link.held.clone()));
        self.peers.handle_made(peer);
        // The fabric's descriptor joins those of direct links.
        if self.direct.descriptor().is_some() {
            self.parker.forget_descriptors();
        }
    }

    /// Takes in the messages that have arrived on the fabric. `count`: how many messages have arrived by other routes.
    /// Route switches must have been handled before.
    pub fn progress_fabric(&mut self, state: &mut State, count: usize) -> usize {
        let unheard = state.heard.take().filter(|peer| self.fabric.awaits_hello(*peer));
        let parked = self.endpoint.is_parked();
        let mut events = 0;
        if self.fabric.is_poll_due(count, parked, unheard) {
            self.check_before_fabric();
            events = self.fabric.poll();
        }
        self.fabric.end_links(parked, unheard);
        self.take_in_all_before_links(state);
        self.deliver_from_fabric(state).max(events)
    }

    /// Queues the messages that have arrived on the fabric, and handles events of links. Returns how many messages and
    /// events there were.
    pub fn deliver_from_fabric(&mut self, state: &mut State) -> usize {
        self.take_in_before_links(state);
        let mut count = 0;
        let traffic = self.endpoint.traffic();
        let mut take = |held: &HeldMessages, state: &mut State| {
            held.messages.borrow().iter().for_each(|message| traffic.received(Route::Fabric, message.body.len()));
            count += state.take_held(held);
        };
        for held in std::mem::take(&mut self.fabric.left_over) {
            take(&held, state);
        }
        for link in &self.fabric.links {
            if !(self.fabric.is_ordered(link) && state.backlog.is_open()) {
                take(&link.held, state);
            }
        }
        self.fabric.recycle(&mut state.store);
        self.switch_to_lanes(LaneKind::Fabric);
        self.fall_back(LaneKind::Fabric);
        for event in std::mem::take(&mut self.fabric.events) {
            let descriptor = self.direct.watched().map(|descriptor| descriptor.as_raw_fd());
            match event {
                RouteEvent::Usable(peer) => state.route_changed(peer, descriptor),
                RouteEvent::Ended(peer) => state.route_changed(peer, None),
            }
            count += 1;
        }
        count
    }

    pub fn announce_to_program(&mut self, at: usize) {
        if self.direct.wants_links() {
            self.fabric.announce(at);
        }
    }

    /// Ends all links if the program has closed descriptors: the provider would use those of the program in their place.
    pub fn check_before_fabric(&mut self) {
        if self.fabric.is_active() && self.loss != Some(Loss::DescriptorsClosed) && self.endpoint.is_bell_closed() {
            self.lose_daemon();
        }
    }

    /// Sends a message on the fabric. If the link ends, sends it at once by the default route.
    pub fn send_on_fabric(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        self.check_before_fabric();
        self.check_descriptors()?;
        if let Ok(at) = self.fabric.position(to) {
            self.announce_to_program(at);
        }
        if !self.fabric.send_in_place(to, meta, body)? {
            self.fabric.send(to, meta, body)?;
        }
        self.endpoint.traffic().sent(Route::Fabric, body.len());
        self.fall_back(LaneKind::Fabric);
        Ok(())
    }

    /// Begins the fallback from direct links to peers that were on the fabric before and may be asked for a link there again.
    pub fn return_to_fabric(&mut self) {
        if !self.fabric.may_exist() || !self.direct.allows_links() {
            return;
        }
        let now = clock::now();
        for peer in self.peers.lost_and_askable(now) {
            if self.direct.leave_for_fabric(peer) {
                self.peers.handle_given_up_for_fabric(peer, now);
            }
        }
    }

    /// Handles the fallback message of a peer. Returns whether there is a link to it on a fabric whose fallback is still to be
    /// announced. `is_known`: whether this
    /// side has, or had, the link that the message is about. `is_given_up`: whether the fabric has not failed.
    pub fn on_fabric_fallback(&mut self, peer: Tid, is_known: bool, is_given_up: bool) -> bool {
        let Ok(at) = self.fabric.position(peer) else {
            if !is_known && self.fabric.has_asked(peer) {
                // The peer had answered, and does not wait for this side any longer.
                self.fabric.withdraw(peer);
                self.on_fabric_link_break(peer);
            }
            return false;
        };
        let answers = self.fabric.links[at].lane.handle_fallback(is_given_up);
        if !self.fabric.links[at].is_gone {
            self.fabric.give_up(at);
        }
        answers
    }

    /// Handles the exit of a task of another host. The last messages of that task may still be on their way.
    pub fn on_fabric_peer_exit(&mut self, peer: Tid) {
        self.fabric.drain(peer);
    }

    /// Waits while the peers of a leaving task go on taking messages.
    pub fn wait_for_fabric(&mut self) {
        self.check_before_fabric();
        let begin = Instant::now();
        let (mut since, mut before) = (begin, None);
        while self.fabric.holds_messages() && begin.elapsed() < LEAVE_WAIT_MAX && since.elapsed() < LEAVE_STALL_MAX {
            self.fabric.poll();
            let taken = self.fabric.taken_by_peers();
            if before.replace(taken) != Some(taken) {
                since = Instant::now();
            }
            self.fabric.rest();
        }
    }
}
