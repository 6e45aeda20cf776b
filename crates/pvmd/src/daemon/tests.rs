//! A whole daemon in one thread: host 2 of a machine. The test plays its master, host 1.
use super::*;
use crate::host_links::{ACKNOWLEDGEMENT, CONTROL_FRAME};
use crate::route::RouteEvent;
use crate::settings::tests_support::settings_in;
use pvm_core::codes::native_dsig;
use pvm_core::flows::frames::write_acknowledged;
use pvm_core::flows::pacing::Pacing;
use pvm_core::machine::Rank;
use pvm_core::proto::{ByteBuf, Order, Spawn, TraceSettings};
use pvm_core::wire::{self, Frame, HostEntry, HostOptions, MachineSettings, Servers};
use pvm_net::{ConnectEvent, Identity, KeyPair, Link, PublicKey, Security, Token, Tokens};
use std::net::{Ipv4Addr, SocketAddr};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
/// The limit of silence in the machine that the daemon joins. No test waits for it.
const HOST_TIMEOUT: Duration = Duration::from_secs(60);

fn host(number: u32) -> Tid {
    Tid::host_number(number)
}

/// The daemon, and the master's ends of its links.
struct Fixture {
    daemon: Daemon,
    directory: TempDir,
    events: Vec<epoll::Event>,
    /// The other end of the daemon's signal socket. It stays open, since the daemon's loop would wake up again and
    /// again at an end of file. A byte written to it would end the daemon.
    _signals: UnixStream,
    address: SocketAddr,
    key: PublicKey,
    master: Connector,
    control: Option<Link>,
    data: Option<Link>,
    frames: Vec<Frame>,
}

impl Fixture {
    /// Returns a daemon that has both links to the master.
    fn new() -> Fixture {
        Fixture::of_machine(None)
    }

    /// Returns the same in a machine of this name.
    fn of_machine(name: Option<&str>) -> Fixture {
        let directory = TempDir::new().unwrap();
        let master_key = KeyPair::generate().unwrap();
        let mut settings = settings_in(directory.path(), Rank::Slave { own: host(2), master: host(1) });
        settings.master_key = Some(master_key.public().0);
        settings.machine_id = name.map(Into::into);
        let key = PublicKey(settings.machine.key);
        let socket_directory = SocketDirectory::create(&settings.places).unwrap();
        let log = Log::open(&settings.places.files, &settings.temporary, settings.log_bytes_max);
        let connector = settings.listen().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, connector.port()));
        let (signals, sender) = UnixStream::pair().unwrap();
        signals.set_nonblocking(true).unwrap();
        let daemon = Daemon::new(settings, socket_directory, log, connector, signals).unwrap();
        let mut master = Connector::new(Identity::new(master_key), Duration::from_secs(10)).unwrap();
        master.connect_pair(7, &[address], key, Security::Encrypted, PATIENCE, Instant::now());
        let mut fixture = Fixture {
            daemon,
            directory,
            events: Vec::with_capacity(EVENTS_MAX),
            _signals: sender,
            address,
            key,
            master,
            control: None,
            data: None,
            frames: Vec::new(),
        };
        fixture.run_until("no links", |fixture| fixture.control.is_some());
        fixture.run_until("no sign of life", |fixture| fixture.frames.contains(&Frame::Beat));
        fixture
    }

    fn step(&mut self) {
        let daemon = &mut self.daemon;
        if !daemon.stopped {
            daemon.step(&mut self.events, Some(Duration::from_millis(1))).unwrap();
        }
        self.master.step(Instant::now());
        while let Some(event) = self.master.poll_event() {
            match event {
                ConnectEvent::PairConnected { pair, .. } => {
                    (self.control, self.data) = (Some(pair.control), Some(pair.data));
                    let control = self.control.as_mut().unwrap();
                    control.set_frame_bytes_max(wire::HOST_FRAME_BYTES_MAX);
                    control.send(ACKNOWLEDGEMENT, &[0; 8], &[]).unwrap();
                }
                ConnectEvent::LinkReady { link, .. } => self.data = Some(*link),
                event => panic!("{event:?}\n{}", self.log()),
            }
        }
        let Some(control) = &mut self.control else { return };
        let _ = control.flush();
        // An error means that the daemon has ended, which the tests detect in another way.
        while let Ok(Some((head, body))) = control.receive_whole() {
            if head.kind == ACKNOWLEDGEMENT {
                continue;
            }
            self.frames.push(wire::decode(body).expect("a frame of the core"));
        }
    }

    fn run_until(&mut self, what: &str, is_true: impl Fn(&mut Fixture) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_true(self) {
            assert!(Instant::now() < end, "{what}\n{}", self.log());
            self.step();
        }
    }

    fn send(&mut self, frame: &Frame) {
        self.control.as_mut().unwrap().send(CONTROL_FRAME, &[], &[&wire::encode(frame)]).unwrap();
    }

    /// Makes the daemon join the machine.
    fn join(&mut self) {
        let entry = |number| HostEntry {
            tid: host(number),
            name: format!("h{number}"),
            aliases: Vec::new(),
            arch: "LINUX64".to_owned(),
            speed: 1000,
            node: None,
            groups: None,
            is_draining: false,
            dsig: native_dsig(),
            addresses: vec![self.address],
            key: [number as u8; 32],
        };
        let mut hosts = vec![entry(1), entry(2)];
        // The master does not listen.
        hosts[0].addresses[0].set_port(0);
        let servers = Servers::default();
        let shared = MachineSettings {
            host_timeout_ms: HOST_TIMEOUT.as_millis() as u64,
            halt_grace_ms: 2000,
            trusted: false,
            servers,
            debug_mask: 0,
            host_watches: 1000,
            pacing: Pacing::default(),
            order: Order::Hosts,
            barrier_broadcast_hosts: 3,
            fabric: Default::default(),
            broadcast: None,
        };
        let options = HostOptions::default();
        let (version, joining) = (1, vec![host(2)]);
        self.send(&Frame::Welcome { wire: wire::VERSION, version, hosts, joining, shared, options });
        self.send(&Frame::Joined { hosts: vec![host(2)] });
    }

    fn log(&self) -> String {
        self.daemon.log.flush();
        std::fs::read_to_string(self.directory.path().join("pvml.test")).unwrap_or_default()
    }
}

