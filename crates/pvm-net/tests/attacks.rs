//! Strangers that connect: each is refused with one log line, costs little, and delays nobody.
#![forbid(unsafe_code)]
mod common;

use common::*;
use pvm_net::{
    ConnectEvent, Connector, HALF_PAIRS_MAX, HANDSHAKE_BYTES_MAX, HANDSHAKE_TIME_MAX, Link, LinkError, PublicKey,
    Security, UNKNOWN_MAX,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Numbers of the wire format: the kinds of the frames that open links, and the version.
const OPEN_CONTROL: u8 = 1;
const OPEN_DATA: u8 = 3;
const VERSION: u8 = 2;

fn connect(connector: &Connector) -> TcpStream {
    let socket = TcpStream::connect(address(connector)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

fn link_to(connector: &Connector, identity: &pvm_net::Identity) -> Link {
    Link::secure_to(OwnedFd::from(connect(connector)), identity, connector.identity().public()).unwrap()
}

/// Returns whether the other side has closed.
fn is_closed(socket: &mut TcpStream) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match socket.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return true,
        }
    }
    false
}

/// Drives both ends until the handshake is complete or has failed.
fn shake(connector: &mut Connector, link: &mut Link) -> Result<(), LinkError> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        connector.step(Instant::now());
        if link.handshake()? {
            return Ok(());
        }
    }
    panic!("the handshake does not end");
}

/// Opens the control link of a known peer, and returns the two tokens of the answer.
fn tokens(connector: &mut Connector, link: &mut Link, security: u8) -> ([u8; 32], [u8; 32]) {
    shake(connector, link).unwrap();
    link.send(OPEN_CONTROL, &[VERSION, security], &[]).unwrap();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        connector.step(Instant::now());
        if let Some(head) = link.receive().unwrap() {
            let (one, other) = head.header().split_at(32);
            return (one.try_into().unwrap(), other.try_into().unwrap());
        }
    }
    panic!("no answer");
}

/// Checks that a known peer can still connect.
fn assert_serves(connector: &mut Connector) {
    let mut friend = acquaintance(connector);
    let (mut one, mut other) = pairs(call(&mut friend, connector, Security::Trusted));
    use_pairs(&mut one, &mut other);
}

fn acquaintance(connector: &Connector) -> Connector {
    let friend = common::connector();
    connector.identity().known().add(friend.identity().public());
    friend
}

#[test]
fn another_machines_key_opens_nothing() {
    let (mut stranger, mut called) = (connector(), connector());
    stranger.connect_pair(
        7,
        &[address(&called)],
        called.identity().public(),
        Security::Encrypted,
        Duration::from_millis(300),
        Instant::now(),
    );
    let start = Instant::now();
    let mut seen = Vec::new();
    while start.elapsed() < Duration::from_secs(2) {
        stranger.step(Instant::now());
        called.step(Instant::now());
        seen.extend(events(&mut called));
        if let Some(event) = stranger.poll_event() {
            assert!(matches!(event, ConnectEvent::Failed { ticket: 7, .. }), "{event:?}");
            break;
        }
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    let ConnectEvent::Refused { reason, .. } = &seen[0] else { panic!("{seen:?}") };
    assert!(reason.contains("its key is not"), "{reason}");
    assert_serves(&mut called);
}

#[test]
fn one_who_answers_with_another_key_is_not_believed() {
    let (mut caller, mut called) = acquainted();
    let other: PublicKey = identity().public();
    caller.connect_pair(7, &[address(&called)], other, Security::Encrypted, Duration::from_millis(300), Instant::now());
    let (event, seen) = drive(&mut caller, &mut called);
    let ConnectEvent::Failed { reason, .. } = event else { panic!("{event:?}") };
    assert!(reason.contains("its key is not"), "{reason}");
    assert!(
        matches!(&seen[..], [ConnectEvent::Refused { reason, .. }] if reason.contains("does not know our key")),
        "{seen:?}"
    );
}

#[test]
fn a_key_that_was_taken_back_opens_nothing() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let mut link = link_to(&connector, friend.identity());
    shake(&mut connector, &mut link).unwrap();
    connector.identity().known().remove(&friend.identity().public());
    link.send(OPEN_CONTROL, &[VERSION, 0], &[]).unwrap();
    assert!(refusal(&mut connector).contains("its key is not"));
}

