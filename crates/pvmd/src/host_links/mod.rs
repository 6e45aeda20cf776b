//! The links to other daemons: which hosts may connect, which are called, and the frames of the control links.
//!
//! The core decides which hosts exist and when a link is needed; `pvm_net` makes links and refuses strangers. The data
//! link of a host is handed to the default route when both links are complete, and again whenever it has been remade. The
//! control link is a session over several connections.
//!
//! * `control_link`: the control link to one host;
//! * `ticket`: what a call of the connector is for.
mod control_link;
mod ticket;

pub use self::control_link::Received;
#[cfg(test)]
pub use self::control_link::{ACKNOWLEDGEMENT, CONTROL_FRAME};
use self::control_link::{ControlLink, Failure};
use self::ticket::Ticket;
use crate::source::Source;
use pvm_core::machine::{CallFailure, LinkBreak};
use pvm_core::tid::Tid;
use pvm_core::wire::{Frame, Key};
use pvm_net::{ByteStream, ConnectEvent, Connector, Link, Pair, PublicKey, Security, Tokens};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::Shutdown;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes that may wait for a host on its control link, or be on their way to it, when another frame is added. A frame that
/// alone is longer than the limit does not count.
///
/// * Filled by: each other host that does not read
/// * Setting: `HPVM_BACKLOG_MAX`, 4 MiB at least
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_host_that_lets_too_much_wait_is_given_up`
pub const HOST_BACKLOG_BYTES_MAX: usize = crate::settings::BACKLOG_BYTES_MAX;
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
    /// The links to a host could not be made, or the session of its control link has ended.
    Down { host: Tid },
    /// The connection of the control link to a host has broken; the session goes on.
    Broken { host: Tid, how: LinkBreak },
    /// The control link to a host has a new connection.
    Resumed { host: Tid },
    /// A call for a new connection has failed.
    CallFailed { host: Tid, why: CallFailure },
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
    /// The master that has started this daemon. It connects even if its number is higher.
    starter: Option<Tid>,
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
            starter: None,
            closing_links: BTreeMap::new(),
            gathering: Vec::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the port at which other daemons connect, or zero if they cannot connect.
    pub fn port(&self) -> u16 {
        self.connector.port()
    }

    /// Notes which master has started this daemon.
    pub fn set_starter(&mut self, master: Tid) {
        self.starter = Some(master);
    }

    /// Returns the hosts to which there is a link.
    pub fn linked(&self) -> Vec<Tid> {
        self.hosts.iter().filter(|(_, host)| host.control.is_some()).map(|(tid, _)| *tid).collect()
    }

    /// Opens a port at which other daemons can connect.
    pub fn listen(&mut self, wanted: u16) -> Result<(), rustix::io::Errno> {
        self.connector.listen(wanted)
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
        let (key, patience, ticket) = (known.key, self.timeout, Ticket::Control(host).number());
        self.connector.connect_pair(ticket, addresses, key, self.security, patience, Instant::now());
    }

    /// Connects to a host for a new connection of the control link.
    pub fn reconnect(&mut self, host: Tid, addresses: &[SocketAddr]) {
        let Some(KnownHost { key, control: Some(control), .. }) = self.hosts.get(&host) else { return };
        let (key, last, ticket) = (*key, control.last_address(), Ticket::Control(host).number());
        self.connector.connect_control(ticket, addresses, last, key, self.timeout, Instant::now());
    }

    /// Removes a host that does not belong to the machine any more. Frames that were sent to it before are still
    /// written.
    pub fn remove_host(&mut self, host: Tid) {
        self.cancel_calls(host);
        let Some(KnownHost { key, control, .. }) = self.hosts.remove(&host) else { return };
        self.keys.remove(&key);
        self.connector.identity().known().remove(&key);
        if let Some(control) = control.filter(ControlLink::has_connection) {
            let deadline = Instant::now() + CLOSE_TIME_MAX;
            self.closing_links.insert(host, ClosingLink { control, deadline, shut: false });
            self.continue_close(host);
        }
    }

    /// Prepares for a connection for a direct link.
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
        self.connector.expect(Ticket::Data(host).number(), peer, tokens, self.timeout, Instant::now());
    }

    /// Connects to a host for a new data link.
    pub fn connect_data(&mut self, host: Tid, addresses: &[SocketAddr], tokens: Tokens) {
        let peer = self.data_key(host);
        let ticket = Ticket::Data(host).number();
        self.connector.connect_link(ticket, addresses, peer, tokens, self.timeout, Instant::now());
    }

    /// Stops making a data link to a host.
    pub fn cancel_data(&mut self, host: Tid) {
        self.connector.cancel(Ticket::Data(host).number());
    }

    /// Stops making any link to a host.
    fn cancel_calls(&mut self, host: Tid) {
        for ticket in [Ticket::Control(host), Ticket::Data(host)] {
            self.connector.cancel(ticket.number());
        }
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
                // The host with the lower number connects, or the master that has started this daemon.
                Some(host) if *host < self.own || self.starter == Some(*host) => self.on_pair(*host, *pair),
                Some(host) => self.on_unexpected_caller(*host, address),
                None => {}
            },
            ConnectEvent::ControlAccepted { peer, link } => {
                if let Some(host) = self.keys.get(&peer).copied() {
                    self.on_connection(host, *link);
                }
            }
            ConnectEvent::PairConnected { ticket, pair, .. } => {
                if let Ticket::Control(host) = Ticket::of(ticket) {
                    self.on_pair(host, *pair);
                }
            }
            ConnectEvent::LinkReady { ticket, link } => match Ticket::of(ticket) {
                Ticket::Control(host) => self.on_connection(host, *link),
                Ticket::Data(host) => self.on_data_link(host, *link),
                Ticket::Direct(ticket) => self.events.push_back(LinkEvent::DirectReady { ticket, link }),
            },
            ConnectEvent::Failed { ticket, reason, failure } => {
                self.on_call_failed(Ticket::of(ticket), reason, failure)
            }
            ConnectEvent::Refused { address, reason, count } => {
                let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
                self.log(format!("turned away {address}: {reason}{times}"));
            }
        }
    }

    fn on_call_failed(&mut self, ticket: Ticket, reason: String, failure: pvm_net::Failure) {
        let event = match ticket {
            Ticket::Direct(ticket) => LinkEvent::DirectFailed { ticket, reason },
            Ticket::Data(host) | Ticket::Control(host) => {
                self.log(format!("no link to {host}: {reason}"));
                let why = match failure {
                    pvm_net::Failure::Absent => CallFailure::Absent,
                    pvm_net::Failure::NoAnswer => CallFailure::NoAnswer,
                };
                match ticket {
                    Ticket::Control(_) if self.has_control(host) => LinkEvent::CallFailed { host, why },
                    Ticket::Control(_) => LinkEvent::Down { host },
                    _ => LinkEvent::DataDown { host },
                }
            }
        };
        self.events.push_back(event);
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

    fn on_pair(&mut self, host: Tid, Pair { control, mut data }: Pair) {
        if self.has_control(host) {
            // The other side has not learnt that it had both links. It will learn that this data link has ended, and make
            // another one.
            return self.on_connection(host, control);
        }
        let data_stall_time = self.data_stall_time();
        let Some(known) = self.hosts.get_mut(&host) else { return };
        if data.limit_unread(data_stall_time).is_err() {
            return self.events.push_back(LinkEvent::Down { host });
        }
        let result = known.control.insert(ControlLink::new(self.backlog_bytes_max)).connect(control, &self.epoll, host);
        self.events.push_back(LinkEvent::Up { host, data: data.into_byte_stream() });
        self.note_failure(host, result);
    }

    /// Takes a new connection of a control link. It takes the place of the one before, even of one whose end this side has not
    /// noticed.
    fn on_connection(&mut self, host: Tid, link: Link) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        self.connector.cancel(Ticket::Control(host).number());
        let result = control.connect(link, &self.epoll, host);
        self.events.push_back(LinkEvent::Resumed { host });
        self.note_failure(host, result);
    }

    // ----- using control links

    /// Sends a frame to a host that has a link, at the latest when [`HostLinks::flush_all`] is called. Until then,
    /// further frames to the host are gathered: a system call and a packet cost more than a short frame.
    pub fn send(&mut self, host: Tid, frame: &Frame) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        match control.send(frame) {
            Err(failure) => self.on_failure(host, &failure),
            Ok(true) => self.write(host),
            Ok(false) if control.gathers => {}
            Ok(false) => {
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

    /// Writes the frames that wait for a host, and reports it if that fails.
    fn write(&mut self, host: Tid) {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
        let result = control.write(&self.epoll, host);
        self.note_failure(host, result);
    }

    /// Notes that frames of a host may have arrived, so that the next [`HostLinks::receive`] reads.
    pub fn expect_more(&mut self, host: Tid) {
        let control = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut());
        control.and_then(ControlLink::link).into_iter().for_each(Link::expect_more);
    }

    /// Returns the next complete frame of a host.
    pub fn receive(&mut self, host: Tid) -> Option<Received> {
        let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else {
            self.continue_close(host);
            return None;
        };
        let result = control.receive(&self.epoll, host);
        result.map_err(|failure| self.on_failure(host, &failure)).ok().flatten()
    }

    /// Returns whether there is a connection to a host.
    pub fn has_connection(&self, host: Tid) -> bool {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.is_some_and(ControlLink::has_connection)
    }

    /// Returns whether frames, or the end of the link, can be taken although no event of the socket will report them.
    pub fn has_unread(&self, host: Tid) -> bool {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.is_some_and(ControlLink::has_unread)
    }

    /// Returns how many bytes wait for a host on its control link, or are on their way to it.
    pub fn kept_bytes(&self, host: Tid) -> usize {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, ControlLink::kept_bytes)
    }

    /// Returns how many TCP segments were sent again on the connection of the control link to a host.
    pub fn retransmissions(&self, host: Tid) -> u32 {
        let control = self.hosts.get(&host).and_then(|host| host.control.as_ref());
        control.map_or(0, ControlLink::retransmissions)
    }

    /// Writes the frames that wait for a host.
    pub fn flush(&mut self, host: Tid) {
        if !self.has_control(host) {
            return self.continue_close(host);
        }
        self.write(host);
    }

    fn note_failure(&mut self, host: Tid, result: Result<(), Failure>) {
        result.err().iter().for_each(|failure| self.on_failure(host, failure));
    }

    fn on_failure(&mut self, host: Tid, failure: &Failure) {
        match failure {
            Failure::Broken(error) => {
                let Some(control) = self.hosts.get_mut(&host).and_then(|host| host.control.as_mut()) else { return };
                let how = if control.has_ended() { LinkBreak::Ended } else { LinkBreak::Lost };
                let breaks = control.count_break();
                self.events.push_back(LinkEvent::Broken { host, how });
                // A host can break its connections any number of times, and must not fill the log.
                if breaks.is_power_of_two() {
                    self.log(format!("control link to {host}: {error} (break {breaks}); another connection is made"));
                }
            }
            Failure::Final(error) => {
                self.log(format!("link to {host}: {error}"));
                self.drop_link(host);
                self.events.push_back(LinkEvent::Down { host });
            }
        }
    }

    /// Ends the links to a host. The host stays known.
    pub fn drop_link(&mut self, host: Tid) {
        self.cancel_calls(host);
        if let Some(mut control) = self.hosts.get_mut(&host).and_then(|host| host.control.take()) {
            // The other side may still read what was sent before; if it does not, nothing is to be done.
            let _ = control.write(&self.epoll, host);
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

impl ClosingLink {
    /// Does the part of closing that is possible now. Returns whether the link is closed.
    fn advance(&mut self, epoll: &OwnedFd, host: Tid) -> bool {
        // Further frames are ignored.
        let received = loop {
            match self.control.receive(epoll, host) {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        if received.is_err() || self.control.write(epoll, host).is_err() {
            return true;
        }
        let waits = self.control.has_unwritten();
        let Some(link) = self.control.link().filter(|_| !self.shut && !waits) else { return false };
        self.shut = true;
        rustix::net::shutdown(link, Shutdown::Write).is_err()
    }
}

impl AsFd for HostLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connector.as_fd()
    }
}

#[cfg(test)]
mod tests;
