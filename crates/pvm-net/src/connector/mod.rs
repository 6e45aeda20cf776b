//! Makes the links between daemons, and refuses strangers.
//!
//! Two daemons have a pair of links: a control link, always encrypted, and a data link. The caller opens the control
//! link and states whether data is to be encrypted; the called daemon answers with two tokens. The caller then opens a
//! second connection, over TLS or in clear, and shows the first token; the called daemon answers with the second one.
//! So a data link in clear provably connects the same two daemons as the encrypted control link. Each token can be used
//! once. A control link whose connection has broken gets another one by itself; the data link stays as it is.
//!
//! Two tasks get a single link. Their daemons have introduced them to each other and given them two tokens.
//!
//! * `acceptor`: incoming connections;
//! * `dialer`: outgoing connections;
//! * `common`: what both share;
//! * `refusals`: limits the log lines about strangers.

mod acceptor;
mod common;
mod dialer;
mod refusals;

use crate::identity::Identity;
use crate::keys::{KEY_BYTES, PublicKey, Token, Tokens};
use crate::link::{Link, LinkError};
use acceptor::Acceptor;
use common::Common;
use dialer::{Dial, Dialer, Purpose};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub use acceptor::HALF_PAIRS_MAX;

/// Simultaneous connections whose peer is not known yet.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, a silent connection is closed for the next one, so a higher limit would be of no use
/// * Reached: the connection that has been silent for longest is closed; if none is silent, a connection with a slow
///   handshake is closed; if there is no such connection either, the new connection is closed
/// * Test: `those_who_dawdle_lose_their_places_and_hold_up_nobody`
pub const UNKNOWN_MAX: usize = 64;
/// Time from a connection's arrival until its links must be complete.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, a handshake takes a few packets
/// * Reached: the connection is closed, and its token becomes invalid
/// * Test: `a_token_is_good_once_for_its_owner_and_for_a_short_time`
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Number of ports that are tried, beginning with the wanted one.
const PORTS_TRIED_MAX: u16 = 1024;
/// Connections that the kernel may hold until they are accepted.
const BACKLOG: i32 = 4096;
/// The number of events that one step handles. It is limited so that other work of the caller's loop is not delayed.
const EVENTS_PER_STEP_MAX: usize = 64;
/// The length of a frame that opens a link, in bytes.
///
/// * Filled by: each other host
/// * Setting: none, the format of these frames fixes it
/// * Reached: the connection is closed
/// * Test: `one_who_is_known_and_speaks_strangely_is_turned_away`
const GREETING_BYTES_MAX: usize = 128;
/// Version of the exchange that opens links.
const VERSION: u8 = 2;

/// Kinds of the frames that open links.
mod kind {
    /// Header: version, what is wanted.
    pub const OPEN_CONTROL: u8 = 1;
    /// Header: two tokens if a pair is wanted, else nothing.
    pub const ACCEPT_CONTROL: u8 = 2;
    /// Header: the first token.
    pub const OPEN_DATA: u8 = 3;
    /// Header: the second token.
    pub const ACCEPT_DATA: u8 = 4;
}

/// How a data link is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Encrypted.
    Encrypted,
    /// In clear, to a peer that has been authenticated on the control link.
    Trusted,
}

/// What a caller wants that opens a control link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A control link and a data link.
    Pair(Security),
    /// A control link alone.
    Control,
}

impl Wanted {
    fn code(self) -> u8 {
        match self {
            Wanted::Pair(Security::Encrypted) => 0,
            Wanted::Pair(Security::Trusted) => 1,
            Wanted::Control => 2,
        }
    }

    fn of(code: u8) -> Option<Wanted> {
        let all = [Wanted::Pair(Security::Encrypted), Wanted::Pair(Security::Trusted), Wanted::Control];
        all.into_iter().find(|wanted| wanted.code() == code)
    }
}

/// Why a call has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nobody has answered, or something else has gone wrong.
    NoAnswer,
    /// The called daemon is not where it was: its host's system says that nobody listens there, or somebody else does.
    Absent,
}

