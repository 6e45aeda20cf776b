//! Untrusted input from the network (docs/testing.md). The handshake of TLS is tested by rustls; these targets test
//! records after it, bytes that TLS has decrypted, and bytes that arrive without TLS.
mod dialer;

use crate::connector::Connector;
use crate::link::{HEADER_BYTES_MAX, Link, LinkError};
use crate::{ConnectEvent, Identity, KeyPair, Token, Tokens};
use pvm_fuzz::{Target, Unstructured, part};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "link-frames",
        run: link_frames,
        decoder: &[
            part(
                "crates/pvm-net/src/link/receiving.rs",
                &[
                    "receive",
                    "parse",
                    "take",
                    "read_straight",
                    "broken",
                    "read_bytes",
                    "read_by",
                    "receive_whole",
                    "fill",
                    "advance",
                    "handshake",
                ],
            ),
            part("crates/pvm-net/src/records.rs", &["decrypt", "decrypt_all", "alert_of"]),
            part("crates/pvm-net/src/buffer.rs", &["consume", "take_front", "space", "commit"]),
        ],
    },
    Target {
        name: "acceptor",
        run: acceptor,
        decoder: &[
            part(
                "crates/pvm-net/src/connector/acceptor.rs",
                &[
                    "add_connection",
                    "make_room",
                    "expire",
                    "progress",
                    "continue_connection",
                    "begin_handshake",
                    "handshake",
                    "handle_open",
                    "accept_control",
                    "begin_pair",
                    "make_room_for_half_pair",
                    "half_pairs_of",
                    "handle_token",
                    "ticket_of",
                    "take_half_pair",
                    "expect",
                    "take_expected",
                    "expire_expected",
                    "refuse",
                ],
            ),
            part("crates/pvm-net/src/connector/common.rs", &["of", "finish_pair", "finish_link"]),
            part("crates/pvm-net/src/connector/mod.rs", &["explain", "of"]),
        ],
    },
    Target { name: "dialer", run: dialer::dialer, decoder: dialer::DECODER },
    Target { name: "keys", run: keys, decoder: &[part("crates/pvm-net/src/keys.rs", &["from_str", "from_info"])] },
];

/// The longest frame in these tests, in bytes.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// The types of TLS records, and one before and after them.
const RECORD_KINDS_FROM: u8 = 20;
const RECORD_KINDS: u8 = 5;
/// A number of bytes that surely fit into a socket although nobody reads.
const ROOM_BYTES: usize = 32 << 10;

/// Sends frames on a link, whole and in pieces, and takes them in all possible ways.
fn link_frames(bytes: &[u8]) {
    // An error means that no bytes are left.
    let _ = frames(&mut Unstructured::new(bytes));
}

fn frames(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let first: u8 = from.arbitrary()?;
    let (mut link, far) = ends(first & 2 != 0);
    let mut far = Some(far);
    link.set_frame_bytes_max(FRAME_BYTES_MAX);
    if first & 1 == 0 {
        link.trust_as_it_is();
    }
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 8 {
            0 => match (&mut far, from.bytes_of_some_length()?) {
                // A host of the machine can send any record.
                (Some(far), [kind, content @ ..]) if far.is_encrypted() && *kind >= 128 => {
                    drop(far.send_record(RECORD_KINDS_FROM + kind % RECORD_KINDS, content));
                }
                (_, bytes) => write(&far, bytes),
            },
            1..=3 => {
                let (kind, header) = (from.arbitrary()?, from.bytes_of_some_length()?);
                let body = vec![kind; usize::from(from.arbitrary::<u16>()?) % ROOM_BYTES];
                send_bytes(&mut far, kind, &header[..header.len().min(HEADER_BYTES_MAX)], &body);
            }
            4 => {
                // If the far end closes with data unread, the system reports a reset instead of an end.
                if from.arbitrary()? {
                    let _ = link.send(1, &[], &[&[0]]);
                }
                far = None;
            }
            _ => {
                let whole = from.arbitrary()?;
                let step = usize::from(from.arbitrary::<u16>()?) + 1;
                if let Err(error) = receive(&mut link, whole, step) {
                    let told = receive(&mut link, false, 1).expect_err("what is broken stays broken");
                    assert!(!error.to_string().is_empty() && !told.to_string().is_empty());
                    return Ok(());
                }
            }
        }
    }
    let mut pipe = link.into_byte_stream();
    let _ = pipe.read(&mut [0; 100]);
    let _ = pipe.read_by(100, &mut |bytes| assert!(bytes.len() <= 100));
    Ok(())
}

