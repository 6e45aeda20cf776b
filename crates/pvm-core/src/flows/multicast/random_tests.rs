//! Random tests of multicasts along trees and by broadcast. Some hosts die, some relay wrong bytes or forge datagrams,
//! some relay nothing or hear nothing; datagrams are lost, doubled and overtake each other. Each message arrives once and
//! in order at each living receiver, and no state is left.
use super::super::{Credit, Flows, InboundFlows, MessageHeader};
use super::*;
use crate::flows::pacing::Pacing;
use crate::prng::Prng;
use std::collections::VecDeque;

/// The body of a message: the number of the message, and whether a relay has changed a part of it.
type Body = Rc<(u32, RefCell<bool>)>;

/// What travels on a link.
enum Wire {
    Frame(DataFrame<Body>),
    Credit(Credit),
}

#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    Honest,
    /// Changes the parts that it relays.
    Lies,
    /// Answers no request for a body of another host.
    Mute,
    /// Receives no datagrams.
    Deaf,
    /// Withholds what it reports about broadcast bodies for this time.
    Late(Duration),
}

/// What a receiver gets: a message with its sender and number, or an in-band frame with its number.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Message(Tid, u32, usize),
    Frame(u32),
}

impl Item {
    fn number(&self) -> u32 {
        match self {
            Item::Message(_, number, _) | Item::Frame(number) => *number,
        }
    }
}

/// What a task was given, and how many messages of it the task has consumed.
#[derive(Default)]
struct Given {
    /// With the sending host. Gaps are empty.
    items: Vec<(Tid, Option<Item>)>,
    messages: usize,
    taken: usize,
}

impl Given {
    /// Returns what the task was given from a host, in order.
    fn from(&self, from: Tid) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |(host, _)| *host == from).filter_map(|(_, item)| item.as_ref())
    }

    fn gaps(&self, from: Tid) -> usize {
        self.items.iter().filter(|(host, item)| *host == from && item.is_none()).count()
    }
}

struct Node {
    flows: Flows<Body>,
    inbound: InboundFlows<Body>,
    held: InOrder<Item>,
    conduct: Conduct,
    /// What it reports later.
    withheld: VecDeque<(Duration, Tid, BodyKey, BodyRequest)>,
    /// The hosts that this one has not noticed to be dead.
    members: Vec<Tid>,
    given: HashMap<Tid, Given>,
}

/// A broadcast part of a body that is on its way to a host, and whether it was forged.
struct PartOnWay {
    to: Tid,
    part: PartToSend,
    is_wrong: bool,
}

