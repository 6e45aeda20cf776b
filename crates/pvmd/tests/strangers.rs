//! Strangers at the port of a daemon, and a master that does not read. The test is the master.
#![forbid(unsafe_code)]
mod common;

use common::{Directory, PATIENCE};
use pvm_core::codes::native_dsig;
use pvm_core::dialogue::{self, Greeting, Line};
use pvm_core::flows::pacing::Pacing;
use pvm_core::proto;
use pvm_core::session::counted;
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame, HostEntry, MachineSettings, Started};
use pvm_net::{ConnectEvent, Connector, Identity, KeyPair, Pair, PublicKey, Security};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const WORDS: [&str; 8] = ["-f", "-s", "-nh2", "1", "c0000201:0000", "4080", "2", "c0000201:0000"];
/// The maximum number of strangers that connect at once.
const CROWD_MAX: usize = 2000;
/// The growth in KiB of the daemon's memory that strangers may cause.
const GROWTH_MAX: usize = 32 << 10;

/// A daemon that joins, in the foreground.
struct Joining {
    directory: Directory,
    child: Child,
    address: SocketAddr,
    key: PublicKey,
}

impl Joining {
    fn new(master: PublicKey) -> Joining {
        let directory = Directory::new();
        let mut child = directory.command().args(WORDS).stdin(Stdio::piped()).spawn().unwrap();
        let greeting = Greeting { key: Some(master.0), ..Greeting::default() }.text();
        child.stdin.take().unwrap().write_all(greeting.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Line::Started(Started { addresses, key, .. }) = dialogue::read(&line) else { panic!("{line}") };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, addresses[0].port()));
        Joining { directory, child, address, key: PublicKey(key) }
    }

    /// Returns the lines about strangers in the daemon's log.
    fn turned_away(&self) -> Vec<String> {
        self.directory.log().lines().filter(|line| line.contains("turned away")).map(str::to_owned).collect()
    }

    fn await_lines(&self, count: usize) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        while self.turned_away().len() < count && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lines = self.turned_away();
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Connects with the key of `caller`.
    fn call(&self, caller: &mut Connector, security: Security, patience: Duration) -> ConnectEvent {
        caller.connect_pair(1, &[self.address], self.key, security, patience, Instant::now());
        loop {
            caller.step(Instant::now());
            match caller.poll_event() {
                Some(event) => return event,
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn caller(key: KeyPair) -> Connector {
    Connector::new(Identity::new(key), Duration::from_secs(10)).unwrap()
}

/// The kind of an acknowledgement on a control link.
const ACKNOWLEDGEMENT: u8 = 2;

/// Acknowledges what has come on the control link, up to a position.
fn acknowledge(pair: &mut Pair, position: u64) {
    pair.control.send(ACKNOWLEDGEMENT, &position.to_le_bytes(), &[]).unwrap();
}

/// Waits for a sign of life of the daemon.
fn await_beat(pair: &mut Pair) {
    pair.control.set_frame_bytes_max(proto::FRAME_BYTES_MAX);
    acknowledge(pair, 0);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some((_, body)) = pair.control.receive_whole().unwrap().filter(|(head, _)| head.kind != ACKNOWLEDGEMENT)
        {
            assert_eq!(wire::decode::<Frame>(body), Some(Frame::Beat));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no sign of life");
}

#[test]
fn strangers_get_nothing_and_a_line_each_and_the_master_is_served() {
    let key = KeyPair::generate().unwrap();
    let mut daemon = Joining::new(key.public());
    let mut master = caller(key);
    // Bytes that are no handshake.
    let noise: Vec<u8> = (0..3000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let strange: [&[u8]; 4] =
        [b"GET / HTTP/1.0\r\n\r\n", &noise, &[22, 3, 1, 2, 0, 1, 9, 9, 9, 9], &[32, 0, 0, 0xff, 3, 32]];
    for (count, bytes) in strange.into_iter().enumerate() {
        let mut socket = TcpStream::connect(daemon.address).unwrap();
        socket.write_all(bytes).unwrap();
        if count == 2 {
            // An incomplete hello.
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        }
        // The daemon closes the connection; its answer is at most an alert.
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.len() < 10, "{answer:?}");
        daemon.await_lines(count + 1);
    }
    // The callers have a key of another machine. The first asks for encrypted data links, the second for data links in
    // clear.
    for security in [Security::Encrypted, Security::Trusted] {
        let mut stranger = caller(KeyPair::generate().unwrap());
        let before = daemon.turned_away().len();
        stranger.connect_pair(1, &[daemon.address], daemon.key, security, PATIENCE, Instant::now());
        let end = Instant::now() + PATIENCE;
        while daemon.turned_away().len() == before && Instant::now() < end {
            stranger.step(Instant::now());
        }
        assert!(stranger.poll_event().is_none());
        let lines = daemon.turned_away();
        assert!(lines[before].contains("its key is not the one of a host of this machine"), "{lines:#?}");
    }
    // The master can connect nevertheless.
    let event = daemon.call(&mut master, Security::Trusted, PATIENCE);
    let ConnectEvent::PairConnected { mut pair, .. } = event else { panic!("{event:?}\n{}", daemon.directory.log()) };
    await_beat(&mut pair);
    // The daemon ends when the master has closed its links.
    drop(pair);
    assert!(daemon.child.wait().unwrap().success());
    assert_eq!(daemon.directory.leftovers(), Vec::<String>::new());
}

#[test]
fn a_crowd_at_once_costs_few_lines_and_little_memory() {
    let key = KeyPair::generate().unwrap();
    let daemon = Joining::new(key.public());
    let mut master = caller(key);
    let before = daemon.resident_kib();
    let mut crowd = Vec::new();
    let mut pair = None;
    // The sockets of the crowd and of other tests share the limit on open files of this process, so the crowd gets at
    // most half of it.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let size = CROWD_MAX.min(limit as usize / 2);
    for number in 0..size {
        let Ok(mut socket) = TcpStream::connect(daemon.address) else { continue };
        // Some send a few bytes.
        if number % 3 == 0 {
            let _ = socket.write_all(&[22, 3, 1]);
        }
        crowd.push(socket);
        if number == size / 2 {
            match daemon.call(&mut master, Security::Encrypted, PATIENCE) {
                ConnectEvent::PairConnected { pair: it, .. } => pair = Some(it),
                event => panic!("{event:?}\n{}", daemon.directory.log()),
            }
        }
    }
    let growth = daemon.resident_kib().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{growth} KiB");
    await_beat(&mut pair.expect("connected in the middle"));
    let lines = daemon.turned_away();
    assert!(!lines.is_empty() && lines.len() < 40, "{lines:#?}");
    assert!(crowd.len() > size / 2);
}

#[test]
fn noise_on_the_socket_of_tasks_harms_nobody() {
    let key = KeyPair::generate().unwrap();
    let daemon = Joining::new(key.public());
    let socket = std::fs::read_to_string(daemon.directory.rendezvous()).unwrap();
    let mut noisy: Vec<UnixStream> = (0..50).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for (number, stream) in noisy.iter_mut().enumerate() {
        let noise: Vec<u8> = (0..200_u32).map(|index| (index * 31 + number as u32) as u8).collect();
        let _ = stream.write_all(&noise);
    }
    let mut master = caller(key);
    let event = daemon.call(&mut master, Security::Encrypted, PATIENCE);
    let ConnectEvent::PairConnected { mut pair, .. } = event else { panic!("{event:?}") };
    await_beat(&mut pair);
}

#[test]
fn output_for_the_log_waits_for_the_link_to_the_master() {
    const LINES: usize = 1_000_000;
    let key = KeyPair::generate().unwrap();
    let host = Joining::new(key.public());
    let mut master = caller(key);
    let ConnectEvent::PairConnected { mut pair, .. } = host.call(&mut master, Security::Encrypted, PATIENCE) else {
        panic!()
    };
    pair.control.set_frame_bytes_max(wire::HOST_FRAME_BYTES_MAX);
    acknowledge(&mut pair, 0);
    let entry = |number, name: &str| HostEntry {
        tid: Tid::host_number(number),
        name: name.to_owned(),
        aliases: Vec::new(),
        arch: "LINUX64".to_owned(),
        speed: 1000,
        node: None,
        groups: None,
        is_draining: false,
        dsig: native_dsig(),
        addresses: vec![host.address],
        key: [number as u8; 32],
    };
    let shared = MachineSettings {
        host_timeout_ms: 60_000,
        halt_grace_ms: 2000,
        trusted: false,
        servers: wire::Servers::default(),
        debug_mask: 0,
        host_watches: 1000,
        pacing: Pacing::default(),
        order: proto::Order::Hosts,
        barrier_broadcast_hosts: 3,
        fabric: Default::default(),
        broadcast: None,
    };
    let (hosts, options) = (vec![entry(1, "h1"), entry(2, "h2")], wire::HostOptions::default());
    let script = format!("yes | head -n {LINES}");
    let spawn = common::spawn_of("/bin/sh", &["-c", &script], 1);
    for frame in [
        Frame::Welcome { wire: wire::VERSION, version: 1, hosts, joining: vec![Tid::host_number(2)], shared, options },
        Frame::Joined { hosts: vec![Tid::host_number(2)] },
        Frame::Spawn { wait: 1, parent: 0x40001, first: 0, total: 1, spawn },
    ] {
        pair.control.send(1, &[], &[&wire::encode(&frame)]).unwrap();
    }
    // The master does not read until the daemon takes no more output. The whole output would be about 30 MB of frames.
    let (mut last, mut resident) = (0, host.resident_kib());
    while resident != last {
        std::thread::sleep(Duration::from_millis(700));
        (last, resident) = (resident, host.resident_kib());
    }
    let (mut lines, mut position, end) = (0, 0, Instant::now() + PATIENCE);
    while lines < LINES {
        assert!(Instant::now() < end, "{lines} lines");
        pair.control.flush().unwrap();
        match pair.control.receive_whole().unwrap() {
            Some((head, _)) if head.kind == ACKNOWLEDGEMENT => {}
            Some((_, body)) => match wire::decode::<Frame>(body).inspect(|_| position += counted(body.len())) {
                Some(Frame::Log { line, .. }) => {
                    lines += usize::from(line == b"y");
                    if lines % 1000 == 0 {
                        acknowledge(&mut pair, position);
                    }
                }
                Some(Frame::Spawned { results, .. }) => assert!(results[0] > 0, "{results:?}"),
                _ => {}
            },
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(resident < 24 << 10, "{resident} KiB");
}
