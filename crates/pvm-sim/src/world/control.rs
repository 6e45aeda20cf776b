//! Control links: the sessions of both sides, and how their connections break and are remade.
use crate::event::Event;
use crate::ids::{LinkId, NodeId};
use crate::network::{Item, Kind};
use crate::node::{Attempt, NodeState};
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::scenario::Place;
use crate::world::World;
use pvm_core::machine::{CallFailure, LinkBreak};
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame};
use std::net::SocketAddr;

/// The packets of a handshake that must all arrive.
const HANDSHAKE_PACKETS: usize = 4;
/// The interval between two attempts to make a connection.
const RETRY: Nanos = 100 * MILLISECOND;

impl World {
    // ----- Sending and receiving

    /// Puts a frame into the session of the control link.
    pub fn send_control(&mut self, node: NodeId, host: Tid, frame: Vec<u8>) {
        let Some(link) = self.nodes[node].links.get(&host).copied() else {
            let tid = self.nodes[node].tid;
            let text = format!("{tid} sends to {host} without a link: {:?}", wire::decode::<Frame>(&frame));
            return self.checks.fail("links", &text, &[tid, host]);
        };
        let end = self.links[link].end_of(node);
        if self.links[link].control.ends[end].session.send(frame).is_err() {
            self.checks.fail("links", &format!("too much waits for {host}"), &[host]);
        }
        self.write_control(link, end);
    }

    /// Writes what the session has for the connection.
    fn write_control(&mut self, link: LinkId, end: usize) {
        let session = &mut self.links[link].control.ends[end].session;
        let acknowledgement = session.take_acknowledgement(session.next_frame().is_some());
        if let Some(position) = acknowledgement {
            self.put_control(link, end, Item::Acknowledged(position));
        }
        while let Some(frame) = self.links[link].control.ends[end].session.next_frame().map(<[u8]>::to_vec) {
            self.links[link].control.ends[end].session.mark_written();
            self.put_control(link, end, Item::Frame(frame));
        }
    }

    /// Sends an item on the connection of an end. On a connection that is not the newest one, it is lost.
    fn put_control(&mut self, link: LinkId, end: usize, item: Item) {
        if self.links[link].control.reaches(end) {
            self.push_item(link, 1 - end, Kind::Control, item);
        }
    }

    /// Takes an item that has arrived at an end. Returns the frame, if it is one.
    pub fn take_control(&mut self, link: LinkId, end: usize, item: Item) -> Option<Vec<u8>> {
        let [near, far] = [end, 1 - end].map(|end| self.links[link].ends[end]);
        let (now, host) = (self.time(near), self.nodes[far].tid);
        let session = &mut self.links[link].control.ends[end].session;
        let (result, frame) = match item {
            Item::Acknowledged(position) => (session.handle_acknowledgement(position), None),
            Item::Frame(frame) => (session.count_received(frame.len()), Some(frame)),
            _ => return None,
        };
        if result.is_err() {
            let tid = self.nodes[near].tid;
            self.checks.fail("links", &format!("{tid} and {host} count frames differently"), &[tid, host]);
        }
        self.nodes[near].machine.handle_heard(now, host);
        self.write_control(link, end);
        frame
    }

    /// Lets an end use a connection: it sends what it has received until now.
    pub fn adopt_control(&mut self, link: LinkId, end: usize, connection: u64) {
        let sent_again = self.links[link].retransmissions[end].until(self.now);
        let one = &mut self.links[link].control.ends[end];
        (one.connection, one.sent_again_before) = (connection, sent_again);
        let position = one.session.connect();
        self.put_control(link, end, Item::Acknowledged(position));
        self.plan_channel(link, end, Kind::Control);
    }

    // ----- Broken connections

    /// Breaks the control connections between two computers, and prevents new ones for the time `span`. Each side notices the
    /// break at its own time, or only by the next connection.
    pub fn break_control_links(&mut self, one: Place, other: Place, span: Nanos) {
        let number = self.network.block_control_links(one, other);
        self.queue.push(self.now + span, Event::EndFault(number));
        for link in 0..self.links.len() {
            let places = self.links[link].ends.map(|node| self.nodes[node].place);
            if places == [one, other] || places == [other, one] {
                self.break_control(link);
            }
        }
    }

    /// Breaks the connection. What is on its way is lost from some item on, in each direction.
    fn break_control(&mut self, link: LinkId) {
        let one = &mut self.links[link];
        if one.up != [true; 2] || one.closed != [false; 2] || !one.control.is_established {
            return;
        }
        self.tried.control_breaks += 1;
        one.control.is_established = false;
        let connection = one.control.newest;
        for end in [0, 1] {
            let channel = self.links[link].towards(end, Kind::Control);
            let arriving = self.prng.below(channel.items.len() + 1);
            channel.cut(arriving);
        }
        // One of the two ends may never notice the break by itself.
        let blind = self.prng.below(3);
        for end in (0..2).filter(|end| *end != blind) {
            let most = [MILLISECOND, 50 * MILLISECOND, SECOND / 2][self.prng.below(3)];
            let late = self.prng.span(0, most);
            self.queue.push(self.now + late, Event::ControlEnded { link, end, connection, how: LinkBreak::Lost });
        }
    }

    /// Breaks a connection whose packets are not acknowledged.
    pub fn give_up(&mut self, link: LinkId, connection: u64) {
        if self.links[link].control.newest == connection {
            self.break_control(link);
        }
    }

