//! Links between daemons, and the frames and messages on them.
use crate::event::Event;
use crate::ids::TaskId;
use crate::ids::{LinkId, NodeId};
use crate::network::{Item, Kind, Link};
use crate::node::{Node, NodeState};
use crate::program::{Entry, QueuedMessage, Stage};
use crate::queue::{MICROSECOND, MILLISECOND};
use crate::world::{Phase, World};
use pvm_core::flows::pacing::Grant;
use pvm_core::flows::{Credit, DataFrame, Gap, MessageHeader};
use pvm_core::machine::LinkBreak;
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

impl World {
    // ----- Connecting

    /// Connects a daemon to another.
    pub fn open_link(&mut self, node: NodeId, host: Tid, addresses: &[SocketAddr]) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || format!("connects to {host} at {addresses:?}"));
        if self.nodes[node].links.contains_key(&host) || self.nodes[node].attempts.contains_key(&host) {
            self.checks.fail("links", &format!("{tid} connects to {host} once more"), &[tid, host]);
        }
        self.last_attempt += 1;
        let (number, end) = (self.last_attempt, self.now + self.scenario.timeout);
        let Some(address) = addresses.first().copied() else {
            return self.checks.fail("links", &format!("{tid} has no address of {host}"), &[tid, host]);
        };
        self.nodes[node].attempts.insert(host, (number, end, address));
        let late = self.prng.span(50 * MICROSECOND, 2 * MILLISECOND);
        self.queue.push(self.now + late, Event::Attempt { from: node, host, number });
    }

    /// Tries to connect to a host, for the first time or again.
    pub fn attempt(&mut self, node: NodeId, host: Tid, number: u64) {
        let Some((newest, end, address)) = self.nodes[node].attempts.get(&host).copied() else { return };
        if newest != number {
            return;
        }
        let Some(other) = self.listeners.get(&address).copied() else {
            return self.attempt_failed(node, host, "there is no such address");
        };
        let (from, to) = (self.nodes[node].place, self.nodes[other].place);
        let passes = self.computers[to].powered && self.network.passes(from, to);
        match self.nodes[other].state {
            // No daemon runs there, and the operating system of that host refuses the connection.
            NodeState::Dead if passes => self.attempt_failed(node, host, "nobody listens"),
            NodeState::Running if passes => {
                let known = |one: NodeId, other: NodeId| {
                    self.nodes[one].known.get(&self.nodes[other].tid) == Some(&self.nodes[other].key)
                };
                match known(node, other) && known(other, node) {
                    true => {
                        self.nodes[node].attempts.remove(&host);
                        self.link(node, other);
                    }
                    false => self.attempt_failed(node, host, "the key is not known"),
                }
            }
            _ if self.now >= end => self.attempt_failed(node, host, "no answer"),
            _ => {
                let again = (self.now + 100 * MILLISECOND).min(end);
                self.queue.push(again, Event::Attempt { from: node, host, number });
            }
        }
    }

    fn attempt_failed(&mut self, node: NodeId, host: Tid, why: &str) {
        let (now, tid) = (self.time(node), self.nodes[node].tid);
        self.trace.line(self.now, tid, || format!("no link to {host}: {why}"));
        self.nodes[node].attempts.remove(&host);
        self.nodes[node].machine.handle_link_down(now, host);
    }

    fn link(&mut self, node: NodeId, other: NodeId) {
        let (one, two) = (self.nodes[node].tid, self.nodes[other].tid);
        self.trace.line(self.now, one, || format!("link to {two}"));
        if self.nodes[other].links.contains_key(&one) {
            self.checks.fail("links", &format!("{one} has connected to {two}, which has a link to it"), &[one, two]);
        }
        let link = self.links.len();
        self.links.push(Link::new([node, other]));
        self.nodes[node].links.insert(two, link);
        self.nodes[other].links.insert(one, link);
        self.push_item(link, 1, Kind::Control, Item::Up);
        self.link_up(node, link, 0);
    }

    fn link_up(&mut self, node: NodeId, link: LinkId, end: usize) {
        let (now, other) = (self.time(node), self.nodes[self.links[link].ends[1 - end]].tid);
        self.links[link].up[end] = true;
        self.adopt_control(link, end, 1);
        self.nodes[node].machine.handle_link_up(now, other);
        self.report_early_data_end(link, end);
        self.carry(node, other);
        self.plan_channel(link, end, Kind::Data);
    }

    // ----- Closing

    /// Removes a host from a daemon's edge when the host no longer belongs to the machine.
    pub fn forget_host(&mut self, node: NodeId, host: Tid) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || format!("forgets {host}"));
        if self.phase != Phase::End && self.scenario.removes_no_host() {
            let text = format!("{tid} has lost {host}, though nothing but connections broke");
            self.checks.fail("links", &text, &[tid, host]);
        }
        self.nodes[node].known.remove(&host);
        self.nodes[node].attempts.remove(&host);
        self.nodes[node].control_calls.remove(&host);
        self.nodes[node].data_expected.remove(&host);
        self.nodes[node].data_calls.remove(&host);
        self.nodes[node].flows.host_gone(host);
        for dst in self.nodes[node].inbound.host_gone(host) {
            if let Some(task) = self.receiver(node, dst) {
                self.tried.gaps_given_up += 1;
                self.tasks[task].inbox.push_back(Entry::NoMore(host));
                self.plan_take(task);
            }
        }
        self.checks.order_forgets_for_good(tid, host);
        self.nodes[node].pacer.host_gone(host);
        self.nodes[node].held.host_gone(host);
        self.send_body_requests(node);
        self.poll_freed(node);
        if let Some(link) = self.nodes[node].links.remove(&host) {
            let end = self.links[link].end_of(node);
            self.close(link, end, true);
        }
        if node == self.office.master {
            self.checks.removed(host);
        }
    }

    /// Closes one end of a link. If `flush` is set, frames that are already on their way on the control link still
    /// arrive.
    fn close(&mut self, link: LinkId, end: usize, flush: bool) {
        if std::mem::replace(&mut self.links[link].closed[end], true) {
            return;
        }
        for kind in [Kind::Control, Kind::Data] {
            self.links[link].towards(end, kind).clear();
            if !flush {
                self.links[link].towards(1 - end, kind).clear();
            }
            if !self.links[link].closed[1 - end] {
                let how = if flush { LinkBreak::Ended } else { LinkBreak::Lost };
                self.push_item(link, 1 - end, kind, Item::Close(how));
            }
        }
    }

    /// Ends a daemon. If `told` is set, the operating system closes the daemon's connections, and their other ends
    /// notice that.
    pub fn end_daemon(&mut self, node: NodeId, why: &str, told: bool) {
        if self.nodes[node].state == NodeState::Dead {
            return;
        }
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || why.to_owned());
        let flush = why == "stops" || self.prng.chance(500);
        self.nodes[node].state = NodeState::Dead;
        self.nodes[node].deferred.clear();
        let links: Vec<LinkId> = self.nodes[node].links.values().copied().collect();
        if told {
            for link in links {
                let end = self.links[link].end_of(node);
                self.close(link, end, flush);
            }
        }
        // The daemon may not have welcomed some yet.
        let is_here = |task: &TaskId| self.tasks[*task].node == node;
        for task in (0..self.tasks.len()).filter(is_here).collect::<Vec<_>>() {
            self.task_is_dead(task);
        }
    }

    /// Breaks the connections of a daemon that ended because its computer lost its power.
    pub fn reset_links(&mut self, node: NodeId) {
        let links: Vec<LinkId> = self.nodes[node].links.values().copied().collect();
        for link in links {
            let end = self.links[link].end_of(node);
            self.close(link, end, false);
        }
    }

    // ----- Carrying

    /// Sends an item to one end of a link.
    pub fn push_item(&mut self, link: LinkId, end: usize, kind: Kind, item: Item) {
        let ends = self.links[link].ends;
        if self.links[link].closed[end] {
            return;
        }
        let (one, other) = (self.nodes[ends[0]].place, self.nodes[ends[1]].place);
        let tries = self.network.retransmissions(&mut self.prng, one, other, self.now);
        let pauses = tries.last().copied().unwrap_or(0);
        if kind == Kind::Control {
            let now = self.now;
            tries.iter().for_each(|pause| self.links[link].retransmissions[1 - end].plan(now + pause));
        }
        if pauses > self.scenario.timeout && kind == Kind::Control {
            let (at, connection) = (self.now + self.scenario.timeout, self.links[link].control.newest);
            self.queue.push(at, Event::GiveUp { link, end: 1 - end, connection });
        }
        let late = self.network.latency(&mut self.prng, one, other) + pauses;
        if let Some(at) = self.links[link].towards(end, kind).push(self.now + late, item) {
            self.queue.push(at, Event::Arrive { link, end, kind });
        }
    }

    /// Plans the arrival of the first item of a channel.
    pub fn plan_channel(&mut self, link: LinkId, end: usize, kind: Kind) {
        let channel = self.links[link].towards(end, kind);
        let Some((at, _)) = channel.items.front() else { return };
        if !std::mem::replace(&mut channel.planned, true) {
            let at = (*at).max(self.now);
            self.queue.push(at, Event::Arrive { link, end, kind });
        }
    }

    /// Resumes delayed traffic after a fault of the network has ended.
    pub fn unblock(&mut self) {
        for link in 0..self.links.len() {
            for (end, kind) in [(0, Kind::Control), (0, Kind::Data), (1, Kind::Control), (1, Kind::Data)] {
                if !self.links[link].closed[end] {
                    self.plan_channel(link, end, kind);
                }
            }
        }
    }

    /// Lets the first item of a channel arrive, if no fault prevents that.
    pub fn arrive(&mut self, link: LinkId, end: usize, kind: Kind) {
        let [one, other] = self.links[link].ends.map(|node| self.nodes[node].place);
        let passes = self.network.passes(one, other);
        let early = match kind {
            Kind::Data => !(self.links[link].up[end] && self.links[link].data.reaches(end)),
            // What was on its way when the connection broke still arrives.
            Kind::Control => self.links[link].up[end] && !self.links[link].control.is_newest(end),
        };
        let channel = self.links[link].towards(end, kind);
        channel.planned = false;
        if !passes || early {
            return;
        }
        let Some(item) = channel.pop() else { return };
        self.plan_channel(link, end, kind);
        let (node, from) = (self.links[link].ends[end], self.links[link].ends[1 - end]);
        let host = self.nodes[from].tid;
        let counted = kind == Kind::Data
            && matches!(item, Item::Piece(_) | Item::Credit(_) | Item::Grant(_) | Item::Acknowledged(_));
        match item {
            Item::Up => self.link_up(node, link, end),
            Item::Close(how) if kind == Kind::Control => {
                let connection = self.links[link].control.ends[end].connection;
                self.control_ended(link, end, connection, how);
            }
            Item::Close(_) => {
                let connection = self.links[link].data.ends[end].connection;
                self.data_ended(link, end, connection);
            }
            item @ (Item::Frame(_) | Item::Acknowledged(_)) if kind == Kind::Control => {
                if let Some(frame) = self.take_control(link, end, item) {
                    self.frame_arrived(node, host, &frame, Kind::Control);
                }
            }
            // Frames on data links are pieces.
            Item::Frame(_) => {}
            Item::Piece(piece) => self.piece_arrived(node, host, &piece),
            Item::Credit(credit) => {
                self.nodes[node].flows.credit(credit.dst, credit.bytes);
                self.carry(node, host);
            }
            Item::Grant(up_to) => {
                self.nodes[node].flows.grant(host, up_to);
                self.carry(node, host);
            }
            Item::Acknowledged(position) => {
                self.data_acknowledged(link, end, position, false);
                self.carry(node, host);
            }
            Item::Greeting(position) => {
                self.data_acknowledged(link, end, position, true);
                self.carry(node, host);
            }
        }
        if counted {
            self.data_arrived(link, end);
        }
        // The sender's socket has room again, so the sender continues.
        if kind == Kind::Data && self.nodes[from].state == NodeState::Running {
            let tid = self.nodes[node].tid;
            self.carry(from, tid);
        }
    }

    fn frame_arrived(&mut self, node: NodeId, host: Tid, frame: &[u8], kind: Kind) {
        let now = self.time(node);
        let frame: Frame = wire::decode(frame).expect("what was encoded");
        self.checks.frame(self.nodes[node].tid, host, &frame);
        if matches!(frame, Frame::Following { .. }) && !self.nodes[node].machine.is_master() {
            self.tried.early += 1;
        }
        let machine = &mut self.nodes[node].machine;
        match kind {
            Kind::Control => machine.handle_host_frame(now, host, frame),
            Kind::Data => machine.handle_frame_in_flow(now, host, frame),
        }
    }

    fn piece_arrived(&mut self, node: NodeId, host: Tid, piece: &DataFrame<QueuedMessage>) {
        let Node { inbound, pacer, .. } = &mut self.nodes[node];
        match piece {
            DataFrame::Start { transfer, header, first, .. } => {
                inbound.admit(host, header).expect("flows keep to their windows");
                pacer.handle_start(host, *transfer, header.bytes);
                pacer.handle_bytes(host, *transfer, *first);
            }
            DataFrame::Chunk { transfer, range, .. } => pacer.handle_bytes(host, *transfer, range.len()),
            _ => {}
        }
        let whole = match piece {
            DataFrame::Start { header, first, body, .. } if *first == header.bytes => {
                Some((header.clone(), body.clone()))
            }
            DataFrame::Start { transfer, header, first, body } => {
                inbound
                    .begin(host, *transfer, header.clone(), body.clone(), *first)
                    .expect("flows keep to their rules");
                None
            }
            DataFrame::Chunk { transfer, range, .. } => {
                let place = inbound.chunk_place(host, *transfer, range.len()).expect("flows keep to their rules");
                assert_eq!(place.at, range.start);
                inbound.chunk_placed(host, *transfer, range.len())
            }
            DataFrame::InBand { payload, .. } => {
                self.make_gaps(node, host, None);
                return self.frame_arrived(node, host, payload, Kind::Data);
            }
            DataFrame::Mark { dst, count } => {
                self.tried.marks += 1;
                let marked = self.nodes[node].inbound.arrivals.marked(host, *dst, *count);
                return marked.expect("flows keep to their limits");
            }
            DataFrame::Announce { header, announcement } => return self.announced(node, host, header, announcement),
            DataFrame::Request { key, request } => return self.body_request(node, host, *key, request.clone()),
            DataFrame::Part { key, range, .. } => return self.body_part(node, host, *key, range),
        };
        let Some((header, message)) = whole else { return };
        let dsts: Vec<Tid> = header.receivers().collect();
        let some_wait = dsts.iter().any(|dst| self.nodes[node].held.is_held(host, *dst));
        self.make_gaps(node, host, Some(dsts.as_slice()).filter(|_| !some_wait));
        for dst in dsts {
            let to_one = MessageHeader { dst, others: Vec::new(), ..header.clone() };
            match self.nodes[node].held.is_held(host, dst) {
                true => self.nodes[node].held.hold(host, dst, (to_one, message.clone())),
                false => self.hand_out(node, host, &to_one, &message),
            }
        }
    }

    /// Makes gaps for what precedes the next messages of these tasks; without tasks, for all that has begun.
    pub fn make_gaps(&mut self, node: NodeId, from: Tid, dsts: Option<&[Tid]>) {
        loop {
            let arrivals = &mut self.nodes[node].inbound.arrivals;
            let gap = match dsts {
                Some(dsts) => arrivals.gap_before_next(from, dsts),
                None => arrivals.gap_before_all(from),
            };
            let Some(Gap { dst, count }) = gap else { return };
            if let Some(task) = self.receiver(node, dst) {
                self.tried.gaps += 1;
                self.tasks[task].inbox.push_back(Entry::Gap { host: from, count });
            }
        }
    }

    /// Returns the task to which messages for this tid go.
    fn receiver(&self, node: NodeId, dst: Tid) -> Option<TaskId> {
        let task = self.nodes[node].tasks.get(&dst).copied();
        task.filter(|task| matches!(self.tasks[*task].stage, Stage::Starting | Stage::Enrolled))
    }

    /// Delivers a complete message to one receiver.
    pub fn hand_out(&mut self, node: NodeId, from: Tid, header: &MessageHeader, message: &Rc<QueuedMessage>) {
        let dst = header.dst;
        let Some(task) = self.receiver(node, dst) else {
            return self.nodes[node].inbound.dropped(dst, from, header.bytes);
        };
        let one = &mut self.tasks[task];
        one.inbox.push_back(Entry::Message(message.clone()));
        one.from_daemon_count += 1;
        let mark = one.from_daemon_count;
        self.nodes[node].inbound.delivered(dst, from, header.bytes, mark);
        self.plan_take(task);
    }

    /// Sends data on the link to a host while the link has room. If there is no link, asks the daemon's rules for one.
    pub fn carry(&mut self, node: NodeId, host: Tid) {
        let Some(link) = self.nodes[node].links.get(&host).copied() else {
            if self.nodes[node].flows.has_items(host) && self.nodes[node].known.contains_key(&host) {
                let now = self.time(node);
                self.nodes[node].machine.want_link(now, host);
            }
            return;
        };
        let end = self.links[link].end_of(node);
        if !self.links[link].up[end] {
            return;
        }
        self.send_queued(link, end);
        while self.takes_data(link, end) {
            let Some(piece) = self.nodes[node].flows.next(host) else { break };
            self.send_data(link, end, Item::Piece(Rc::new(piece)));
        }
        self.poll_freed(node);
        if self.nodes[node].flows.begin_pushes() {
            self.carry_all(node);
        }
    }

    /// Sends data to all hosts, because bodies that other hosts want have grown or are no more.
    pub fn carry_all(&mut self, node: NodeId) {
        let hosts: BTreeSet<Tid> = self.nodes[node].flows.hosts().collect();
        hosts.into_iter().for_each(|host| self.carry(node, host));
    }

    /// Sends grants to the hosts that send long messages.
    pub fn send_grants(&mut self, node: NodeId) {
        let now = self.time(node);
        self.nodes[node].pacer.handle_time(now);
        while let Some(Grant { host, up_to }) = self.nodes[node].pacer.poll_grant() {
            if let Some(link) = self.nodes[node].links.get(&host).copied() {
                let end = self.links[link].end_of(node);
                self.send_data(link, end, Item::Grant(up_to));
            }
        }
    }

    /// Returns credit to other hosts.
    pub fn return_credit(&mut self, node: NodeId) {
        while let Some(credit) = self.nodes[node].inbound.poll_credit() {
            let Credit { host, .. } = credit;
            if let Some(link) = self.nodes[node].links.get(&host).copied() {
                let end = self.links[link].end_of(node);
                self.send_data(link, end, Item::Credit(credit));
            }
        }
    }

    /// Polls the queues of senders that had to wait because they were over their budget.
    fn poll_freed(&mut self, node: NodeId) {
        for tid in self.nodes[node].flows.take_freed() {
            if let Some(task) = self.nodes[node].tasks.get(&tid).copied() {
                self.plan_poll(task);
            }
        }
    }

    /// Schedules a poll of a task's queue by the daemon.
    pub fn plan_poll(&mut self, task: TaskId) {
        if !std::mem::replace(&mut self.tasks[task].poll_planned, true) {
            let late = self.short_time();
            self.queue.push(self.now + late, Event::PollQueue(task));
        }
    }

    /// Takes the messages that tasks have queued for other hosts, in the order in which they were sent. `ended`: a task that
    /// has ended. All its messages are taken, because they must precede the report of its end.
    pub fn poll_queues(&mut self, node: NodeId, ended: Option<TaskId>) {
        loop {
            let tasks = self.nodes[node].tasks.values().copied().chain(ended);
            let first = |task: TaskId| self.tasks[task].to_daemon_queue.front().map(|message| (message.order, task));
            let may_take =
                |task: &TaskId| Some(*task) == ended || self.nodes[node].flows.may_take(self.tasks[*task].tid);
            let Some((_, task)) = tasks.filter(may_take).filter_map(first).min() else { return };
            self.take_for_others(node, task);
        }
    }

    fn take_for_others(&mut self, node: NodeId, task: TaskId) {
        let src = self.tasks[task].tid;
        let Some(message) = self.tasks[task].to_daemon_queue.pop_front() else { return };
        let own = self.nodes[node].tid;
        let known = |tid: &Tid| tid.host() != own && self.nodes[node].known.contains_key(&tid.host());
        let dsts: Vec<Tid> = message.to.iter().map(|(tid, _)| *tid).filter(known).collect();
        let copy = QueuedMessage { src, ..(*message).clone() };
        let (meta, bytes) = ([0; 5], message.bytes);
        let held = if bytes < 4096 { bytes } else { 0 };
        match dsts.as_slice() {
            [] => return,
            [dst] => self.nodes[node].flows.send(src, *dst, meta, bytes, held, copy),
            several => {
                let delivery = self.plan_multicast(node, several, bytes, &copy);
                self.nodes[node].flows.multicast(src, several, meta, (bytes, held), copy, delivery);
            }
        }
        let hosts: BTreeSet<Tid> = dsts.iter().map(|tid| tid.host()).collect();
        hosts.into_iter().for_each(|host| self.carry(node, host));
    }
}
