//! Does what the rules of channels to tasks of other hosts say ([`pvm_core::channel`]): asks for lanes, announces on the
//! default route which way later messages take, and sends there again what a lane has lost. The lanes themselves are in
//! `direct` (TCP) and `fabric::route`.
use super::Member;
use crate::clock;
use crate::direct::send_queue::{QueuedBody, QueuedMessage, SendQueue};
use crate::message::OWN_DSIG;
use crate::state::{RouteSwitch, State, TC_FALLBACK, TC_ROUTE_SWITCH};
use pvm_core::channel::{Fallback, GivenUp, Lane, LaneKind, Step, Wish};
use pvm_core::codes::{ENC_XDR, SYSCTX_TC};
use pvm_core::proto::LinkCause;
use pvm_core::tid::Tid;
use pvm_core::time::Time;
use pvm_fmp::{Endpoint, FAR, Meta, SendError, Sent, has_stack};
use std::time::{Duration, Instant};

/// The longest time that a leaving task waits for memory in which it can send its queued messages, and the length of one
/// sleep.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);
const LEAVE_PAUSE: Duration = Duration::from_millis(5);

/// Asking for lanes.
impl Member {
    /// Counts a message of `bytes` bytes that was sent by the default route.
    pub fn count_message(&mut self, to: Tid, bytes: usize, now: Time) {
        if !self.direct.count_by_default_route(to) && self.direct.allows_links() {
            self.peers.count_message(to, bytes, now);
        }
    }

    /// Returns the lane that is to be asked for. `or_fabric`: whether it may be on the fabric.
    pub fn wanted_lane(&self, to: Tid, or_fabric: bool, now: Time) -> Option<LaneKind> {
        let has_lane = || self.direct.has_link(to) || self.fabric.has_link(to) || self.fabric.has_asked(to);
        if !self.direct.allows_links() || !self.may_ask_for_links() || has_lane() {
            return None;
        }
        let wish = Wish {
            by_program: self.direct.wants_links(),
            may_use_fabric: or_fabric && self.fabric.may_exist(),
            may_use_direct: has_stack(crate::direct::LINK_STACK_BYTES),
        };
        self.peers.wanted(to, wish, now)
    }

    /// Returns whether a direct link to that task was requested, and is neither made nor refused.
    pub fn awaits_direct_link(&self, peer: Tid) -> bool {
        self.peers.is_requested(LaneKind::Direct, peer) && !self.direct.has_link(peer)
    }
}

/// Switching to lanes.
impl Member {
    /// Returns whether the program can know of a route to that task.
    pub fn has_route(&self, to: Tid) -> bool {
        self.endpoint.is_connected(to.0) || self.direct.is_usual_route(to) || self.fabric.is_announced(to)
    }

    /// Returns whether messages to that task go on a lane.
    pub fn has_link_to(&self, to: Tid) -> bool {
        self.direct.carries(to) || self.fabric.carries(to)
    }

    /// Starts to send on each lane of this kind from which its peer reads: later messages to the peer go on the lane.
    pub fn switch_to_lanes(&mut self, kind: LaneKind) {
        let switching: Vec<(Tid, LinkCause)> = match kind {
            LaneKind::Direct => {
                let links = self.direct.links.iter().filter(|link| link.lane.may_switch());
                links.map(|link| (link.peer, link.cause)).collect()
            }
            LaneKind::Fabric => {
                let links = self.fabric.links.iter().filter(|link| link.lane.may_switch());
                links.map(|link| (link.peer, link.cause)).collect()
            }
        };
        for (peer, cause) in switching {
            let is_sent = self.may_switch_to_lane(cause).then(|| self.send_route_switch(peer));
            // Links may have been left meanwhile.
            let Some(at) = self.lane_to(kind, peer) else { continue };
            let (_, lane, queue) = self.lane(kind, at);
            match is_sent {
                None => lane.give_up(GivenUp::Company),
                Some(false) => {}
                Some(true) => {
                    lane.handle_switched(queue.sent_count());
                    if kind == LaneKind::Fabric {
                        self.peers.handle_on_fabric(peer);
                        self.announce_to_program(at);
                    }
                }
            }
        }
    }