/// Makes two ends of a link, in clear or after the handshake.
fn ends(encrypted: bool) -> (Link, Link) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    if !encrypted {
        return (Link::clear(near), Link::clear(far));
    }
    let own = identity(1);
    own.known().add(own.public());
    let mut far = Link::secure_to(far, &own, own.public()).expect("a link");
    let mut near = Link::secure_from(near, &own).expect("a link");
    while !near.handshake().expect("a key that is known") | !far.handshake().expect("a key that is known") {}
    (near, far)
}

/// Writes as many bytes as the socket takes, without encryption.
fn write(far: &Option<Link>, bytes: &[u8]) {
    let _ = far.as_ref().map(|far| crate::socket::write(far, &[IoSlice::new(bytes)]));
}

/// Sends a frame, or as much of it as the socket takes.
fn send_bytes(far: &mut Option<Link>, kind: u8, header: &[u8], body: &[u8]) {
    match far {
        Some(far) if far.is_encrypted() => drop(far.send(kind, header, &[body])),
        far => write(far, &[&Link::frame_head(kind, header, body.len())[..], body].concat()),
    }
}

/// Takes the frames that have arrived.
fn receive(link: &mut Link, whole: bool, step: usize) -> Result<(), LinkError> {
    let mut room = vec![0; step];
    while link.body_left() > 0 {
        if link.take(&mut room)? == 0 {
            return Ok(());
        }
    }
    if whole {
        while let Some((head, body)) = link.receive_whole()? {
            assert_eq!(head.body_bytes, body.len());
        }
        return Ok(());
    }
    while let Some(head) = link.receive()? {
        assert!(head.body_bytes + head.header().len() <= FRAME_BYTES_MAX);
        while link.body_left() > 0 {
            if link.take(&mut room)? == 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Makes two connected sockets. After the sockets are closed, no state of the connection stays in the system.
fn tcp_pair(listener: &TcpListener) -> (OwnedFd, OwnedFd) {
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    for socket in [&near, &far] {
        socket.set_nonblocking(true).expect("a socket");
        // Data leaves at once.
        socket.set_nodelay(true).expect("a socket");
        sockopt::set_socket_linger(socket, Some(Duration::ZERO)).expect("a socket");
    }
    (near.into(), far.into())
}

/// Makes connections to an acceptor: from strangers that send any bytes, and from hosts of the machine that send any
/// frames.
fn acceptor(bytes: &[u8]) {
    let _ = calls(&mut Unstructured::new(bytes));
}

/// The most callers that send data.
const CALLERS_MAX: usize = 12;
/// No further silent callers are added once there are this many connections.
const CROWD_MAX: usize = 100;

fn identity(number: u8) -> Identity {
    Identity::new(KeyPair::from_secret(&[number; 32]))
}

/// Returns the token that a byte selects.
fn token(number: u8) -> Token {
    Token::from_bytes([number % 4; 32])
}

fn calls(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let [own, peer, stranger] = [1, 2, 3].map(identity);
    own.known().add(peer.public());
    [&peer, &stranger].into_iter().for_each(|caller| {
        caller.known().add(own.public());
    });
    let (key, mut now) = (own.public(), Instant::now());
    let mut connector = Connector::new(own, Duration::from_secs(10)).expect("a connector");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let (mut callers, mut crowd, mut own_calls): (Vec<Link>, Vec<OwnedFd>, usize) = (Vec::new(), Vec::new(), 0);
    while !from.is_empty() {
        let action: u8 = from.arbitrary()?;
        match action % 8 {
            0 | 1 if callers.len() < CALLERS_MAX => {
                let (near, far) = tcp_pair(&listener);
                connector.add_connection(near, address, now);
                callers.extend(match from.arbitrary::<u8>()? % 8 {
                    0 => Ok(Link::clear(far)),
                    4 => Link::secure_to(far, &stranger, key),
                    5 => Link::secure_to(far, &peer, stranger.public()),
                    _ => Link::secure_to(far, &peer, key),
                });
            }
            3 if action > 127 && crowd.len() < CROWD_MAX => {
                let count = from.arbitrary::<u8>()? % 100;
                for _ in 0..count {
                    let (near, far) = tcp_pair(&listener);
                    // A caller sends one byte of a frame, or nothing.
                    let _ = (count % 2 == 1).then(|| rustix::io::write(&far, &[32]));
                    connector.add_connection(near, address, now);
                    crowd.push(far);
                }
                assert!(connector.pending() <= crate::UNKNOWN_MAX + callers.len() + own_calls);
            }
            2 => {
                let (ticket, number) = (from.arbitrary::<u8>()?, from.arbitrary()?);
                let tokens = Tokens { shown: token(number), back: token(number ^ 1) };
                let who = if from.arbitrary()? { Some(peer.public()) } else { None };
                if ticket < 128 {
                    connector.expect(ticket.into(), who, tokens, Duration::from_secs(1), now);
                } else {
                    // The connector also calls a peer that does not exist.
                    connector.connect_link(ticket.into(), &[address], who, tokens, Duration::from_secs(1), now);
                    own_calls += 1;
                }
            }
            3 => now += Duration::from_millis(from.arbitrary::<u16>()?.into()),
            _ => call_out(from, &mut callers)?,
        }
        for caller in &mut callers {
            let _ = caller.handshake();
        }
        connector.step(now);
        while let Some(event) = connector.poll_event() {
            if let ConnectEvent::Refused { reason, count, .. } = event {
                assert!(!reason.is_empty() && count > 0);
            }
        }
    }
    Ok(())
}

/// Lets one of the callers send a request, or any bytes, in a frame or without a frame.
fn call_out(from: &mut Unstructured<'_>, callers: &mut Vec<Link>) -> pvm_fuzz::Result<()> {
    let Some(last) = callers.len().checked_sub(1) else { return Ok(()) };
    let place = usize::from(from.arbitrary::<u8>()?) % (last + 1);
    let caller = &mut callers[place];
    match from.arbitrary::<u8>()? % 8 {
        // A version that may be the right one, and what is wanted.
        0 | 1 => drop(caller.send(1, &[1 + from.arbitrary::<u8>()? % 3, from.arbitrary::<u8>()? % 3], &[])),
        2 | 3 => drop(caller.send(3, token(from.arbitrary()?).as_bytes(), &[])),
        4 => {
            let header = from.bytes_of_some_length()?;
            let header = &header[..header.len().min(HEADER_BYTES_MAX)];
            let _ = caller.send(from.arbitrary::<u8>()? % 6, header, &[]);
        }
        5 => {
            let _ = crate::socket::write(&*caller, &[IoSlice::new(from.bytes_of_some_length()?)]);
        }
        6 if caller.body_left() == 0 => {
            // The answer holds the token that opens the second link.
            if let Ok(Some(head)) = caller.receive() {
                let shown = head.header().get(..32).map(<[u8]>::to_vec);
                if let (Some(shown), Some(other)) = (shown, callers.last_mut()) {
                    let _ = other.send(3, &shown, &[]);
                }
            }
        }
        6 => {}
        _ => drop(callers.swap_remove(place)),
    }
    Ok(())
}

/// Reads the bytes as a key: as text, and in the form that TLS carries.
fn keys(bytes: &[u8]) {
    if let Some(key) = crate::PublicKey::from_info(bytes) {
        assert_eq!(key.to_info(), bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(key) = text.parse::<crate::PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn untrusted_input_that_was_found_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
