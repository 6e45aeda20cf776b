//! Datagrams to all hosts: they get lost, arrive twice, and overtake each other; some computers receive none.
use crate::event::Event;
use crate::ids::NodeId;
use crate::node::NodeState;
use crate::queue::{Nanos, SECOND};
use crate::world::World;
use pvm_core::flows::multicast::{PART_BYTES_MIN, PartToSend, Stored};

/// The bytes of a body that a datagram holds, at least.
const SHORT_PART_BYTES: usize = 2 * PART_BYTES_MIN;
/// The most events that the parts of one body cause. In a large machine, parts are longer and thus fewer: each of them
/// is an event at each host, and most of a run would be spent on them.
const PART_EVENTS_MAX: usize = 8192;
/// How many of a thousand datagrams arrive twice.
const DOUBLED: usize = 10;
/// How many of a thousand datagrams of the machine's rules arrive changed. A changed part of a body counts as lost,
/// because daemons seal parts.
const CHANGED: usize = 30;
/// How many of a thousand datagrams arrive late, and by how much at most.
const LATE: usize = 20;
const LATE_MOST: Nanos = 2 * SECOND;

impl World {
    /// Sends the datagrams of a daemon that are due.
    pub fn send_datagrams(&mut self, node: NodeId) {
        let now = self.time(node);
        self.nodes[node].flows.note_time(now);
        if self.nodes[node].flows.has_no_broadcasts() {
            return;
        }
        while let Some(datagram) = self.nodes[node].flows.next_datagram() {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                self.send_datagram(node, other, &datagram.part);
            }
        }
        self.carry_all(node);
    }

    /// Returns the number of bytes of a body that each of its datagrams holds.
    pub fn part_bytes(&self, bytes: usize) -> usize {
        SHORT_PART_BYTES.max(bytes.div_ceil(PART_EVENTS_MAX / self.nodes.len().max(1)))
    }

    fn send_datagram(&mut self, from: NodeId, to: NodeId, part: &PartToSend) {
        for at in self.datagram_arrivals(from, to) {
            self.queue.push(at, Event::Part { node: to, part: Box::new(part.clone()) });
        }
    }

    /// Sends a datagram of the machine's rules to all other daemons. It may arrive changed.
    pub fn broadcast(&mut self, node: NodeId, bytes: &[u8]) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || format!("=> all, {} bytes", bytes.len()));
        self.trace.bytes(bytes);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            for at in self.datagram_arrivals(node, other) {
                let mut bytes: Box<[u8]> = bytes.into();
                if self.prng.chance(CHANGED) {
                    let place = self.prng.below(bytes.len());
                    bytes[place] ^= 1;
                }
                self.queue.push(at, Event::Datagram { node: other, bytes });
            }
        }
    }

    /// Returns the times at which copies of a datagram arrive. There is none if the datagram is lost.
    fn datagram_arrivals(&mut self, from: NodeId, to: NodeId) -> Vec<Nanos> {
        let (one, other) = (self.nodes[from].place, self.nodes[to].place);
        let is_cut = !self.network.passes(one, other) || self.network.is_deaf(other);
        if is_cut || self.nodes[to].state == NodeState::Dead {
            return Vec::new();
        }
        if self.prng.chance(self.network.datagram_loss(one, other, self.now)) {
            self.tried.lost += 1;
            return Vec::new();
        }
        let twice = self.prng.chance(DOUBLED);
        self.tried.doubled += u64::from(twice);
        let copies = 1 + usize::from(twice);
        let prng = &mut self.prng;
        let mut arrival = || {
            let late = self.network.latency(prng, one, other) * (1 + prng.below(3) as u64);
            self.now + late + if prng.chance(LATE) { prng.span(0, LATE_MOST) } else { 0 }
        };
        (0..copies).map(|_| arrival()).collect()
    }

    /// Handles a datagram.
    pub fn part_arrived(&mut self, node: NodeId, part: &PartToSend) {
        let tid = self.nodes[node].tid;
        let fetches = &mut self.nodes[node].inbound.fetches;
        if fetches.place_heard(part.key, part.part, part.range.len()).is_some() {
            self.tried.heard += 1;
            self.checks.body_part(tid, part.key, &part.range);
            if let Stored::Complete(_) = fetches.placed_heard(part.key, part.part) {
                self.body_complete(node, part.key);
                self.carry_all(node);
            }
        }
        if part.round > 0 {
            self.nodes[node].inbound.fetches.report(part.key, part.round, part.sent);
        }
        self.send_body_requests(node);
    }
}