/// The two links to another daemon. Each link may already hold bytes that were read with the handshake.
#[derive(Debug)]
pub struct Pair {
    /// For control.
    pub control: Link,
    /// For data.
    pub data: Link,
}

/// A result of the connector.
#[derive(Debug)]
pub enum ConnectEvent {
    /// A known daemon has connected, and both links to it are complete.
    PairAccepted {
        /// The daemon's key.
        peer: PublicKey,
        /// The address from which it called.
        address: SocketAddr,
        /// Its links.
        pair: Box<Pair>,
    },
    /// A call by [`Connector::connect_pair`] has succeeded.
    PairConnected {
        /// The ticket of the call.
        ticket: u64,
        /// The address that answered.
        address: SocketAddr,
        /// The links.
        pair: Box<Pair>,
    },
    /// A known daemon has connected by [`Connector::connect_control`].
    ControlAccepted {
        /// The daemon's key.
        peer: PublicKey,
        /// The control link.
        link: Box<Link>,
    },
    /// A single link is complete: the expected peer has connected, or a call by [`Connector::connect_link`] or
    /// [`Connector::connect_control`] has succeeded.
    LinkReady {
        /// The ticket of the expectation or the call.
        ticket: u64,
        /// The link.
        link: Box<Link>,
    },
    /// A call has failed, or the expected peer has not connected in time.
    Failed {
        /// The ticket of the call or the expectation.
        ticket: u64,
        /// The reason for each address.
        reason: String,
        /// What it proves.
        failure: Failure,
    },
    /// A stranger, or a peer that violated the protocol, was refused.
    Refused {
        /// The address from which it called.
        address: IpAddr,
        /// Why it was refused.
        reason: String,
        /// The number of refusals of this address that the event reports. It is more than one if there are too many to
        /// report them one by one.
        count: u32,
    },
}

/// Accepts and makes connections, and turns them into links.
pub struct Connector {
    common: Common,
    acceptor: Acceptor,
    dialer: Dialer,
}

impl Connector {
    /// Makes a connector that does not listen. A link that it makes fails when the network is silent for `timeout`.
    pub fn new(identity: Identity, timeout: Duration) -> Result<Connector, Errno> {
        let common = Common::new(identity, timeout)?;
        Ok(Connector { common, acceptor: Acceptor::default(), dialer: Dialer::default() })
    }

    /// Listens on all addresses, at the first free port from `port` on, or at any port if `port` is zero.
    pub fn listen(&mut self, port: u16) -> Result<(), Errno> {
        self.listen_at(listener(port)?)
    }

    /// Accepts connections on a socket that already listens and does not block.
    pub fn listen_at(&mut self, listener: OwnedFd) -> Result<(), Errno> {
        self.acceptor.listen_at(&self.common, listener)
    }

    /// Returns the port at which the connector listens, or zero if it does not listen.
    pub fn port(&self) -> u16 {
        self.acceptor.port()
    }

    /// Returns this host's key and the keys that may connect.
    pub fn identity(&self) -> &Identity {
        self.common.identity()
    }