struct World {
    prng: Prng,
    now: Duration,
    /// How many of 100 datagrams are lost.
    loss: u64,
    datagrams: Vec<PartOnWay>,
    heard: usize,
    nodes: HashMap<Tid, Node>,
    hosts: Vec<Tid>,
    wires: HashMap<(Tid, Tid), VecDeque<Wire>>,
    sent: HashMap<(Tid, Tid), Vec<Item>>,
    last: u32,
    wrong_parts: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut prng = Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let hosts: Vec<Tid> = (1..=3 + prng.below(9) as u32).map(Tid::host_number).collect();
        let loss = [0, 5, 20, 50][prng.below(4) as usize];
        let mut nodes = HashMap::new();
        for host in &hosts {
            let conduct = match prng.below(8) {
                0 => Conduct::Lies,
                1 => Conduct::Mute,
                2 => Conduct::Deaf,
                3 => Conduct::Late(Duration::from_millis(1 + prng.below(200))),
                _ => Conduct::Honest,
            };
            let (mut flows, inbound, held) = (Flows::new(), InboundFlows::new(), InOrder::default());
            flows.set_pacing(Pacing::Off);
            let members = hosts.iter().copied().filter(|other| other != host).collect();
            let (withheld, given) = (VecDeque::new(), HashMap::new());
            nodes.insert(*host, Node { flows, inbound, held, conduct, withheld, members, given });
        }
        World {
            prng,
            now: Duration::ZERO,
            loss,
            datagrams: Vec::new(),
            heard: 0,
            nodes,
            hosts,
            wires: HashMap::new(),
            sent: HashMap::new(),
            last: 0,
            wrong_parts: 0,
        }
    }

    fn pick(&mut self) -> Tid {
        self.hosts[self.prng.below(self.hosts.len() as u64) as usize]
    }

    /// Sends a message from a task of `host` to tasks of some other hosts.
    fn send(&mut self, host: Tid) {
        let src = Tid(host.0 | 1 + self.prng.below(2) as u32);
        let limit = 1 + self.prng.below(4);
        let node = self.nodes.get(&host).unwrap();
        let mut dsts = Vec::new();
        for other in node.members.clone() {
            (1..=2).filter(|_| self.prng.below(4) < limit).for_each(|task| dsts.push(Tid(other.0 | task)));
        }
        if dsts.is_empty() || !node.flows.may_take(src) {
            return;
        }
        self.last += 1;
        let (number, magnitude) = (self.last, 10 + self.prng.below(10));
        let bytes = self.prng.below(1 << magnitude) as usize;
        let route = McastRoute::from_word(self.prng.below(5) as u32).unwrap();
        let mut secret = [0; BODY_SECRET_BYTES];
        secret[..4].copy_from_slice(&number.to_le_bytes());
        let key = BodyKey { origin: host, secret };
        let mut digest = [0; DIGEST_BYTES];
        digest[..4].copy_from_slice(&number.to_le_bytes());
        let flows = &mut self.nodes.get_mut(&host).unwrap().flows;
        flows.note_time(self.now);
        let part_bytes = || Some(PART_BYTES_MIN + number as usize);
        let delivery = flows.plan_multicast(route, host, &dsts, bytes, |_| None, part_bytes).with_body(key, digest);
        dsts.iter().for_each(|dst| {
            self.sent.entry((host, *dst)).or_default().push(Item::Message(src, number, bytes));
        });
        let body = Rc::new((number, RefCell::new(false)));
        self.nodes.get_mut(&host).unwrap().flows.multicast(src, &dsts, [number; 5], (bytes, 0), body, delivery);
    }

    fn send_frame(&mut self, host: Tid) {
        let members = &self.nodes[&host].members;
        if members.is_empty() {
            return;
        }
        let dst = Tid(members[self.prng.below(members.len() as u64) as usize].0 | 1);
        self.last += 1;
        self.sent.entry((host, dst)).or_default().push(Item::Frame(self.last));
        self.nodes.get_mut(&host).unwrap().flows.send_in_band(dst, self.last.to_le_bytes().to_vec());
    }

    /// Moves frames from the flows of `from` to the wire. Returns whether there were any.
    fn transmit(&mut self, from: Tid, to: Tid, frames: u64) -> bool {
        let node = self.nodes.get_mut(&from).unwrap();
        while let Some((host, key, request)) = node.inbound.fetches.poll_request() {
            match (node.conduct, &request) {
                (Conduct::Late(time), BodyRequest::Report { .. } | BodyRequest::Received) => {
                    node.withheld.push_back((self.now + time, host, key, request));
                }
                _ => node.flows.send_body_request(host, key, request),
            }
        }
        while node.withheld.front().is_some_and(|(until, ..)| *until <= self.now) {
            let (_, host, key, request) = node.withheld.pop_front().unwrap();
            node.flows.send_body_request(host, key, request);
        }
        let wire = self.wires.entry((from, to)).or_default();
        let before = wire.len();
        wire.extend((0..frames).map_while(|_| node.flows.next(to)).map(Wire::Frame));
        node.flows.begin_pushes() | (wire.len() > before)
    }

    /// Broadcasts some datagrams of a host, and lets some datagrams of all hosts arrive. Returns whether there were any.
    fn broadcast(&mut self, from: Tid, count: u64) -> bool {
        let node = self.nodes.get_mut(&from).unwrap();
        node.flows.note_time(self.now);
        let mut parts: Vec<(PartToSend, bool)> = Vec::new();
        while parts.len() < count as usize {
            let Some(datagram) = node.flows.next_datagram() else { break };
            parts.push((datagram.part, false));
        }
        // A receiver that knows the secret of a body can make parts of it.
        if node.conduct == Conduct::Lies && self.prng.below(3) == 0 {
            let forged = self.datagrams.first().map(|on_way| on_way.part.clone());
            parts.extend(forged.filter(|part| node.inbound.fetches.listens(part.key)).map(|part| (part, true)));
        }
        let moved = !parts.is_empty() || !self.datagrams.is_empty();
        for (part, is_wrong) in parts {
            for to in self.hosts.iter().copied().filter(|to| *to != from) {
                let copies = if self.prng.below(100) < self.loss { 0 } else { 1 + self.prng.below(10) / 9 };
                (0..copies).for_each(|_| self.datagrams.push(PartOnWay { to, part: part.clone(), is_wrong }));
            }
        }
        for _ in 0..5 * count {
            if self.datagrams.is_empty() {
                break;
            }
            let place = self.prng.below(self.datagrams.len().min(20) as u64) as usize;
            let PartOnWay { to, part, is_wrong } = self.datagrams.remove(place);
            if let Some(node) = self.nodes.get_mut(&to) {
                self.heard += usize::from(node.hear(&part, is_wrong));
            }
        }
        moved
    }

    /// Handles frames that have arrived at `to`. Returns whether there were any.
    fn receive(&mut self, from: Tid, to: Tid, frames: u64) -> bool {
        let mut some = false;
        for _ in 0..frames {
            let Some(frame) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { break };
            some = true;
            let node = self.nodes.get_mut(&to).unwrap();
            node.flows.note_time(self.now);
            match frame {
                Wire::Credit(credit) => node.flows.credit(credit.dst, credit.bytes),
                Wire::Frame(frame) => self.wrong_parts += usize::from(node.handle(to, from, frame)),
            }
        }
        if some {
            self.nodes[&to].check_order(to, &self.sent);
        }
        some
    }

    fn consume(&mut self, host: Tid, count: usize) -> bool {
        let node = self.nodes.get_mut(&host).unwrap();
        let mut some = false;
        for (dst, given) in &mut node.given {
            let end = given.messages.min(given.taken + count);
            some |= end > given.taken;
            given.taken = end;
            if node.inbound.wakeup_mark(*dst).is_some_and(|mark| mark <= end as u64) {
                node.inbound.consumed_to(*dst, end as u64);
            }
        }
        while let Some(credit) = node.inbound.poll_credit() {
            self.wires.entry((host, credit.host)).or_default().push_back(Wire::Credit(credit));
        }
        some
    }

    fn kill(&mut self, host: Tid) {
        self.hosts.retain(|other| *other != host);
        self.nodes.remove(&host);
        self.wires.retain(|(_, to), _| *to != host);
    }

    /// Lets a host notice the deaths of others.
    fn notice(&mut self, host: Tid) {
        let node = self.nodes.get_mut(&host).unwrap();
        let dead: Vec<Tid> = node.members.iter().copied().filter(|other| !self.hosts.contains(other)).collect();
        for other in dead {
            node.members.retain(|member| *member != other);
            node.flows.host_gone(other);
            node.inbound.host_gone(other);
            node.held.host_gone(other);
            self.wires.retain(|ends, _| *ends != (other, host) && *ends != (host, other));
        }
    }

    fn settle(&mut self) {
        let hosts = self.hosts.clone();
        hosts.iter().for_each(|host| self.notice(*host));
        let mut still = 0;
        while still < 12 {
            let mut moved = false;
            for from in &hosts {
                moved |= self.consume(*from, usize::MAX / 2);
                for to in &hosts {
                    moved |= self.transmit(*from, *to, 50) | self.receive(*from, *to, 50);
                }
            }
            for host in &hosts {
                moved |= self.broadcast(*host, 50);
            }
            still = if moved { 0 } else { still + 1 };
            self.now += Duration::from_millis(1);
            if !moved {
                self.now += Duration::from_secs(1);
                hosts.iter().for_each(|host| self.tick(*host));
            }
        }
    }

    fn tick(&mut self, host: Tid) {
        let node = self.nodes.get_mut(&host).unwrap();
        node.inbound.fetches.tick();
        node.flows.tick_bodies();
    }

    /// Checks what the receivers on living hosts have: all from senders on living hosts, the beginning from dead ones.
    fn check(&self, seed: u64) {
        for ((from, dst), items) in self.sent.iter().filter(|((_, dst), _)| self.hosts.contains(&dst.host())) {
            let given = self.nodes[&dst.host()].given.get(dst);
            let given: Vec<&Item> = given.map_or(Vec::new(), |given| given.from(*from).collect());
            if self.hosts.contains(from) {
                assert_eq!(given.len(), items.len(), "seed {seed}: from {from} to {dst}");
            }
            // A frame may have passed messages that were lost with their host.
            let is_compared = |item: &&Item| self.hosts.contains(from) || matches!(item, Item::Message(..));
            let same = given.into_iter().filter(is_compared).zip(items.iter().filter(is_compared));
            same.for_each(|(one, other)| assert_eq!(one, other, "seed {seed}: from {from} to {dst}"));
        }
        for (host, node) in &self.nodes {
            assert!(node.held.is_empty() && node.inbound.arriving() == 0, "seed {seed}: {host} waits");
            assert_eq!(
                (node.flows.held_bytes(), node.flows.bodies.count()),
                (0, 0),
                "seed {seed}: {host} keeps bodies"
            );
        }
    }
}

