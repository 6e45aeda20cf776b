//! Incoming connections: silent at first, then in the handshake, then authenticated and waiting for the data link.
use super::common::{Common, Interest, LISTENER};
use super::refusals::Refusals;
use super::{
    ConnectEvent, Failure, GREETING_BYTES_MAX, HANDSHAKE_TIME_MAX, Security, UNKNOWN_MAX, VERSION, Wanted, explain,
    kind,
};
use crate::keys::{PublicKey, Tokens};
use crate::link::{Head, Link, LinkError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections accepted in a row before existing ones are served.
const ACCEPTS_IN_A_ROW_MAX: usize = 16;
/// Time for which a connection that has begun a handshake cannot be closed in favour of a new one.
const HANDSHAKE_TIME_LEAST: Duration = Duration::from_secs(1);
/// The number of connections of one known peer that may wait for the peer's data link at a time. The same limit applies
/// to the peer's connections that have not sent their request.
///
/// * Filled by: each other host
/// * Setting: none, an honest host connects only once to each address of another host
/// * Reached: the oldest of these connections is closed
/// * Test: `one_who_calls_again_and_again_keeps_few_places`, `one_who_calls_and_says_nothing_keeps_few_places`
pub const HALF_PAIRS_MAX: usize = 8;
/// The pause in accepting after there was no descriptor or no memory for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The first byte of a TLS connection.
const TLS_BYTE: u8 = 22;
/// The first byte of a link in clear: the low byte of the length of its first frame.
const CLEAR_BYTE: u8 = 32;

enum Stage {
    /// The peer has sent nothing; the connection costs only a descriptor.
    Silent(OwnedFd),
    /// The peer must prove its identity and send its request.
    Handshaking(Box<Link>),
    /// The peer is a known daemon whose data link is awaited.
    AwaitingData(Box<HalfPair>),
}

/// A complete control link without its data link.
struct HalfPair {
    control: Link,
    peer: PublicKey,
    security: Security,
    tokens: Tokens,
}

/// A peer that is expected to connect.
struct Expected {
    /// The key that the peer must have. Without a key, on a link in clear, the peer is known by its token alone.
    peer: Option<PublicKey>,
    /// Whether the peer's key is accepted only while the peer is expected.
    is_guest: bool,
    tokens: Tokens,
    give_up: Instant,
}

/// An incoming connection that is not a link yet.
struct Incoming {
    address: SocketAddr,
    since: Instant,
    stage: Stage,
}

impl Incoming {
    fn deadline(&self) -> Instant {
        self.since + HANDSHAKE_TIME_MAX
    }

    /// Returns whether the peer has not been authenticated.
    fn is_unknown(&self) -> bool {
        match &self.stage {
            Stage::Silent(_) => true,
            Stage::Handshaking(link) => link.peer().is_none(),
            Stage::AwaitingData(_) => false,
        }
    }
}

/// Accepts connections.
#[derive(Default)]
pub struct Acceptor {
    /// The listening socket; absent if the daemon only makes connections.
    listener: Option<OwnedFd>,
    port: u16,
    incoming: HashMap<u64, Incoming>,
    expected: HashMap<u64, Expected>,
    refusals: Refusals,
    /// No connection is accepted before this time, since there was no descriptor or no memory for one.
    paused_until: Option<Instant>,
}

impl Acceptor {
    pub fn listen_at(&mut self, common: &Common, listener: OwnedFd) -> Result<(), Errno> {
        common.watch(LISTENER, listener.as_fd(), Interest::Read)?;
        self.port = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?.port();
        self.listener = Some(listener);
        Ok(())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pending(&self) -> usize {
        self.incoming.len()
    }

    /// Returns whether the id belongs to an incoming connection.
    pub fn has(&self, id: u64) -> bool {
        self.incoming.contains_key(&id)
    }

    pub fn next_wakeup(&self) -> Option<Instant> {
        let incoming = self.incoming.values().map(Incoming::deadline);
        let expected = self.expected.values().map(|expected| expected.give_up);
        incoming.chain(expected).chain(self.paused_until).chain(self.refusals.next_wakeup()).min()
    }

    // ----- expected peers

    pub fn expect(&mut self, common: &Common, ticket: u64, peer: Option<PublicKey>, tokens: Tokens, give_up: Instant) {
        let known = common.identity().known();
        let is_guest = peer.is_some_and(|peer| !known.has(&peer) || self.is_guest(peer));
        if let Some(peer) = peer {
            known.add(peer);
        }
        self.expected.insert(ticket, Expected { peer, is_guest, tokens, give_up });
    }

    fn is_guest(&self, peer: PublicKey) -> bool {
        self.expected.values().any(|expected| expected.is_guest && expected.peer == Some(peer))
    }

    /// Forgets an expectation.
    pub fn cancel(&mut self, common: &Common, ticket: u64) {
        self.take_expected(common, ticket);
    }

    fn take_expected(&mut self, common: &Common, ticket: u64) -> Option<Expected> {
        let expected = self.expected.remove(&ticket)?;
        if let Some(peer) = expected.peer.filter(|peer| expected.is_guest && !self.is_guest(*peer)) {
            common.identity().known().remove(&peer);
        }
        Some(expected)
    }

    fn expire_expected(&mut self, common: &mut Common, now: Instant) {
        let over = self.expected.iter().filter(|(_, expected)| expected.give_up <= now);
        let over: Vec<u64> = over.map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            self.cancel(common, ticket);
            let reason = "has not called in time".into();
            common.push_event(ConnectEvent::Failed { ticket, reason, failure: Failure::NoAnswer });
        }
    }

    // ----- connections

    /// Accepts new connections.
    pub fn accept(&mut self, common: &mut Common, now: Instant) {
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Some(listener) = &self.listener else { return };
            match rustix::net::acceptfrom_with(listener, flags) {
                Ok((socket, address)) => {
                    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                    let nowhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
                    self.add_connection(common, socket, address.unwrap_or(nowhere), now);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // No descriptor or no memory: close one connection and pause.
                    common.set_interest(LISTENER, listener.as_fd(), Interest::Nothing);
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    self.make_room(common, now, true);
                    return;
                }
            }
        }
    }

    /// Takes an accepted connection.
    pub fn add_connection(&mut self, common: &mut Common, socket: OwnedFd, address: SocketAddr, now: Instant) {
        if !self.make_room(common, now, false) {
            return self.refuse(common, address, "too many that are not known".into(), now);
        }
        let id = common.new_id();
        if common.watch(id, socket.as_fd(), Interest::Read).is_ok() {
            self.continue_connection(common, id, Incoming { address, since: now, stage: Stage::Silent(socket) }, now);
        }
    }

    /// Makes room for one more unknown connection. If there are too many already, or if `at_once` is set, closes the
    /// connection that has been silent for longest; if none is silent, closes the oldest connection if its handshake
    /// takes too long. Returns whether there is room.
    fn make_room(&mut self, common: &mut Common, now: Instant, at_once: bool) -> bool {
        let unknown: Vec<_> = self.incoming.iter().filter(|(_, incoming)| incoming.is_unknown()).collect();
        if unknown.len() < UNKNOWN_MAX && !at_once {
            return true;
        }
        let oldest = |silent: bool| {
            let those = unknown.iter().filter(|(_, incoming)| matches!(incoming.stage, Stage::Silent(_)) == silent);
            those.min_by_key(|(_, incoming)| incoming.since)
        };
        let slow = || oldest(false).filter(|(_, one)| now.duration_since(one.since) >= HANDSHAKE_TIME_LEAST);
        let Some(id) = oldest(true).or_else(slow).map(|(id, _)| **id) else { return false };
        if let Some(incoming) = self.incoming.remove(&id) {
            self.refuse(common, incoming.address, "made room for others".into(), now);
        }
        true
    }

    /// Closes connections that have passed their deadline, resumes accepting, and reports refusals that were held back.
    pub fn expire(&mut self, common: &mut Common, now: Instant) {
        let late = self.incoming.iter().filter(|(_, incoming)| incoming.deadline() <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            let Some(incoming) = self.incoming.remove(&id) else { continue };
            let reason = match incoming.stage {
                Stage::Silent(_) => "said nothing",
                Stage::Handshaking(_) => "was too slow to say who it is",
                Stage::AwaitingData(_) => "is known, and did not come with its data link",
            };
            self.refuse(common, incoming.address, reason.into(), now);
        }
        self.expire_expected(common, now);
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            if let Some(listener) = &self.listener {
                common.set_interest(LISTENER, listener.as_fd(), Interest::Read);
            }
        }
        for (address, count) in self.refusals.poll_unlogged(now) {
            let reason = "more of the same".into();
            common.push_event(ConnectEvent::Refused { address, reason, count });
        }
    }

    fn refuse(&mut self, common: &mut Common, address: SocketAddr, reason: String, now: Instant) {
        let address = address.ip().to_canonical();
        if let Some(count) = self.refusals.count(address, now) {
            common.push_event(ConnectEvent::Refused { address, reason, count });
        }
    }

    /// Continues a connection whose socket is ready.
    pub fn progress(&mut self, common: &mut Common, id: u64, now: Instant) {
        // The connection may have been closed earlier in this step.
        if let Some(incoming) = self.incoming.remove(&id) {
            self.continue_connection(common, id, incoming, now);
        }
    }

    fn continue_connection(&mut self, common: &mut Common, id: u64, incoming: Incoming, now: Instant) {
        let Incoming { address, since, stage } = incoming;
        let result = match stage {
            Stage::Silent(socket) => begin_handshake(common, socket),
            Stage::Handshaking(link) => handshake(link),
            Stage::AwaitingData(mut half) => match half.control.receive() {
                Ok(None) => Ok(Some(Stage::AwaitingData(half))),
                Ok(Some(_)) => Err("sends what it was not asked for".into()),
                // The peer has closed this connection, since it has given the call up.
                Err(LinkError::Closed) => Ok(None),
                Err(error) => Err(explain(&error)),
            },
        };
        // The first frame of a known peer is its request.
        let result = match result {
            Ok(Some(Stage::Handshaking(mut link))) if link.is_ready() => match link.receive() {
                Ok(None) => Ok(Some(Stage::Handshaking(link))),
                Ok(Some(head)) => self.handle_open(common, *link, &head, address),
                Err(error) => Err(explain(&error)),
            },
            result => result,
        };
        match result {
            Ok(None) => {}
            Ok(Some(stage)) => {
                match &stage {
                    Stage::Handshaking(link) => {
                        self.make_room_for_known(link.peer());
                        common.set_interest(id, link.as_fd(), Interest::of(link));
                    }
                    Stage::AwaitingData(half) => {
                        common.set_interest(id, half.control.as_fd(), Interest::of(&half.control));
                    }
                    Stage::Silent(_) => {}
                }
                self.incoming.insert(id, Incoming { address, since, stage });
            }
            Err(reason) => self.refuse(common, address, reason, now),
        }
    }

    // ----- links

    /// Handles the first frame of a connection.
    fn handle_open(
        &mut self,
        common: &mut Common,
        link: Link,
        head: &Head,
        address: SocketAddr,
    ) -> Result<Option<Stage>, String> {
        match (head.kind, head.header(), head.body_bytes) {
            (kind::OPEN_CONTROL, [VERSION, wanted], 0) => {
                let wanted = Wanted::of(*wanted).ok_or("asks for something that is not known")?;
                let peer = link.peer().ok_or("wants control without a key")?;
                // The key may have been removed since the handshake.
                if !common.identity().known().has(&peer) {
                    return Err("its key is not the one of a host of this machine".into());
                }
                match wanted {
                    Wanted::Pair(security) => {
                        self.begin_pair(link, peer, security).map(|half| Some(Stage::AwaitingData(half)))
                    }
                    Wanted::Control => accept_control(common, link, peer).map(|()| None),
                }
            }
            (kind::OPEN_CONTROL, [version, ..], _) if *version != VERSION => {
                Err(format!("speaks version {version}, not {VERSION}"))
            }
            (kind::OPEN_DATA, token, 0) => self.handle_token(common, link, token, address).map(|()| None),
            _ => Err("does not speak our protocol".into()),
        }
    }

    /// Answers a request for a control link with two tokens.
    fn begin_pair(&mut self, mut control: Link, peer: PublicKey, security: Security) -> Result<Box<HalfPair>, String> {
        self.make_room_for_half_pair(&peer);
        let tokens = Tokens::generate().map_err(|error| error.to_string())?;
        let header = zeroize::Zeroizing::new([*tokens.shown.as_bytes(), *tokens.back.as_bytes()].concat());
        control.send(kind::ACCEPT_CONTROL, &header, &[]).map_err(|error| explain(&error))?;
        Ok(Box::new(HalfPair { control, peer, security, tokens }))
    }

    /// Bounds the number of half pairs of a peer. Not only the newest one is kept: a peer that calls several addresses
    /// of this host at once continues with the address that answers first, which need not be the last address that it
    /// called.
    fn make_room_for_half_pair(&mut self, peer: &PublicKey) {
        let half_pairs = self.half_pairs_of(peer);
        self.make_room_among(half_pairs);
    }

    /// Bounds the number of a known peer's connections that have not sent their request.
    fn make_room_for_known(&mut self, peer: Option<PublicKey>) {
        let Some(peer) = peer else { return };
        let known = |(id, incoming): (&u64, &Incoming)| match &incoming.stage {
            Stage::Handshaking(link) if link.peer() == Some(peer) => Some(*id),
            _ => None,
        };
        let known = self.incoming.iter().filter_map(known).collect();
        self.make_room_among(known);
    }

    /// Closes the oldest of a peer's connections `ids` if there are as many as the peer may have.
    fn make_room_among(&mut self, ids: Vec<u64>) {
        if let Some(oldest) = ids.iter().min().filter(|_| ids.len() >= HALF_PAIRS_MAX) {
            self.incoming.remove(oldest);
        }
    }

    /// Returns the connections of a peer that wait for the peer's data link.
    fn half_pairs_of(&self, peer: &PublicKey) -> Vec<u64> {
        let half = |(id, incoming): (&u64, &Incoming)| match &incoming.stage {
            Stage::AwaitingData(half) if half.peer == *peer => Some(*id),
            _ => None,
        };
        self.incoming.iter().filter_map(half).collect()
    }

    /// Handles a token that a connection has shown. A valid token belongs to an expected peer or to a half pair.
    fn handle_token(
        &mut self,
        common: &mut Common,
        mut data: Link,
        shown: &[u8],
        address: SocketAddr,
    ) -> Result<(), String> {
        let not_its_own = Err("shows a token that is not its own".to_owned());
        if let Some(ticket) = self.ticket_of(shown) {
            let Some(Expected { peer, tokens, .. }) = self.take_expected(common, ticket) else { return Ok(()) };
            if data.peer() != peer {
                let reason = "somebody else has shown its token".into();
                common.push_event(ConnectEvent::Failed { ticket, reason, failure: Failure::NoAnswer });
                return not_its_own;
            }
            let sent = data.send(kind::ACCEPT_DATA, tokens.back.as_bytes(), &[]);
            let link = sent.and_then(|()| common.finish_link(data)).map_err(|error| explain(&error))?;
            common.push_event(ConnectEvent::LinkReady { ticket, link: Box::new(link) });
            return Ok(());
        }
        let half = self.take_half_pair(shown).ok_or("shows a token that is not good, or not any more")?;
        let fits = match half.security {
            Security::Encrypted => data.peer() == Some(half.peer),
            Security::Trusted => !data.is_encrypted(),
        };
        if !fits {
            return not_its_own;
        }
        let HalfPair { control, peer, tokens, .. } = *half;
        // The peer's other connections were attempts to make the same pair.
        self.half_pairs_of(&peer).iter().for_each(|id| drop(self.incoming.remove(id)));
        let sent = data.send(kind::ACCEPT_DATA, tokens.back.as_bytes(), &[]);
        let pair = sent.and_then(|()| common.finish_pair(control, data)).map_err(|error| explain(&error))?;
        common.push_event(ConnectEvent::PairAccepted { peer, address, pair });
        Ok(())
    }

    /// Returns the ticket of the expected peer that a token belongs to. Always compares all tokens, so that the
    /// duration reveals nothing.
    fn ticket_of(&self, shown: &[u8]) -> Option<u64> {
        self.expected.iter().fold(None, |found, (ticket, expected)| match expected.tokens.shown.is(shown) {
            true => Some(*ticket),
            false => found,
        })
    }

    /// Removes and returns the half pair that a token belongs to. After this the token is not valid any more.
    fn take_half_pair(&mut self, shown: &[u8]) -> Option<Box<HalfPair>> {
        let id = self.incoming.iter().fold(None, |found, (id, incoming)| match &incoming.stage {
            Stage::AwaitingData(half) if half.tokens.shown.is(shown) => Some(*id),
            _ => found,
        })?;
        match self.incoming.remove(&id)?.stage {
            Stage::AwaitingData(half) => Some(half),
            _ => None,
        }
    }
}

