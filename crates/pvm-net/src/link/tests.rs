//! Two ends of a link in one thread.
use super::*;
use crate::keys::KeyPair;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

fn sockets() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one.into(), other.into())
}

fn clear() -> (Link, Link) {
    let (one, other) = sockets();
    (Link::clear(one), Link::clear(other))
}

/// Makes an encrypted pair after its handshake.
fn encrypted() -> (Link, Link) {
    let (ours, theirs) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (one, other) = sockets();
    let (client, server) = (Identity::new(ours), Identity::new(theirs));
    server.known().add(client.public());
    let mut one = Link::secure_to(one, &client, server.public()).unwrap();
    let mut other = Link::secure_from(other, &server).unwrap();
    while !(one.handshake().unwrap() & other.handshake().unwrap()) {}
    assert_eq!((one.peer(), other.peer()), (Some(server.public()), Some(client.public())));
    (one, other)
}

fn each() -> [(Link, Link); 2] {
    let mut pairs = [clear(), encrypted()];
    for (one, other) in &mut pairs {
        one.trust(Duration::from_secs(5)).unwrap();
        other.trust(Duration::from_secs(5)).unwrap();
    }
    pairs
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 + seed * 7 + index / 251) as u8).collect()
}

#[test]
fn frames_of_every_size_come_as_they_were_sent() {
    for (mut one, mut other) in each() {
        let sizes = [0, 1, 5, 4095, 4096, 16383, 16384, 16385, 65536, 100_000, 1 << 20, (1 << 20) - 5, 3];
        for (seed, bytes) in sizes.into_iter().enumerate() {
            let body = pattern(bytes, seed);
            let header = pattern(seed * 9 % (HEADER_BYTES_MAX + 1), 1);
            one.set_frame_bytes_max(2 << 20);
            other.set_frame_bytes_max(2 << 20);
            let (front, back) = body.split_at(bytes / 3);
            one.send(seed as u8, &header, &[front, &[], back]).unwrap();
            let head = loop {
                one.flush().unwrap();
                if let Some(head) = other.receive().unwrap() {
                    break head;
                }
            };
            assert_eq!((head.kind, head.header(), head.body_bytes), (seed as u8, &header[..], bytes));
            let mut received = vec![0; bytes];
            let mut done = 0;
            while done < bytes {
                one.flush().unwrap();
                done += other.take(&mut received[done..]).unwrap();
            }
            assert!(received == body, "{bytes}");
        }
        assert!(!one.wants_write() && other.receive().unwrap().is_none());
    }
}

#[test]
fn many_frames_in_both_directions_keep_their_order() {
    for (mut one, mut other) in each() {
        let (mut sent, mut got) = ([0_u32; 2], [0_u32; 2]);
        while got != [2000; 2] {
            let ends = [(0, &mut one), (1, &mut other)];
            for (side, link) in ends {
                while sent[side] < 2000 && link.has_room() {
                    let body = pattern(sent[side] as usize * 17 % 5000, sent[side] as usize);
                    link.send(1, &sent[side].to_le_bytes(), &[&body]).unwrap();
                    sent[side] += 1;
                }
                link.flush().unwrap();
                while let Some((head, body)) = link.receive_whole().unwrap() {
                    let number = got[side];
                    assert_eq!(head.header(), number.to_le_bytes());
                    assert!(body == pattern(number as usize * 17 % 5000, number as usize));
                    got[side] += 1;
                }
            }
        }
    }
}

#[test]
fn a_peer_that_does_not_read_is_given_up_when_too_much_waits() {
    for (mut one, _other) in each() {
        one.set_queued_bytes_max(100_000);
        let body = vec![0; 50_000];
        let error = (0..10_000).find_map(|_| one.send(1, &[], &[&body]).err());
        assert_eq!(error, Some(LinkError::Backlog));
        assert!(one.queued_bytes() < 200_000 && !one.has_room());
    }
}

