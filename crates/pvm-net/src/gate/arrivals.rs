//! Those who call: silent, then shaking hands, then known and waited for with their second link.
use super::{
    Entry, Event, GREETING_BYTES_MAX, Gate, HANDSHAKE_TIME_MAX, LISTENER, Security, UNKNOWN_MAX, VERSION, Watch, kind,
    words,
};
use crate::keys::{PublicKey, Tokens};
use crate::link::{Head, Link, LinkError};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections accepted before those that are there have their turn.
const ACCEPTS_IN_TURN_MAX: usize = 16;
/// A caller that has begun a handshake gets so long before it can lose its place to another.
const SHAKE_TIME_LEAST: Duration = Duration::from_secs(1);
/// Connections of one known peer at a time that wait for its data link, and as many that have not said yet what they
/// are for.
///
/// * Filled by: each other host
/// * Setting: none, a host calls once for each address of another
/// * Reached: the oldest is closed
/// * Test: `one_who_calls_again_and_again_keeps_few_places`, `one_who_calls_and_says_nothing_keeps_few_places`
pub const HALVES_MAX: usize = 8;
/// Pause when there is no descriptor left for a new connection.
const DEAF_TIME: Duration = Duration::from_millis(100);
/// The first byte of a TLS connection.
const TLS_BYTE: u8 = 22;
/// The first byte of a frame that opens a link in clear: its length.
const CLEAR_BYTE: u8 = 32;

enum Stage {
    /// Has sent nothing, and costs nothing but its descriptor.
    Silent(OwnedFd),
    /// Is to prove who it is, and to say what it wants.
    Shaking(Link),
    /// A known daemon, waited for with its data link.
    Half(Box<Half>),
}

struct Half {
    control: Link,
    peer: PublicKey,
    security: Security,
    tokens: Tokens,
}

/// One who has been announced.
pub struct Expected {
    /// Who it has to be; in clear it is known by its token alone.
    peer: Option<PublicKey>,
    /// It is known only while it is expected.
    is_guest: bool,
    tokens: Tokens,
    pub give_up: Instant,
}

/// One who calls.
pub struct Arrival {
    address: SocketAddr,
    since: Instant,
    stage: Stage,
}

impl Arrival {
    /// When its patience is over.
    pub fn deadline(&self) -> Instant {
        self.since + HANDSHAKE_TIME_MAX
    }

    /// Whether nobody knows yet who it is.
    fn is_unknown(&self) -> bool {
        match &self.stage {
            Stage::Silent(_) => true,
            Stage::Shaking(link) => link.peer().is_none(),
            Stage::Half(_) => false,
        }
    }
}

impl Gate {
    /// Somebody will call and show the first token: over TLS and with that key if there is one, else
    /// in clear. Within the patience there is a [`Event::Met`] or a [`Event::Failed`] with that ticket.
    pub fn expect(&mut self, ticket: u64, peer: Option<PublicKey>, tokens: Tokens, patience: Duration, now: Instant) {
        self.cancel(ticket);
        let is_guest = peer.is_some_and(|peer| !self.identity.known().has(&peer) || self.is_guest(peer));
        if let Some(peer) = peer {
            self.identity.known().add(peer);
        }
        self.expected.insert(ticket, Expected { peer, is_guest, tokens, give_up: now + patience });
    }

    fn is_guest(&self, peer: PublicKey) -> bool {
        self.expected.values().any(|expected| expected.is_guest && expected.peer == Some(peer))
    }

