//! Where links between daemons come to be, and where strangers are turned away.
//!
//! Two daemons have a pair of links: one for control, always encrypted, and one for data. The caller
//! opens the control link and says whether the data are to be encrypted; the called one answers with
//! two tokens. The caller comes again, over TLS or in clear, and shows the one; it gets the other
//! back. So a link in clear belongs to the same two daemons as the encrypted one beside it, and no
//! token is good twice.
//!
//! Two tasks that have been told of each other (and given tokens) by their daemons have one link.
//!
//! * `arrivals`: those who call;
//! * `dialling`: those whom we call;
//! * `refusals`: how often the log hears of strangers.

mod arrivals;
mod dialling;
mod refusals;

use crate::keys::{KEY_BYTES, PublicKey, Token, Tokens};
use crate::link::{FRAME_BYTES_MAX, Link, LinkError};
use crate::tls::Identity;
use arrivals::{Arrival, Expected};
use dialling::{Attempt, Dial};
use refusals::Refusals;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub use arrivals::HALVES_MAX;

/// Connections at a time whose peer is not known yet.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, whoever says nothing yields its place to the next, so more would help nobody
/// * Reached: the one that has said nothing for longest is closed, else the new one
/// * Test: `those_who_dawdle_lose_their_places_and_hold_up_nobody`
pub const UNKNOWN_MAX: usize = 64;
/// Time that a caller has until its links stand.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, it is much for the few packets of a handshake
/// * Reached: the connection is closed; a token that was told for it is good no more
/// * Test: `a_token_is_good_once_for_its_owner_and_for_a_short_time`
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Ports tried from the wanted one on.
const PORTS_TRIED_MAX: u16 = 1024;
/// Connections that the system may hold ready to be accepted.
const BACKLOG: i32 = 4096;
/// Events handled before others of the caller's loop have their turn.
const EVENTS_IN_TURN_MAX: usize = 64;
/// A frame that opens a link.
///
/// * Filled by: each other host
/// * Setting: none, the form of such frames fixes it
/// * Reached: the connection is closed
/// * Test: `one_who_is_known_and_speaks_strangely_is_turned_away`
const GREETING_BYTES_MAX: usize = 128;
/// Spoken on links between daemons.
const VERSION: u8 = 1;

/// Kinds of the frames that open links.
mod kind {
    /// Header: version, security.
    pub const OPEN_CONTROL: u8 = 1;
    /// Header: two tokens.
    pub const ACCEPT_CONTROL: u8 = 2;
    /// Header: the first token.
    pub const OPEN_DATA: u8 = 3;
    /// Header: the second token.
    pub const ACCEPT_DATA: u8 = 4;
}

/// What becomes of messages' data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Encrypted.
    Encrypted,
    /// Sent in clear, to a peer that is known all the same.
    Trusted,
}

impl Security {
    fn code(self) -> u8 {
        match self {
            Security::Encrypted => 0,
            Security::Trusted => 1,
        }
    }

    fn of(code: u8) -> Option<Security> {
        [Security::Encrypted, Security::Trusted].into_iter().find(|security| security.code() == code)
    }
}

/// The two links to another daemon. Either can have bytes that have been read already.
#[derive(Debug)]
pub struct Pair {
    /// For control.
    pub control: Link,
    /// For data.
    pub data: Link,
}

/// What has come of calls.
#[derive(Debug)]
pub enum Event {
    /// Somebody known has called.
    Arrived {
        /// Who it is.
        peer: PublicKey,
        /// From where.
        address: SocketAddr,
        /// Its links.
        pair: Box<Pair>,
    },
    /// Somebody whom we called has answered.
    Connected {
        /// The caller's name for the call.
        ticket: u64,
        /// The address that worked.
        address: SocketAddr,
        /// The links.
        pair: Box<Pair>,
    },
    /// One who was expected has called, or one whom we called has met us.
    Met {
        /// The caller's name for the call.
        ticket: u64,
        /// The link.
        link: Box<Link>,
    },
    /// A call has led to nothing.
    Failed {
        /// The caller's name for the call.
        ticket: u64,
        /// What went wrong, address by address.
        reason: String,
    },
    /// A stranger, or somebody who did not keep to the protocol, was turned away.
    Refused {
        /// From where it called.
        address: IpAddr,
        /// Why it was turned away.
        reason: String,
        /// For how many from there this stands: more than one where they are too many to be told of
        /// one by one.
        count: u32,
    },
}