    /// Returns whether a lane that was made for this reason may be used now.
    fn may_switch_to_lane(&mut self, cause: LinkCause) -> bool {
        cause == LinkCause::Program || self.direct.wants_links() || self.leave_links_in_company()
    }

    /// Sends the route switch, the last message to that peer on the default route. Returns `false` if it cannot be sent
    /// now.
    fn send_route_switch(&mut self, peer: Tid) -> bool {
        self.has_default_route() && self.send_system(peer, TC_ROUTE_SWITCH, &[])
    }

    /// Sends the fallback message on the default route. Returns `false` if there was no memory for it.
    pub fn send_fallback(&mut self, peer: Tid, fallback: Fallback) -> bool {
        self.send_system(peer, TC_FALLBACK, &fallback.encode())
    }

    fn send_system(&mut self, peer: Tid, tag: i32, body: &[u8]) -> bool {
        let daemon = self.tid.host();
        let mut meta: Meta = [SYSCTX_TC, tag, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let sent = self.endpoint.send_bytes(daemon.0, meta, body);
        self.finish_send(daemon, sent).is_ok()
    }

    /// Handles the route switches and fallback messages of peers, which have arrived on the default route.
    pub fn handle_route_switches(&mut self, state: &mut State) {
        for switch in std::mem::take(&mut state.route_switches.pending) {
            match switch {
                RouteSwitch::ToLink(peer) => {
                    if !self.direct.on_route_switch(peer) {
                        self.fabric.on_route_switch(peer);
                    }
                }
                RouteSwitch::ToDefault { peer, answered, is_given_up } => {
                    if !self.on_peer_fallback(peer, answered, is_given_up) {
                        // The next poll tries again.
                        state.route_switches.pending.push(switch);
                    }
                }
            }
        }
    }

    /// Handles the fallback message of a peer. Returns `false` if the peer waits for an answer that cannot be sent now.
    fn on_peer_fallback(&mut self, peer: Tid, answered: bool, is_given_up: bool) -> bool {
        self.on_fabric_fallback(peer, answered, is_given_up)
            || self.direct.on_peer_fallback(peer, is_given_up)
            // If the peer needs an answer, it gets a fallback message.
            || answered
            || (self.has_default_route() && self.send_fallback(peer, Fallback::ANSWER))
    }

    /// Takes in the messages that have arrived on the default route, and handles route switches.
    pub fn poll_default_route(&mut self, state: &mut State) {
        self.endpoint.poll_through(self.tid.host().0, state);
        self.handle_route_switches(state);
        self.fall_back(LaneKind::Direct);
    }
}

/// Falling back.
impl Member {
    fn lanes(&self, kind: LaneKind) -> usize {
        match kind {
            LaneKind::Direct => self.direct.links.len(),
            LaneKind::Fabric => self.fabric.links.len(),
        }
    }

    fn lane_to(&self, kind: LaneKind, peer: Tid) -> Option<usize> {
        match kind {
            LaneKind::Direct => self.direct.position(peer).ok(),
            LaneKind::Fabric => self.fabric.position(peer).ok(),
        }
    }

    fn lane(&mut self, kind: LaneKind, at: usize) -> (Tid, &mut Lane, &mut SendQueue) {
        match kind {
            LaneKind::Direct => {
                let link = &mut self.direct.links[at];
                (link.peer, &mut link.lane, &mut link.queue)
            }
            LaneKind::Fabric => {
                let link = &mut self.fabric.links[at];
                (link.peer, &mut link.lane, &mut link.queue)
            }
        }
    }

    /// Sends the queued messages of lanes of this kind that have ended by the default route, until memory runs out.
    pub fn fall_back(&mut self, kind: LaneKind) {
        if kind == LaneKind::Direct {
            self.direct.note_broken();
        }
        for at in (0..self.lanes(kind)).rev() {
            if !self.lane(kind, at).1.falls_back() || !self.continue_fallback(kind, at) {
                continue;
            }
            match kind {
                LaneKind::Direct => self.direct.on_fallen_back(at),
                LaneKind::Fabric => self.fabric.on_fallen_back(at),
            }
        }
    }

