//! The state machines of several hosts, connected by queues in place of control links and flows. Each queue keeps the
//! order of its frames; frames of different queues arrive in any order.
use super::group_members::Boards;
use super::hearing::Ears;
use super::*;
use crate::host_look::HostLook;
use crate::proto::{TaskEnd, VERSION, decode, encode};
use crate::release::{CHAIN_VALUE_BYTES, ChainValue};
use crate::wire::{HostEntry, ResolvedHost, Started};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

pub(in crate::machine) const MASTER: Tid = Tid(0x40000);

const SEEDS: u64 = 20;

/// Runs a scenario with many seeds, with a task on each of three hosts. `machine` keeps nothing of it in the end.
pub(in crate::machine) fn with_three_tasks(machine: &str, story: impl Fn(&mut Fleet, [Tid; 3])) {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let tasks = [1, 2, 3].map(|host| fleet.task(Fleet::host(host)));
        story(&mut fleet, tasks);
        for host in fleet.living() {
            assert!(!fleet.machine(host).leftovers().contains(&machine), "seed {seed}, {host}");
        }
    }
}

/// A small pseudo-random number generator (xorshift).
pub(in crate::machine) struct Prng(pub u64);

impl Prng {
    pub fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

/// What a host receives from another on a control link.
#[derive(Debug)]
enum Item {
    Up,
    Down,
    /// The other daemon has ended.
    Ended,
    Frame(Vec<u8>),
}

/// An event that happens at a random time.
#[derive(Debug)]
enum Event {
    /// A daemon has been started, or could not be.
    Started { by: Tid, request: u32, start: Box<HostStart> },
    /// `from` tries to connect to `to`.
    Connect { from: Tid, to: Tid },
    /// `to` has no daemon any more that `from` could call.
    Refused { from: Tid, to: Tid },
    /// Host names have been resolved.
    ResolvedHost { by: Tid, request: u32, names: Vec<ByteBuf> },
    /// A datagram for all hosts reaches one of them.
    Datagram { to: Tid, bytes: Vec<u8> },
}

pub(in crate::machine) struct Node {
    pub machine: Machine,
    pub boards: Boards,
    /// The hosts whose connections this host accepts.
    known: BTreeSet<Tid>,
    connections: u64,
    processes: i32,
    pub starts: Vec<Start>,
    /// Direct links for which this host expects a connection: the secrets of the connection, and the task of this host.
    expected: Vec<(DirectTicket, DirectCall, Tid)>,
    pub stopped: bool,
    /// Whether this host is suspended.
    pub frozen: bool,
}

/// What a task has received.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::machine) enum Received {
    Reply(u32, Reply),
    Message(Message),
    Ended(Tid),
    Fabric(u32, Tid, FabricOffer),
    Halting(String),
}

/// What becomes of the frames that a host has sent just before its daemon died.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum LastFrames {
    Come,
    MayBeLost,
    /// Others may be lost.
    ComeToTheDeputy,
}

pub(in crate::machine) struct Fleet {
    pub now: Time,
    pub nodes: BTreeMap<Tid, Node>,
    /// Control links, by sender and receiver.
    control: BTreeMap<(Tid, Tid), VecDeque<Item>>,
    /// Flows, by sending host and receiving task.
    flows: BTreeMap<(Tid, Tid), VecDeque<Vec<u8>>>,
    /// Links that are up, the lower tid first.
    pub links: BTreeSet<(Tid, Tid)>,
    events: Vec<Event>,
    waits: u32,
    pub received: BTreeMap<Tid, Vec<Received>>,
    /// The tasks that their daemons have forgotten.
    forgotten: BTreeSet<Tid>,
    /// Requests that have not been answered.
    pub open: BTreeMap<(Tid, u32), Request>,
    pub log: Vec<(Tid, Tid, String)>,
    /// Direct links that are up: the task whose host connected, and its peer.
    pub directs: Vec<(Tid, Tid)>,
    /// Which daemon has sent the list of all kinds of trace data to which collector.
    pub descriptions: Vec<(Tid, Tid)>,
    /// How many datagrams for all hosts were sent.
    pub broadcasts: usize,
    pub sent_datagrams: Vec<Vec<u8>>,
    /// The connections that fail: from and to.
    refused: BTreeSet<(Tid, Tid)>,
    /// Whether datagrams are lost.
    pub loses_datagrams: bool,
    /// How often a host was told of a release again because it gave no sign.
    pub repeated_releases: usize,
    pub last_frames: LastFrames,
    /// Whether each datagram arrives once, if none is lost.
    pub keeps_datagrams: bool,
    pub ears: Ears,
    /// The actions of daemons on data links: time, host, action.
    pub data: Vec<(Time, Tid, Action)>,
    /// The calls of daemons for new connections of control links, likewise.
    pub reopened: Vec<(Time, Tid, Action)>,
    pub prng: Prng,
}

