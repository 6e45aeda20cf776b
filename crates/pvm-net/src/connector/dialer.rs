//! Outgoing connections. The dialer tries the addresses of a peer in turn, at short intervals, and does not wait for
//! the end of earlier attempts. After the last address it pauses and begins anew, until an address answers or the time
//! is over.
use super::common::{Common, Interest};
use super::{
    ConnectEvent, Failure, GREETING_BYTES_MAX, HANDSHAKE_TIME_MAX, Security, VERSION, Wanted, explain, kind,
    tcp_socket, two_tokens,
};
use crate::keys::{PublicKey, Tokens};
use crate::link::{Link, LinkError};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time from the first attempt at one address to the first attempt at the next address.
const LEAD_TIME: Duration = Duration::from_millis(300);
/// Pause before all addresses are tried once more.
const PAUSE: Duration = Duration::from_millis(200);
/// The same in a call for a control link, from the failure of the last address on. A daemon that dies resets the
/// connections that its system has accepted for it; only the next attempt proves that nobody is there.
const CONTROL_PAUSE: Duration = Duration::from_millis(50);

/// What a call is for.
pub enum Purpose {
    /// The two links between daemons.
    Pair(Security),
    /// A control link, to a daemon that was at the address `last`.
    Control { last: Option<IpAddr> },
    /// One link, to a peer that expects the first token and answers with the second.
    Link(Tokens),
}

/// Why an address has not answered.
struct Obstacle {
    reason: String,
    failure: Failure,
}

impl Obstacle {
    fn new(reason: impl Into<String>) -> Obstacle {
        Obstacle { reason: reason.into(), failure: Failure::NoAnswer }
    }
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Obstacle {
        let failure = if errno == Errno::CONNREFUSED { Failure::Absent } else { Failure::NoAnswer };
        Obstacle { reason: errno.to_string(), failure }
    }
}

impl From<LinkError> for Obstacle {
    fn from(error: LinkError) -> Obstacle {
        // The peer shows another key than the one that is called.
        let is_other = matches!(&error, LinkError::Tls(rustls::Error::InvalidCertificate(_)));
        let failure = if is_other { Failure::Absent } else { Failure::NoAnswer };
        Obstacle { reason: explain(&error), failure }
    }
}

/// A call to one peer at all its addresses.
pub struct Dial {
    /// The key of the peer. Without a key, only the tokens prove that the right peer has answered.
    peer: Option<PublicKey>,
    purpose: Purpose,
    addresses: Vec<SocketAddr>,
    /// The index of the next address to try.
    next: usize,
    next_at: Instant,
    give_up: Instant,
    /// What was last in the way of each address.
    obstacles: Vec<Option<Obstacle>>,
    /// Whether an address has answered. While the connection to this address lives, no other address is tried.
    settled: bool,
}

impl Dial {
    /// Makes a call that begins now and fails at `give_up`.
    pub fn new(
        addresses: &[SocketAddr],
        peer: Option<PublicKey>,
        purpose: Purpose,
        give_up: Instant,
        now: Instant,
    ) -> Dial {
        Dial {
            peer,
            purpose,
            addresses: addresses.to_vec(),
            next: 0,
            next_at: now,
            give_up,
            obstacles: addresses.iter().map(|_| None).collect(),
            settled: false,
        }
    }

    fn next_wakeup(&self) -> Instant {
        if self.settled { self.give_up } else { self.next_at.min(self.give_up) }
    }

    /// Returns what the call has proved: that the daemon is not where it was, or at no address.
    fn failure(&self) -> Failure {
        let Purpose::Control { last } = self.purpose else { return Failure::NoAnswer };
        let is_absent = |at: &Option<Obstacle>| at.as_ref().is_some_and(|at| at.failure == Failure::Absent);
        let mut all = self.addresses.iter().zip(&self.obstacles);
        let was_there = all.clone().any(|(address, at)| Some(address.ip()) == last && is_absent(at));
        match was_there || !self.addresses.is_empty() && all.all(|(_, at)| is_absent(at)) {
            true => Failure::Absent,
            false => Failure::NoAnswer,
        }
    }
}

