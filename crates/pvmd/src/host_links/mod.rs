//! The links to other daemons: who may call, whom to call, what comes and goes on the control links.
//!
//! The core says which hosts there are and when it wants a link; `pvm_net` makes links and turns
//! strangers away. The data link of a host is handed on to the default route when both links stand, and a new one
//! when it was made again.
use crate::source::Source;
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame, Key};
use pvm_net::{ByteStream, ConnectEvent, Connector, Link, LinkError, Pair, PublicKey, Security, Tokens};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::Shutdown;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The kind of every frame on a control link: a frame of the core.
const CONTROL_FRAME: u8 = 1;
/// What waits for a host on its control link, beside the frame that exceeds it and one that is longer by itself.
///
/// * Filled by: each other host that does not read
/// * Setting: `HPVM_BACKLOG_MAX`, 4 MiB at least
/// * Reached: the link to the host is closed, and the host lost
/// * Test: `a_host_that_lets_too_much_wait_is_given_up`
pub const HOST_BACKLOG_BYTES_MAX: usize = crate::settings::BACKLOG_BYTES_MAX;
/// How long a host that leaves may take to read what was sent to it before.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// While the control link stands a data link may get nothing through for so many times the time that hosts may be
/// silent. Then the system ends it, and another one is made.
const DATA_STALL_TIMEOUTS: u32 = 3;
/// The longest time of that: systems count it in microseconds, in 31 bits.
const DATA_STALL_TIME_MAX: Duration = Duration::from_secs(1800);

/// What has happened.
pub enum LinkEvent {
    /// Both links to a host stand.
    Up { host: Tid, data: ByteStream },
    /// A link could not be made, or the control link is lost.
    Down { host: Tid },
    /// There is a new data link to a host.
    DataUp { host: Tid, data: ByteStream },
    /// No new data link could be made.
    DataDown { host: Tid },
    /// There is a connection for two tasks.
    DirectReady { ticket: u64, link: Box<Link> },
    /// There will be none.
    DirectFailed { ticket: u64, reason: String },
    /// For the log.
    Log(String),
}

/// A host that the machine knows.
struct Host {
    key: PublicKey,
    control: Option<ControlLink>,
    /// It has called though it is to be called, and the log has been told.
    has_called: bool,
}

struct ControlLink {
    link: Link,
    /// Whether `epoll` tells when the socket can be written.
    watches_write: bool,
}

/// One that is to read what was sent, and then to be forgotten.
struct ClosingLink {
    control: ControlLink,
    deadline: Instant,
    /// All is sent, and the socket says so.
    shut: bool,
}

/// The links of this daemon.
pub struct HostLinks {
    connector: Connector,
    epoll: Rc<OwnedFd>,
    own: Tid,
    security: Security,
    timeout: Duration,
    backlog_bytes_max: usize,
    hosts: BTreeMap<Tid, Host>,
    keys: HashMap<PublicKey, Tid>,
    closing_links: BTreeMap<Tid, ClosingLink>,
    events: VecDeque<LinkEvent>,
}

impl HostLinks {
    /// No links yet.
    pub fn new(connector: Connector, own: Tid, timeout: Duration, epoll: Rc<OwnedFd>) -> crate::Result<HostLinks> {
        epoll::add(&epoll, &connector, Source::Connector.data(), EventFlags::IN)?;
        Ok(HostLinks {
            connector,
            epoll,
            own,
            security: Security::Encrypted,
            timeout,
            backlog_bytes_max: HOST_BACKLOG_BYTES_MAX,
            hosts: BTreeMap::new(),
            keys: HashMap::new(),
            closing_links: BTreeMap::new(),
            events: VecDeque::new(),
        })
    }

    /// Where others call; zero if they cannot.
    pub fn port(&self) -> u16 {
        self.connector.port()
    }

    /// What the whole machine has agreed upon.
    pub fn set_shared(&mut self, trusted: bool, timeout: Duration) {
        self.security = if trusted { Security::Trusted } else { Security::Encrypted };
        self.timeout = timeout;
        self.connector.set_timeout(timeout);
    }

    /// So many bytes may wait for a host on its control link.
    pub fn limit_backlog(&mut self, bytes: usize) {
        self.backlog_bytes_max = bytes;
    }

