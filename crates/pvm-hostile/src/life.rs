//! One life of the hostile host: its links to other hosts, what it knows of the machine, and its correct behaviour.
use fastrand::Rng;
use pvm_core::flows::Credit;
use pvm_core::flows::frames::{FrameHeader, read_header, write_acknowledged, write_credit, write_grant};
use pvm_core::proto::{Reply, Request};
use pvm_core::session::counted;
use pvm_core::tid::{DAEMON_BIT, GROUP_BIT, Tid};
use pvm_core::wire::{self, DataCall, Frame, HostEntry, Key};
use pvm_net::polling::timespec;
use pvm_net::{ByteStream, ConnectEvent, Connector, Link, Pair, PublicKey, Security, Token, Tokens};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// The number of the frame kind that all frames of the core have on a control link.
pub const CONTROL_FRAME: u8 = 1;
/// The number of the frame kind of acknowledgements on a control link. The header is the position.
pub const ACKNOWLEDGEMENT: u8 = 2;
/// The interval of heartbeats.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long this host searches for tasks, and waits for links to other hosts, before the attacks begin.
const SEARCH_TIME: Duration = Duration::from_millis(400);
/// How long a call to another host may take.
const CALL_TIME: Duration = Duration::from_secs(5);
/// The most bytes that may wait to be sent on a link; further ones are dropped.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// How long the master may take to handle the frames of this host: up to some ten thousand requests, and some of these
/// list ten thousand mailboxes each.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(240);
/// The number of the request that this host sends last before an invalid frame.
const LAST: u32 = 0x1a57;
/// The number of the request that lists all tasks.
const SEARCH: u32 = 0x7ea5;

/// Another daemon.
pub struct Peer {
    pub control: Link,
    /// The position up to which this host has received on control links.
    control_position: u64,
    /// The data link. Daemons close the data link when this host reports it as lost.
    data: Option<ByteStream>,
    /// Bytes that the data link has not accepted yet.
    unsent: VecDeque<u8>,
    /// Received bytes of an unfinished frame.
    unread: Vec<u8>,
    /// The number of bytes received on data links, without the acknowledgement at the beginning of each further link.
    position: u64,
    /// Whether that acknowledgement has not arrived yet.
    awaits_greeting: bool,
    /// Whether half a frame has been sent, so that no whole frame can follow.
    pub has_partial_frame: bool,
}

/// The state of a hostile host.
pub struct Life {
    pub prng: Rng,
    pub own: Tid,
    pub master: Tid,
    pub connector: Connector,
    /// The hosts that the master has announced, except this one.
    pub table: BTreeMap<Tid, HostEntry>,
    /// Tasks of other hosts.
    pub victims: Vec<Tid>,
    keys: BTreeMap<Key, Tid>,
    peers: BTreeMap<Tid, Peer>,
    joined: bool,
    cut_off: bool,
    /// Whether the master has answered the request with the number `LAST`, and therefore all earlier requests.
    master_has_answered: bool,
    /// Whether this host reads nothing.
    pub reads_nothing: bool,
    /// Whether this host withholds its acknowledgements.
    pub withholds_acks: bool,
    /// Whether this host reads its data links, with correct acknowledgements and credit, and has tasks that others
    /// spawn. Otherwise it drops the bytes.
    pub has_tasks: bool,
    /// The frames on the data links: by whom, and without their bodies.
    pub arrived: VecDeque<(Tid, FrameHeader)>,
    /// The machine's multicast group.
    pub group: Option<SocketAddrV4>,
    /// The address of this host.
    pub address: Ipv4Addr,
    /// Whether the network is not trusted.
    pub encrypts: bool,
    next_beat: Instant,
    done: BTreeMap<&'static str, u64>,
    last: &'static str,
}

impl Life {
    /// Makes a host that waits for the call of its master.
    pub fn new(connector: Connector, own: Tid, address: Ipv4Addr, master: Tid, key: Key, seed: u64) -> Life {
        connector.identity().known().add(PublicKey(key));
        Life {
            prng: Rng::with_seed(seed),
            own,
            master,
            connector,
            table: BTreeMap::new(),
            victims: Vec::new(),
            keys: BTreeMap::from([(key, master)]),
            peers: BTreeMap::new(),
            joined: false,
            cut_off: false,
            master_has_answered: false,
            reads_nothing: false,
            withholds_acks: false,
            has_tasks: false,
            arrived: VecDeque::new(),
            group: None,
            address,
            encrypts: true,
            next_beat: Instant::now(),
            done: BTreeMap::new(),
            last: "joining",
        }
    }