    /// Records that an end of a control link has noticed that its connection has ended.
    pub fn control_ended(&mut self, link: LinkId, end: usize, connection: u64, how: LinkBreak) {
        let node = self.links[link].ends[end];
        let host = self.nodes[self.links[link].ends[1 - end]].tid;
        let one = &mut self.links[link].control;
        if one.ends[end].connection != connection || self.nodes[node].links.get(&host) != Some(&link) {
            return;
        }
        if one.newest == connection {
            one.is_established = false;
            self.links[link].towards(end, Kind::Control).clear();
        }
        let one = &mut self.links[link].control.ends[end];
        one.connection = 0;
        one.session.disconnect();
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("finds the connection to {host} closed: {how:?}"));
        self.nodes[node].machine.handle_link_broken(now, host, how);
    }

    // ----- Reconnecting

    /// Calls a host for a new connection.
    pub fn reopen_link(&mut self, node: NodeId, host: Tid, addresses: &[SocketAddr]) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || format!("calls {host} again at {addresses:?}"));
        if addresses.is_empty() {
            self.checks.fail("links", &format!("{tid} has no address of {host}"), &[tid, host]);
        }
        self.last_attempt += 1;
        let number = self.last_attempt;
        let attempt = Attempt { number, end: self.now + self.scenario.timeout, shown: 0 };
        self.nodes[node].control_calls.insert(host, attempt);
        let late = self.prng.span(MILLISECOND / 20, 2 * MILLISECOND);
        self.queue.push(self.now + late, Event::ControlAttempt { node, host, number });
    }

    /// Makes or repeats a call.
    pub fn control_attempt(&mut self, node: NodeId, host: Tid, number: u64) {
        let Some(Attempt { end, .. }) = self.nodes[node].control_calls.get(&host).filter(|it| it.number == number)
        else {
            return;
        };
        let (end, tid) = (*end, self.nodes[node].tid);
        let Some(link) = self.nodes[node].links.get(&host).copied() else { return };
        let near = self.links[link].end_of(node);
        let other = self.links[link].ends[1 - near];
        let (from, to) = (self.nodes[node].place, self.nodes[other].place);
        let passes = self.computers[to].powered && self.network.passes(from, to);
        let known = |one: NodeId, other: NodeId| {
            self.nodes[one].known.get(&self.nodes[other].tid) == Some(&self.nodes[other].key)
        };
        // The other end may not have heard of the link yet.
        let has_link = self.nodes[other].links.get(&tid) == Some(&link) && self.links[link].up == [true; 2];
        let takes = known(node, other) && known(other, node) && has_link;
        match self.nodes[other].state {
            NodeState::Dead if passes => self.control_call_failed(node, host, CallFailure::Absent),
            NodeState::Running if passes && takes && self.network.joins_control(from, to) => {
                match self.lost_in_handshake(from, to) {
                    Some(pause) => {
                        self.queue.push(self.now + pause, Event::ControlAttempt { node, host, number });
                    }
                    None => self.control_link(link, near, number),
                }
            }
            _ if self.now >= end => self.control_call_failed(node, host, CallFailure::NoAnswer),
            _ => {
                let again = (self.now + RETRY).min(end);
                self.queue.push(again, Event::ControlAttempt { node, host, number });
            }
        }
    }

    /// Returns the pause after which a packet of a handshake is sent again, if one is lost.
    fn lost_in_handshake(&mut self, from: Place, to: Place) -> Option<Nanos> {
        (0..HANDSHAKE_PACKETS)
            .find_map(|_| self.network.retransmissions(&mut self.prng, from, to, self.now).first().copied())
    }

    fn control_call_failed(&mut self, node: NodeId, host: Tid, why: CallFailure) {
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("does not reach {host}: {why:?}"));
        self.nodes[node].control_calls.remove(&host);
        self.nodes[node].machine.handle_call_failed(now, host, why);
    }

    /// Establishes the connection for which the end `near` has called.
    fn control_link(&mut self, link: LinkId, near: usize, number: u64) {
        self.tried.control_connections += 1;
        let control = &mut self.links[link].control;
        (control.newest, control.is_established) = (control.newest + 1, true);
        let connection = control.newest;
        [0, 1].into_iter().for_each(|end| self.links[link].towards(end, Kind::Control).clear());
        let base = self.network.base();
        self.queue.push(self.now + base, Event::ControlUp { link, end: 1 - near, connection, call: None });
        self.queue.push(self.now + 3 * base, Event::ControlUp { link, end: near, connection, call: Some(number) });
        if self.prng.chance(50) {
            self.break_control(link);
        }
    }

    /// Reports to an end that it has a new connection. `call`: the number of its own call.
    pub fn control_up(&mut self, link: LinkId, end: usize, connection: u64, call: Option<u64>) {
        let node = self.links[link].ends[end];
        let host = self.nodes[self.links[link].ends[1 - end]].tid;
        if self.nodes[node].links.get(&host) != Some(&link) {
            return;
        }
        // An own call ends with the connection, whoever has called. If it has ended before, its connection is closed.
        let own = self.nodes[node].control_calls.get(&host).map(|own| own.number);
        if call.is_some() && own != call {
            let late = self.network.base();
            let ended = Event::ControlEnded { link, end: 1 - end, connection, how: LinkBreak::Ended };
            return self.queue.push(self.now + late, ended);
        }
        self.nodes[node].control_calls.remove(&host);
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("has a new connection to {host}"));
        self.adopt_control(link, end, connection);
        if !self.links[link].control.reaches(end) {
            // It has broken before this end knew of it, or both ends have called at once.
            let late = self.prng.span(0, 50 * MILLISECOND);
            self.queue.push(self.now + late, Event::ControlEnded { link, end, connection, how: LinkBreak::Lost });
        }
        self.nodes[node].machine.handle_link_resumed(now, host);
    }
}