enum Stage {
    Connecting(OwnedFd),
    /// The attempt is in the handshake, or waits for the answer to the request.
    Opening {
        link: Box<Link>,
        asked: bool,
    },
}

/// A complete control link without its data link.
struct HalfPair {
    control: Link,
    tokens: Tokens,
}

/// A connection to one address.
struct Attempt {
    ticket: u64,
    address: SocketAddr,
    /// When the attempt fails.
    deadline: Instant,
    stage: Stage,
    half: Option<Box<HalfPair>>,
}

/// What a connection asks for.
#[derive(Clone, Copy)]
enum Request<'a> {
    Control(Wanted),
    Data(&'a Tokens),
}

/// How an attempt continues.
enum Next {
    Wait(Stage),
    /// The control link is complete; the peer has sent these tokens.
    Control(Link, Tokens),
    /// The peer has answered with the second token, or that the control link is complete.
    Done(Link),
}

/// Makes connections.
#[derive(Default)]
pub struct Dialer {
    dials: HashMap<u64, Dial>,
    attempts: HashMap<u64, Attempt>,
}

impl Dialer {
    /// Begins a call.
    pub fn dial(&mut self, common: &mut Common, ticket: u64, dial: Dial, now: Instant) {
        self.dials.insert(ticket, dial);
        self.try_next_addresses(common, now);
    }

    /// Forgets a call.
    pub fn cancel(&mut self, ticket: u64) {
        self.dials.remove(&ticket);
        self.drop_attempts(ticket);
    }

    pub fn pending(&self) -> usize {
        self.attempts.len()
    }

    pub fn next_wakeup(&self) -> Option<Instant> {
        let attempts = self.attempts.values().map(|attempt| attempt.deadline);
        attempts.chain(self.dials.values().map(Dial::next_wakeup)).min()
    }

    fn drop_attempts(&mut self, ticket: u64) {
        self.attempts.retain(|_, attempt| attempt.ticket != ticket);
    }

    /// Drops all attempts of a call but the one that is being handled, since its address has answered.
    fn settle(&mut self, ticket: u64) {
        self.drop_attempts(ticket);
        if let Some(dial) = self.dials.get_mut(&ticket) {
            dial.settled = true;
        }
    }

    /// Tries the addresses that are due, and ends calls whose time is over.
    pub fn try_next_addresses(&mut self, common: &mut Common, now: Instant) {
        let due: Vec<u64> =
            self.dials.iter().filter(|(_, dial)| dial.next_wakeup() <= now).map(|(ticket, _)| *ticket).collect();
        for ticket in due {
            let Some(dial) = self.dials.get_mut(&ticket) else { continue };
            if dial.give_up <= now || dial.addresses.is_empty() || dial.failure() == Failure::Absent {
                self.fail(common, ticket);
                continue;
            }
            let address = dial.addresses[dial.next];
            dial.next = (dial.next + 1) % dial.addresses.len();
            dial.next_at = now + if dial.next == 0 { LEAD_TIME + PAUSE } else { LEAD_TIME };
            // If an attempt of the previous round has not ended, that attempt continues.
            let is_busy = |attempt: &Attempt| attempt.ticket == ticket && attempt.address == address;
            if !self.attempts.values().any(is_busy) {
                self.try_address(common, ticket, address, None, now);
            }
        }
    }

    fn fail(&mut self, common: &mut Common, ticket: u64) {
        let Some(dial) = self.dials.remove(&ticket) else { return };
        self.drop_attempts(ticket);
        let each = dial.addresses.iter().zip(&dial.obstacles).map(|(address, obstacle)| {
            let reason = obstacle.as_ref().map_or("no answer in time", |obstacle| &obstacle.reason);
            format!("{address}: {reason}")
        });
        let reason = if dial.addresses.is_empty() { "no address".into() } else { each.collect::<Vec<_>>().join("; ") };
        common.push_event(ConnectEvent::Failed { ticket, reason, failure: dial.failure() });
    }