    pub(super) fn expectations_end(&mut self, now: Instant) {
        let over = self.expected.iter().filter(|(_, expected)| expected.give_up <= now);
        let over: Vec<u64> = over.map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            self.forget_expected(ticket);
            self.events.push_back(Event::Failed { ticket, reason: "has not called in time".into() });
        }
    }

    pub(super) fn forget_expected(&mut self, ticket: u64) -> Option<Expected> {
        let expected = self.expected.remove(&ticket)?;
        if let Some(peer) = expected.peer.filter(|peer| expected.is_guest && !self.is_guest(*peer)) {
            self.identity.known().remove(&peer);
        }
        Some(expected)
    }

    pub(super) fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_IN_TURN_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Some(listener) = &self.listener else { return };
            match rustix::net::acceptfrom_with(listener, flags) {
                Ok((socket, address)) => {
                    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                    let nowhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
                    self.greet(socket, address.unwrap_or(nowhere), now);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // No descriptor or no memory: somebody may go, and all can wait a little.
                    let data = EventData::new_u64(LISTENER);
                    let _ = epoll::modify(&self.epoll, listener, data, EventFlags::empty());
                    self.deaf_until = Some(now + DEAF_TIME);
                    self.make_room(now, true);
                    return;
                }
            }
        }
    }

    pub(crate) fn greet(&mut self, socket: OwnedFd, address: SocketAddr, now: Instant) {
        if !self.make_room(now, false) {
            return self.refuse(address, "too many that are not known".into(), now);
        }
        let id = self.new_id();
        if self.add(id, socket.as_fd(), Watch::Read).is_ok() {
            self.arrival_goes_on(id, Arrival { address, since: now, stage: Stage::Silent(socket) }, now);
        }
    }

    /// Sees to it that one more may come: the one loses its place that has said nothing for the
    /// longest time, else the one that has been shaking hands for too long.
    fn make_room(&mut self, now: Instant, at_once: bool) -> bool {
        let unknown = self.entries.iter().filter_map(|(id, entry)| match entry {
            Entry::Arrival(arrival) if arrival.is_unknown() => Some((*id, arrival)),
            _ => None,
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.len() < UNKNOWN_MAX && !at_once {
            return true;
        }
        let oldest = |silent: bool| {
            let those = unknown.iter().filter(|(_, arrival)| matches!(arrival.stage, Stage::Silent(_)) == silent);
            those.min_by_key(|(_, arrival)| arrival.since)
        };
        let shaken = || oldest(false).filter(|(_, arrival)| now.duration_since(arrival.since) >= SHAKE_TIME_LEAST);
        let Some(id) = oldest(true).or_else(shaken).map(|(id, _)| *id) else { return false };
        if let Some(Entry::Arrival(arrival)) = self.entries.remove(&id) {
            self.refuse(arrival.address, "made room for others".into(), now);
        }
        true
    }

    pub(super) fn arrival_expired(&mut self, arrival: Arrival, now: Instant) {
        let reason = match arrival.stage {
            Stage::Silent(_) => "said nothing",
            Stage::Shaking(_) => "was too slow to say who it is",
            Stage::Half(_) => "is known, and did not come with its data link",
        };
        self.refuse(arrival.address, reason.into(), now);
    }

    pub(super) fn arrival_goes_on(&mut self, id: u64, arrival: Arrival, now: Instant) {
        let Arrival { address, since, stage } = arrival;
        let result = match stage {
            Stage::Silent(socket) => self.listen_to(socket),
            Stage::Shaking(link) => self.shake(link),
            Stage::Half(mut half) => match half.control.receive() {
                Ok(None) => Ok(Some(Stage::Half(half))),
                Ok(Some(_)) => Err("sends what it was not asked for".into()),
                // It has changed its mind.
                Err(LinkError::Closed) => Ok(None),
                Err(error) => Err(words(&error)),
            },
        };
        // What a known peer has asked for shows in its first frame.
        let result = match result {
            Ok(Some(Stage::Shaking(mut link))) if link.is_ready() => match link.receive() {
                Ok(None) => Ok(Some(Stage::Shaking(link))),
                Ok(Some(head)) => self.opened(link, &head, address),
                Err(error) => Err(words(&error)),
            },
            result => result,
        };
        match result {
            Ok(None) => {}
            Ok(Some(stage)) => {
                match &stage {
                    Stage::Shaking(link) => {
                        self.make_room_for_known(link.peer());
                        self.watch(id, link.as_fd(), Watch::of(link));
                    }
                    Stage::Half(half) => self.watch(id, half.control.as_fd(), Watch::of(&half.control)),
                    Stage::Silent(_) => {}
                }
                self.entries.insert(id, Entry::Arrival(Arrival { address, since, stage }));
            }
            Err(reason) => self.refuse(address, reason, now),
        }
    }

    /// The first byte says what it wants to speak.
    fn listen_to(&self, socket: OwnedFd) -> Result<Option<Stage>, String> {
        let mut byte = [0];
        match rustix::net::recv(&socket, &mut byte, RecvFlags::PEEK) {
            Ok((0, _)) => Err("said nothing and went away".into()),
            Ok(_) => {
                let mut link = match byte {
                    [TLS_BYTE] => Link::secure_from(socket, &self.identity).map_err(|error| words(&error))?,
                    [CLEAR_BYTE] => Link::clear(socket),
                    _ => return Err("does not speak our protocol".into()),
                };
                link.set_frame_bytes_max(GREETING_BYTES_MAX);
                self.shake(link)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Some(Stage::Silent(socket))),
            Err(errno) => Err(errno.to_string()),
        }
    }

    fn shake(&self, mut link: Link) -> Result<Option<Stage>, String> {
        link.handshake().map_err(|error| words(&error))?;
        Ok(Some(Stage::Shaking(link)))
    }

    /// The first frame of a link.
    fn opened(&mut self, link: Link, head: &Head, address: SocketAddr) -> Result<Option<Stage>, String> {
        match (head.kind, head.header(), head.body_bytes) {
            (kind::OPEN_CONTROL, [VERSION, security], 0) => {
                let security = Security::of(*security).ok_or("asks for a security that is not known")?;
                let peer = link.peer().ok_or("wants control without a key")?;
                self.half_open(link, peer, security).map(|half| Some(Stage::Half(half)))
            }
            (kind::OPEN_CONTROL, [version, ..], _) if *version != VERSION => {
                Err(format!("speaks version {version}, not {VERSION}"))
            }
            (kind::OPEN_DATA, token, 0) => self.complete(link, token, address).map(|()| None),
            _ => Err("does not speak our protocol".into()),
        }
    }

    fn half_open(&mut self, mut control: Link, peer: PublicKey, security: Security) -> Result<Box<Half>, String> {
        // The key may have been taken from the list meanwhile.
        if !self.identity.known().has(&peer) {
            return Err("its key is not the one of a host of this machine".into());
        }
        self.make_room_for_half(&peer);
        let tokens = Tokens::generate().map_err(|error| error.to_string())?;
        let header = zeroize::Zeroizing::new([*tokens.shown.as_bytes(), *tokens.back.as_bytes()].concat());
        control.send(kind::ACCEPT_CONTROL, &header, &[]).map_err(|error| words(&error))?;
        Ok(Box::new(Half { control, peer, security, tokens }))
    }

    /// A peer that calls several of our addresses at once goes on with the one that answers first,
    /// which need not be the one that it called last.
    fn make_room_for_half(&mut self, peer: &PublicKey) {
        let halves = self.halves_of(peer);
        self.make_room_among(halves);
    }

    /// A known peer that has not said what it wants could have any number of connections.
    fn make_room_for_known(&mut self, peer: Option<PublicKey>) {
        let Some(peer) = peer else { return };
        let known = |(id, entry): (&u64, &Entry)| match entry {
            Entry::Arrival(Arrival { stage: Stage::Shaking(link), .. }) if link.peer() == Some(peer) => Some(*id),
            _ => None,
        };
        let known = self.entries.iter().filter_map(known).collect();
        self.make_room_among(known);
    }

    /// The oldest of a peer's connections goes if there are as many as it may have.
    fn make_room_among(&mut self, ids: Vec<u64>) {
        if let Some(oldest) = ids.iter().min().filter(|_| ids.len() >= HALVES_MAX) {
            self.entries.remove(oldest);
        }
    }

    /// Connections of that peer which wait for its data link.
    fn halves_of(&self, peer: &PublicKey) -> Vec<u64> {
        let half = |(id, entry): (&u64, &Entry)| match entry {
            Entry::Arrival(Arrival { stage: Stage::Half(half), .. }) if half.peer == *peer => Some(*id),
            _ => None,
        };
        self.entries.iter().filter_map(half).collect()
    }

    /// Somebody shows a token: it is one who was expected, or the second link of one whose first
    /// stands.
    fn complete(&mut self, mut data: Link, shown: &[u8], address: SocketAddr) -> Result<(), String> {
        let not_its_own = Err("shows a token that is not its own".to_owned());
        if let Some(ticket) = self.expected_by(shown) {
            let Some(Expected { peer, tokens, .. }) = self.forget_expected(ticket) else { return Ok(()) };
            if data.peer() != peer {
                let reason = "somebody else has shown its token".into();
                self.events.push_back(Event::Failed { ticket, reason });
                return not_its_own;
            }
            let sent = data.send(kind::ACCEPT_DATA, tokens.back.as_bytes(), &[]);
            let link = sent.and_then(|()| self.finished(data)).map_err(|error| words(&error))?;
            self.events.push_back(Event::Met { ticket, link: Box::new(link) });
            return Ok(());
        }
        let half = self.half_of(shown).ok_or("shows a token that is not good, or not any more")?;
        let fits = match half.security {
            Security::Encrypted => data.peer() == Some(half.peer),
            Security::Trusted => !data.is_encrypted(),
        };
        if !fits {
            return not_its_own;
        }
        let Half { control, peer, tokens, .. } = *half;
        // Its other calls were for the same.
        self.halves_of(&peer).iter().for_each(|id| drop(self.entries.remove(id)));
        let sent = data.send(kind::ACCEPT_DATA, tokens.back.as_bytes(), &[]);
        let pair = sent.and_then(|()| self.pair(control, data)).map_err(|error| words(&error))?;
        self.events.push_back(Event::Arrived { peer, address, pair });
        Ok(())
    }

    /// All are compared, so that the time tells nothing.
    fn expected_by(&self, shown: &[u8]) -> Option<u64> {
        self.expected.iter().fold(None, |found, (ticket, expected)| match expected.tokens.shown.is(shown) {
            true => Some(*ticket),
            false => found,
        })
    }

    /// The one whose token that is; the token is not good any more then.
    fn half_of(&mut self, shown: &[u8]) -> Option<Box<Half>> {
        let id = self.entries.iter().fold(None, |found, (id, entry)| match entry {
            Entry::Arrival(Arrival { stage: Stage::Half(half), .. }) if half.tokens.shown.is(shown) => Some(*id),
            _ => found,
        })?;
        match self.entries.remove(&id) {
            Some(Entry::Arrival(Arrival { stage: Stage::Half(half), .. })) => Some(half),
            _ => None,
        }
    }
}