/// Makes a TLS client without a key. If `boastful` is true, the client claims to have a key.
fn keyless(boastful: bool) -> rustls::ClientConnection {
    #[derive(Debug)]
    struct Boastful;
    impl rustls::client::ResolvesClientCert for Boastful {
        fn resolve(
            &self,
            _: &[&[u8]],
            _: &[rustls::SignatureScheme],
        ) -> Option<std::sync::Arc<rustls::sign::CertifiedKey>> {
            None
        }
        fn only_raw_public_keys(&self) -> bool {
            true
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    #[derive(Debug)]
    struct Credulous;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    impl ServerCertVerifier for Credulous {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            unreachable!("TLS 1.2 is never spoken")
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            vec![rustls::SignatureScheme::ED25519]
        }
        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Credulous));
    let mut config = if boastful {
        config.with_client_cert_resolver(std::sync::Arc::new(Boastful))
    } else {
        config.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"hpvm/1".to_vec()];
    rustls::ClientConnection::new(config.into(), "hpvm".try_into().unwrap()).unwrap()
}

#[test]
fn one_without_a_key_is_turned_away() {
    for boastful in [false, true] {
        let mut connector = connector();
        let mut socket = connect(&connector);
        let mut client = keyless(boastful);
        let start = Instant::now();
        let mut seen = Vec::new();
        while seen.is_empty() && start.elapsed() < PATIENCE {
            while client.wants_write() && client.write_tls(&mut socket).is_ok() {}
            if client.wants_read() && client.read_tls(&mut socket).is_ok() {
                let _ = client.process_new_packets();
            }
            connector.step(Instant::now());
            seen.extend(events(&mut connector));
        }
        assert!(
            matches!(&seen[..], [ConnectEvent::Refused { reason, count: 1, .. }] if reason == "shows no key"),
            "{seen:?}"
        );
        assert_serves(&mut connector);
    }
}

/// Records all bytes that a known peer sends until its control link is open.
fn recorded_call(connector: &mut Connector, friend: &Connector) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut middle, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    middle.set_nonblocking(true).unwrap();
    let mut far = connect(connector);
    let mut link = Link::secure_to(near.into(), friend.identity(), connector.identity().public()).unwrap();
    let (mut record, mut bytes) = (Vec::new(), [0; 4096]);
    let start = Instant::now();
    let mut sent = false;
    while start.elapsed() < PATIENCE {
        connector.step(Instant::now());
        if let Ok(count) = far.read(&mut bytes) {
            middle.write_all(&bytes[..count]).unwrap();
        }
        if link.handshake().unwrap() && !sent {
            link.send(OPEN_CONTROL, &[VERSION, 0], &[]).unwrap();
            sent = true;
        }
        if let Ok(count) = middle.read(&mut bytes) {
            record.extend_from_slice(&bytes[..count]);
            far.write_all(&bytes[..count]).unwrap();
        }
        if sent && link.receive().unwrap().is_some() {
            return record;
        }
    }
    panic!("the call does not come through");
}

#[test]
fn a_replayed_call_opens_nothing() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let record = recorded_call(&mut connector, &friend);
    connector.step(Instant::now());
    assert!(events(&mut connector).is_empty());
    let mut socket = connect(&connector);
    socket.write_all(&record).unwrap();
    let reason = refusal(&mut connector);
    assert!(reason.contains("decrypt"), "{reason}");
    assert!(is_closed(&mut socket));
    assert_serves(&mut connector);
}

#[test]
fn a_call_cut_short_anywhere_opens_nothing() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let record = recorded_call(&mut connector, &friend);
    connector.step(Instant::now());
    events(&mut connector);
    let cuts: Vec<usize> = (0..record.len()).step_by(7).collect();
    let mut told = 0;
    for cut in &cuts {
        let mut socket = connect(&connector);
        socket.write_all(&record[..*cut]).unwrap();
        drop(socket);
        let start = Instant::now();
        // The connector receives the bytes and the end at once.
        while connector.pending() == 0 && start.elapsed() < Duration::from_millis(5) {
            connector.step(Instant::now());
        }
        while connector.pending() > 0 && start.elapsed() < PATIENCE {
            connector.step(Instant::now());
        }
        for event in events(&mut connector) {
            let ConnectEvent::Refused { count, .. } = event else { panic!("{event:?}") };
            told += count as usize;
        }
    }
    connector.step(Instant::now() + Duration::from_secs(60));
    for event in events(&mut connector) {
        let ConnectEvent::Refused { count, .. } = event else { panic!("{event:?}") };
        told += count as usize;
    }
    assert_eq!(told, cuts.len());
    assert_serves(&mut connector);
}

