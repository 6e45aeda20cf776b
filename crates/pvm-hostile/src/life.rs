//! One life: the links to other hosts, what is known of the machine, and good behaviour.
use fastrand::Rng;
use pvm_core::flows::frames::write_acknowledged;
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::{DAEMON_BIT, GROUP_BIT, Tid};
use pvm_core::wire::{self, DataCall, Entry, Frame, Key};
use pvm_net::{ByteStream, ConnectEvent, Connector, Link, Pair, PublicKey, Security, Token, Tokens};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The kind of every frame on a control link.
pub const CONTROL_FRAME: u8 = 1;
/// How often it shows that it lives.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long it looks for tasks and for links to others before it begins.
const SEARCH_TIME: Duration = Duration::from_millis(400);
/// How long a call to another host may take.
const CALL_TIME: Duration = Duration::from_secs(5);
/// What may wait to be sent on one link, in bytes; what is beyond is not said.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// How long others may take to deal with what it has said: some ten thousand requests, among them lists of as
/// many mailboxes.
const SAY_TIME_MAX: Duration = Duration::from_secs(240);
/// The number of the last request before it says nonsense.
const LAST: u32 = 0x1a57;
/// The number of the request for all tasks.
const SEARCH: u32 = 0x7ea5;

/// Another daemon.
pub struct Peer {
    pub control: Link,
    /// Daemons drop it when they are told that it is lost.
    data: Option<ByteStream>,
    /// What the data link has not taken yet.
    unsent: VecDeque<u8>,
    /// Half a frame has been sent: nothing whole can follow.
    pub stuffed: bool,
}

/// A host that means harm.
pub struct Life {
    pub dice: Rng,
    pub own: Tid,
    pub master: Tid,
    pub connector: Connector,
    /// Hosts of which the master has told, the own one not.
    pub table: BTreeMap<Tid, Entry>,
    /// Tasks of others.
    pub victims: Vec<Tid>,
    keys: BTreeMap<Key, Tid>,
    peers: BTreeMap<Tid, Peer>,
    joined: bool,
    cut_off: bool,
    /// The master has answered its last request, and so all before it.
    heard_out: bool,
    /// Reads nothing.
    pub deaf: bool,
    /// Does not say that it knows what it has been told.
    pub sullen: bool,
    next_beat: Instant,
    done: BTreeMap<&'static str, u64>,
    last: &'static str,
}

impl Life {
    /// One that waits for its master's call.
    pub fn new(connector: Connector, own: Tid, master: Tid, key: Key, seed: u64) -> Life {
        connector.identity().known().add(PublicKey(key));
        Life {
            dice: Rng::with_seed(seed),
            own,
            master,
            connector,
            table: BTreeMap::new(),
            victims: Vec::new(),
            keys: BTreeMap::from([(key, master)]),
            peers: BTreeMap::new(),
            joined: false,
            cut_off: false,
            heard_out: false,
            deaf: false,
            sullen: false,
            next_beat: Instant::now(),
            done: BTreeMap::new(),
            last: "joining",
        }
    }