impl Node {
    /// Handles a frame, as a daemon does. Returns whether the frame was a part that a relay has changed.
    fn handle(&mut self, own: Tid, from: Tid, frame: DataFrame<Body>) -> bool {
        match frame {
            DataFrame::Start { transfer, header, first, body } => {
                self.inbound.admit(from, &header).unwrap();
                if first == header.bytes {
                    self.arrived(from, &header, &body);
                } else {
                    self.inbound.begin(from, transfer, header, (*body).clone(), first).unwrap();
                }
            }
            DataFrame::Chunk { transfer, range, .. } => {
                self.inbound.chunk_place(from, transfer, range.len()).unwrap();
                if let Some((header, body)) = self.inbound.chunk_placed(from, transfer, range.len()) {
                    self.arrived(from, &header, &body);
                }
            }
            DataFrame::InBand { dst, payload } => {
                self.make_gaps(from, None);
                self.give(from, dst, Item::Frame(u32::from_le_bytes(payload[..4].try_into().unwrap())));
            }
            DataFrame::Announce { header, announcement } => {
                self.inbound.admit(from, &header).unwrap();
                assert_eq!(announcement.key.origin, from);
                let has_parent = self.members.contains(&announcement.parent);
                let (key, number) = (announcement.key, header.meta[0]);
                header.receivers().for_each(|dst| self.held.announced(from, dst, key));
                let body = Rc::new((number, RefCell::new(false)));
                self.flows.relay_body(key, header.bytes, announcement.children, body.clone());
                self.inbound.fetches.begin(header, &announcement, has_parent, body).unwrap();
            }
            DataFrame::Request { key, request } => match request {
                BodyRequest::Fetch { .. } if self.conduct == Conduct::Mute && key.origin != own => {}
                BodyRequest::Fetch { at } => self.flows.fetch_body(from, key, at),
                BodyRequest::Cancel => self.flows.cancel_body(from, key),
                BodyRequest::Received => self.flows.body_received(from, key),
                BodyRequest::Unavailable => self.inbound.fetches.unavailable(from, key),
                BodyRequest::Ready => self.flows.body_ready(from, key),
                BodyRequest::Report { round, missing } => self.flows.body_report(from, key, round, &missing),
            },
            DataFrame::Mark { dst, count } => self.inbound.arrivals.marked(from, dst, count).unwrap(),
            DataFrame::Part { key, range, body } => return self.handle_part(own, from, key, range, &body),
        }
        false
    }

