//! The links to other daemons: which hosts may connect, which are called, and the frames of the control links.
//!
//! The core decides which hosts exist and when a link is needed; `pvm_net` makes links and refuses strangers. The data
//! link of a host is handed to the default route when both links are complete, and again whenever it has been remade.
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

/// The kind of the frames on a control link. All of them are frames of the core.
pub const CONTROL_FRAME: u8 = 1;
/// Bytes that may wait for a host on its control link when another frame is added. A waiting frame that alone is longer
/// than the limit does not count.
///
/// * Filled by: each other host that does not read
/// * Setting: `HPVM_BACKLOG_MAX`, 4 MiB at least
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_host_that_lets_too_much_wait_is_given_up`
pub const HOST_BACKLOG_BYTES_MAX: usize = crate::settings::BACKLOG_BYTES_MAX;
/// Bytes of frames that are gathered for one host before they are written.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// Time that a host has to read the last frames before its link is closed.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// If a data link makes no progress for this many times the host timeout, the system ends the connection. If the
/// control link still works, a new connection is made.
const DATA_STALL_TIMEOUTS: u32 = 3;
/// The upper bound of the time without progress: systems count this time in microseconds, in 31 bits.
const DATA_STALL_TIME_MAX: Duration = Duration::from_secs(1800);

/// An event of the links.
pub enum LinkEvent {
    /// Both links to a host are complete.
    Up { host: Tid, data: ByteStream },
    /// The links to a host could not be made, or its control link is lost.
    Down { host: Tid },
    /// There is a new data link to a host.
    DataUp { host: Tid, data: ByteStream },
    /// A new data link could not be made.
    DataDown { host: Tid },
    /// The connection for a direct link is complete.
    DirectReady { ticket: u64, link: Box<Link> },
    /// The connection for a direct link could not be made.
    DirectFailed { ticket: u64, reason: String },
    /// A line for the log.
    Log(String),
}

/// A host of the machine.
struct KnownHost {
    key: PublicKey,
    control: Option<ControlLink>,
    /// Whether it has been logged that the host has connected although only this side should connect.
    has_called: bool,
}

struct ControlLink {
    link: Link,
    /// Whether the loop waits until the socket can take more.
    watches_write: bool,
    /// Whether the link is in the list of those that gather frames.
    gathers: bool,
}

/// A control link that is closed as soon as the host has read all frames.
struct ClosingLink {
    control: ControlLink,
    deadline: Instant,
    /// Whether everything has been sent and the socket has been shut down for writing.
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
    hosts: BTreeMap<Tid, KnownHost>,
    keys: HashMap<PublicKey, Tid>,
    closing_links: BTreeMap<Tid, ClosingLink>,
    /// The hosts for which frames were gathered since [`HostLinks::flush_all`] was last called.
    gathering: Vec<Tid>,
    events: VecDeque<LinkEvent>,
}

impl HostLinks {
    /// Starts without links.
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
            gathering: Vec::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the port at which other daemons connect, or zero if they cannot connect.
    pub fn port(&self) -> u16 {
        self.connector.port()
    }

    /// Sets the options that hold for the whole machine.
    pub fn set_shared(&mut self, trusted: bool, timeout: Duration) {
        self.security = if trusted { Security::Trusted } else { Security::Encrypted };
        self.timeout = timeout;
        self.connector.set_timeout(timeout);
    }

    /// Sets how many bytes may wait for a host on its control link.
    pub fn limit_backlog(&mut self, bytes: usize) {
        self.backlog_bytes_max = bytes;
    }

    /// Returns the latest time at which [`HostLinks::step`] must be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let closing_links = self.closing_links.values().map(|closing_link| closing_link.deadline);
        closing_links.chain(self.connector.next_wakeup()).min()
    }

    /// Accepts connections, continues calls, and ends connections that have passed their deadline.
    pub fn step(&mut self) {
        let now = Instant::now();
        self.connector.step(now);
        while let Some(event) = self.connector.poll_event() {
            self.on_connect_event(event);
        }
        self.closing_links.retain(|_, closing_link| closing_link.deadline > now);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn log(&mut self, text: String) {
        self.events.push_back(LinkEvent::Log(text));
    }

    // ----- making links

    /// Lets the host with the given key connect.
    pub fn add_host(&mut self, host: Tid, key: Key) {
        self.remove_host(host);
        let key = PublicKey(key);
        self.hosts.insert(host, KnownHost { key, control: None, has_called: false });
        self.keys.insert(key, host);
        self.connector.identity().known().add(key);
    }

    /// Connects to a known host.
    pub fn connect(&mut self, host: Tid, addresses: &[SocketAddr]) {
        let Some(known) = self.hosts.get(&host) else {
            return self.events.push_back(LinkEvent::Down { host });
        };
        let (key, patience) = (known.key, self.timeout);
        self.connector.connect_pair(u64::from(host.0), addresses, key, self.security, patience, Instant::now());
    }

    /// Removes a host that does not belong to the machine any more. Frames that were sent to it before are still
    /// written.
    pub fn remove_host(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
        let Some(KnownHost { key, control, .. }) = self.hosts.remove(&host) else { return };
        self.keys.remove(&key);
        self.connector.identity().known().remove(&key);
        if let Some(control) = control {
            let deadline = Instant::now() + CLOSE_TIME_MAX;
            self.closing_links.insert(host, ClosingLink { control, deadline, shut: false });
            self.continue_close(host);
        }
    }

    /// Prepares for a connection for a direct link. A ticket of a direct link needs more than 32 bits and a ticket of a
    /// host does not, so the two are never equal.
    pub fn expect_direct(&mut self, ticket: u64, tokens: Tokens) {
        self.connector.expect(ticket, None, tokens, self.timeout, Instant::now());
    }

    /// Connects for a direct link.
    pub fn connect_direct(&mut self, ticket: u64, addresses: &[SocketAddr], tokens: Tokens) {
        self.connector.connect_link(ticket, addresses, None, tokens, self.timeout, Instant::now());
    }

    /// Prepares for a host to connect for a new data link.
    pub fn expect_data(&mut self, host: Tid, tokens: Tokens) {
        let peer = self.data_key(host);
        self.connector.expect(u64::from(host.0), peer, tokens, self.timeout, Instant::now());
    }

    /// Connects to a host for a new data link.
    pub fn connect_data(&mut self, host: Tid, addresses: &[SocketAddr], tokens: Tokens) {
        let peer = self.data_key(host);
        self.connector.connect_link(u64::from(host.0), addresses, peer, tokens, self.timeout, Instant::now());
    }

    /// Stops making a data link to a host.
    pub fn cancel_data(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
    }

    /// Returns the key that a host must show on its data link; `None` for a link in clear, where the host's token is
    /// enough.
    fn data_key(&self, host: Tid) -> Option<PublicKey> {
        self.hosts.get(&host).filter(|_| self.encrypts()).map(|host| host.key)
    }

    fn has_control(&self, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|host| host.control.is_some())
    }

    /// Stops making a direct link.
    pub fn cancel_direct(&mut self, ticket: u64) {
        self.connector.cancel(ticket);
    }

    /// Returns whether messages are encrypted.
    pub fn encrypts(&self) -> bool {
        self.security == Security::Encrypted
    }

    fn on_connect_event(&mut self, event: ConnectEvent) {
        match event {
            ConnectEvent::PairAccepted { peer, address, pair } => match self.keys.get(&peer) {
                // The host with the lower number connects.
                Some(host) if *host < self.own => self.on_pair(*host, *pair),
                Some(host) => self.on_unexpected_caller(*host, address),
                None => {}
            },
            ConnectEvent::PairConnected { ticket, pair, .. } => self.on_pair(Tid(ticket as u32), *pair),
            ConnectEvent::LinkReady { ticket, link } if ticket > u64::from(u32::MAX) => {
                self.events.push_back(LinkEvent::DirectReady { ticket, link });
            }
            ConnectEvent::LinkReady { ticket, link } => self.on_data_link(Tid(ticket as u32), *link),
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

    fn on_data_link(&mut self, host: Tid, mut data: Link) {
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

    /// Logs that a host has connected although it must wait to be called. Only the first time is logged, since a host
    /// could do so any number of times.
    fn on_unexpected_caller(&mut self, host: Tid, address: SocketAddr) {
        let known = self.hosts.get_mut(&host);
        if known.is_some_and(|known| !std::mem::replace(&mut known.has_called, true)) {
            self.log(format!("{host} connected from {address}, but must wait to be called"));
        }
    }

    fn on_pair(&mut self, host: Tid, Pair { mut control, mut data }: Pair) {
        let data_stall_time = self.data_stall_time();
        let Some(known) = self.hosts.get_mut(&host) else { return };
        if known.control.take().is_some() {
            // The other side has lost its ends of the links, although this side still has its own ends. Frames may be
            // lost, too.
            self.log(format!("{host} has lost its links"));
            return self.events.push_back(LinkEvent::Down { host });
        }
        control.set_frame_bytes_max(wire::HOST_FRAME_BYTES_MAX);
        control.set_queued_bytes_max(self.backlog_bytes_max);
        let watched = epoll::add(&self.epoll, &control, Source::Control(host).data(), EventFlags::IN);
        if watched.is_err() || data.limit_unread(data_stall_time).is_err() {
            return self.events.push_back(LinkEvent::Down { host });
        }
        let mut control = ControlLink { link: control, watches_write: false, gathers: false };
        control.watch(&self.epoll, host);
        known.control = Some(control);
        self.events.push_back(LinkEvent::Up { host, data: data.into_byte_stream() });
    }

    // ----- using control links

    /// Sends a frame to a host that has a link, at the latest when [`HostLinks::flush_all`] is called. Until then,
    /// further frames to the host are gathered: a system call and a packet cost more than a short frame.
    pub fn send(&mut self, host: Tid, frame: &Frame) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        match control.link.queue(CONTROL_FRAME, &[], &wire::encode(frame)) {
            Err(error) => self.on_lost(host, &error),
            Ok(()) if control.link.queued_bytes() > GATHERED_BYTES_MAX => self.write(host),
            Ok(()) if control.gathers => {}
            Ok(()) => {
                control.gathers = true;
                self.gathering.push(host);
            }
        }
    }

    /// Sends the frames that were gathered. Returns whether there were any.
    pub fn flush_all(&mut self) -> bool {
        let hosts = std::mem::take(&mut self.gathering);
        let were_any = !hosts.is_empty();
        hosts.into_iter().for_each(|host| self.write(host));
        were_any
    }

    /// Writes the frames that wait for a host. Reports the link as lost if that fails.
    fn write(&mut self, host: Tid) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        control.gathers = false;
        let result = control.link.flush();
        control.watch(&self.epoll, host);
        if let Err(error) = result {
            self.on_lost(host, &error);
        }
    }

    /// Notes that frames of a host may have arrived, so that the next [`HostLinks::receive`] reads.
    pub fn expect_more(&mut self, host: Tid) {
        if let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) {
            control.link.expect_more();
        }
    }

    /// Returns the next complete frame of a host.
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
        result.map_err(|error| self.on_lost(host, &error)).ok()
    }

    /// Returns whether frames, or the end of the link, can be taken although no event of the socket will report them.
    pub fn has_unread(&self, host: Tid) -> bool {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.is_some_and(|control| control.link.has_unread() || control.link.is_broken())
    }

    /// Returns how many bytes wait for a host on its control link.
    pub fn queued_bytes(&self, host: Tid) -> usize {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, |control| control.link.queued_bytes())
    }

    /// Returns how many TCP segments were sent again on the control link to a host.
    pub fn retransmissions(&self, host: Tid) -> u32 {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, |control| control.link.retransmissions())
    }

    /// Writes the frames that wait for a host.
    pub fn flush(&mut self, host: Tid) {
        if !self.has_control(host) {
            return self.continue_close(host);
        }
        self.write(host);
    }

    fn on_lost(&mut self, host: Tid, error: &LinkError) {
        self.log(format!("link to {host}: {error}"));
        self.drop_link(host);
        self.events.push_back(LinkEvent::Down { host });
    }

    /// Closes the links to a host. The host stays known.
    pub fn drop_link(&mut self, host: Tid) {
        self.connector.cancel(u64::from(host.0));
        if let Some(mut control) = self.hosts.get_mut(&host).and_then(|host| host.control.take()) {
            // The other side may still read what was sent before; if it does not, nothing is to be done.
            let _ = control.link.flush();
        }
    }

    // ----- ending

    /// Continues to close a link: writes the frames that wait, shuts the socket down for writing, and waits until the
    /// other side has closed. Closing a socket with unread data could make the kernel drop data that the other side has
    /// not read.
    fn continue_close(&mut self, host: Tid) {
        if self.closing_links.get_mut(&host).is_some_and(|closing_link| closing_link.advance(&self.epoll, host)) {
            self.closing_links.remove(&host);
        }
    }

    /// Closes all links when the daemon ends. The hosts have time to read what was sent.
    pub fn close_all(&mut self) {
        let hosts: Vec<Tid> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.remove_host(host));
        let end = Instant::now() + CLOSE_TIME_MAX;
        while !self.closing_links.is_empty() && Instant::now() < end {
            std::thread::sleep(CLOSE_TIME_MAX / 100);
            let hosts: Vec<Tid> = self.closing_links.keys().copied().collect();
            hosts.into_iter().for_each(|host| self.continue_close(host));
        }
    }
}

impl ControlLink {
    /// Watches the socket for room, but only while frames wait for the socket.
    fn watch(&mut self, epoll: &OwnedFd, host: Tid) {
        let wanted = self.link.wants_write();
        if wanted != self.watches_write {
            self.watches_write = wanted;
            let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // Fails only for a socket that is not watched.
            let _ = epoll::modify(epoll, &self.link, Source::Control(host).data(), flags);
        }
    }
}

impl ClosingLink {
    /// Does the part of closing that is possible now. Returns whether the link is closed.
    fn advance(&mut self, epoll: &OwnedFd, host: Tid) -> bool {
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
        // Further frames are ignored.
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