/// Answers a request for a control link alone, which is complete now.
fn accept_control(common: &mut Common, mut link: Link, peer: PublicKey) -> Result<(), String> {
    let sent = link.send(kind::ACCEPT_CONTROL, &[], &[]);
    let link = sent.and_then(|()| common.finish_link(link)).map_err(|error| explain(&error))?;
    common.push_event(ConnectEvent::ControlAccepted { peer, link: Box::new(link) });
    Ok(())
}

/// If a byte has arrived, begins the kind of handshake that this first byte selects.
fn begin_handshake(common: &Common, socket: OwnedFd) -> Result<Option<Stage>, String> {
    let mut byte = [0];
    match rustix::net::recv(&socket, &mut byte, RecvFlags::PEEK) {
        Ok((0, _)) => Err("said nothing and went away".into()),
        Ok(_) => {
            let mut link = match byte {
                [TLS_BYTE] => Link::secure_from(socket, common.identity()).map_err(|error| explain(&error))?,
                [CLEAR_BYTE] => Link::clear(socket),
                _ => return Err("does not speak our protocol".into()),
            };
            link.set_frame_bytes_max(GREETING_BYTES_MAX);
            handshake(Box::new(link))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Some(Stage::Silent(socket))),
        Err(errno) => Err(errno.to_string()),
    }
}

fn handshake(mut link: Box<Link>) -> Result<Option<Stage>, String> {
    link.handshake().map_err(|error| explain(&error))?;
    Ok(Some(Stage::Handshaking(link)))
}