    /// Whether everybody knows it as a host.
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Whether the master has nothing to do with it any more.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Counts what it does.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.done.entry(what).or_default() += times;
        self.last = what;
    }

    /// What it did last.
    pub fn last(&self) -> &'static str {
        self.last
    }

    /// What it has done.
    pub fn counts(&self) -> String {
        self.done.iter().map(|(what, times)| format!("{times} {what}")).collect::<Vec<_>>().join(", ")
    }

    // ----- who there is

    /// One of the other hosts to which there is a link.
    pub fn some_peer(&mut self) -> Tid {
        let all: Vec<Tid> = self.peers.keys().copied().collect();
        if all.is_empty() { self.master } else { all[self.dice.usize(..all.len())] }
    }

    /// The link to a host.
    pub fn peer(&mut self, host: Tid) -> Option<&mut Peer> {
        self.peers.get_mut(&host).filter(|peer| !peer.stuffed)
    }

    /// A tid that could be one of its own tasks.
    pub fn own_task(&mut self) -> Tid {
        Tid(self.own.0 | self.dice.u32(1..500))
    }

    /// A task of somebody else.
    pub fn victim(&mut self) -> Tid {
        match self.victims.len() {
            0 => Tid(self.master.0 | 1),
            count => self.victims[self.dice.usize(..count)],
        }
    }

    /// A task of that host, or one that could be.
    pub fn victim_at(&mut self, host: Tid) -> Tid {
        let there = self.victims_at(host);
        if there.is_empty() { Tid(host.0 | 1) } else { there[self.dice.usize(..there.len())] }
    }

    /// The tasks of that host, as far as it knows.
    pub fn victims_at(&self, host: Tid) -> Vec<Tid> {
        self.victims.iter().copied().filter(|tid| tid.host() == host).collect()
    }

    /// Anything that fits into a tid.
    pub fn any_tid(&mut self) -> Tid {
        match self.dice.u32(..12) {
            0 => self.own_task(),
            1..5 => self.victim(),
            5 => self.some_peer(),
            6 => Tid(self.some_peer().0 | DAEMON_BIT),
            7 => Tid(Tid::host_number(self.dice.u32(1..4096)).0 | self.dice.u32(..1 << 18)),
            8 => Tid::group_server(self.some_peer()),
            9 => Tid(self.victim().0 | [DAEMON_BIT, GROUP_BIT][self.dice.usize(..2)]),
            10 => [Tid::NONE, Tid::DAEMON, Tid(u32::MAX), self.own][self.dice.usize(..4)],
            _ => Tid(self.dice.u32(..)),
        }
    }

    /// Asks for the tasks of all hosts, of which it will be told.
    fn ask_for_victims(&mut self) {
        let from = Tid(self.own.0 | 1);
        self.say(self.master, &Frame::Request { wait: SEARCH, from, request: Request::Tasks(Tid::NONE) });
    }

    /// Asks for the tasks of all hosts and for links to them.
    pub fn find_victims(&mut self) {
        self.ask_for_victims();
        let others: Vec<Tid> = self.table.keys().copied().filter(|host| *host != self.master).collect();
        for to in others {
            // The one with the lower number calls.
            match to < self.own {
                true => self.say(self.master, &Frame::PleaseConnect { to, from: self.own }),
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
        // Each call has a ticket of its own, so that they are side by side.
        let ticket = u64::from(host.0) | self.dice.u64(..1 << 20) << 32;
        self.connector.connect_pair(ticket, &addresses, key, security, CALL_TIME, Instant::now());
    }

    // ----- saying

    /// Sends a frame, if the host still listens.
    pub fn say(&mut self, host: Tid, frame: &Frame) {
        self.say_bytes(host, CONTROL_FRAME, &[], &wire::encode(frame));
    }

    /// Waits until all that it has said is taken and the master has dealt with it, so that what it says
    /// next is said in any case, and heard at once. Says whether that came to pass.
    pub fn say_all(&mut self) -> bool {
        self.heard_out = false;
        let end = Instant::now() + SAY_TIME_MAX;
        let mut asked = false;
        while !(asked && self.heard_out || self.cut_off) && Instant::now() < end {
            if !asked && !self.has_unsent() {
                asked = true;
                self.ask_for_victims();
                let from = Tid(self.own.0 | 1);
                self.say(self.master, &Frame::Request { wait: LAST, from, request: Request::HostSync(self.master) });
            }
            self.step(Duration::from_millis(20));
        }
        self.heard_out
    }

    /// Sends the bytes of a frame, whatever they mean.
    pub fn say_bytes(&mut self, host: Tid, kind: u8, header: &[u8], body: &[u8]) {
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
            self.push(host);
        }
    }

    fn push(&mut self, host: Tid) {
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

    /// Whether something that it has said has not been taken yet.
    pub fn has_unsent(&self) -> bool {
        self.peers.values().any(|peer| peer.control.wants_write() || !peer.unsent.is_empty())
    }

    // ----- hearing

    /// Lets time pass: sends what waits, hears what comes, behaves well as far as nothing else is meant.
    pub fn step(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.connector.step(Instant::now());
            while let Some(event) = self.connector.poll_event() {
                match event {
                    ConnectEvent::PairAccepted { peer, pair, .. } => {
                        self.linked(self.keys.get(&peer.0).copied(), *pair)
                    }
                    ConnectEvent::PairConnected { ticket, pair, .. } => self.linked(Some(Tid(ticket as u32)), *pair),
                    ConnectEvent::LinkReady { ticket, link } => self.data_met(Tid(ticket as u32), *link),
                    ConnectEvent::Failed { .. } | ConnectEvent::Refused { .. } => {}
                }
            }
            let hosts: Vec<Tid> = self.peers.keys().copied().collect();
            hosts.into_iter().for_each(|host| self.attend(host));
            if Instant::now() >= self.next_beat {
                self.next_beat = Instant::now() + BEAT_INTERVAL;
                let hosts: Vec<Tid> = self.peers.keys().copied().collect();
                hosts.into_iter().for_each(|host| self.say(host, &Frame::Beat));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cut_off {
                return;
            }
            self.wait(left.min(Duration::from_millis(5)));
        }
    }

    fn wait(&self, time: Duration) {
        let links = self.peers.values().filter(|_| !self.deaf).map(|peer| PollFd::new(&peer.control, PollFlags::IN));
        let data = self.peers.values().filter(|_| !self.deaf).filter_map(|peer| peer.data.as_ref());
        let links = links.chain(data.map(|data| PollFd::new(data, PollFlags::IN)));
        let mut all: Vec<PollFd<'_>> = links.chain([PollFd::new(&self.connector, PollFlags::IN)]).collect();
        let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // Interrupted or not: the next step looks at all of them.
        let _ = poll(&mut all, Some(&limit));
    }

    fn linked(&mut self, host: Option<Tid>, Pair { mut control, data }: Pair) {
        let Some(host) = host else { return };
        // A call for the sake of calling: most of them are not made use of.
        if self.peers.contains_key(&host) && self.dice.u32(..20) > 0 {
            return;
        }
        control.set_frame_bytes_max(pvm_core::proto::FRAME_BYTES_MAX);
        control.set_queued_bytes_max(usize::MAX);
        let peer = Peer { control, data: Some(data.into_byte_stream()), unsent: VecDeque::new(), stuffed: false };
        self.peers.insert(host, peer);
    }

    /// There is a new data link; what goes over it at first makes sense, as far as one can who has counted nothing.
    fn data_met(&mut self, host: Tid, link: Link) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        peer.data = Some(link.into_byte_stream());
        peer.unsent.clear();
        let mut greeting = Vec::new();
        write_acknowledged(u64::from(self.dice.u32(..20) == 0), &mut greeting);
        self.stream(host, &greeting);
    }

    /// Calls for a new data link as it was told to.
    fn call_data(&mut self, host: Tid, call: DataCall) {
        let Some(entry) = self.table.get(&host) else { return };
        let ([shown, back], key) = ([call.shown, call.back].map(Token::from_bytes), PublicKey(entry.key));
        let (ticket, addresses) = (u64::from(host.0) | 1 << 60, entry.addresses.clone());
        self.connector.connect_link(ticket, &addresses, Some(key), Tokens { shown, back }, CALL_TIME, Instant::now());
    }

    /// The other side has closed.
    fn lost(&mut self, host: Tid) {
        self.peers.remove(&host);
        self.cut_off |= host == self.master;
    }

    /// Reads and writes what can be read and written.
    fn attend(&mut self, host: Tid) {
        self.push(host);
        let Some(peer) = self.peers.get_mut(&host) else { return };
        let mut frames = Vec::new();
        let mut well = peer.control.flush().is_ok();
        while well && !self.deaf {
            match peer.control.receive_whole() {
                Ok(Some((_, body))) => frames.extend(wire::decode::<Frame>(body)),
                Ok(None) => break,
                Err(_) => well = false,
            }
        }
        let mut bytes = [0; 16 << 10];
        while let Some(data) = peer.data.as_mut().filter(|_| well && !self.deaf) {
            match data.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => peer.data = None,
            }
        }
        frames.into_iter().for_each(|frame| self.hear(host, frame));
        if !well {
            self.lost(host);
        }
    }

    fn hear(&mut self, from: Tid, frame: Frame) {
        match frame {
            // Another of its kind says such things too.
            Frame::Welcome { .. } | Frame::Table { .. } | Frame::Joined { .. } if from != self.master => {}
            Frame::Welcome { version, hosts, .. } => self.know(version, hosts, &[]),
            Frame::Table { version, added, removed } => self.know(version, added, &removed),
            Frame::Joined { hosts } => self.joined |= hosts.contains(&self.own),
            Frame::GroupChanged { number, .. } if number != 0 && !self.sullen => {
                self.say(from, &Frame::GroupSeen { number });
            }
            Frame::DataCall { call, .. } => self.call_data(from, call),
            Frame::PleaseConnect { to, from: asking } if to == self.own => self.call(asking, Security::Encrypted),
            Frame::Reply { wait: LAST, .. } => self.heard_out = true,
            Frame::Reply { wait: SEARCH, reply: Reply::Tasks(tasks) } => {
                self.victims = tasks.iter().map(|task| task.tid).filter(|tid| tid.host() != self.own).collect();
            }
            Frame::Request { wait, request: Request::Tasks(_), .. } if !self.sullen => {
                self.say(from, &Frame::Reply { wait, reply: Reply::Tasks(Vec::new()) });
            }
            Frame::Leave => self.cut_off = true,
            _ => {}
        }
    }

    fn know(&mut self, version: u64, added: Vec<Entry>, removed: &[Tid]) {
        for entry in added.into_iter().filter(|entry| entry.tid != self.own) {
            self.keys.insert(entry.key, entry.tid);
            self.connector.identity().known().add(PublicKey(entry.key));
            self.table.insert(entry.tid, entry);
        }
        for host in removed {
            self.table.remove(host);
            self.peers.remove(host);
        }
        if !self.sullen {
            self.say(self.master, &Frame::TableAck { version });
        }
    }
}