// ----- host_links

#[test]
fn a_lost_data_link_is_made_again_with_tokens_that_the_control_link_carries() {
    let mut fixture = Fixture::new();
    for round in 1..=2 {
        fixture.frames.clear();
        fixture.data = None;
        let call = |fixture: &Fixture| {
            fixture.frames.iter().find_map(|frame| match frame {
                Frame::DataCall { call, .. } => Some(call.clone()),
                _ => None,
            })
        };
        fixture.run_until("the daemon does not ask for a data link", |fixture| call(fixture).is_some());
        let call = call(&fixture).unwrap();
        let [shown, back] = [call.shown, call.back].map(Token::from_bytes);
        let (address, key) = (fixture.address, fixture.key);
        fixture.master.connect_link(9, &[address], Some(key), Tokens { shown, back }, PATIENCE, Instant::now());
        fixture.run_until("no data link", |fixture| fixture.data.is_some());
        fixture.run_until("the daemon has no data link", |fixture| {
            fixture.log().matches("the data link to t40000 stands again").count() == round
        });
    }
    assert!(!fixture.daemon.stopped, "the control link has stood");
    assert_eq!(fixture.log().matches("another one is made").count(), 2);
}

#[test]
fn a_daemon_ends_when_its_master_closes_the_control_link() {
    let mut fixture = Fixture::new();
    fixture.control = None;
    fixture.run_until("the daemon goes on", |fixture| fixture.daemon.stopped);
    assert!(fixture.log().contains("link to t40000: connection closed"), "{}", fixture.log());
}