    /// Handles a datagram. Returns whether it has a part that was wanted.
    fn hear(&mut self, part: &PartToSend, is_wrong: bool) -> bool {
        if self.conduct == Conduct::Deaf {
            return false;
        }
        let fetches = &mut self.inbound.fetches;
        let place = fetches.place_heard(part.key, part.part, part.range.len());
        let is_wanted = place.is_some();
        if let Some(place) = place {
            assert_eq!(place.at, part.range.start);
            let number = place.block.0;
            *place.block.1.borrow_mut() |= is_wrong;
            let is_intact = !*place.block.1.borrow();
            if let Stored::Complete(digest) = fetches.placed_heard(part.key, part.part) {
                assert!(digest.is_some());
                match is_intact {
                    true => self.complete(part.key, number),
                    false => fetches.discard(part.key),
                }
            }
        }
        if part.round > 0 {
            self.inbound.fetches.report(part.key, part.round, part.sent);
        }
        is_wanted
    }

    fn complete(&mut self, key: BodyKey, number: u32) {
        let (header, _) = self.inbound.fetches.finish(key).unwrap();
        assert_eq!(header.meta, [number; 5]);
        self.flows.body_grows(key, header.bytes);
        if !header.others.is_empty() {
            self.make_gaps(key.origin, None);
        }
        for dst in header.receivers() {
            let item = Item::Message(header.src, number, header.bytes);
            assert_eq!(self.held.complete(key.origin, dst, key, item), None);
            while let Some(item) = self.held.pop(key.origin, dst) {
                self.make_gaps(key.origin, Some(&[dst]));
                self.give(key.origin, dst, item);
            }
        }
    }