#[test]
fn what_is_not_our_protocol_is_turned_away_at_once() {
    let mut connector = connector();
    let noise: Vec<u8> = (0..5000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut long_record = vec![22, 3, 1, 0xff, 0xff];
    long_record.extend_from_slice(&noise);
    let mut noisy_hello = vec![22, 3, 1, 0x10, 0x00, 1, 0, 0x0f, 0xfc];
    noisy_hello.extend_from_slice(&noise);
    let strange: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        &[0],
        &noise,
        &long_record,
        &noisy_hello,
        // A frame in clear that is far too long, and a frame whose header is too long.
        &[32, 0, 0, 0x7f, OPEN_DATA, 32],
        &[32, 0, 0, 0, OPEN_DATA, 255],
        // A part of a TLS message, followed by a record of an unknown kind.
        &[22, 3, 1, 0, 5, 1, 3, 0, 0, 1, 0, 0, 3, 0, 0, 0],
    ];
    for bytes in strange {
        let mut socket = connect(&connector);
        socket.write_all(bytes).unwrap();
        let reason = refusal(&mut connector);
        assert!(!reason.is_empty() && reason.len() < 200, "{reason}");
        assert!(is_closed(&mut socket), "{reason}");
    }
    assert_eq!(connector.pending(), 0);
    assert_serves(&mut connector);
}

#[test]
fn one_who_says_too_much_before_it_is_known_is_turned_away() {
    let mut connector = connector();
    let mut socket = connect(&connector);
    // Records of a handshake that never completes: one message, in pieces.
    let mut bytes = vec![22, 3, 1, 0, 4, 1, 0, 0x80, 0];
    while bytes.len() < 2 * HANDSHAKE_BYTES_MAX {
        bytes.extend_from_slice(&[22, 3, 3, 0, 200]);
        bytes.extend_from_slice(&[7; 200]);
    }
    socket.write_all(&bytes).unwrap();
    assert_eq!(refusal(&mut connector), "says too much before it is known");
}

#[test]
fn a_token_is_good_once_for_its_owner_and_for_a_short_time() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let other_friend = acquaintance(&connector);
    let clear = |connector: &Connector, token: &[u8]| {
        let mut link = Link::clear(connect(connector).into());
        link.send(OPEN_DATA, token, &[]).unwrap();
        link
    };
    // A wrong token, and a token that is too short.
    let _links = (clear(&connector, &[5; 32]), clear(&connector, &[5; 31]));
    for event in await_events(&mut connector, 2) {
        assert!(matches!(event, ConnectEvent::Refused { .. }), "{event:?}");
    }
    // A token with one wrong bit, then the right token, then the right token again.
    let mut control = link_to(&connector, friend.identity());
    let (token, back) = tokens(&mut connector, &mut control, 1);
    let mut nearly = token;
    nearly[31] ^= 1;
    let _wrong = clear(&connector, &nearly);
    assert!(refusal(&mut connector).contains("not good"));
    let mut data = clear(&connector, &token);
    let arrived = await_events(&mut connector, 1).remove(0);
    assert!(matches!(arrived, ConnectEvent::PairAccepted { peer, .. } if peer == friend.identity().public()));
    let head = std::iter::repeat_with(|| data.receive().unwrap()).flatten().next().unwrap();
    assert_eq!(head.header(), back, "the called one shows who it is as well");
    let _again = clear(&connector, &token);
    assert!(refusal(&mut connector).contains("not good"));
    // A token for an encrypted link is shown on a link in clear, then by another host.
    for how in [0, 1] {
        let mut control = link_to(&connector, friend.identity());
        let (token, _) = tokens(&mut connector, &mut control, 0);
        let mut links = Vec::new();
        if how == 0 {
            links.push(clear(&connector, &token));
        } else {
            let mut link = link_to(&connector, other_friend.identity());
            shake(&mut connector, &mut link).unwrap();
            link.send(OPEN_DATA, &token, &[]).unwrap();
            links.push(link);
        }
        assert!(refusal(&mut connector).contains("not its own"), "{how}");
    }
    // A token that was not used in time.
    let mut control = link_to(&connector, friend.identity());
    let (token, _) = tokens(&mut connector, &mut control, 1);
    connector.step(Instant::now() + HANDSHAKE_TIME_MAX);
    assert!(refusal(&mut connector).contains("did not come with its data link"));
    let _late = clear(&connector, &token);
    assert!(refusal(&mut connector).contains("not good"));
    assert_eq!(connector.pending(), 0);
    assert_serves(&mut connector);
}

#[test]
fn one_who_is_known_and_speaks_strangely_is_turned_away() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    for (kind, header) in [(OPEN_CONTROL, vec![VERSION + 1, 0]), (OPEN_CONTROL, vec![VERSION, 9]), (77, vec![])] {
        let mut link = link_to(&connector, friend.identity());
        shake(&mut connector, &mut link).unwrap();
        link.send(kind, &header, &[]).unwrap();
        refusal(&mut connector);
    }
    // A long frame in place of a greeting, then a frame before the data link is complete.
    let mut link = link_to(&connector, friend.identity());
    shake(&mut connector, &mut link).unwrap();
    link.send(OPEN_CONTROL, &[VERSION, 0], &[&[0; 1000]]).unwrap();
    assert!(refusal(&mut connector).contains("too long"));
    let mut link = link_to(&connector, friend.identity());
    tokens(&mut connector, &mut link, 0);
    link.send(50, &[], &[]).unwrap();
    assert!(refusal(&mut connector).contains("not asked for"));
    assert_eq!(connector.pending(), 0);
}