#[test]
fn the_end_of_a_connection_is_no_sign_of_life() {
    let mut fixture = Fixture::new();
    fixture.join();
    fixture.run_until("not joined", |fixture| fixture.log().contains("joined"));
    // The master says no more. Its connection is reset.
    let silent_since = fixture.daemon.now();
    let control = fixture.control.take().unwrap();
    rustix::net::sockopt::set_socket_linger(&control, Some(Duration::ZERO)).unwrap();
    drop(control);
    fixture.run_until("the reset goes unnoticed", |fixture| !fixture.daemon.host_links.has_connection(host(1)));
    assert!(!fixture.log().contains("silent"), "{}", fixture.log());
    // The time is an argument, so the test does not wait. The steps are short enough that the daemon seems not suspended.
    for quarter in 1..=4 {
        fixture.daemon.machine.handle_time(silent_since + HOST_TIMEOUT * quarter / 4);
        fixture.daemon.execute_actions();
    }
    assert!(fixture.log().contains("silent for 60 s"), "{}", fixture.log());
}

#[test]
fn a_daemon_of_a_job_that_loses_its_master_removes_its_files_before_it_ends() {
    let files_after = |machine: Option<&str>| {
        let mut fixture = Fixture::of_machine(machine);
        fixture.control = None;
        fixture.run_until("the daemon goes on", |fixture| fixture.daemon.stopped);
        fixture.log();
        std::fs::read_dir(fixture.directory.path()).unwrap().count()
    };
    assert_eq!(files_after(Some("slurm-7")), 0);
    assert_eq!(files_after(Some("mine")), 3, "the directory, the rendezvous file and the log");
}

#[test]
fn bytes_that_are_no_frame_on_the_control_link_are_the_end_of_the_link() {
    let mut fixture = Fixture::new();
    fixture.control.as_mut().unwrap().send(CONTROL_FRAME, &[], &[&[0xff; 9]]).unwrap();
    fixture.run_until("the daemon goes on", |fixture| fixture.daemon.stopped);
    assert!(fixture.log().contains("link to t40000: malformed frame"), "{}", fixture.log());
}

#[test]
fn more_frames_than_one_budget_are_handled_in_later_steps() {
    let mut fixture = Fixture::new();
    let count = 1000_usize;
    for _ in 0..count {
        fixture.send(&Frame::Log { tid: Tid(host(1).0 | 1), line: b"line of a host".to_vec() });
    }
    fixture.control.as_mut().unwrap().flush().unwrap();
    let mut put_off = 0;
    let end = Instant::now() + PATIENCE;
    while fixture.log().matches("line of a host").count() < count {
        assert!(Instant::now() < end, "frames are missing");
        fixture.step();
        put_off += usize::from(fixture.daemon.pending.has_host(host(1)));
    }
    assert!(put_off > 2, "put off {put_off} times");
    assert!(!fixture.daemon.pending.has_host(host(1)));
}

// ----- routing

#[test]
fn a_protocol_violation_on_the_data_link_costs_the_host_both_links() {
    let mut fixture = Fixture::new();
    let mut bytes = Vec::new();
    // The master acknowledges a byte that was never sent.
    write_acknowledged(1, &mut bytes);
    let mut data = fixture.data.take().unwrap().into_byte_stream();
    assert_eq!(data.write(&bytes), Ok(bytes.len()));
    fixture.run_until("the daemon goes on", |fixture| fixture.daemon.stopped);
    assert!(fixture.log().contains("data link to t40000: protocol violation"), "{}", fixture.log());
}

#[test]
fn events_of_the_route_reach_the_machine_and_the_log() {
    let mut fixture = Fixture::new();
    let task = Tid(host(2).0 | 1);
    let daemon = &mut fixture.daemon;
    daemon.dispatch_route_event(RouteEvent::Lost { task, why: "no memory".into() });
    // A frame that arrives among the messages of a host is handled as a frame of that host.
    let frame = Frame::Log { tid: Tid(0x40001), line: b"along".to_vec() };
    daemon.dispatch_route_event(RouteEvent::Frame { from: host(1), frame: Box::new(frame) });
    daemon.execute_actions();
    assert!(fixture.log().contains("cannot send to t80001: no memory"), "{}", fixture.log());
    assert!(fixture.log().contains("along"), "{}", fixture.log());
    // When the connection of a data link has ended, the machine asks for a new one.
    fixture.frames.clear();
    let asked = |fixture: &mut Fixture| fixture.frames.iter().any(|frame| matches!(frame, Frame::DataCall { .. }));
    fixture.daemon.dispatch_route_event(RouteEvent::Cut { host: host(1), why: "cut".into() });
    fixture.run_until("no call", asked);
    assert!(fixture.log().contains("data link to t40000: cut; another one is made"), "{}", fixture.log());
    fixture.daemon.dispatch_route_event(RouteEvent::Broken { host: host(1), why: "broken".into() });
    fixture.run_until("the daemon goes on", |fixture| fixture.daemon.stopped);
    assert!(fixture.log().contains("data link to t40000: broken"), "{}", fixture.log());
}