#[test]
fn who_is_reading_a_long_frame_is_not_given_up_for_what_comes_behind_it() {
    for (mut one, mut other) in each() {
        one.set_queued_bytes_max(100_000);
        one.set_frame_bytes_max(usize::MAX);
        other.set_frame_bytes_max(usize::MAX);
        let long = 50 << 20;
        one.send(1, &[], &[&vec![7; long]]).unwrap();
        assert!(one.queued_bytes() > 100_000, "the sockets hold it all");
        for _ in 0..10 {
            one.send(2, &[], &[&[1; 1000]]).unwrap();
        }
        let mut lengths = Vec::new();
        while lengths.len() < 11 {
            one.flush().unwrap();
            if let Some((_, body)) = other.receive_whole().unwrap() {
                lengths.push(body.len());
            }
        }
        assert_eq!(lengths, [&[long][..], &[1000; 10]].concat());
        // Once the long frame has been received, the limit on queued bytes applies again.
        let error = (0..10_000).find_map(|_| one.send(1, &[], &[&[0; 50_000]]).err());
        assert_eq!(error, Some(LinkError::Backlog));
        assert!(one.queued_bytes() < 200_000);
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_on_both_sides() {
    for (mut one, mut other) in each() {
        other.set_frame_bytes_max(1000);
        assert_eq!(one.send(1, &[], &[&[0; FRAME_BYTES_MAX + 1]]), Err(LinkError::TooLong(FRAME_BYTES_MAX + 1)));
        one.send(1, &[0; 10], &[&[0; 990]]).unwrap();
        let whole = loop {
            if let Some((_, body)) = other.receive_whole().unwrap() {
                break body.len();
            }
        };
        assert_eq!(whole, 990);
        one.send(1, &[0; 10], &[&[0; 991]]).unwrap();
        let error = loop {
            match other.receive() {
                Ok(None) => {}
                Ok(Some(_)) => panic!("taken"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, LinkError::TooLong(1001));
    }
}

#[test]
fn what_was_sent_before_the_end_is_received() {
    for (mut one, mut other) in each() {
        one.send(7, &[1, 2], &[b"last"]).unwrap();
        drop(one);
        let head = loop {
            if let Some(head) = other.receive().unwrap() {
                break head;
            }
        };
        let mut body = [0; 4];
        assert_eq!((head.kind, other.take(&mut body)), (7, Ok(4)));
        assert_eq!(&body, b"last");
        let error = loop {
            match other.receive() {
                Ok(None) => {}
                Ok(Some(_)) => panic!("one frame too many"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, LinkError::Closed);
    }
}

#[test]
fn a_header_longer_than_its_frame_is_malformed() {
    let (one, mut other) = clear();
    rustix::io::write(&one, &[3, 0, 0, 0, 9, 4, 1, 2, 3]).unwrap();
    let error = loop {
        match other.receive() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("taken"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, LinkError::Malformed);
}

#[test]
fn a_changed_byte_ends_an_encrypted_link() {
    let (one, other) = sockets();
    let (relay_one, relay_other) = sockets();
    let (client, server) = (Identity::new(KeyPair::generate().unwrap()), Identity::new(KeyPair::generate().unwrap()));
    server.known().add(client.public());
    let mut caller = Link::secure_to(one, &client, server.public()).unwrap();
    let mut called = Link::secure_from(relay_one, &server).unwrap();
    let pass = |from: &OwnedFd, to: &OwnedFd, change: bool| {
        let mut bytes = [0; 4096];
        if let Ok(count) = rustix::io::read(from, &mut bytes) {
            bytes[count - 1] ^= u8::from(change);
            rustix::io::write(to, &bytes[..count]).unwrap();
        }
    };
    while !(caller.handshake().unwrap() & called.handshake().unwrap()) {
        pass(&other, &relay_other, false);
        pass(&relay_other, &other, false);
    }
    caller.send(1, &[], &[b"some text"]).unwrap();
    let error = loop {
        pass(&other, &relay_other, true);
        match called.receive() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("taken"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, LinkError::Tls(rustls::Error::DecryptError));
}

#[test]
fn one_that_has_broken_the_encryption_is_sent_nothing_more() {
    let (mut one, other) = encrypted();
    crate::socket::write(&other, &[std::io::IoSlice::new(&[23, 3, 3, 0, 3, 1, 2, 3])]).unwrap();
    let error = loop {
        match one.receive() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("taken"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Tls(_)), "{error}");
    // One alert has been sent to the other end. Every further call returns the same error.
    assert_eq!(one.send(1, &[], &[b"text"]), Err(error.clone()));
    assert_eq!(one.receive().err(), Some(error));
}

#[test]
fn a_byte_stream_carries_bytes_and_says_when_it_is_full() {
    for (one, other) in each() {
        let (mut one, mut other) = (one.into_byte_stream(), other.into_byte_stream());
        let data = pattern(20 << 20, 3);
        let (mut sent, mut full) = (0, false);
        while !full {
            let count = one.write(&data[sent..]).unwrap();
            sent += count;
            full = count == 0;
        }
        assert!(sent < data.len());
        let mut received = Vec::new();
        let mut into = vec![0; 100_000];
        while received.len() < data.len() {
            sent += one.write(&data[sent..]).unwrap();
            let count = other.read(&mut into).unwrap();
            received.extend_from_slice(&into[..count]);
        }
        assert!(received == data && other.read(&mut into) == Ok(0));
        assert_eq!(other.plain_socket().is_some(), !other.is_encrypted());
        drop(one);
        let error = loop {
            if let Err(error) = other.read(&mut into) {
                break error;
            }
        };
        assert_eq!(error, LinkError::Closed);
    }
}

#[test]
fn an_encrypted_stream_copies_from_the_front_what_it_takes_and_reads_more_at_once_when_much_comes() {
    let [_, (one, other)] = each();
    let (mut one, mut other) = (one.into_byte_stream(), other.into_byte_stream());
    let data = pattern(8 << 20, 6);
    // The counts are: whole records, records and a piece, less than one record, and more than a stream takes at a time.
    let counts = [32 << 10, 40_000, 1, 0, 100, 3 << 20];
    let (mut sent, mut received, mut most) = (0, Vec::new(), 0);
    for turn in 0.. {
        let wanted = counts[turn % counts.len()].min(data.len() - sent);
        let mut copied = 0;
        let taken = one.write_by(wanted, &mut |into| {
            into.copy_from_slice(&data[sent + copied..][..into.len()]);
            copied += into.len();
        });
        assert_eq!(taken, Ok(copied));
        sent += copied;
        // The other end reads only when the socket is full, so that each read finds many bytes.
        while one.wants_write() || sent == data.len() && received.len() < sent {
            let count = other.read_by(usize::MAX, &mut |bytes| received.extend_from_slice(bytes)).unwrap();
            most = most.max(count);
            one.flush().unwrap();
        }
        if received.len() == data.len() {
            break;
        }
    }
    assert!(received == data);
    assert!(most > 128 << 10, "{most}");
    [one, other].iter_mut().for_each(ByteStream::release);
}

#[test]
fn a_body_is_pushed_as_the_socket_takes_it_and_no_copy_waits() {
    for (mut one, mut other) in each() {
        for link in [&mut one, &mut other] {
            link.set_frame_bytes_max(64 << 20);
        }
        let body = pattern(30 << 20, 5);
        let mut into = vec![0; body.len()];
        for round in 0..2 {
            // In the second round, another frame waits before this one.
            if round == 1 {
                one.send(9, &[], &[&body]).unwrap();
            }
            let mut sent = one.begin(8, &[1, 2, 3], body.len(), &body).unwrap();
            assert!(round == 0 || sent == 0);
            assert!(sent < body.len() && one.body_owed() == body.len() - sent);
            let mut heads = Vec::new();
            let mut done = 0;
            while heads.len() <= round || other.body_left() > 0 {
                sent += one.push(&body[sent..]).unwrap();
                assert!(round == 1 || one.queued_bytes() < 256 << 10, "{}", one.queued_bytes());
                if other.body_left() > 0 {
                    done += other.take(&mut into[done..]).unwrap();
                } else if let Some(head) = other.receive().unwrap() {
                    done = 0;
                    heads.push((head.kind, head.header().to_vec(), head.body_bytes));
                }
            }
            assert_eq!(heads.pop(), Some((8, vec![1, 2, 3], body.len())));
            assert!(into == body && one.body_owed() == 0 && !one.wants_write());
        }
        // An empty body by `begin`; a body of one byte, although two bytes are passed; an empty body by `send`.
        assert_eq!(one.begin(7, &[], 0, &[]), Ok(0));
        assert_eq!(one.begin(7, &[], 1, &[4, 5]), Ok(1));
        one.send(7, &[], &[]).unwrap();
        let mut sizes = Vec::new();
        while sizes.len() < 3 {
            if let Some((head, body)) = other.receive_whole().unwrap() {
                sizes.push((head.kind, body.len()));
            }
        }
        assert_eq!(sizes, [(7, 0), (7, 1), (7, 0)]);
    }
}

#[test]
fn writing_to_one_that_is_gone_is_an_error_and_no_signal() {
    let signals = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let flag = signal_hook::flag::register_usize(signal_hook::consts::SIGPIPE, signals.clone(), 1).unwrap();
    for (mut one, other) in each() {
        drop(other);
        let body = [0; 1000];
        let failed = |link: &mut Link| {
            let results = [link.send(1, &[], &[&body]), link.flush(), link.try_write(&[&body]).map(drop)];
            results.into_iter().any(|result| result.is_err())
        };
        while !failed(&mut one) {}
        assert!(failed(&mut one));
        let mut pipe = one.into_byte_stream();
        let _ = pipe.write(&body);
    }
    assert_eq!(signals.load(std::sync::atomic::Ordering::SeqCst), 0);
    signal_hook::low_level::unregister(flag);
}

/// This variable is set when the test below runs a second time, in a process whose memory may be limited.
const WITHOUT_MEMORY: &str = "HPVM_TEST_WITHOUT_MEMORY";

#[test]
fn a_frame_for_which_there_is_no_memory_costs_its_link_and_nothing_else() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if std::env::var_os(WITHOUT_MEMORY).is_none() {
        let name = "link::tests::a_frame_for_which_there_is_no_memory_costs_its_link_and_nothing_else";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["--exact", name]).env(WITHOUT_MEMORY, "1").env("RUST_BACKTRACE", "0").output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    const BYTES: usize = 24 << 20;
    let body = pattern(BYTES, 1);
    let mut pairs = each();
    for (one, other) in &mut pairs {
        one.set_frame_bytes_max(BYTES);
        other.set_frame_bytes_max(BYTES);
        one.send(1, &[], &[&body[..BYTES - 100]]).unwrap();
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(pages * rustix::param::page_size() as u64 + (8 << 20)), maximum: None };
    setrlimit(Resource::As, limit).unwrap();
    // The test also uses up the memory that the allocator has in reserve.
    let piece = || {
        let mut piece = Vec::<u8>::new();
        piece.try_reserve_exact(4 << 20).ok().map(|()| piece)
    };
    let mut ballast: Vec<Vec<u8>> = std::iter::from_fn(piece).collect();
    ballast.truncate(ballast.len() - 2);
    for (one, other) in &mut pairs {
        let result = loop {
            if let Err(error) = one.flush() {
                break Err(error);
            }
            match other.receive_whole() {
                Ok(None) => {}
                Ok(Some((_, body))) => break Ok(body.len()),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(result, Err(LinkError::System(Errno::NOMEM)));
    }
    drop(ballast);
}