    fn handle_part(&mut self, own: Tid, from: Tid, key: BodyKey, range: Range<usize>, body: &Body) -> bool {
        let Some(place) = self.inbound.fetches.place(from, key, range.start as u64, range.len()) else { return false };
        let (number, is_wrong) =
            (place.block.0, *body.1.borrow() || (self.conduct == Conduct::Lies && from != key.origin));
        // The first part overwrites what was wrong before.
        let before = range.start > 0 && *place.block.1.borrow();
        *place.block.1.borrow_mut() = before || is_wrong;
        let is_intact = !(before || is_wrong);
        match self.inbound.fetches.placed(from, key, range.start, range.len()) {
            Stored::Unwanted => panic!("there was a place"),
            Stored::Partial(bytes) => self.flows.body_grows(key, bytes),
            Stored::Complete(digest) if digest.is_some() && !is_intact => {
                self.inbound.fetches.discard(key);
                self.flows.refuse_body(key);
            }
            Stored::Complete(_) => {
                assert!(is_intact, "the sender's host sends what the task has sent");
                assert_ne!(key.origin, own);
                self.complete(key, number);
            }
        }
        is_wrong
    }

    fn make_gaps(&mut self, from: Tid, dsts: Option<&[Tid]>) {
        let arrivals = &mut self.inbound.arrivals;
        while let Some(gap) = match dsts {
            Some(dsts) => arrivals.gap_before_next(from, dsts),
            None => arrivals.gap_before_all(from),
        } {
            let given = self.given.entry(gap.dst).or_default();
            (0..gap.count).for_each(|_| given.items.push((from, None)));
        }
    }

    /// Checks that each task has what its host was sent before the last thing that any task has, or gaps for it.
    fn check_order(&self, own: Tid, sent: &HashMap<(Tid, Tid), Vec<Item>>) {
        for from in &self.members {
            let visible = self.given.values().flat_map(|given| given.from(*from)).map(Item::number).max().unwrap_or(0);
            for ((_, dst), items) in sent.iter().filter(|((src, dst), _)| src == from && dst.host() == own) {
                let given = self.given.get(dst);
                let has = given.map_or(0, |given| given.from(*from).filter(|item| item.number() < visible).count());
                let lacks = items.iter().filter(|item| item.number() < visible).count() - has;
                assert!(lacks <= given.map_or(0, |given| given.gaps(*from)), "{dst} lacks {lacks} from {from}");
            }
        }
    }

    fn arrived(&mut self, from: Tid, header: &MessageHeader, body: &Body) {
        let dsts: Vec<Tid> = header.receivers().collect();
        let some_wait = dsts.iter().any(|dst| self.held.is_held(from, *dst));
        self.make_gaps(from, Some(dsts.as_slice()).filter(|_| !some_wait));
        for dst in header.receivers() {
            let item = Item::Message(header.src, body.0, header.bytes);
            match self.held.is_held(from, dst) {
                true => self.held.hold(from, dst, item),
                false => self.give(from, dst, item),
            }
        }
    }

    fn give(&mut self, from: Tid, dst: Tid, item: Item) {
        let given = self.given.entry(dst).or_default();
        let mut gaps = given.items.iter_mut().filter(|(host, other)| *host == from && other.is_none());
        match gaps.next().filter(|_| matches!(item, Item::Message(..))) {
            Some(gap) => gap.1 = Some(item.clone()),
            None => given.items.push((from, Some(item.clone()))),
        }
        if let Item::Message(_, _, bytes) = item {
            given.messages += 1;
            self.inbound.delivered(dst, from, bytes, given.messages as u64);
        }
    }
}