#[test]
fn frames_go_along_to_members_only() {
    let mut fixture = Fixture::new();
    fixture.join();
    fixture.run_until("not joined", |fixture| fixture.log().contains("joined"));
    let frame = Frame::Died { tid: Tid(0x80001), watcher: Tid(0x40001) };
    let daemon = &mut fixture.daemon;
    daemon.send_along(Tid(host(9).0 | 1), &frame);
    assert_eq!(daemon.route.poll_event(), None, "no link to host 9 is asked for");
    daemon.host_links.drop_link(host(1));
    daemon.route.detach(host(1));
    daemon.send_along(Tid(host(1).0 | 1), &frame);
    assert_eq!(daemon.route.poll_event(), Some(RouteEvent::Wanted { host: host(1) }));
}

/// The listener is not watched while there is no descriptor, so the loop neither sleeps nor spins for it.
#[test]
fn a_daemon_without_descriptors_accepts_later() {
    let mut fixture = Fixture::new();
    fixture.join();
    fixture.run_until("not joined", |fixture| fixture.log().contains("joined"));
    fixture.daemon.pause_accepting();
    let _client = UnixStream::connect(fixture.daemon.socket_directory.socket()).unwrap();
    let is_accepted = |fixture: &mut Fixture| fixture.daemon.connections.get_mut(1).is_some();
    let is_paused = |fixture: &Fixture| fixture.daemon.pending.sleep_max().is_some();
    fixture.step();
    assert!(is_accepted(&mut fixture) != is_paused(&fixture));
    fixture.run_until("the pause does not end", |fixture| !is_paused(fixture));
    while !is_accepted(&mut fixture) {
        fixture.step();
    }
}

// ----- processes

#[test]
fn everything_that_a_process_printed_is_handled_before_its_end() {
    let mut fixture = Fixture::new();
    fixture.join();
    let bytes = |text: &str| ByteBuf::from(text.as_bytes().to_vec());
    let arguments = vec![bytes("-c"), bytes("echo first; echo last >&2; exit 3")];
    let spawn = Spawn {
        file: bytes("/bin/sh"),
        arguments,
        flags: 0,
        place: ByteBuf::new(),
        count: 1,
        environment: Vec::new(),
        children: TraceSettings::default(),
    };
    fixture.send(&Frame::Spawn { wait: 1, parent: 0x40001, first: 0, total: 1, spawn });
    let result = |fixture: &mut Fixture| {
        fixture.frames.iter().find_map(|frame| match frame {
            Frame::Spawned { results, .. } => Some(results[0]),
            _ => None,
        })
    };
    fixture.run_until("no answer", |fixture| result(fixture).is_some());
    let tid = Tid(result(&mut fixture).unwrap() as u32);
    assert!(tid.is_task(), "{tid}");
    fixture.run_until("the process does not end", |fixture| fixture.daemon.processes.id_of(tid).is_none());
    fixture.run_until("the log is not told", |fixture| {
        let logged =
            |text: &[u8]| fixture.frames.iter().any(|frame| matches!(frame, Frame::Log { line, .. } if line == text));
        logged(b"first") && logged(b"last")
    });
    // The task is gone, and the daemon has released everything that it held for the task.
    fixture.run_until("the task is left", |fixture| fixture.daemon.processes.outputs.counts() == (0, 0));
    assert!(!fixture.daemon.machine.takes_messages(tid));
    assert_eq!(fixture.daemon.connections.of_task(tid), None);
}