    fn try_address(
        &mut self,
        common: &mut Common,
        ticket: u64,
        address: SocketAddr,
        half: Option<Box<HalfPair>>,
        now: Instant,
    ) {
        let deadline = now + HANDSHAKE_TIME_MAX;
        let id = common.new_id();
        let is_of_tasks = |dial: &Dial| matches!(dial.purpose, Purpose::Link(_));
        let is_control = half.is_none() && self.dials.get(&ticket).is_some_and(|dial| !is_of_tasks(dial));
        let socket = tcp_socket(&address).and_then(|socket| {
            if is_control {
                crate::socket::keep_packets_short(&socket)?;
            }
            // The frames of the handshake are small and must be sent at once.
            sockopt::set_tcp_nodelay(&socket, true)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            common.watch(id, socket.as_fd(), Interest::Write)?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => {
                let attempt = Attempt { ticket, address, deadline, stage: Stage::Connecting(socket), half };
                self.attempts.insert(id, attempt);
            }
            Err(errno) => self.on_address_failed(ticket, address, errno.into(), now),
        }
    }

    /// Records the error of an address, and makes the next address due at once.
    fn on_address_failed(&mut self, ticket: u64, address: SocketAddr, obstacle: Obstacle, now: Instant) {
        let is_waiting = self.attempts.values().any(|attempt| attempt.ticket == ticket);
        let Some(dial) = self.dials.get_mut(&ticket) else { return };
        if let Some(index) = dial.addresses.iter().position(|it| *it == address) {
            dial.obstacles[index] = Some(obstacle);
        }
        if dial.failure() == Failure::Absent {
            dial.next_at = now;
        } else if dial.settled {
            // All addresses are tried once more, after a pause.
            (dial.settled, dial.next, dial.next_at) = (false, 0, now + PAUSE);
        } else if dial.next != 0 {
            dial.next_at = now;
        } else if !is_waiting && matches!(dial.purpose, Purpose::Control { .. }) {
            dial.next_at = dial.next_at.min(now + CONTROL_PAUSE);
        }
    }

    /// Ends attempts that have passed their deadline.
    pub fn expire(&mut self, now: Instant) {
        let late = self.attempts.iter().filter(|(_, attempt)| attempt.deadline <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            let Some(attempt) = self.attempts.remove(&id) else { continue };
            self.on_address_failed(attempt.ticket, attempt.address, Obstacle::new("no answer in time"), now);
        }
    }

    /// Continues a connection whose socket is ready.
    pub fn progress(&mut self, common: &mut Common, id: u64, now: Instant) {
        // The connection may have been dropped earlier in this step.
        let Some(attempt) = self.attempts.remove(&id) else { return };
        let Attempt { ticket, address, deadline, stage, half } = attempt;
        let Some(dial) = self.dials.get(&ticket) else { return };
        let result = match stage {
            Stage::Connecting(socket) => connected(common, socket, dial, half.is_some()),
            stage @ Stage::Opening { .. } => Ok(stage),
        };
        let result = result.and_then(|stage| match stage {
            Stage::Opening { link, asked } => open(*link, asked, &dial.purpose, half.as_deref()),
            stage => Ok(Next::Wait(stage)),
        });
        match result {
            Ok(Next::Wait(stage)) => {
                let mut deadline = deadline;
                if let Stage::Opening { link, asked } = &stage {
                    common.set_interest(id, link.as_fd(), Interest::of(link));
                    let is_control = matches!(dial.purpose, Purpose::Control { .. });
                    if *asked && (half.is_some() || is_control) {
                        // The other side may already use the links: to give up now would break them. If the other side's
                        // answer was lost, TCP sends it again.
                        deadline = dial.give_up;
                    }
                    if *asked && is_control {
                        // Another link would replace this one there.
                        self.settle(ticket);
                    }
                }
                self.attempts.insert(id, Attempt { ticket, address, deadline, stage, half });
            }
            Ok(Next::Control(control, tokens)) => {
                common.unwatch(&control);
                self.settle(ticket);
                self.try_address(common, ticket, address, Some(Box::new(HalfPair { control, tokens })), now);
            }
            Ok(Next::Done(link)) => match finish(common, ticket, address, half, link) {
                Ok(event) => {
                    self.cancel(ticket);
                    common.push_event(event);
                }
                Err(error) => self.on_address_failed(ticket, address, error.into(), now),
            },
            Err(obstacle) => self.on_address_failed(ticket, address, obstacle, now),
        }
    }
}

fn finish(
    common: &Common,
    ticket: u64,
    address: SocketAddr,
    half: Option<Box<HalfPair>>,
    link: Link,
) -> Result<ConnectEvent, LinkError> {
    Ok(match half {
        Some(half) => ConnectEvent::PairConnected { ticket, address, pair: common.finish_pair(half.control, link)? },
        None => ConnectEvent::LinkReady { ticket, link: Box::new(common.finish_link(link)?) },
    })
}

/// Begins the handshake if the connection is complete. `is_data` says that the connection is for the data link of a
/// pair.
fn connected(common: &Common, socket: OwnedFd, dial: &Dial, is_data: bool) -> Result<Stage, Obstacle> {
    match sockopt::socket_error(&socket) {
        Ok(Ok(())) => {}
        Ok(Err(errno)) | Err(errno) => return Err(errno.into()),
    }
    if rustix::net::getpeername(&socket).is_err() {
        return Ok(Stage::Connecting(socket));
    }
    let peer = dial.peer.filter(|_| !is_data || !matches!(dial.purpose, Purpose::Pair(Security::Trusted)));
    let mut link = match peer {
        Some(peer) => Link::secure_to(socket, common.identity(), peer)?,
        None => Link::clear(socket),
    };
    link.set_frame_bytes_max(GREETING_BYTES_MAX);
    Ok(Stage::Opening { link: Box::new(link), asked: false })
}

/// Continues the handshake, sends the request, and takes the answer.
fn open(mut link: Link, mut asked: bool, purpose: &Purpose, half: Option<&HalfPair>) -> Result<Next, Obstacle> {
    let request = match (purpose, half) {
        (_, Some(half)) => Request::Data(&half.tokens),
        (Purpose::Link(tokens), None) => Request::Data(tokens),
        (Purpose::Pair(security), None) => Request::Control(Wanted::Pair(*security)),
        (Purpose::Control { .. }, None) => Request::Control(Wanted::Control),
    };
    let mut receive_answer = || -> Result<_, LinkError> {
        if !link.handshake()? {
            return Ok(None);
        }
        if !asked {
            match request {
                Request::Data(tokens) => link.send(kind::OPEN_DATA, tokens.shown.as_bytes(), &[])?,
                Request::Control(wanted) => link.send(kind::OPEN_CONTROL, &[VERSION, wanted.code()], &[])?,
            }
            asked = true;
        }
        link.receive()
    };
    let Some(head) = receive_answer()? else { return Ok(Next::Wait(Stage::Opening { link: Box::new(link), asked })) };
    match (request, head.kind, head.header(), head.body_bytes) {
        (Request::Control(Wanted::Pair(_)), kind::ACCEPT_CONTROL, header, 0) => {
            let tokens = two_tokens(header).ok_or_else(|| Obstacle::new("answers strangely"))?;
            Ok(Next::Control(link, tokens))
        }
        (Request::Control(Wanted::Control), kind::ACCEPT_CONTROL, [], 0) => Ok(Next::Done(link)),
        (Request::Data(tokens), kind::ACCEPT_DATA, back, 0) if tokens.back.is(back) => Ok(Next::Done(link)),
        _ => Err(Obstacle::new("answers strangely")),
    }
}