    /// Continues the fallback from one lane. Returns whether it is complete.
    fn continue_fallback(&mut self, kind: LaneKind, at: usize) -> bool {
        loop {
            let (peer, lane, queue) = self.lane(kind, at);
            let Some(step) = lane.next_step(queue) else { return true };
            if !self.has_default_route() {
                return false;
            }
            match step {
                Step::Announce(fallback) => {
                    if !self.send_fallback(peer, fallback) {
                        return false;
                    }
                    self.note_announced(kind, at);
                }
                Step::Repeat => {
                    if !self.repeat_first(kind, at) {
                        return false;
                    }
                }
            }
        }
    }

    /// Notes that the fallback from a lane was announced.
    fn note_announced(&mut self, kind: LaneKind, at: usize) {
        let (peer, lane, _) = self.lane(kind, at);
        let (why, carried) = (lane.given_up(), lane.carries());
        lane.handle_announced();
        match kind {
            LaneKind::Direct => self.direct.denounce(at),
            LaneKind::Fabric => self.fabric.denounce(at),
        }
        if !self.fabric.has_left(peer) {
            self.peers.handle_fallback(kind, peer, why, carried, clock::now());
        }
    }

    /// Sends the oldest message of a lane on the default route. Returns `false` if there was no memory for it.
    fn repeat_first(&mut self, kind: LaneKind, at: usize) -> bool {
        let (peer, queue) = match kind {
            LaneKind::Direct => (self.direct.links[at].peer, &self.direct.links[at].queue),
            LaneKind::Fabric => (self.fabric.links[at].peer, &self.fabric.links[at].queue),
        };
        let daemon = self.tid.host();
        let Some(message) = queue.first() else { return true };
        let sent = send_again(&mut self.endpoint, daemon, peer, message);
        let is_sent = self.finish_send(daemon, sent).is_ok();
        if is_sent {
            self.lane(kind, at).2.pop_front();
        }
        is_sent
    }

    /// Hands over to the daemon the messages that peers have not acknowledged, by sending them on the default route.
    /// Called before the task or its process ends.
    pub fn hand_over_links(&mut self, state: &mut State) {
        self.direct.wait_for_acknowledgements();
        self.wait_for_fabric();
        let deadline = Instant::now() + LEAVE_WAIT_MAX;
        loop {
            for kind in [LaneKind::Direct, LaneKind::Fabric] {
                for at in 0..self.lanes(kind) {
                    let (_, lane, queue) = self.lane(kind, at);
                    if !queue.is_empty() {
                        lane.handle_break();
                    }
                }
                self.fall_back(kind);
            }
            if self.daemon.is_none() || !self.holds_messages() || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(LEAVE_PAUSE);
            // The next attempt may succeed: the daemon frees memory as it relays messages, or introduces itself to this
            // task now.
            self.poll(state);
            self.read_control(state);
        }
    }

    /// Returns whether peers have not acknowledged all messages on lanes.
    pub fn holds_messages(&self) -> bool {
        self.direct.links.iter().any(|link| !link.queue.is_empty()) || self.fabric.holds_messages()
    }
}

/// Sends a queued message of a link to that peer on the default route.
fn send_again(endpoint: &mut Endpoint, daemon: Tid, peer: Tid, message: &QueuedMessage) -> Result<Sent, SendError> {
    let mut meta = message.meta;
    meta[FAR] = peer.0;
    match &message.body {
        QueuedBody::Bytes(bytes) => endpoint.send_bytes(daemon.0, meta, bytes),
        QueuedBody::Shared(bytes) => endpoint.send_bytes(daemon.0, meta, bytes),
        QueuedBody::Blocks(blocks) => endpoint.send_blocks(daemon.0, meta, blocks),
    }
}
