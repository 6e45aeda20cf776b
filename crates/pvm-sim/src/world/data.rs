//! Data links: the state of both sides, and how the connections of data links break and are remade.
use crate::event::Event;
use crate::ids::{LinkId, NodeId};
use crate::network::{CHANNEL_BYTES_MAX, Item, Kind};
use crate::node::{Attempt, NodeState};
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::scenario::Place;
use crate::world::World;
use pvm_core::proto::SECRET_BYTES;
use pvm_core::tid::Tid;
use pvm_core::wire::DataCall;

/// The most items that an end keeps until the other end acknowledges them.
const KEPT_MAX: u64 = 256;
/// The interval between two attempts to make a connection.
const RETRY: Nanos = 100 * MILLISECOND;

fn call_of(number: u64) -> DataCall {
    let mut shown = [0; SECRET_BYTES];
    shown[..8].copy_from_slice(&number.to_le_bytes());
    DataCall { shown, back: [0; SECRET_BYTES] }
}

fn number_of(call: &DataCall) -> u64 {
    u64::from_le_bytes(*call.shown.first_chunk().expect("a secret is longer"))
}

impl World {
    // ----- Sending and receiving

    /// Queues an item for the other end, and sends what can be sent.
    pub fn send_data(&mut self, link: LinkId, end: usize, item: Item) {
        self.links[link].data.ends[end].sent.push(item, 1);
        self.send_queued(link, end);
    }

    /// Returns whether more items may be queued.
    pub fn takes_data(&self, link: LinkId, end: usize) -> bool {
        let sent = &self.links[link].data.ends[end].sent;
        sent.is_all_sent() && sent.unacknowledged() < KEPT_MAX
    }

    /// Sends as much as the connection accepts.
    pub fn send_queued(&mut self, link: LinkId, end: usize) {
        loop {
            let reaches = self.links[link].data.reaches(end);
            let on_its_way = self.links[link].towards(1 - end, Kind::Data).bytes;
            let one = &mut self.links[link].data.ends[end];
            let full = if reaches { on_its_way } else { one.lost_bytes };
            if one.connection == 0 || !one.greeted || full >= CHANNEL_BYTES_MAX {
                return;
            }
            let Some(item) = one.sent.current().map(|(item, _)| item.clone()) else { return };
            one.sent.advance(1);
            match reaches {
                true => self.push_item(link, 1 - end, Kind::Data, item),
                false => one.lost_bytes += item.bytes(),
            }
        }
    }

    /// Counts an item that has arrived, and sends an acknowledgement if one is due.
    pub fn data_arrived(&mut self, link: LinkId, end: usize) {
        let one = &mut self.links[link].data.ends[end];
        one.receipts.count_received(1);
        if one.receipts.is_due() {
            let position = one.receipts.take_position();
            self.send_data(link, end, Item::Acknowledged(position));
        }
    }

    /// Handles an acknowledgement from the other end. `first` says whether the acknowledgement is the first item on a
    /// new connection.
    pub fn data_acknowledged(&mut self, link: LinkId, end: usize, position: u64, first: bool) {
        let one = &mut self.links[link].data.ends[end];
        let result = if first { one.sent.resume(position, drop) } else { one.sent.acknowledge(position, drop) };
        if first {
            one.greeted = true;
        } else {
            one.receipts.count_acknowledgement(1);
        }
        if result.is_err() {
            let [one, other] = self.links[link].ends.map(|node| self.nodes[node].tid);
            self.checks.fail("links", &format!("{one} and {other} count differently: {position}"), &[one, other]);
        }
    }

    // ----- Broken connections

    /// Breaks the data links between two computers, and prevents new ones for the time `span`. Each side notices the
    /// break at its own time, or not at all.
    pub fn break_data_links(&mut self, one: Place, other: Place, span: Nanos) {
        let number = self.network.block_data_links(one, other);
        self.queue.push(self.now + span, Event::EndFault(number));
        for link in 0..self.links.len() {
            let places = self.links[link].ends.map(|node| self.nodes[node].place);
            if places == [one, other] || places == [other, one] {
                self.break_data(link);
            }
        }
    }

    fn break_data(&mut self, link: LinkId) {
        let one = &mut self.links[link];
        if one.closed != [false; 2] || !std::mem::replace(&mut one.data.is_established, false) {
            return;
        }
        let connection = one.data.newest;
        [0, 1].into_iter().for_each(|end| one.towards(end, Kind::Data).clear());
        // One of the two ends may never notice the break by itself.
        let blind = self.prng.below(3);
        for end in (0..2).filter(|end| *end != blind) {
            let most = [MILLISECOND, 50 * MILLISECOND, 3 * SECOND][self.prng.below(3)];
            let late = self.prng.span(0, most);
            self.queue.push(self.now + late, Event::DataEnded { link, end, connection });
        }
    }

    /// Records that an end of a data link has noticed that its connection is broken.
    pub fn data_ended(&mut self, link: LinkId, end: usize, connection: u64) {
        let node = self.links[link].ends[end];
        let host = self.nodes[self.links[link].ends[1 - end]].tid;
        if self.links[link].data.ends[end].connection == connection && self.nodes[node].links.get(&host) == Some(&link)
        {
            self.detach(link, end);
            // A daemon attaches a data link when its link is up, and cannot notice earlier that it has ended.
            if self.links[link].up[end] {
                self.data_is_down(node, host);
            }
        }
    }

    /// Reports to an end whose link has just come up that the data link has ended in the meantime, if it has.
    pub fn report_early_data_end(&mut self, link: LinkId, end: usize) {
        let node = self.links[link].ends[end];
        let host = self.nodes[self.links[link].ends[1 - end]].tid;
        if self.links[link].data.ends[end].connection == 0 {
            self.early_data_ends += 1;
            self.data_is_down(node, host);
        }
    }

