//! Those whom we call: addresses are tried one after another, a little apart, without waiting for
//! each to fail, and again after a pause, until one answers or patience ends.
use super::{
    Entry, Event, GREETING_BYTES_MAX, Gate, HANDSHAKE_TIME_MAX, Security, VERSION, Watch, kind, tcp_socket, two_tokens,
    words,
};
use crate::keys::{PublicKey, Tokens};
use crate::link::{Link, LinkError};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// An address gets so long a lead before the next one is tried beside it.
const LEAD_TIME: Duration = Duration::from_millis(300);
/// Pause before all addresses are tried once more.
const PAUSE: Duration = Duration::from_millis(200);

/// What a call is for.
enum Errand {
    /// The two links between daemons.
    Pair(Security),
    /// One link, to somebody who expects whoever shows the first token, and shows the second.
    Meeting(Tokens),
}

/// A call.
pub struct Dial {
    /// Who is to answer; known by tokens alone where there is no key.
    peer: Option<PublicKey>,
    errand: Errand,
    addresses: Vec<SocketAddr>,
    /// Which address is tried next.
    next: usize,
    next_at: Instant,
    give_up: Instant,
    /// What went wrong last, for each address.
    reasons: Vec<String>,
    /// An address has answered; no other is tried while it stands.
    settled: bool,
}

impl Dial {
    pub fn next_wakeup(&self) -> Instant {
        if self.settled { self.give_up } else { self.next_at.min(self.give_up) }
    }
}

enum Stage {
    Connecting(OwnedFd),
    /// Handshake, then the answer to what we want.
    Opening {
        link: Box<Link>,
        asked: bool,
    },
}

/// The control link stands; the data link is on its way.
struct Half {
    control: Link,
    tokens: Tokens,
}

/// One connection to one address.
pub struct Attempt {
    ticket: u64,
    address: SocketAddr,
    /// When it is given up.
    pub deadline: Instant,
    stage: Stage,
    half: Option<Box<Half>>,
}

/// How an attempt goes on.
enum Next {
    Wait(Stage),
    /// The control link stands, with these tokens.
    Control(Link, Tokens),
    /// Tokens have been exchanged.
    Done(Link),
}

impl Gate {
    /// Calls the one with that key at its addresses, the best first. Within the patience there is a
    /// [`Event::Connected`] or a [`Event::Failed`] with that ticket.
    pub fn connect(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        peer: PublicKey,
        security: Security,
        patience: Duration,
        now: Instant,
    ) {
        self.dial(ticket, addresses, Some(peer), Errand::Pair(security), patience, now);
    }

    /// Calls one who expects that ([`Gate::expect`]): over TLS if a key is given, else in clear.
    /// Within the patience there is a [`Event::Met`] or a [`Event::Failed`] with that ticket.
    pub fn meet(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        peer: Option<PublicKey>,
        tokens: Tokens,
        patience: Duration,
        now: Instant,
    ) {
        self.dial(ticket, addresses, peer, Errand::Meeting(tokens), patience, now);
    }

    fn dial(
        &mut self,
        ticket: u64,
        addresses: &[SocketAddr],
        peer: Option<PublicKey>,
        errand: Errand,
        patience: Duration,
        now: Instant,
    ) {
        self.cancel(ticket);
        let dial = Dial {
            peer,
            errand,
            addresses: addresses.to_vec(),
            next: 0,
            next_at: now,
            give_up: now + patience,
            reasons: vec![String::new(); addresses.len()],
            settled: false,
        };
        self.dials.insert(ticket, dial);
        self.dial_on(now);
    }

    /// Forgets a call, or one that is expected; nothing is told of it.
    pub fn cancel(&mut self, ticket: u64) {
        self.dials.remove(&ticket);
        self.forget_expected(ticket);
        self.drop_attempts(ticket);
    }

    fn drop_attempts(&mut self, ticket: u64) {
        self.entries.retain(|_, entry| !matches!(entry, Entry::Attempt(attempt) if attempt.ticket == ticket));
    }

    /// Tries what is to be tried by now.
    pub(super) fn dial_on(&mut self, now: Instant) {
        let due: Vec<u64> =
            self.dials.iter().filter(|(_, dial)| dial.next_wakeup() <= now).map(|(ticket, _)| *ticket).collect();
        for ticket in due {
            let Some(dial) = self.dials.get_mut(&ticket) else { continue };
            if dial.give_up <= now || dial.addresses.is_empty() {
                self.dial_failed(ticket);
                continue;
            }
            let address = dial.addresses[dial.next];
            dial.next = (dial.next + 1) % dial.addresses.len();
            dial.next_at = now + if dial.next == 0 { LEAD_TIME + PAUSE } else { LEAD_TIME };
            // One that is still being tried from the round before goes on.
            let busy =
                |entry: &Entry| matches!(entry, Entry::Attempt(it) if it.ticket == ticket && it.address == address);
            if !self.entries.values().any(busy) {
                self.try_address(ticket, address, None, now);
            }
        }
    }

    fn dial_failed(&mut self, ticket: u64) {
        let Some(dial) = self.dials.remove(&ticket) else { return };
        self.drop_attempts(ticket);
        let each = dial.addresses.iter().zip(&dial.reasons).map(|(address, reason)| {
            let reason = if reason.is_empty() { "no answer in time" } else { reason };
            format!("{address}: {reason}")
        });
        let reason = if dial.addresses.is_empty() { "no address".into() } else { each.collect::<Vec<_>>().join("; ") };
        self.events.push_back(Event::Failed { ticket, reason });
    }

