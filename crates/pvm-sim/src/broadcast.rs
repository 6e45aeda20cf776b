//! Datagrams to all hosts: they get lost, arrive twice, and overtake each other; some computers receive none.
use crate::network::NodeId;
use crate::node::NodeState;
use crate::world::{Event, World};
use pvm_core::flows::multicast::{PART_BYTES_MIN, PartToSend, Stored};

/// The bytes of a body that a datagram holds.
pub const PART_BYTES: usize = 2 * PART_BYTES_MIN;
/// How many of a thousand datagrams arrive twice.
const DOUBLED: usize = 10;

impl World {
    /// Sends the datagrams of a daemon that are due.
    pub fn send_datagrams(&mut self, node: NodeId) {
        let now = self.time(node);
        self.nodes[node].flows.note_time(now);
        while let Some(datagram) = self.nodes[node].flows.next_datagram() {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                self.send_datagram(node, other, &datagram.part);
            }
        }
        let hosts: Vec<_> = self.nodes[node].flows.hosts().collect();
        hosts.into_iter().for_each(|host| self.carry(node, host));
    }

    fn send_datagram(&mut self, from: NodeId, to: NodeId, part: &PartToSend) {
        let (one, other) = (self.nodes[from].place, self.nodes[to].place);
        let is_cut = !self.network.passes(one, other) || self.network.is_deaf(other);
        if is_cut || self.nodes[to].state == NodeState::Dead {
            return;
        }
        let share = self.network.datagram_loss(one, other);
        let copies = if self.prng.chance(share) { 0 } else { 1 + usize::from(self.prng.chance(DOUBLED)) };
        for _ in 0..copies {
            let late = self.network.latency(&mut self.prng, one, other) * (1 + self.prng.below(3) as u64);
            self.queue.push(self.now + late, Event::Part { node: to, part: Box::new(part.clone()) });
        }
    }

    /// Handles a datagram.
    pub fn part_arrived(&mut self, node: NodeId, part: &PartToSend) {
        let fetches = &mut self.nodes[node].inbound.fetches;
        if fetches.place_heard(part.key, part.part, part.range.len()).is_some() {
            self.heard += 1;
            if let Stored::Complete(_) = fetches.placed_heard(part.key, part.part) {
                self.body_complete(node, part.key);
            }
        }
        if part.round > 0 {
            self.nodes[node].inbound.fetches.report(part.key, part.round, part.sent);
        }
        self.send_body_requests(node);
    }
}