#[test]
fn one_who_calls_again_and_again_keeps_few_places() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let mut links = Vec::new();
    for count in 1..=HALF_PAIRS_MAX + 3 {
        let mut link = link_to(&connector, friend.identity());
        tokens(&mut connector, &mut link, 0);
        links.push(link);
        assert_eq!(connector.pending(), count.min(HALF_PAIRS_MAX));
    }
}

#[test]
fn one_who_calls_and_says_nothing_keeps_few_places() {
    let mut connector = connector();
    let friend = acquaintance(&connector);
    let mut links = Vec::new();
    for count in 1..=HALF_PAIRS_MAX + 3 {
        let mut link = link_to(&connector, friend.identity());
        shake(&mut connector, &mut link).unwrap();
        // The connector has not received the last message of the handshake yet.
        for _ in 0..20 {
            connector.step(Instant::now());
        }
        links.push(link);
        assert_eq!(connector.pending(), count.min(HALF_PAIRS_MAX));
    }
}

#[test]
fn those_who_dawdle_lose_their_places_and_hold_up_nobody() {
    let mut connector = connector();
    let hello = {
        let friend = acquaintance(&connector);
        recorded_call(&mut connector, &friend)
    };
    connector.step(Instant::now());
    events(&mut connector);
    // Each connection sends a byte now and then.
    let mut sockets: Vec<TcpStream> = (0..UNKNOWN_MAX).map(|_| connect(&connector)).collect();
    for byte in &hello[..3] {
        for socket in &mut sockets {
            socket.write_all(&[*byte]).unwrap();
        }
        for _ in 0..20 {
            connector.step(Instant::now());
        }
    }
    assert_eq!(connector.pending(), UNKNOWN_MAX);
    assert!(events(&mut connector).is_empty());
    // A known peer can connect nevertheless, once other handshakes have lasted so long that they may be closed to make
    // room for it.
    let start = Instant::now();
    assert_serves_in_spite(&mut connector);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // When the time for handshakes is over, all connections are closed.
    connector.step(Instant::now() + HANDSHAKE_TIME_MAX);
    assert_eq!(connector.pending(), 0);
    assert!(sockets.iter_mut().all(is_closed));
}

/// Checks that a known peer can connect while strangers are refused.
fn assert_serves_in_spite(connector: &mut Connector) -> usize {
    let mut friend = acquaintance(connector);
    let (event, seen) = call(&mut friend, connector, Security::Encrypted);
    assert!(matches!(event, ConnectEvent::PairConnected { .. }), "{event:?}");
    let arrived = seen.iter().filter(|event| matches!(event, ConnectEvent::PairAccepted { .. })).count();
    assert_eq!(arrived, 1);
    seen.len() - arrived
}

#[test]
fn ten_thousand_at_once_cost_few_lines_and_a_friend_comes_through() {
    const CROWD: usize = 10_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).unwrap();
    // If the system allows fewer descriptors than the crowd needs, the connections are made in waves.
    let wave = limit.maximum.map_or(CROWD, |max| CROWD.min(max as usize - 500));
    let mut connector = connector();
    let (mut lines, mut told, mut come) = (0, 0, 0);
    let mut friend = acquaintance(&connector);
    let mut friends = 0;
    while come < CROWD {
        let mut sockets = Vec::new();
        for _ in 0..wave.min(CROWD - come) {
            sockets.push(connect(&connector));
            come += 1;
            if come == CROWD / 2 {
                let key = connector.identity().public();
                friend.connect_pair(7, &[address(&connector)], key, Security::Encrypted, PATIENCE, Instant::now());
            }
            connector.step(Instant::now());
            friend.step(Instant::now());
            assert!(connector.pending() <= UNKNOWN_MAX + 1);
            for event in events(&mut connector) {
                match event {
                    ConnectEvent::Refused { count, .. } => (lines, told) = (lines + 1, told + count as usize),
                    ConnectEvent::PairAccepted { .. } => friends += 1,
                    event => panic!("{event:?}"),
                }
            }
        }
    }
    let event = friend.poll_event();
    assert!(matches!(event, Some(ConnectEvent::PairConnected { ticket: 7, .. })) && friends == 1, "{event:?}");
    for minutes in 1..3 {
        connector.step(Instant::now() + minutes * Duration::from_secs(60));
        for event in events(&mut connector) {
            let ConnectEvent::Refused { count, .. } = event else { panic!("{event:?}") };
            (lines, told) = (lines + 1, told + count as usize);
        }
    }
    assert_eq!((connector.pending(), told), (0, CROWD));
    assert!(lines < 40, "{lines} lines");
}