    /// Returns whether all other hosts know this host.
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Returns whether the master has closed the link to this host.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Closes all links.
    pub fn leave(&mut self) {
        self.peers.clear();
        self.cut_off = true;
    }

    /// Counts an attack.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.done.entry(what).or_default() += times;
        self.last = what;
    }

    /// Returns the last attack.
    pub fn last(&self) -> &'static str {
        self.last
    }

    /// Returns a text with the number of attacks of each kind.
    pub fn counts(&self) -> String {
        self.done.iter().map(|(what, times)| format!("{times} {what}")).collect::<Vec<_>>().join(", ")
    }

    // ----- Other hosts and tasks

    /// Returns one of the hosts to which there is a link.
    pub fn some_peer(&mut self) -> Tid {
        let all: Vec<Tid> = self.peers.keys().copied().collect();
        if all.is_empty() { self.master } else { all[self.prng.usize(..all.len())] }
    }

    /// Returns the link to a host, unless half a frame has been sent on that link.
    pub fn peer(&mut self, host: Tid) -> Option<&mut Peer> {
        self.peers.get_mut(&host).filter(|peer| !peer.has_partial_frame)
    }

    /// Returns a tid that could belong to a task of this host.
    pub fn own_task(&mut self) -> Tid {
        Tid(self.own.0 | self.prng.u32(1..500))
    }

    /// Returns a task of another host.
    pub fn victim(&mut self) -> Tid {
        match self.victims.len() {
            0 => Tid(self.master.0 | 1),
            count => self.victims[self.prng.usize(..count)],
        }
    }

    /// Returns a task of the host, or a tid that could belong to one.
    pub fn victim_at(&mut self, host: Tid) -> Tid {
        let there = self.victims_at(host);
        if there.is_empty() { Tid(host.0 | 1) } else { there[self.prng.usize(..there.len())] }
    }

    /// Returns the known tasks of that host.
    pub fn victims_at(&self, host: Tid) -> Vec<Tid> {
        self.victims.iter().copied().filter(|tid| tid.host() == host).collect()
    }

    /// Returns a tid of any kind, often an invalid one.
    pub fn any_tid(&mut self) -> Tid {
        match self.prng.u32(..12) {
            0 => self.own_task(),
            1..5 => self.victim(),
            5 => self.some_peer(),
            6 => Tid(self.some_peer().0 | DAEMON_BIT),
            7 => Tid(Tid::host_number(self.prng.u32(1..4096)).0 | self.prng.u32(..1 << 18)),
            8 => Tid::group_server(self.some_peer()),
            9 => Tid(self.victim().0 | [DAEMON_BIT, GROUP_BIT][self.prng.usize(..2)]),
            10 => [Tid::NONE, Tid::DAEMON, Tid(u32::MAX), self.own][self.prng.usize(..4)],
            _ => Tid(self.prng.u32(..)),
        }
    }

    /// Requests the list of the tasks of all hosts.
    fn ask_for_victims(&mut self) {
        let from = Tid(self.own.0 | 1);
        self.send(
            self.master,
            &Frame::Request { wait: SEARCH, from, request: Request::Tasks(Tid::NONE), again: false },
        );
    }

    /// Requests the list of the tasks of all hosts, and links to these hosts.
    pub fn find_victims(&mut self) {
        self.ask_for_victims();
        let others: Vec<Tid> = self.table.keys().copied().filter(|host| *host != self.master).collect();
        for to in others {
            // Of two hosts, the one with the lower number connects to the other.
            match to < self.own {
                true => self.send(self.master, &Frame::PleaseConnect { to, from: self.own }),
                false => self.call(to, Security::Encrypted),
            }
        }
        let end = Instant::now() + SEARCH_TIME;
        while Instant::now() < end && !self.cut_off {
            self.step(Duration::from_millis(10));
        }
    }

    /// Calls a host.
    pub fn call(&mut self, host: Tid, security: Security) {
        let Some(entry) = self.table.get(&host) else { return };
        let (addresses, key): (Vec<SocketAddr>, _) = (entry.addresses.clone(), PublicKey(entry.key));
        // Each call has its own ticket, so that no call replaces another one.
        let ticket = u64::from(host.0) | self.prng.u64(..1 << 20) << 32;
        self.connector.connect_pair(ticket, &addresses, key, security, CALL_TIME, Instant::now());
    }

    // ----- Sending

    /// Sends a frame to a host, if that host is still connected.
    pub fn send(&mut self, host: Tid, frame: &Frame) {
        self.send_bytes(host, CONTROL_FRAME, &[], &wire::encode(frame));
    }

    /// Waits until all frames have been sent and the master has handled them, so that the next frame is certain to
    /// arrive and to be handled at once. Returns whether the master has answered in time.
    pub fn flush(&mut self) -> bool {
        self.master_has_answered = false;
        let end = Instant::now() + FLUSH_TIME_MAX;
        let mut asked = false;
        while !(asked && self.master_has_answered || self.cut_off) && Instant::now() < end {
            if !asked && !self.has_unsent() {
                asked = true;
                self.ask_for_victims();
                let from = Tid(self.own.0 | 1);
                self.send(
                    self.master,
                    &Frame::Request { wait: LAST, from, request: Request::HostSync(self.master), again: false },
                );
            }
            self.step(Duration::from_millis(20));
        }
        self.master_has_answered
    }

    /// Sends the bytes of a frame, valid or not.
    pub fn send_bytes(&mut self, host: Tid, kind: u8, header: &[u8], body: &[u8]) {
        let Some(peer) = self.peer(host) else { return };
        if peer.control.queued_bytes() < WAITING_BYTES_MAX && peer.control.send(kind, header, &[body]).is_err() {
            self.lost(host);
        }
    }

    /// Sends bytes on the data link.
    pub fn stream(&mut self, host: Tid, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if peer.unsent.len() < WAITING_BYTES_MAX {
            peer.unsent.extend(bytes);
            self.write_unsent(host);
        }
    }

    fn write_unsent(&mut self, host: Tid) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        loop {
            let (front, _) = peer.unsent.as_slices();
            match peer.data.as_mut().map_or(Ok(0), |data| data.write(front)) {
                Ok(0) => return,
                Ok(count) => drop(peer.unsent.drain(..count)),
                Err(_) => return peer.data = None,
            }
        }
    }

    /// Returns whether there are bytes that the sockets have not accepted yet.
    pub fn has_unsent(&self) -> bool {
        self.peers.values().any(|peer| peer.control.wants_write() || !peer.unsent.is_empty())
    }

    // ----- Receiving

    /// Lets time pass: sends what is queued, handles what arrives, and otherwise behaves correctly.
    pub fn step(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.connector.step(Instant::now());
            while let Some(event) = self.connector.poll_event() {
                match event {
                    ConnectEvent::PairAccepted { peer, pair, .. } => {
                        self.on_pair(self.keys.get(&peer.0).copied(), *pair)
                    }
                    ConnectEvent::PairConnected { ticket, pair, .. } => self.on_pair(Some(Tid(ticket as u32)), *pair),
                    ConnectEvent::ControlAccepted { peer, link } => {
                        self.on_control(self.keys.get(&peer.0).copied(), *link);
                    }
                    ConnectEvent::LinkReady { ticket, link } if ticket & 1 << 61 != 0 => {
                        self.on_control(Some(Tid(ticket as u32)), *link);
                    }
                    ConnectEvent::LinkReady { ticket, link } => self.on_data_link(Tid(ticket as u32), *link),
                    ConnectEvent::Failed { .. } | ConnectEvent::Refused { .. } => {}
                }
            }
            let hosts: Vec<Tid> = self.peers.keys().copied().collect();
            hosts.into_iter().for_each(|host| self.serve_peer(host));
            if Instant::now() >= self.next_beat {
                self.next_beat = Instant::now() + BEAT_INTERVAL;
                let hosts: Vec<Tid> = self.peers.keys().copied().collect();
                hosts.into_iter().for_each(|host| self.send(host, &Frame::Beat));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cut_off {
                return;
            }
            self.wait(left.min(Duration::from_millis(5)));
        }
    }

    fn wait(&self, time: Duration) {
        let links =
            self.peers.values().filter(|_| !self.reads_nothing).map(|peer| PollFd::new(&peer.control, PollFlags::IN));
        let data = self.peers.values().filter(|_| !self.reads_nothing).filter_map(|peer| peer.data.as_ref());
        let links = links.chain(data.map(|data| PollFd::new(data, PollFlags::IN)));
        let mut all: Vec<PollFd<'_>> = links.chain([PollFd::new(&self.connector, PollFlags::IN)]).collect();
        // The result is ignored, because the next step checks all links.
        let _ = poll(&mut all, Some(&timespec(time)));
    }

    fn on_pair(&mut self, host: Option<Tid>, Pair { mut control, data }: Pair) {
        let Some(host) = host else { return };
        // Most calls only test how a daemon handles the call; the links that they make are not used.
        if self.peers.contains_key(&host) && self.prng.u32(..20) > 0 {
            return;
        }
        control.set_frame_bytes_max(pvm_core::proto::FRAME_BYTES_MAX);
        control.set_queued_bytes_max(usize::MAX);
        let peer = Peer {
            control,
            control_position: 0,
            data: Some(data.into_byte_stream()),
            unsent: VecDeque::new(),
            unread: Vec::new(),
            position: 0,
            awaits_greeting: false,
            has_partial_frame: false,
        };
        self.peers.insert(host, peer);
        self.acknowledge(host, 0);
    }

    /// Takes a new connection of a control link. Sometimes this host lies about what it has received.
    fn on_control(&mut self, host: Option<Tid>, mut control: Link) {
        let Some((host, peer)) = host.and_then(|host| Some((host, self.peers.get_mut(&host)?))) else { return };
        control.set_frame_bytes_max(pvm_core::proto::FRAME_BYTES_MAX);
        control.set_queued_bytes_max(usize::MAX);
        (peer.control, peer.has_partial_frame) = (control, false);
        let position = peer.control_position;
        let lies = self.prng.u32(..20) == 0;
        self.acknowledge(host, if lies { position / 2 + 1 } else { position });
    }

    /// Acknowledges what has come on the control link, up to a position.
    pub fn acknowledge(&mut self, host: Tid, position: u64) {
        self.send_bytes(host, ACKNOWLEDGEMENT, &position.to_le_bytes(), &[]);
    }

    /// Calls a host for a new connection of the control link.
    pub fn call_again(&mut self, host: Tid) {
        let Some(entry) = self.table.get(&host) else { return };
        let (addresses, key, ticket) = (entry.addresses.clone(), PublicKey(entry.key), u64::from(host.0) | 1 << 61);
        self.connector.connect_control(ticket, &addresses, None, key, CALL_TIME, Instant::now());
    }

    /// Notes a new data link. The first frame on the link must acknowledge the bytes received so far. A host without
    /// tasks does not count them: it sends the position 0, or sometimes 1.
    fn on_data_link(&mut self, host: Tid, link: Link) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        peer.data = Some(link.into_byte_stream());
        (peer.unsent, peer.unread, peer.awaits_greeting) = (VecDeque::new(), Vec::new(), true);
        let mut greeting = Vec::new();
        let position = if self.has_tasks { peer.position } else { u64::from(self.prng.u32(..20) == 0) };
        write_acknowledged(position, &mut greeting);
        self.stream(host, &greeting);
    }

    /// Makes a new data link when another host asks for it.
    fn call_data(&mut self, host: Tid, call: DataCall) {
        let Some(entry) = self.table.get(&host) else { return };
        let ([shown, back], key) = ([call.shown, call.back].map(Token::from_bytes), PublicKey(entry.key));
        let (ticket, addresses) = (u64::from(host.0) | 1 << 60, entry.addresses.clone());
        self.connector.connect_link(ticket, &addresses, Some(key), Tokens { shown, back }, CALL_TIME, Instant::now());
    }

    /// Records that the other side has closed the link.
    fn lost(&mut self, host: Tid) {
        self.peers.remove(&host);
        self.cut_off |= host == self.master;
    }

    /// Writes the bytes that the links of a host accept, and reads what has arrived.
    fn serve_peer(&mut self, host: Tid) {
        self.write_unsent(host);
        let Some(peer) = self.peers.get_mut(&host) else { return };
        let (mut frames, before) = (Vec::new(), peer.control_position);
        let mut well = peer.control.flush().is_ok();
        while well && !self.reads_nothing {
            match peer.control.receive_whole() {
                Ok(Some((head, _))) if head.kind == ACKNOWLEDGEMENT => {}
                Ok(Some((_, body))) => {
                    peer.control_position += counted(body.len());
                    frames.extend(wire::decode::<Frame>(body));
                }
                Ok(None) => break,
                Err(_) => well = false,
            }
        }
        let mut bytes = [0; 16 << 10];
        while let Some(data) = peer.data.as_mut().filter(|_| well && !self.reads_nothing) {
            match data.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) if self.has_tasks => peer.unread.extend_from_slice(&bytes[..count]),
                Ok(_) => {}
                Err(_) => peer.data = None,
            }
        }
        let position = peer.control_position;
        if position > before {
            self.acknowledge(host, position);
        }
        if self.has_tasks {
            self.read_data(host);
        }
        frames.into_iter().for_each(|frame| self.on_frame(host, frame));
        if !well {
            self.lost(host);
        }
    }

    /// Splits received bytes into frames. Acknowledges them, and returns all credit.
    fn read_data(&mut self, host: Tid) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        let (before, mut answer) = (peer.position, Vec::new());
        while let Ok(Some((header, header_bytes))) = read_header(&peer.unread) {
            let bytes = header_bytes + header.following_bytes();
            if peer.unread.len() < bytes {
                break;
            }
            peer.unread.drain(..bytes);
            if !std::mem::take(&mut peer.awaits_greeting) {
                peer.position += bytes as u64;
            }
            if let FrameHeader::Start { header, .. } | FrameHeader::Announce { header, .. } = &header {
                for dst in header.receivers() {
                    write_credit(&Credit { host, dst, bytes: u64::MAX }, &mut answer);
                }
            }
            self.arrived.push_back((host, header));
        }
        if peer.position > before {
            write_acknowledged(peer.position, &mut answer);
            write_grant(u64::MAX, &mut answer);
            self.stream(host, &answer);
        }
    }

    fn on_frame(&mut self, from: Tid, frame: Frame) {
        match frame {
            // These frames are ignored: only the master may send them, but other hostile hosts do so, too.
            Frame::Welcome { .. } | Frame::Table { .. } | Frame::Joined { .. } if from != self.master => {}
            Frame::Welcome { version, hosts, shared, .. } => {
                (self.group, self.encrypts) = (shared.broadcast, !shared.trusted);
                self.know(version, hosts, &[]);
            }
            Frame::Table { version, added, removed } => self.know(version, added, &removed),
            Frame::Joined { hosts } => self.joined |= hosts.contains(&self.own),
            Frame::GroupChanged { number, .. } if number != 0 && !self.withholds_acks => {
                self.send(from, &Frame::GroupSeen { number });
            }
            Frame::DataCall { call, .. } => self.call_data(from, call),
            Frame::Spawn { wait, spawn, .. } if self.has_tasks => {
                let results = (1..=spawn.count).map(|number| self.own.0 as i32 | number).collect();
                self.send(from, &Frame::Spawned { wait, results });
            }
            Frame::PleaseConnect { to, from: asking } if to == self.own => self.call(asking, Security::Encrypted),
            Frame::Reply { wait: LAST, .. } => self.master_has_answered = true,
            Frame::Reply { wait: SEARCH, reply: Reply::Tasks(tasks) } => {
                self.victims = tasks.iter().map(|task| task.tid).filter(|tid| tid.host() != self.own).collect();
            }
            Frame::Request { wait, request: Request::Tasks(_), .. } if !self.withholds_acks => {
                self.send(from, &Frame::Reply { wait, reply: Reply::Tasks(Vec::new()) });
            }
            Frame::Leave => self.cut_off = true,
            _ => {}
        }
    }

    fn know(&mut self, version: u64, added: Vec<HostEntry>, removed: &[Tid]) {
        for entry in added.into_iter().filter(|entry| entry.tid != self.own) {
            self.keys.insert(entry.key, entry.tid);
            self.connector.identity().known().add(PublicKey(entry.key));
            self.table.insert(entry.tid, entry);
        }
        for host in removed {
            self.table.remove(host);
            self.peers.remove(host);
        }
        if !self.withholds_acks {
            self.send(self.master, &Frame::TableAck { version });
        }
    }
}