fn pair(one: Tid, other: Tid) -> (Tid, Tid) {
    (one.min(other), one.max(other))
}

fn settings(name: &str, rank: Rank) -> Settings {
    let host =
        HostSettings { name: name.into(), arch: "LINUX64".into(), speed: 1000, node: None, groups: None, dsig: 7 };
    let one_way = Some(OneWay { secret: [9; CHAIN_VALUE_BYTES], function: mix });
    let broadcast = Some(SocketAddrV4::new(Ipv4Addr::new(239, 255, 0, 1), 4000));
    Settings { rank, one_way, broadcast, ..Settings::new(host) }
}

/// The one-way function of tests, which is not one.
pub(in crate::machine) fn mix(value: &ChainValue) -> ChainValue {
    let words: Vec<u64> = value.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let sum = words.iter().fold(1u64, |sum, word| (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = words.iter().map(|word| (word ^ sum.rotate_left(31)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes());
    mixed.collect::<Vec<_>>().concat().try_into().expect("as long as the value")
}

impl Fleet {
    /// Makes a machine of that many hosts: the master `h1`, then `h2` and so on.
    pub fn new(hosts: usize, seed: u64) -> Fleet {
        Fleet::with_master_at(vec![Fleet::address_of(MASTER)], hosts, seed)
    }

    /// Likewise; the master can be called at these addresses.
    pub fn with_master_at(addresses: Vec<SocketAddr>, hosts: usize, seed: u64) -> Fleet {
        let mut fleet = Fleet {
            now: Duration::from_secs(1),
            nodes: BTreeMap::new(),
            control: BTreeMap::new(),
            flows: BTreeMap::new(),
            links: BTreeSet::new(),
            events: Vec::new(),
            waits: 100,
            received: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            open: BTreeMap::new(),
            log: Vec::new(),
            directs: Vec::new(),
            descriptions: Vec::new(),
            broadcasts: 0,
            sent_datagrams: Vec::new(),
            refused: BTreeSet::new(),
            loses_datagrams: false,
            repeated_releases: 0,
            last_frames: LastFrames::Come,
            keeps_datagrams: false,
            ears: Ears::default(),
            data: Vec::new(),
            reopened: Vec::new(),
            prng: Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        };
        fleet.boot(MASTER, "h1", Rank::Master);
        fleet.machine(MASTER).set_addresses(addresses);
        if hosts > 1 {
            let adder = fleet.task(MASTER);
            let names = (2..=hosts).map(|number| text(&format!("h{number}"))).collect();
            let reply = fleet.ask(adder, Request::AddHosts(names));
            assert!(matches!(reply, Some(Reply::AddedHosts { count, .. }) if count as usize == hosts - 1), "{reply:?}");
            fleet.leave(adder);
        }
        fleet
    }

    fn boot(&mut self, tid: Tid, name: &str, rank: Rank) {
        let node = Node {
            machine: Machine::new(settings(name, rank)),
            boards: Boards::default(),
            known: match rank {
                Rank::Master => BTreeSet::new(),
                Rank::Slave { master, .. } => BTreeSet::from([master]),
            },
            connections: 0,
            processes: 500,
            starts: Vec::new(),
            expected: Vec::new(),
            stopped: false,
            frozen: false,
        };
        self.nodes.insert(tid, node);
    }

    /// Returns the address at which a host listens.
    pub fn address_of(host: Tid) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + host.0), 4000))
    }

    pub fn host(number: u32) -> Tid {
        Tid::host_number(number)
    }
    pub fn machine(&mut self, host: Tid) -> &mut Machine {
        &mut self.nodes.get_mut(&host).expect("a host").machine
    }
    pub fn living(&self) -> Vec<Tid> {
        self.nodes.keys().copied().collect()
    }
    /// Returns the host that all hosts follow, unless some do not know it yet.
    pub fn master(&self) -> Option<Tid> {
        let mut masters: Vec<Tid> = self.nodes.values().map(|node| node.machine.master()).collect();
        masters.dedup();
        let [master] = masters[..] else { return None };
        self.nodes.get(&master).filter(|node| node.machine.core.is_master()).map(|_| master)
    }
    /// Returns all living tasks.
    pub fn tasks(&self) -> Vec<Tid> {
        self.nodes.values().flat_map(|node| node.machine.core.tasks.iter().map(|(tid, _)| tid)).collect()
    }

    // ----- what happens to hosts

    /// Suspends a host.
    pub fn freeze(&mut self, host: Tid) {
        self.nodes.get_mut(&host).expect("a host").frozen = true;
    }
    /// Lets a suspended host continue.
    pub fn thaw(&mut self, host: Tid) {
        self.nodes.get_mut(&host).expect("a host").frozen = false;
    }

    /// Kills a host.
    pub fn kill(&mut self, host: Tid) {
        self.nodes.remove(&host);
        self.open.retain(|(task, _), _| task.host() != host);
        self.control.retain(|(_, to), _| *to != host);
        self.flows.retain(|(_, to), _| to.host() != host);
        let ends: Vec<(Tid, Tid)> =
            self.links.iter().copied().filter(|(low, high)| *low == host || *high == host).collect();
        for (low, high) in ends {
            self.links.remove(&(low, high));
            let other = if low == host { high } else { low };
            self.control.entry((host, other)).or_default().push_back(Item::Down);
        }
    }

    /// Lets a host learn, before all other news, that another one has provably ended.
    pub fn prove_end(&mut self, of: Tid, to: Tid) {
        self.control.entry((of, to)).or_default().push_front(Item::Ended);
    }

    /// Likewise, after all other news, instead of the end of a link that it has closed.
    pub fn prove_end_last(&mut self, of: Tid, to: Tid) {
        let queue = self.control.entry((of, to)).or_default();
        assert!(matches!(queue.pop_back(), Some(Item::Down)));
        queue.push_back(Item::Ended);
    }

    /// Kills the daemon of a host. The others can prove that it has ended.
    pub fn die(&mut self, host: Tid) {
        let peers: Vec<Tid> = self
            .links
            .iter()
            .filter_map(|(low, high)| match host {
                _ if *low == host => Some(*high),
                _ if *high == host => Some(*low),
                _ => None,
            })
            .collect();
        self.kill(host);
        for peer in peers {
            let queue = self.control.entry((host, peer)).or_default();
            queue.pop_back();
            let frames = queue.iter().rev().take_while(|item| matches!(item, Item::Frame(_))).count();
            let lost = match self.last_frames {
                LastFrames::Come => 0,
                LastFrames::MayBeLost => self.prng.below(frames + 1),
                LastFrames::ComeToTheDeputy if self.nodes[&peer].machine.core.deputy == Some(peer) => 0,
                LastFrames::ComeToTheDeputy => self.prng.below(frames + 1),
            };
            queue.truncate(queue.len() - lost);
            queue.push_back(Item::Ended);
        }
    }

    /// Breaks the link between two hosts; both notice.
    pub fn cut(&mut self, one: Tid, other: Tid) {
        if self.links.remove(&pair(one, other)) {
            for way in [(one, other), (other, one)] {
                self.control.entry(way).or_default().clear();
                self.control.entry(way).or_default().push_back(Item::Down);
            }
            self.flows.retain(|(from, to), _| pair(*from, to.host()) != pair(one, other));
        }
    }

    /// Cuts all links between these hosts and the others, which notice at once, and lets no new ones be made.
    pub fn part(&mut self, side: &[Tid]) {
        let (ours, theirs): (Vec<Tid>, Vec<Tid>) = self.living().into_iter().partition(|host| side.contains(host));
        for one in ours {
            for other in &theirs {
                self.cut(one, *other);
                self.refused.extend([(one, *other), (*other, one)]);
            }
        }
    }
    /// Lets all connections be made again.
    pub fn join_parts(&mut self) {
        self.refused.clear();
    }

    /// Returns how many bytes are on the way on a control link.
    pub fn bytes_on_way(&self, from: Tid, to: Tid) -> usize {
        let bytes = |item: &Item| if let Item::Frame(bytes) = item { bytes.len() } else { 0 };
        self.control.get(&(from, to)).map_or(0, |queue| queue.iter().map(bytes).sum())
    }

    /// Lets all connections from one host to another fail.
    pub fn refuse(&mut self, from: Tid, to: Tid) {
        self.refused.insert((from, to));
    }

    // ----- what happens to tasks

    /// Enrolls a new task that is started by hand.
    pub fn task(&mut self, host: Tid) -> Tid {
        self.hello(host, None)
    }

    pub fn hello(&mut self, host: Tid, cookie: Option<u32>) -> Tid {
        self.hello_as(host, cookie, TaskKind::Program)
    }

    pub fn hello_as(&mut self, host: Tid, cookie: Option<u32>, kind: TaskKind) -> Tid {
        let node = self.nodes.get_mut(&host).expect("a host");
        node.connections += 1;
        let hello = Hello { version: VERSION, pid: 1, cookie, name: ByteBuf::new(), kind };
        node.machine.handle_hello(node.connections, 99, &hello);
        let welcome = node.machine.core.actions.iter().find_map(|action| match action {
            Action::Welcome { tid, .. } => Some(*tid),
            _ => None,
        });
        welcome.iter().for_each(|tid| _ = self.forgotten.remove(tid));
        self.work(host);
        welcome.unwrap_or(Tid::NONE)
    }

    /// Sends a request.
    pub fn send(&mut self, from: Tid, request: Request) -> u32 {
        self.waits += 1;
        let wait = self.waits;
        self.open.insert((from, wait), request.clone());
        self.frame(from, ToDaemon::Request { wait, request });
        wait
    }

    pub fn frame(&mut self, from: Tid, frame: ToDaemon) {
        let now = self.now;
        self.machine(from.host()).handle_frame(now, from, frame);
        self.work(from.host());
    }

    /// Sends a request, lets all events happen, and returns the answer.
    pub fn ask(&mut self, from: Tid, request: Request) -> Option<Reply> {
        let wait = self.send(from, request);
        self.settle();
        self.answer(from, wait)
    }

    pub fn answer(&self, to: Tid, wanted: u32) -> Option<Reply> {
        self.received.get(&to)?.iter().find_map(|received| match received {
            Received::Reply(wait, reply) if *wait == wanted => Some(reply.clone()),
            _ => None,
        })
    }

    /// Returns the messages with that tag that a task has received.
    pub fn messages(&self, to: Tid, tag: i32) -> Vec<Message> {
        let all = self.received.get(&to).into_iter().flatten();
        let message = |received: &Received| match received {
            Received::Message(message) if message.tag == tag => Some(message.clone()),
            _ => None,
        };
        all.filter_map(message).collect()
    }

    /// Returns how many messages with that tag a task received before the last reply to it.
    pub fn came_before_last_reply(&self, to: Tid, tag: i32) -> usize {
        let all = &self.received[&to];
        let last = all.iter().rposition(|received| matches!(received, Received::Reply(..))).expect("a reply");
        all[..last]
            .iter()
            .filter(|received| matches!(received, Received::Message(message) if message.tag == tag))
            .count()
    }

    /// Makes a task say goodbye and end.
    pub fn leave(&mut self, tid: Tid) {
        self.machine(tid.host()).handle_disconnect(tid);
        self.machine(tid.host()).handle_process_end(tid, TaskEnd::default());
        self.open.retain(|(task, _), _| *task != tid);
        self.work(tid.host());
    }

    pub fn spawn(&mut self, from: Tid, spawn: crate::proto::Spawn) -> Vec<i32> {
        match self.ask(from, Request::Spawn(spawn)) {
            Some(Reply::Tids(tids)) => tids,
            other => panic!("{other:?}"),
        }
    }

    // ----- the world

    /// Executes the actions of a machine.
    pub fn work(&mut self, host: Tid) {
        while let Some(action) = self.nodes.get_mut(&host).and_then(|node| node.machine.poll_action()) {
            self.act(host, action);
        }
        if self.nodes.get(&host).is_some_and(|node| node.stopped) {
            // Frames that the host sent before it stopped still arrive.
            self.kill(host);
        }
    }

    fn act(&mut self, host: Tid, action: Action) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&host) else { return };
        match action {
            Action::Find { spawn, file, .. } if file.as_slice() == b"missing" => {
                node.machine.handle_found(now, spawn, Err(Code::NoFile));
            }
            Action::Find { spawn, file, .. } => {
                node.machine.handle_found(now, spawn, Ok(Found { path: file, debugger: None }));
            }
            Action::Start(starts) => {
                for start in starts {
                    node.processes += 1;
                    node.starts.push(start.clone());
                    self.forgotten.remove(&start.tid);
                    node.machine.handle_started(now, start.tid, Ok(node.processes));
                }
            }
            Action::Forget { tid } => drop(self.forgotten.insert(tid)),
            Action::Send { to, frame } => {
                assert!(!self.forgotten.contains(&to), "{to} has gone: {frame:?}");
                let received = match frame {
                    ToTask::Chain { group, anchor } => return self.ears.begin_chain(to, group, anchor),
                    ToTask::Reply { wait, .. } if self.ears.needs_no_answer(to, wait) => return,
                    ToTask::Reply { wait, reply } => {
                        let open = self.open.remove(&(to, wait));
                        // An answer may have waited for the deputy until its task has left.
                        let has_left = !node.machine.core.tasks.is_connected(to);
                        assert!(open.is_some() || has_left, "answered twice: {to} {wait} {reply:?}");
                        self.ears.told(to, &reply);
                        Received::Reply(wait, reply)
                    }
                    ToTask::Message(message) => Received::Message(message),
                    ToTask::Ended(tid) => Received::Ended(tid),
                    ToTask::Fabric { number, peer, offer, .. } => Received::Fabric(number, peer, offer),
                    ToTask::Halting(why) => Received::Halting(why),
                    _ => return,
                };
                self.received.entry(to).or_default().push(received);
            }
            Action::Group { group, action } => node.boards.act(now, group, &action, &mut node.machine),
            Action::ListBarriers { listing } => {
                let waiting = node.boards.waiting();
                node.machine.handle_barriers_listed(listing, waiting);
            }
            Action::Look { to, wait, .. } => {
                node.machine.handle_seen(to, wait, HostLook::default(), &BTreeMap::new());
            }
            Action::TellTime { to, wait } => {
                node.machine.handle_time_of_day(to, wait, Reply::Clock { seconds: 5, microseconds: 0 });
            }
            Action::Log { tid, line } => self.log.push((host, tid, String::from_utf8_lossy(&line).into_owned())),
            Action::CheckHosts { request, names } => self.events.push(Event::ResolvedHost { by: host, request, names }),
            Action::StartHosts { request, hosts, .. } => {
                self.events.extend(hosts.into_iter().map(|start| Event::Started {
                    by: host,
                    request,
                    start: Box::new(start),
                }));
            }
            Action::KnowHost { host: other, .. } => drop(node.known.insert(other)),
            Action::OpenLink { host: other, .. } => {
                assert!(host < other, "the lower number connects");
                self.events.push(Event::Connect { from: host, to: other });
            }
            Action::ForgetHost { host: other } => self.forget(host, other),
            Action::SendHost { host: other, frame } => {
                assert_ne!(host, other);
                self.repeated_releases += usize::from(matches!(frame, Frame::BarrierEnded { late: true, .. }));
                if self.links.contains(&pair(host, other)) {
                    self.control.entry((host, other)).or_default().push_back(Item::Frame(encode(&frame)));
                }
            }
            Action::SendAlong { to, frame } => {
                assert_ne!(host, to.host());
                node.machine.want_link(now, to.host());
                self.flows.entry((host, to)).or_default().push_back(encode(&frame));
            }
            Action::Broadcast { bytes } => {
                self.broadcasts += 1;
                self.sent_datagrams.push(bytes.clone());
                for to in self.living().into_iter().filter(|to| *to != host) {
                    // Lost, or once or twice there.
                    let copies = match (self.loses_datagrams, self.keeps_datagrams) {
                        (true, _) => 0,
                        (false, true) => 1,
                        (false, false) => self.prng.below(3),
                    };
                    for _ in 0..copies {
                        self.events.push(Event::Datagram { to, bytes: bytes.clone() });
                    }
                }
            }
            Action::HearBroadcasts { tasks } => self.ears.ordered(host, &tasks),
            Action::Trace { to, introduce: true, .. } => self.descriptions.push((host, to)),
            Action::Stop => node.stopped = true,
            Action::ExpectDirect { ticket, task, .. } => {
                let call = DirectCall { shown: [self.prng.below(255) as u8; 32], back: [2; 32], secret: [3; 32] };
                node.expected.push((ticket, call.clone(), task));
                node.machine.handle_direct_expected(ticket, Some(call));
            }
            Action::CallDirect { ticket, task, peer, call, .. } => self.call_direct(ticket, (task, peer), &call),
            Action::ExpectData { .. } | Action::CallData { .. } | Action::DropData { .. } => {
                self.data.push((now, host, action));
            }
            Action::ReopenLink { host: other, .. } => {
                if !self.nodes.contains_key(&other) {
                    self.events.push(Event::Refused { from: host, to: other });
                }
                self.reopened.push((now, host, action));
            }
            Action::CancelDirect { ticket } => node.expected.retain(|(other, ..)| *other != ticket),
            _ => {}
        }
    }

    /// Connects a task's host to the host of its peer, for a direct link.
    fn call_direct(&mut self, ticket: DirectTicket, (task, peer): (Tid, Tid), call: &DirectCall) {
        assert!(task.host() < peer.host(), "the lower number connects");
        let expected = self.nodes.get_mut(&peer.host()).map(|node| &mut node.expected);
        let place = expected.as_ref().and_then(|all| all.iter().position(|it| *it == (ticket, call.clone(), peer)));
        if let (Some(expected), Some(place)) = (expected, place) {
            expected.remove(place);
            self.directs.push((task, peer));
            self.machine(peer.host()).handle_direct_ended(ticket, true);
            self.work(peer.host());
        }
        self.machine(task.host()).handle_direct_ended(ticket, place.is_some());
        self.work(task.host());
    }

    fn forget(&mut self, host: Tid, other: Tid) {
        if let Some(node) = self.nodes.get_mut(&host) {
            node.known.remove(&other);
        }
        self.control.remove(&(other, host));
        self.flows.retain(|(from, to), _| pair(*from, to.host()) != pair(host, other));
        if self.links.remove(&pair(host, other)) {
            self.control.entry((host, other)).or_default().push_back(Item::Down);
        }
    }

    /// Returns what can happen now.
    fn choices(&self) -> Vec<Choice> {
        let runs = |host: &Tid| self.nodes.get(host).is_some_and(|node| !node.frozen);
        let control = self.control.iter().filter(|((_, to), queue)| !queue.is_empty() && runs(to));
        let flows = self.flows.iter().filter(|((from, to), queue)| {
            !queue.is_empty() && runs(&to.host()) && self.links.contains(&pair(*from, to.host()))
        });
        // The events of a frozen host wait.
        let stands_still = |host: &Tid| self.nodes.get(host).is_some_and(|node| node.frozen);
        let possible = |index: &usize| match &self.events[*index] {
            Event::Connect { from, to } => !stands_still(from) && !stands_still(to),
            Event::Refused { from, .. } => !stands_still(from),
            Event::Datagram { to, .. } => !stands_still(to),
            Event::Started { by, .. } | Event::ResolvedHost { by, .. } => !stands_still(by),
        };
        let events = (0..self.events.len()).filter(possible).map(Choice::Event);
        control
            .map(|(key, _)| Choice::Control(*key))
            .chain(flows.map(|(key, _)| Choice::Flow(*key)))
            .chain(events)
            .collect()
    }

    /// Lets one possible event happen; returns whether there was one.
    pub fn step(&mut self) -> bool {
        let choices = self.choices();
        if choices.is_empty() {
            return false;
        }
        match choices[self.prng.below(choices.len())] {
            Choice::Control(key) => self.take_control(key),
            Choice::Flow((from, to)) => {
                let Some(bytes) = self.flows.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return true };
                self.flows.retain(|_, queue| !queue.is_empty());
                self.hand_in(from, to.host(), &bytes);
            }
            Choice::Event(index) => {
                let event = self.events.swap_remove(index);
                self.happen(event);
            }
        }
        true
    }

    fn take_control(&mut self, (from, to): (Tid, Tid)) {
        let Some(item) = self.control.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        self.control.retain(|_, queue| !queue.is_empty());
        let now = self.now;
        match item {
            Item::Frame(bytes) => return self.hand_in(from, to, &bytes),
            Item::Up => self.machine(to).handle_link_up(now, from),
            Item::Down => self.machine(to).handle_link_down(now, from),
            Item::Ended => self.machine(to).handle_link_broken(now, from, LinkBreak::Ended),
        }
        self.work(to);
    }

    fn hand_in(&mut self, from: Tid, to: Tid, bytes: &[u8]) {
        let now = self.now;
        let frame = decode::<Frame>(bytes).expect("a frame");
        self.machine(to).handle_host_frame(now, from, frame);
        self.work(to);
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::ResolvedHost { by, request, names } if self.nodes.contains_key(&by) => {
                let check = |name: &ByteBuf| match name.as_slice() {
                    b"nowhere" => Err(Code::NoHost),
                    _ => Ok(ResolvedHost { aliases: vec![format!("{}.example", shown(name))], addresses: Vec::new() }),
                };
                self.machine(by).handle_hosts_checked(request, names.iter().map(check).collect());
                self.work(by);
            }
            Event::Started { by, request, start } if self.nodes.contains_key(&by) => {
                let name = start.line.name().to_owned();
                let result = if name.starts_with("broken") {
                    Err(Code::CantStart.into())
                } else {
                    self.boot(start.tid, &name, Rank::Slave { own: start.tid, master: by });
                    let (arch, names) = ("LINUX64".to_owned(), vec![format!("{name}.local")]);
                    let addresses = vec![Fleet::address_of(start.tid)];
                    Ok(Started { arch, dsig: 7, addresses, key: [1; KEY_BYTES], names })
                };
                self.machine(by).handle_host_started(now, request, start.index, result);
                self.work(by);
            }
            Event::Datagram { to, bytes } if self.nodes.contains_key(&to) => {
                for (task, wait, release) in self.ears.hear(to, &bytes, &self.open) {
                    self.open.remove(&(task, wait));
                    self.received.entry(task).or_default().push(Received::Reply(wait, Reply::Released(release)));
                }
                if !self.ears.daemon_hears(to) {
                    return;
                }
                if self.prng.below(4) == 0 {
                    // It comes again, perhaps much later.
                    self.events.push(Event::Datagram { to, bytes: bytes.clone() });
                }
                let _ = self.machine(to).handle_broadcast(now, &bytes);
                self.work(to);
            }
            Event::Refused { from, to } if self.nodes.contains_key(&from) => {
                self.machine(from).handle_call_failed(now, to, CallFailure::Absent);
                self.work(from);
            }
            Event::Connect { from, to } => {
                let welcome = self.nodes.get(&to).is_some_and(|node| node.known.contains(&from));
                let welcome = welcome && !self.refused.contains(&(from, to));
                let ways = [(from, to), (to, from)];
                if welcome && self.nodes.contains_key(&from) {
                    self.links.insert(pair(from, to));
                    for way in ways {
                        self.control.entry(way).or_default().push_back(Item::Up);
                    }
                } else if self.nodes.contains_key(&from) {
                    self.machine(from).handle_link_down(now, to);
                    self.work(from);
                }
            }
            _ => {}
        }
    }

    /// Lets all events happen that can happen now; no time passes.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let wakeup = |node: &Node| if node.frozen { None } else { node.machine.next_wakeup() };
            let next = self.nodes.values().filter_map(wakeup).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            for host in self.living() {
                if self.nodes.get(&host).is_some_and(|node| wakeup(node).is_some_and(|when| when <= now)) {
                    self.machine(host).handle_time(now);
                    self.work(host);
                }
            }
        }
        self.now = end;
    }

    /// Asserts that all hosts have the same host table.
    pub fn check_tables(&self) {
        let master = &self.nodes[&self.master().expect("one master")];
        let expected: Vec<_> = master.machine.core.hosts.entries();
        for (tid, node) in &self.nodes {
            let known = node.machine.core.hosts.entries();
            let hosts = |list: &[HostEntry]| list.iter().map(|one| (one.tid, one.is_draining)).collect::<Vec<_>>();
            assert_eq!(hosts(&known), hosts(&expected), "{tid}");
            assert_eq!(known, expected, "{tid}");
            assert_eq!(node.machine.core.hosts.version, master.machine.core.hosts.version, "{tid}");
        }
        let hosts: Vec<Tid> = expected.iter().map(|entry| entry.tid).collect();
        assert_eq!(hosts, self.living());
    }
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Control((Tid, Tid)),
    Flow((Tid, Tid)),
    Event(usize),
}

fn shown(name: &ByteBuf) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}