/// A connection that is no link yet.
enum Entry {
    Arrival(Arrival),
    Attempt(Attempt),
}

/// What is waited for on a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Read,
    ReadWrite,
    Write,
}

impl Watch {
    fn of(link: &Link) -> Watch {
        if link.wants_write() { Watch::ReadWrite } else { Watch::Read }
    }

    fn flags(self) -> EventFlags {
        match self {
            Watch::Read => EventFlags::IN,
            Watch::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Watch::Write => EventFlags::OUT,
        }
    }
}

/// Names the listening socket among the events.
const LISTENER: u64 = 0;

/// The listening socket of a daemon, and all connections that are no links yet.
pub struct Gate {
    identity: Identity,
    /// One that only calls others has none.
    listener: Option<OwnedFd>,
    port: u16,
    epoll: OwnedFd,
    entries: HashMap<u64, Entry>,
    last: u64,
    dials: HashMap<u64, Dial>,
    expected: HashMap<u64, Expected>,
    events: VecDeque<Event>,
    refusals: Refusals,
    /// Silence of the network after which a link is given up.
    timeout: Duration,
    /// No connection is accepted before this; there was no descriptor for one.
    deaf_until: Option<Instant>,
}

impl Gate {
    /// A gate at which nobody can call. Links are given up after such a silence of the network.
    pub fn new(identity: Identity, timeout: Duration) -> Result<Gate, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Gate {
            identity,
            listener: None,
            port: 0,
            epoll,
            entries: HashMap::new(),
            last: LISTENER,
            dials: HashMap::new(),
            expected: HashMap::new(),
            events: VecDeque::new(),
            refusals: Refusals::default(),
            timeout,
            deaf_until: None,
        })
    }

    /// Lets others call: on all addresses, on the first free port from the wanted one on, or on any
    /// if that is zero.
    pub fn listen(&mut self, port: u16) -> Result<(), Errno> {
        self.listen_at(listener(port)?)
    }

    /// Lets others call at a listening socket that does not block.
    pub fn listen_at(&mut self, listener: OwnedFd) -> Result<(), Errno> {
        epoll::add(&self.epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        self.port = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?.port();
        self.listener = Some(listener);
        Ok(())
    }

    /// The port on which others can call; zero if they cannot.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The own key, and who may call.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sets after what silence of the network later links are given up.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// How many connections are no links yet.
    pub fn pending(&self) -> usize {
        self.entries.len()
    }

    /// Does what is to be done; to be called when [`Gate::as_fd`] is readable and when
    /// [`Gate::next_wakeup`] has passed.
    pub fn step(&mut self, now: Instant) {
        let mut ready = Vec::with_capacity(EVENTS_IN_TURN_MAX);
        let nothing = rustix::time::Timespec::default();
        // Interrupted or not, what is left shows again.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&nothing));
        for event in &ready {
            match event.data.u64() {
                LISTENER => self.accept(now),
                id => self.progress(id, now),
            }
        }
        self.expire(now);
        self.dial_on(now);
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Gate::step`] wants to be called at the latest.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // What was known at once is told in the next step.
        if !self.events.is_empty() {
            return Some(Instant::now());
        }
        let deadlines = self.entries.values().map(|entry| match entry {
            Entry::Arrival(arrival) => arrival.deadline(),
            Entry::Attempt(attempt) => attempt.deadline,
        });
        let dials = self.dials.values().map(Dial::next_wakeup);
        let expected = self.expected.values().map(|expected| expected.give_up);
        deadlines.chain(dials).chain(expected).chain(self.deaf_until).chain(self.refusals.next_wakeup()).min()
    }

    fn progress(&mut self, id: u64, now: Instant) {
        match self.entries.remove(&id) {
            Some(Entry::Arrival(arrival)) => self.arrival_goes_on(id, arrival, now),
            Some(Entry::Attempt(attempt)) => self.attempt_goes_on(id, attempt, now),
            // Gone in this very turn.
            None => {}
        }
    }

    fn expire(&mut self, now: Instant) {
        let late = |entry: &Entry| match entry {
            Entry::Arrival(arrival) => arrival.deadline() <= now,
            Entry::Attempt(attempt) => attempt.deadline <= now,
        };
        let gone: Vec<u64> = self.entries.iter().filter(|(_, entry)| late(entry)).map(|(id, _)| *id).collect();
        for id in gone {
            match self.entries.remove(&id) {
                Some(Entry::Arrival(arrival)) => self.arrival_expired(arrival, now),
                Some(Entry::Attempt(attempt)) => self.attempt_failed(attempt, "no answer in time".into(), now),
                None => {}
            }
        }
        self.expectations_end(now);
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            if let Some(listener) = &self.listener {
                self.watch(LISTENER, listener.as_fd(), Watch::Read);
            }
        }
        for (address, count) in self.refusals.poll_untold(now) {
            let reason = "more of the same".into();
            self.events.push_back(Event::Refused { address, reason, count });
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn add(&self, id: u64, socket: BorrowedFd<'_>, watch: Watch) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(id), watch.flags())
    }

    fn watch(&self, id: u64, socket: BorrowedFd<'_>, watch: Watch) {
        // Fails only for a socket that is not there; its deadline ends it.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(id), watch.flags());
    }

    /// The socket is somebody else's to watch.
    fn let_go(&self, socket: impl AsFd) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// A pair whose peer is known.
    fn pair(&self, control: Link, data: Link) -> Result<Box<Pair>, LinkError> {
        let mut control = self.finished(control)?;
        // Control is always read. Data may wait for a slow receiver as long as it takes.
        control.limit_unread(self.timeout)?;
        Ok(Box::new(Pair { control, data: self.finished(data)? }))
    }

    /// A link whose peer is known; it is its user's to watch.
    fn finished(&self, mut link: Link) -> Result<Link, LinkError> {
        // The control link of a call is not watched here any more.
        let _ = epoll::delete(&self.epoll, &link);
        link.trust(self.timeout)?;
        link.set_frame_bytes_max(FRAME_BYTES_MAX);
        Ok(link)
    }

    fn refuse(&mut self, address: SocketAddr, reason: String, now: Instant) {
        let address = address.ip().to_canonical();
        if let Some(count) = self.refusals.tell(address, now) {
            self.events.push_back(Event::Refused { address, reason, count });
        }
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Two tokens out of one header.
fn two_tokens(header: &[u8]) -> Option<Tokens> {
    let (one, other) = header.split_first_chunk::<KEY_BYTES>()?;
    Some(Tokens { shown: Token::from_bytes(*one), back: Token::from_bytes(other.try_into().ok()?) })
}

/// What a failure means to somebody who reads the log.
fn words(error: &LinkError) -> String {
    let text = match error {
        LinkError::Closed => "went away before it was known",
        LinkError::Tls(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its key is not the one of a host of this machine"
        }
        LinkError::Tls(
            rustls::Error::NoCertificatesPresented
            | rustls::Error::PeerIncompatible(PeerIncompatible::IncorrectCertificateTypeExtension),
        ) => "shows no key",
        LinkError::Tls(rustls::Error::AlertReceived(AlertDescription::UnknownCA)) => "does not know our key",
        LinkError::Tls(rustls::Error::InvalidMessage(_)) => "does not speak our protocol",
        error => return error.to_string(),
    };
    text.into()
}

/// A listening socket for both kinds of addresses where the system has both, on the first free port
/// from the wanted one on, or on any if that is zero.
pub fn listener(wanted: u16) -> Result<OwnedFd, Errno> {
    let ports = if wanted == 0 { 0..=0 } else { wanted..=wanted.saturating_add(PORTS_TRIED_MAX - 1) };
    let mut result = Err(Errno::ADDRINUSE);
    for port in ports {
        result = match listener_at(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
                listener_at(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            }
            result => result,
        };
        if !matches!(result, Err(Errno::ADDRINUSE | Errno::ACCESS)) {
            break;
        }
    }
    result
}

fn listener_at(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = tcp_socket(&address)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket for that kind of address that does not block.
fn tcp_socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    crate::socket::send_at_once(socket.as_fd());
    Ok(socket)
}