    /// Sets the time of network silence after which a link fails, for links that are made from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.common.set_timeout(timeout);
    }

    /// Returns the number of connections that are not links yet.
    pub fn pending(&self) -> usize {
        self.acceptor.pending() + self.dialer.pending()
    }

    /// Prepares for a peer to connect and to show the first token: over TLS and with the key `peer` if a key is given,
    /// else in clear. Within `timeout` a [`ConnectEvent::LinkReady`] or [`ConnectEvent::Failed`] with the ticket
    /// follows.
    pub fn expect(&mut self, ticket: u64, peer: Option<PublicKey>, tokens: Tokens, timeout: Duration, now: Instant) {
        self.cancel(ticket);
        self.acceptor.expect(&self.common, ticket, peer, tokens, now + timeout);
    }

    /// Connects to the daemon with the key `peer`, trying its addresses from the first on. Within `timeout` a
    /// [`ConnectEvent::PairConnected`] or [`ConnectEvent::Failed`] with the ticket follows.
    pub fn connect_pair(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        peer: PublicKey,
        security: Security,
        timeout: Duration,
        now: Instant,
    ) {
        self.cancel(ticket);
        let dial = Dial::new(addresses, Some(peer), Purpose::Pair(security), now + timeout, now);
        self.dialer.dial(&mut self.common, ticket, dial, now);
    }

    /// Connects to the daemon with the key `peer` for a control link alone, trying its addresses from the first on. Within
    /// `timeout` a [`ConnectEvent::LinkReady`] or [`ConnectEvent::Failed`] with the ticket follows. If the daemon is not at
    /// the address `last`, where it was, or at no address, the call fails at once.
    pub fn connect_control(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        last: Option<IpAddr>,
        peer: PublicKey,
        timeout: Duration,
        now: Instant,
    ) {
        self.cancel(ticket);
        let dial = Dial::new(addresses, Some(peer), Purpose::Control { last }, now + timeout, now);
        self.dialer.dial(&mut self.common, ticket, dial, now);
    }

    /// Connects to a peer that expects this call ([`Connector::expect`]), over TLS if a key is given, else in clear.
    /// Within `timeout` a [`ConnectEvent::LinkReady`] or [`ConnectEvent::Failed`] with the ticket follows.
    pub fn connect_link(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        peer: Option<PublicKey>,
        tokens: Tokens,
        timeout: Duration,
        now: Instant,
    ) {
        self.cancel(ticket);
        let dial = Dial::new(addresses, peer, Purpose::Link(tokens), now + timeout, now);
        self.dialer.dial(&mut self.common, ticket, dial, now);
    }

    /// Forgets a call or an expectation. No event follows.
    pub fn cancel(&mut self, ticket: u64) {
        self.dialer.cancel(ticket);
        self.acceptor.cancel(&self.common, ticket);
    }

    /// Makes progress. Must be called when [`Connector::as_fd`] is readable and when [`Connector::next_wakeup`] has
    /// passed.
    pub fn step(&mut self, now: Instant) {
        let mut ready = Vec::with_capacity(EVENTS_PER_STEP_MAX);
        let nothing = rustix::time::Timespec::default();
        // After an interrupted call, the next call returns the events.
        let _ = epoll::wait(self.common.epoll(), rustix::buffer::spare_capacity(&mut ready), Some(&nothing));
        for event in &ready {
            match event.data.u64() {
                common::LISTENER => self.acceptor.accept(&mut self.common, now),
                id if self.acceptor.has(id) => self.acceptor.progress(&mut self.common, id, now),
                id => self.dialer.progress(&mut self.common, id, now),
            }
        }
        self.acceptor.expire(&mut self.common, now);
        self.dialer.expire(now);
        self.dialer.try_next_addresses(&mut self.common, now);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ConnectEvent> {
        self.common.poll_event()
    }

    /// Returns the time at which [`Connector::step`] is to be called at the latest.
    pub fn next_wakeup(&self) -> Option<Instant> {
        if self.common.has_events() {
            return Some(Instant::now());
        }
        self.acceptor.next_wakeup().into_iter().chain(self.dialer.next_wakeup()).min()
    }

    /// Takes an accepted connection.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn add_connection(&mut self, socket: OwnedFd, address: SocketAddr, now: Instant) {
        self.acceptor.add_connection(&mut self.common, socket, address, now);
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.epoll().as_fd()
    }
}

/// Reads two tokens from a header.
fn two_tokens(header: &[u8]) -> Option<Tokens> {
    let (one, other) = header.split_first_chunk::<KEY_BYTES>()?;
    Some(Tokens { shown: Token::from_bytes(*one), back: Token::from_bytes(other.try_into().ok()?) })
}

/// Returns a text that explains an error to the reader of the log.
fn explain(error: &LinkError) -> String {
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

/// Makes a listening socket, for IPv6 and IPv4 where the system has both, at the first free port from `wanted` on, or
/// at any port if `wanted` is zero.
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

/// Makes a non-blocking socket for the address family of `address`.
fn tcp_socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    crate::socket::avoid_pacing(socket.as_fd());
    Ok(socket)
}