    /// When [`HostLinks::step`] wants to be called at the latest.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let closing_links = self.closing_links.values().map(|closing_link| closing_link.deadline);
        closing_links.chain(self.connector.next_wakeup()).min()
    }

    /// Takes callers, goes on with calls, ends what takes too long.
    pub fn step(&mut self) {
        let now = Instant::now();
        self.connector.step(now);
        while let Some(event) = self.connector.poll_event() {
            self.on_connect_event(event);
        }
        self.closing_links.retain(|_, closing_link| closing_link.deadline > now);
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn log(&mut self, text: String) {
        self.events.push_back(LinkEvent::Log(text));
    }

    // ----- making links

    /// That host may call, if it has that key.
    pub fn know(&mut self, host: Tid, key: Key) {
        self.forget(host);
        let key = PublicKey(key);
        self.hosts.insert(host, Host { key, control: None, has_called: false });
        self.keys.insert(key, host);
        self.connector.identity().known().add(key);
    }

    /// Calls a known host.
    pub fn call(&mut self, host: Tid, addresses: &[SocketAddr]) {
        let Some(known) = self.hosts.get(&host) else {
            return self.events.push_back(LinkEvent::Down { host });
        };
        let (key, patience) = (known.key, self.timeout);
        self.connector.connect_pair(u64::from(host.0), addresses, key, self.security, patience, Instant::now());
    }

    /// The host does not belong to the machine any more. What it was sent is still written.
    pub fn forget(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
        let Some(Host { key, control, .. }) = self.hosts.remove(&host) else { return };
        self.keys.remove(&key);
        self.connector.identity().known().remove(&key);
        if let Some(control) = control {
            let deadline = Instant::now() + CLOSE_TIME_MAX;
            self.closing_links.insert(host, ClosingLink { control, deadline, shut: false });
            self.continue_close(host);
        }
    }

    /// Somebody will call for a link of two tasks. The tickets of such links are beyond 32 bits, those
    /// of hosts are not.
    pub fn expect(&mut self, ticket: u64, tokens: Tokens) {
        self.connector.expect(ticket, None, tokens, self.timeout, Instant::now());
    }

    /// Calls for a link of two tasks.
    pub fn meet(&mut self, ticket: u64, addresses: &[SocketAddr], tokens: Tokens) {
        self.connector.connect_link(ticket, addresses, None, tokens, self.timeout, Instant::now());
    }

    /// A host will call for a new data link.
    pub fn expect_data(&mut self, host: Tid, tokens: Tokens) {
        let peer = self.data_key(host);
        self.connector.expect(u64::from(host.0), peer, tokens, self.timeout, Instant::now());
    }

    /// Calls a host for a new data link.
    pub fn call_data(&mut self, host: Tid, addresses: &[SocketAddr], tokens: Tokens) {
        let peer = self.data_key(host);
        self.connector.connect_link(u64::from(host.0), addresses, peer, tokens, self.timeout, Instant::now());
    }

    /// The data link to that host is not to be made now.
    pub fn cancel_data(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
    }

    /// The key that a host shows on its data link; in clear its token is all.
    fn data_key(&self, host: Tid) -> Option<PublicKey> {
        self.hosts.get(&host).filter(|_| self.encrypts()).map(|host| host.key)
    }

    fn has_control(&self, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|host| host.control.is_some())
    }

    /// Nobody wants that link of two tasks any more.
    pub fn cancel(&mut self, ticket: u64) {
        self.connector.cancel(ticket);
    }

    /// Whether what tasks send is encrypted.
    pub fn encrypts(&self) -> bool {
        self.security == Security::Encrypted
    }

    fn on_connect_event(&mut self, event: ConnectEvent) {
        match event {
            ConnectEvent::PairAccepted { peer, address, pair } => match self.keys.get(&peer) {
                // The one with the lower number calls.
                Some(host) if *host < self.own => self.linked(*host, *pair),
                Some(host) => self.on_unexpected_caller(*host, address),
                None => {}
            },
            ConnectEvent::PairConnected { ticket, pair, .. } => self.linked(Tid(ticket as u32), *pair),
            ConnectEvent::LinkReady { ticket, link } if ticket > u64::from(u32::MAX) => {
                self.events.push_back(LinkEvent::DirectReady { ticket, link });
            }
            ConnectEvent::LinkReady { ticket, link } => self.data_met(Tid(ticket as u32), *link),
            ConnectEvent::Failed { ticket, reason } if ticket > u64::from(u32::MAX) => {
                self.events.push_back(LinkEvent::DirectFailed { ticket, reason });
            }
            ConnectEvent::Failed { ticket, reason } => {
                let host = Tid(ticket as u32);
                self.log(format!("no link to {host}: {reason}"));
                let event =
                    if self.has_control(host) { LinkEvent::DataDown { host } } else { LinkEvent::Down { host } };
                self.events.push_back(event);
            }
            ConnectEvent::Refused { address, reason, count } => {
                let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
                self.log(format!("turned away {address}: {reason}{times}"));
            }
        }
    }

    fn data_met(&mut self, host: Tid, mut data: Link) {
        if self.has_control(host) {
            self.events.push_back(match data.limit_unread(self.data_stall_time()) {
                Ok(()) => LinkEvent::DataUp { host, data: data.into_byte_stream() },
                Err(_) => LinkEvent::DataDown { host },
            });
        }
    }

    fn data_stall_time(&self) -> Duration {
        (DATA_STALL_TIMEOUTS * self.timeout).min(DATA_STALL_TIME_MAX)
    }

    /// Could be done time and again: the log is told once.
    fn on_unexpected_caller(&mut self, host: Tid, address: SocketAddr) {
        let known = self.hosts.get_mut(&host);
        if known.is_some_and(|known| !std::mem::replace(&mut known.has_called, true)) {
            self.log(format!("{host} called from {address}, though it is to be called"));
        }
    }

    fn linked(&mut self, host: Tid, Pair { mut control, mut data }: Pair) {
        let data_stall_time = self.data_stall_time();
        let Some(known) = self.hosts.get_mut(&host) else { return };
        if known.control.take().is_some() {
            // The other side has lost the links that stood; frames may be lost with them.
            self.log(format!("{host} has lost its links"));
            return self.events.push_back(LinkEvent::Down { host });
        }
        control.set_frame_bytes_max(wire::HOST_FRAME_BYTES_MAX);
        control.set_queued_bytes_max(self.backlog_bytes_max);
        let watched = epoll::add(&self.epoll, &control, Source::Control(host).data(), EventFlags::IN);
        if watched.is_err() || data.limit_unread(data_stall_time).is_err() {
            return self.events.push_back(LinkEvent::Down { host });
        }
        let mut control = ControlLink { link: control, watches_write: false };
        control.watch(&self.epoll, host);
        known.control = Some(control);
        self.events.push_back(LinkEvent::Up { host, data: data.into_byte_stream() });
    }

    // ----- using control links

    /// Sends a frame to a host to which there is a link.
    pub fn send(&mut self, host: Tid, frame: &Frame) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        let result = control.link.send(CONTROL_FRAME, &[], &[&wire::encode(frame)]);
        control.watch(&self.epoll, host);
        if let Err(error) = result {
            self.lost(host, &error);
        }
    }

    /// The next frame of a host, if one has come as a whole.
    pub fn receive(&mut self, host: Tid) -> Option<Frame> {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else {
            self.continue_close(host);
            return None;
        };
        let result = match control.link.receive_whole() {
            Ok(None) => return None,
            Ok(Some((head, body))) => match wire::decode(body) {
                Some(frame) if head.kind == CONTROL_FRAME && head.header().is_empty() => Ok(frame),
                _ => Err(LinkError::Malformed),
            },
            Err(error) => Err(error),
        };
        result.map_err(|error| self.lost(host, &error)).ok()
    }

    /// Whether the socket alone would not tell that there are frames of that host, or no more.
    pub fn has_unread(&self, host: Tid) -> bool {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.is_some_and(|control| control.link.has_unread() || control.link.is_broken())
    }

    /// Bytes that wait for a host on its control link.
    pub fn queued_bytes(&self, host: Tid) -> usize {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, |control| control.link.queued_bytes())
    }

    /// How often something had to be sent again on the control link to a host.
    pub fn sent_again(&self, host: Tid) -> u32 {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, |control| control.link.sent_again())
    }

    /// Writes what waits for a host.
    pub fn flush(&mut self, host: Tid) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else {
            return self.continue_close(host);
        };
        let result = control.link.flush();
        control.watch(&self.epoll, host);
        if let Err(error) = result {
            self.lost(host, &error);
        }
    }

    fn lost(&mut self, host: Tid, error: &LinkError) {
        self.log(format!("link to {host}: {error}"));
        self.drop_link(host);
        self.events.push_back(LinkEvent::Down { host });
    }

    /// Closes what there is to a host, which stays known.
    pub fn drop_link(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
        if let Some(host) = self.hosts.get_mut(&host) {
            host.control = None;
        }
    }

    // ----- ending

    /// Writes what waits, says that this was all, and waits until the other side has closed: a close
    /// while something lies unread here could destroy what it has not read yet.
    fn continue_close(&mut self, host: Tid) {
        if self.closing_links.get_mut(&host).is_some_and(|closing_link| closing_link.go_on(&self.epoll, host)) {
            self.closing_links.remove(&host);
        }
    }

    /// The daemon ends: everybody still reads what was sent.
    pub fn finish(&mut self) {
        let hosts: Vec<Tid> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.forget(host));
        let end = Instant::now() + CLOSE_TIME_MAX;
        while !self.closing_links.is_empty() && Instant::now() < end {
            std::thread::sleep(CLOSE_TIME_MAX / 100);
            let hosts: Vec<Tid> = self.closing_links.keys().copied().collect();
            hosts.into_iter().for_each(|host| self.continue_close(host));
        }
    }
}

impl ControlLink {
    /// Has `epoll` tell when the socket can be written exactly while something waits for it.
    fn watch(&mut self, epoll: &OwnedFd, host: Tid) {
        let wanted = self.link.wants_write();
        if wanted != self.watches_write {
            self.watches_write = wanted;
            let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // Can fail only for a socket that is not there.
            let _ = epoll::modify(epoll, &self.link, Source::Control(host).data(), flags);
        }
    }
}

impl ClosingLink {
    /// Gives whether it is done.
    fn go_on(&mut self, epoll: &OwnedFd, host: Tid) -> bool {
        if self.control.link.flush().is_err() {
            return true;
        }
        self.control.watch(epoll, host);
        if !self.shut && !self.control.link.wants_write() {
            self.shut = true;
            if rustix::net::shutdown(&self.control.link, Shutdown::Write).is_err() {
                return true;
            }
        }
        // What it still says is of no interest.
        loop {
            match self.control.link.receive_whole() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for HostLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connector.as_fd()
    }
}

#[cfg(test)]
mod tests;