/// Runs a world. Returns how many parts a relay has changed, and how many were heard.
fn live(seed: u64) -> [usize; 2] {
    let mut world = World::new(seed);
    let deaths = seed % 3;
    for step in 0..600 {
        let host = world.pick();
        world.now += Duration::from_millis(1);
        match world.prng.below(12) {
            0 => (0..world.prng.below(4)).for_each(|_| world.send(host)),
            1 => world.send_frame(host),
            2 => drop(world.consume(host, 5)),
            3 => world.notice(host),
            4 if step % 7 == 0 => world.tick(host),
            6 | 7 => drop(world.broadcast(host, 20)),
            5 if step % 40 == 0 && world.hosts.len() > 2 && world.prng.below(10) < deaths => world.kill(host),
            _ => {
                let (other, frames) = (world.pick(), world.prng.below(30));
                world.transmit(host, other, frames);
                world.receive(other, host, frames);
            }
        }
    }
    world.settle();
    world.check(seed);
    [world.wrong_parts, world.heard]
}

#[test]
fn each_multicast_arrives_once_and_in_order() {
    let counts: Vec<[usize; 2]> = (1..=300).map(live).collect();
    let [wrong, heard] = [0, 1].map(|place| counts.iter().map(|counts| counts[place]).sum::<usize>());
    assert!(wrong > 0, "some relays have changed parts");
    assert!(heard > 10_000, "only {heard} parts were heard");
}

/// Broadcasts messages in turn from one host to four listeners. One listener reports late. Returns for each message the time
/// until the other listeners had it, in ms.
fn times_beside_a_late_listener(late: Duration) -> Vec<u128> {
    let mut world = World::new(1);
    (world.loss, world.hosts) = (0, (1..=5).map(Tid::host_number).collect());
    let members = world.hosts.clone();
    world.nodes.retain(|host, _| members.contains(host));
    for (host, node) in &mut world.nodes {
        node.members = members.iter().copied().filter(|other| other != host).collect();
        node.conduct = if *host == members[4] { Conduct::Late(late) } else { Conduct::Honest };
    }
    let dsts: Vec<Tid> = members[1..].iter().map(|host| Tid(host.0 | 1)).collect();
    let mut times = Vec::new();
    for number in 1..=100u32 {
        let (begun, mut secret) = (world.now, [0; BODY_SECRET_BYTES]);
        secret[..4].copy_from_slice(&number.to_le_bytes());
        let flows = &mut world.nodes.get_mut(&members[0]).unwrap().flows;
        flows.note_time(begun);
        let plan = flows.plan_multicast(McastRoute::Broadcast, members[0], &dsts, 200_000, |_| None, || Some(1000));
        let delivery = plan.with_body(BodyKey { origin: members[0], secret }, [0; DIGEST_BYTES]);
        let body = Rc::new((number, RefCell::new(false)));
        flows.multicast(Tid(members[0].0 | 1), &dsts, [number; 5], (200_000, 0), body, delivery);
        let honest = &dsts[..dsts.len() - 1];
        let has = |world: &World, dst: &Tid| {
            world.nodes[&dst.host()].given.get(dst).is_some_and(|given| given.messages == number as usize)
        };
        while !honest.iter().all(|dst| has(&world, dst)) {
            world.now += Duration::from_millis(1);
            for from in &members {
                world.consume(*from, 100);
                world.broadcast(*from, 1000);
                members.iter().for_each(|to| _ = world.transmit(*from, *to, 100));
                members.iter().for_each(|to| _ = world.receive(*from, *to, 100));
            }
        }
        times.push((world.now - begun).as_millis());
    }
    times
}

#[test]
fn a_late_listener_delays_the_others_for_a_limited_time() {
    let usual = *times_beside_a_late_listener(Duration::ZERO).iter().max().unwrap();
    for late in [15, 100, 1000].map(Duration::from_millis) {
        let times = times_beside_a_late_listener(late);
        let slow: Vec<u128> = times.iter().copied().filter(|time| *time > 2 * usual).collect();
        assert!(!slow.is_empty() && times[90..].iter().all(|time| *time <= usual), "{late:?}: {times:?}");
        assert!(slow.iter().sum::<u128>() < 3000, "{late:?}: {times:?}");
    }
}
