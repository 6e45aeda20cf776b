//! What a task does with its direct links: it requests and takes over links, switches its messages to them, and passes
//! on the messages that arrive on them.
use super::Member;
use crate::clock;
use crate::direct::{Body, LINK_STACK_BYTES, RouteEvent};
use crate::requests::Purpose;
use crate::state::State;
use pvm_core::channel::LaneKind;
use pvm_core::codes::Code;
use pvm_core::proto::{Direct, Request, ToDaemon};
use pvm_core::tid::Tid;
use pvm_fmp::traffic::Route;
use pvm_fmp::{Meta, has_stack, touch_pages};
use rustix::net::Shutdown;
use std::os::fd::OwnedFd;

impl Member {
    /// Requests a link. If no link can be made, messages stay on the default route, and a later call requests it again.
    pub fn request_direct_link(&mut self, to: Tid) {
        self.peers.handle_request(LaneKind::Direct, to);
        let request = Request::Direct { to, cause: self.direct.cause() };
        match self.direct.may_request() && self.request(request, Purpose::DirectLink(to)).is_ok() {
            true => self.direct.open_requests += 1,
            false => self.on_direct_link_break(to),
        }
    }

    /// Notes that a link has broken, or was not made.
    pub fn on_direct_link_break(&mut self, peer: Tid) {
        self.peers.handle_break(LaneKind::Direct, peer, clock::now());
    }

    /// Takes over a link that the daemons have made.
    pub fn on_direct_link(&mut self, state: &mut State, direct: &Direct, descriptors: Vec<OwnedFd>) {
        if self.direct.has_room() && !has_stack(LINK_STACK_BYTES) {
            self.direct.defer(direct, descriptors);
        } else {
            self.make_direct_link(state, direct, descriptors);
        }
    }

    /// Makes this side of a link. Needs much stack.
    #[inline(never)]
    fn make_direct_link(&mut self, state: &mut State, direct: &Direct, descriptors: Vec<OwnedFd>) {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(descriptors) else { return };
        let peer = direct.peer;
        // There may be an earlier link to this peer that the peer has given up, or that was never established. The
        // earlier link is handled first.
        self.poll_default_route(state);
        self.deliver_from_links(state);
        // Two tasks have at most one link.
        let is_open = state.route_switches.receipts.is_open(peer) || self.fabric.has_link(peer);
        let made = if is_open { None } else { self.direct.make(direct, &socket) };
        let Some(at) = made else {
            // The shutdown tells the peer and both daemons that the link is refused.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
            // This side may have requested it.
            self.on_direct_link_break(peer);
            return;
        };
        // The peer, which has asked for this one, refuses the other.
        self.fabric.withdraw(peer);
        state.route_switches.receipts.open(peer, self.direct.links[at].lane.received_counter(), None);
        self.peers.handle_made(peer);
        self.parker.forget_descriptors();
        self.direct.poll_link(at, None);
        self.deliver_from_links(state);
    }

    /// Takes in the messages that have arrived on the links. `count`: how many messages have arrived by other routes.
    /// `polls`: whether to poll the links if these are none.
    #[cold]
    #[inline(never)]
    pub fn progress_direct_links(&mut self, state: &mut State, count: usize, polls: bool) -> usize {
        self.handle_route_switches(state);
        for (direct, descriptors) in self.direct.take_deferred() {
            self.make_direct_link(state, &direct, descriptors);
        }
        if self.direct.progress(&mut state.store, count, polls, self.endpoint.is_parked()) {
            self.return_to_fabric();
        }
        let from_fabric = if self.fabric.is_active() { self.progress_fabric(state, count) } else { 0 };
        self.take_in_all_before_links(state);
        from_fabric + self.deliver_from_links(state)
    }

    /// Queues the messages that were read from links, and handles events of links. Returns how many messages and events
    /// there were.
    pub fn deliver_from_links(&mut self, state: &mut State) -> usize {
        // A peer that has fallen back sends those messages again that this task has not counted as received. So this
        // call first drops these messages from `arrived`.
        self.handle_route_switches(state);
        // What this takes in may be such a switch, or let a link be read.
        for _ in 0..2 {
            if !self.take_in_before_links(state) {
                break;
            }
            self.handle_route_switches(state);
        }
        let mut count = 0;
        for arrived in std::mem::take(&mut self.direct.arrived) {
            if state.backlog.is_open() && self.direct.is_ordered(arrived.peer) {
                self.direct.arrived.push_back(arrived);
                continue;
            }
            self.direct.count_received(&mut state.route_switches.receipts, &arrived);
            self.endpoint.traffic().received(Route::Direct, arrived.body.len());
            state.on_link_message(arrived);
            count += 1;
        }
        self.switch_to_lanes(LaneKind::Direct);
        self.fall_back(LaneKind::Direct);
        if self.direct.pacing.take_report() {
            self.send(&ToDaemon::Overflow);
        }
        for event in self.direct.take_events() {
            match event {
                RouteEvent::Usable(peer, descriptor) => state.route_changed(peer, Some(descriptor)),
                RouteEvent::Ended(peer) => state.route_changed(peer, None),
                RouteEvent::Dead(peer) => {
                    state.route_changed(peer, None);
                    self.peers.forget(peer);
                    if let Some(receipt) = state.route_switches.receipts.get_mut(peer) {
                        receipt.has_ended = true;
                    }
                }
                RouteEvent::Unmade(peer) => {
                    self.on_direct_link_break(peer);
                    state.route_switches.receipts.remove(peer);
                }
            }
            count += 1;
        }
        count
    }

    /// Sends a message on a link. If the link breaks, sends it at once by the default route.
    pub fn send_direct(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        if let Body::Bytes(bytes) = body {
            touch_pages(bytes);
        }
        if self.fabric.carries(to) {
            return self.send_on_fabric(to, meta, body);
        }
        self.direct.send(to, meta, body)?;
        self.endpoint.traffic().sent(Route::Direct, body.len());
        if self.direct.find(to).is_some_and(|link| link.is_send_closed()) {
            self.fall_back(LaneKind::Direct);
        }
        Ok(())
    }

    /// Handles the exit of a task of another host. The last messages of that task may still be in flight.
    pub fn on_peer_exit(&mut self, state: &mut State, peer: Tid) {
        self.handle_route_switches(state);
        self.on_fabric_peer_exit(peer);
        self.deliver_from_fabric(state);
        self.peers.forget(peer);
        self.direct.drain(peer);
        state.route_switches.receipts.remove(peer);
        state.handlers.forget_repeats(peer.0 as i32);
        self.deliver_from_links(state);
    }
}