    fn try_address(&mut self, ticket: u64, address: SocketAddr, half: Option<Box<Half>>, now: Instant) {
        let deadline = now + HANDSHAKE_TIME_MAX;
        let id = self.new_id();
        let socket = tcp_socket(&address).and_then(|socket| {
            // Small frames from the start on.
            sockopt::set_tcp_nodelay(&socket, true)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            self.add(id, socket.as_fd(), Watch::Write)?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => {
                let attempt = Attempt { ticket, address, deadline, stage: Stage::Connecting(socket), half };
                self.entries.insert(id, Entry::Attempt(attempt));
            }
            Err(errno) => self.note(ticket, address, errno.to_string(), now),
        }
    }

    pub(super) fn attempt_failed(&mut self, attempt: Attempt, reason: String, now: Instant) {
        self.note(attempt.ticket, attempt.address, reason, now);
    }

    /// An address has not worked: the next one need not wait.
    fn note(&mut self, ticket: u64, address: SocketAddr, reason: String, now: Instant) {
        let Some(dial) = self.dials.get_mut(&ticket) else { return };
        if let Some(index) = dial.addresses.iter().position(|it| *it == address) {
            dial.reasons[index] = reason;
        }
        if dial.settled {
            // All begins anew, after a pause.
            (dial.settled, dial.next, dial.next_at) = (false, 0, now + PAUSE);
        } else if dial.next != 0 {
            dial.next_at = now;
        }
    }

    pub(super) fn attempt_goes_on(&mut self, id: u64, attempt: Attempt, now: Instant) {
        let Attempt { ticket, address, deadline, stage, half } = attempt;
        let Some(dial) = self.dials.get(&ticket) else { return };
        let result = match stage {
            Stage::Connecting(socket) => self.connected(socket, dial, half.is_some()),
            stage @ Stage::Opening { .. } => Ok(stage),
        };
        let result = result.and_then(|stage| match stage {
            Stage::Opening { link, asked } => opening(*link, asked, &dial.errand, half.as_deref()),
            stage => Ok(Next::Wait(stage)),
        });
        match result {
            Ok(Next::Wait(stage)) => {
                let mut deadline = deadline;
                if let Stage::Opening { link, asked } = &stage {
                    self.watch(id, link.as_fd(), Watch::of(link));
                    if *asked && half.is_some() {
                        // For the other side both links may stand already: to give them up would be to lose
                        // links that it uses. If the answer was lost the system sends it again.
                        deadline = dial.give_up;
                    }
                }
                self.entries.insert(id, Entry::Attempt(Attempt { ticket, address, deadline, stage, half }));
            }
            Ok(Next::Control(control, tokens)) => {
                self.let_go(&control);
                self.drop_attempts(ticket);
                if let Some(dial) = self.dials.get_mut(&ticket) {
                    dial.settled = true;
                }
                self.try_address(ticket, address, Some(Box::new(Half { control, tokens })), now);
            }
            Ok(Next::Done(link)) => match self.done(ticket, address, half, link) {
                Ok(event) => {
                    self.cancel(ticket);
                    self.events.push_back(event);
                }
                Err(error) => self.note(ticket, address, words(&error), now),
            },
            Err(reason) => self.note(ticket, address, reason, now),
        }
    }

    fn done(&self, ticket: u64, address: SocketAddr, half: Option<Box<Half>>, link: Link) -> Result<Event, LinkError> {
        Ok(match half {
            Some(half) => Event::Connected { ticket, address, pair: self.pair(half.control, link)? },
            None => Event::Met { ticket, link: Box::new(self.finished(link)?) },
        })
    }

    /// The connection stands, or has failed.
    fn connected(&self, socket: OwnedFd, dial: &Dial, data: bool) -> Result<Stage, String> {
        match sockopt::socket_error(&socket) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return Err(errno.to_string()),
        }
        if rustix::net::getpeername(&socket).is_err() {
            return Ok(Stage::Connecting(socket));
        }
        let peer = dial.peer.filter(|_| !data || !matches!(dial.errand, Errand::Pair(Security::Trusted)));
        let mut link = match peer {
            Some(peer) => Link::secure_to(socket, &self.identity, peer).map_err(|error| words(&error))?,
            None => Link::clear(socket),
        };
        link.set_frame_bytes_max(GREETING_BYTES_MAX);
        Ok(Stage::Opening { link: Box::new(link), asked: false })
    }
}

/// Shakes hands, asks, and awaits the answer.
fn opening(mut link: Link, mut asked: bool, errand: &Errand, half: Option<&Half>) -> Result<Next, String> {
    let tokens = match (errand, half) {
        (_, Some(half)) => Some(&half.tokens),
        (Errand::Meeting(tokens), None) => Some(tokens),
        (Errand::Pair(_), None) => None,
    };
    let mut go_on = || {
        if !link.handshake()? {
            return Ok(None);
        }
        if !asked {
            match (tokens, errand) {
                (Some(tokens), _) => link.send(kind::OPEN_DATA, tokens.shown.as_bytes(), &[])?,
                (None, Errand::Pair(security)) => link.send(kind::OPEN_CONTROL, &[VERSION, security.code()], &[])?,
                (None, Errand::Meeting(_)) => {}
            }
            asked = true;
        }
        link.receive()
    };
    let answer = go_on().map_err(|error| words(&error))?;
    let Some(head) = answer else { return Ok(Next::Wait(Stage::Opening { link: Box::new(link), asked })) };
    match (head.kind, tokens, head.body_bytes) {
        (kind::ACCEPT_CONTROL, None, 0) => {
            let tokens = two_tokens(head.header()).ok_or("answers strangely")?;
            Ok(Next::Control(link, tokens))
        }
        (kind::ACCEPT_DATA, Some(tokens), 0) if tokens.back.is(head.header()) => Ok(Next::Done(link)),
        _ => Err("answers strangely".into()),
    }
}
