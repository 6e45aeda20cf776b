//! Untrusted input for the dialer: the bytes that the called side sends.
use super::{identity, token};
use crate::connector::{ConnectEvent, Connector, Security};
use crate::link::Link;
use crate::{Identity, Tokens};
use pvm_fuzz::{Source, Unstructured, file, part};
use rustix::net::sockopt;
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// The source files that decode these bytes.
pub const DECODER: &[Source] = &[
    file("crates/pvm-net/src/connector/dialer.rs"),
    part("crates/pvm-net/src/connector/mod.rs", &["two_tokens", "explain"]),
    part("crates/pvm-net/src/connector/common.rs", &["finish_pair", "finish_link"]),
];

/// Connections that are answered at the same time.
const ANSWERED_MAX: usize = 8;
/// Time that a call may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Makes calls of all kinds, to a peer whose answers depend on the bytes.
pub fn dialer(bytes: &[u8]) {
    // An error means that no bytes are left.
    let _ = calls(&mut Unstructured::new(bytes));
}

/// The called side.
struct Called {
    listener: TcpListener,
    identity: Identity,
    /// Another peer, which can answer in place of the called one.
    other: Identity,
    answered: Vec<Link>,
}

fn calls(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let [own, peer, other] = [1, 2, 3].map(identity);
    own.known().add(peer.public());
    [&peer, &other].into_iter().for_each(|called| {
        called.known().add(own.public());
    });
    let (key, mut now) = (peer.public(), Instant::now());
    let mut connector = Connector::new(own, Duration::from_secs(10)).expect("a connector");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let mut called = Called { listener, identity: peer, other, answered: Vec::new() };
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 8 {
            0 => {
                let (ticket, choice): (u8, u8) = (from.arbitrary::<u8>()? % 4, from.arbitrary()?);
                let all = [address, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), "[::1]:1".parse().expect("an address")];
                let addresses = [&all[..1], &all[1..2], &all[..], &[]][usize::from(choice) % 4];
                let tokens = Tokens { shown: token(choice), back: token(choice / 4) };
                let ticket = u64::from(ticket);
                match choice / 4 % 8 {
                    7 => {
                        let last = Some(address.ip()).filter(|_| choice / 32 % 2 == 0);
                        connector.connect_control(ticket, addresses, last, key, PATIENCE, now);
                    }
                    0 => connector.connect_pair(ticket, addresses, key, Security::Trusted, PATIENCE, now),
                    1 => connector.connect_pair(ticket, addresses, key, Security::Encrypted, PATIENCE, now),
                    2 => connector.connect_link(ticket, addresses, Some(key), tokens, PATIENCE, now),
                    _ => connector.connect_link(ticket, addresses, None, tokens, PATIENCE, now),
                }
            }
            1 => connector.cancel((from.arbitrary::<u8>()? % 4).into()),
            2 => now += Duration::from_millis(from.arbitrary::<u16>()?.into()),
            3 | 4 => called.answer(from.arbitrary()?),
            _ => called.send_bytes(from)?,
        }
        for _ in 0..3 {
            connector.step(now);
            called.answered.iter_mut().for_each(|link| drop(link.handshake()));
        }
        check_events(&mut connector);
    }
    Ok(())
}

/// Checks that a successful call has reached the right peer.
fn check_events(connector: &mut Connector) {
    while let Some(event) = connector.poll_event() {
        match event {
            ConnectEvent::PairConnected { ticket, pair, .. } => {
                assert!(ticket < 4 && pair.control.peer() == Some(identity(2).public()));
                assert!(pair.data.peer().is_none_or(|peer| Some(peer) == pair.control.peer()));
            }
            ConnectEvent::LinkReady { ticket, link } => {
                assert!(ticket < 4 && link.peer().is_none_or(|peer| peer == identity(2).public()));
            }
            ConnectEvent::Failed { ticket, reason, .. } => assert!(ticket < 4 && !reason.is_empty()),
            ConnectEvent::PairAccepted { .. } | ConnectEvent::ControlAccepted { .. } | ConnectEvent::Refused { .. } => {
                panic!("nobody can call: {event:?}")
            }
        }
    }
}

impl Called {
    /// Accepts the next connection.
    fn answer(&mut self, how: u8) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if self.answered.len() >= ANSWERED_MAX {
            self.answered.remove(0);
        }
        socket.set_nonblocking(true).expect("a socket");
        socket.set_nodelay(true).expect("a socket");
        // With this option, no state of the connection stays in the system after the socket is closed.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("a socket");
        self.answered.extend(match how % 8 {
            0..=2 => Ok(Link::clear(socket.into())),
            3 => Link::secure_from(socket.into(), &self.other),
            _ => Link::secure_from(socket.into(), &self.identity),
        });
    }

    /// Sends an answer, or any bytes in a frame or without one, on one of the connections.
    fn send_bytes(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let Some(last) = self.answered.len().checked_sub(1) else { return Ok(()) };
        let place = last - usize::from(from.arbitrary::<u8>()?) % (last + 1);
        let link = &mut self.answered[place];
        match from.arbitrary::<u8>()? % 8 {
            0 | 1 => {
                let tokens = [token(from.arbitrary()?), token(from.arbitrary()?)];
                drop(link.send(2, &tokens.map(|token| *token.as_bytes()).concat(), &[]));
            }
            2 | 3 => drop(link.send(4, token(from.arbitrary()?).as_bytes(), &[])),
            4 => {
                let (kind, header) = (from.arbitrary::<u8>()? % 6, from.bytes_of_some_length()?);
                let _ = link.send(kind, &header[..header.len().min(128)], &[&[7][..usize::from(kind) % 2]]);
            }
            5 => drop(crate::socket::write(&*link, &[IoSlice::new(from.bytes_of_some_length()?)])),
            // Arbitrary bytes may look like a frame with a body. Nobody takes such a body.
            6 => drop((link.body_left() == 0).then(|| link.receive())),
            _ => drop(self.answered.remove(place)),
        }
        Ok(())
    }
}