    fn detach(&mut self, link: LinkId, end: usize) {
        let one = &mut self.links[link].data.ends[end];
        (one.connection, one.greeted, one.lost_bytes) = (0, false, 0);
    }

    fn data_is_down(&mut self, node: NodeId, host: Tid) {
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("has no data link to {host}"));
        self.nodes[node].machine.handle_data_down(now, host);
    }

    /// Removes a data link that a daemon no longer needs or expects.
    pub fn drop_data(&mut self, node: NodeId, host: Tid) {
        self.nodes[node].data_expected.remove(&host);
        self.nodes[node].data_calls.remove(&host);
        if let Some(link) = self.nodes[node].links.get(&host).copied() {
            let end = self.links[link].end_of(node);
            self.detach(link, end);
        }
    }

    // ----- Reconnecting

    fn attempt_of(&mut self, shown: Option<u64>) -> Attempt {
        self.last_attempt += 1;
        let number = self.last_attempt;
        Attempt { number, end: self.now + self.scenario.timeout, shown: shown.unwrap_or(number) }
    }

    /// Begins to wait for the call of another host.
    pub fn expect_data(&mut self, node: NodeId, host: Tid) {
        let attempt = self.attempt_of(None);
        let (now, call, number) = (self.time(node), call_of(attempt.shown), attempt.number);
        self.queue.push(attempt.end, Event::DataAttempt { node, host, number });
        self.nodes[node].data_expected.insert(host, attempt);
        self.nodes[node].machine.handle_data_expected(now, host, Some(call));
    }

    /// Calls another host.
    pub fn call_data(&mut self, node: NodeId, host: Tid, call: &DataCall) {
        let attempt = self.attempt_of(Some(number_of(call)));
        let (late, number) = (self.prng.span(MILLISECOND / 10, 5 * MILLISECOND), attempt.number);
        self.queue.push(self.now + late, Event::DataAttempt { node, host, number });
        self.nodes[node].data_calls.insert(host, attempt);
    }

    /// Makes or repeats a call, or gives up waiting for an expected call that has not arrived.
    pub fn data_attempt(&mut self, node: NodeId, host: Tid, number: u64) {
        let is_it = |attempt: Option<&Attempt>| attempt.is_some_and(|attempt| attempt.number == number);
        if is_it(self.nodes[node].data_expected.get(&host)) {
            self.nodes[node].data_expected.remove(&host);
            return self.data_is_down(node, host);
        }
        let Some(Attempt { end, shown, .. }) = self.nodes[node].data_calls.get(&host) else { return };
        let (end, shown) = (*end, *shown);
        if !is_it(self.nodes[node].data_calls.get(&host)) {
            return;
        }
        let tid = self.nodes[node].tid;
        let Some(link) = self.nodes[node].links.get(&host).copied() else { return };
        let near = self.links[link].end_of(node);
        let other = self.links[link].ends[1 - near];
        let (from, to) = (self.nodes[node].place, self.nodes[other].place);
        let passes = self.network.passes(from, to) && self.network.joins(from, to);
        let expected = self.nodes[other].data_expected.get(&tid).is_some_and(|attempt| attempt.shown == shown);
        if passes && expected && self.nodes[other].state == NodeState::Running {
            self.nodes[other].data_expected.remove(&tid);
            // If the connection breaks before this side knows that the connection is established, the call is repeated
            // later.
            self.queue.push(end.max(self.now + RETRY), Event::DataAttempt { node, host, number });
            return self.data_link(link, near);
        }
        if self.now >= end {
            self.nodes[node].data_calls.remove(&host);
            return self.data_is_down(node, host);
        }
        self.queue.push((self.now + RETRY).min(end), Event::DataAttempt { node, host, number });
    }

    /// Establishes the connection that the end `near` has asked the other end to accept.
    fn data_link(&mut self, link: LinkId, near: usize) {
        let data = &mut self.links[link].data;
        (data.newest, data.is_established) = (data.newest + 1, true);
        let connection = data.newest;
        [0, 1].into_iter().for_each(|end| self.links[link].towards(end, Kind::Data).clear());
        self.queue.push(self.now + self.network.base(), Event::DataUp { link, end: 1 - near, connection });
        if self.prng.chance(100) {
            self.break_data(link);
        } else {
            self.queue.push(self.now + 3 * self.network.base(), Event::DataUp { link, end: near, connection });
        }
    }

    /// Reports to an end of a link that it has a new connection.
    pub fn data_up(&mut self, link: LinkId, end: usize, connection: u64) {
        let node = self.links[link].ends[end];
        let host = self.nodes[self.links[link].ends[1 - end]].tid;
        if self.nodes[node].links.get(&host) != Some(&link) || self.links[link].data.newest != connection {
            return;
        }
        // If the calling side has dropped its call in the meantime, the new connection is broken.
        let calls = end == 0;
        if calls && self.nodes[node].data_calls.remove(&host).is_none() {
            return self.break_data(link);
        }
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("has a new data link to {host}"));
        let one = &mut self.links[link].data.ends[end];
        (one.connection, one.greeted, one.lost_bytes) = (connection, false, 0);
        let position = one.receipts.take_position();
        if self.links[link].data.is_established {
            self.push_item(link, 1 - end, Kind::Data, Item::Greeting(position));
            self.plan_channel(link, end, Kind::Data);
        } else {
            // It broke before this end knew of it.
            let late = self.prng.span(0, 50 * MILLISECOND);
            self.queue.push(self.now + late, Event::DataEnded { link, end, connection });
        }
        self.nodes[node].machine.handle_data_up(now, host);
    }
}
