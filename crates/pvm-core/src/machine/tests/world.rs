//! One `Machine` for unit tests; each test makes all inputs itself.
use super::group_members::Boards;
use super::*;
use crate::codes::{
    CLASS_NO_RESET, MBOX_OVER_WRITABLE, MBOX_PERSISTENT, MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO, NO_SPAWN_PARENT,
    NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT, TASK_ARCH, TASK_CONNECTED, TASK_FORKED,
    TASK_HOST,
};
use crate::encoding::{Reader, Writer};
use crate::proto::{Spawn, TaskEnd, TraceSettings, VERSION};
use crate::wire::ResolvedHost;

pub(in crate::machine) const ONE: Tid = Tid(0x40001);
pub(in crate::machine) const TWO: Tid = Tid(0x40002);
pub(in crate::machine) const THREE: Tid = Tid(0x40003);
pub(in crate::machine) const NOW: Time = Duration::from_secs(100);
pub(in crate::machine) const PATIENCE: Duration = Duration::from_secs(10);

/// A machine whose programs are found unless they are called "missing", and whose processes are
/// numbered from 500.
pub(in crate::machine) struct World {
    pub machine: Machine,
    connections: u64,
    processes: i32,
    pub starts: Vec<Start>,
    pub boards: Boards,
    pub seen: Vec<Action>,
}

impl World {
    pub fn new() -> World {
        let host = HostSettings {
            name: "alfa".into(),
            arch: "LINUX64".into(),
            speed: 1000,
            node: None,
            groups: None,
            dsig: 7,
        };
        let settings = Settings { tasks_max: 1000, barrier_patience: PATIENCE, ..Settings::new(host) };
        let machine = Machine::new(settings);
        let (starts, boards) = (Vec::new(), Boards::default());
        World { machine, connections: 0, processes: 500, starts, boards, seen: Vec::new() }
    }

    fn start(&mut self, start: &Start) {
        if start.path.as_slice() == b"sticks" {
            return;
        }
        if start.path.as_slice() == b"broken" {
            return self.machine.handle_started(Time::ZERO, start.tid, Err(Code::OutOfRes));
        }
        self.processes += 1;
        self.starts.push(start.clone());
        self.machine.handle_started(Time::ZERO, start.tid, Ok(self.processes));
    }

    /// Executes the actions of the machine, and records them.
    pub fn run(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match &action {
                Action::Find { spawn, file, .. } if file.as_slice() == b"missing" => {
                    self.machine.handle_found(Time::ZERO, *spawn, Err(Code::NoFile));
                }
                Action::Find { file, .. } if file.as_slice() == b"hangs" => {}
                Action::Find { spawn, file, .. } => {
                    let found = Found { path: file.clone(), debugger: None };
                    self.machine.handle_found(Time::ZERO, *spawn, Ok(found));
                }
                Action::Start(starts) => starts.iter().for_each(|start| self.start(start)),
                Action::ListBarriers { listing } => {
                    let waiting = self.boards.waiting();
                    self.machine.handle_barriers_listed(*listing, waiting);
                }
                Action::StartHosts { request, hosts, by_hoster: true } => {
                    let commands = hosts.iter().map(|host| (host.index, text("pvmd"))).collect();
                    self.machine.handle_start_commands(*request, commands);
                }
                Action::StartHosts { request, hosts, .. } => {
                    for host in hosts {
                        let failure = Err(Code::CantStart.into());
                        self.machine.handle_host_started(NOW, *request, host.index, failure);
                    }
                }
                Action::Group { group, action } => self.boards.act(NOW, *group, action, &mut self.machine),
                _ => {}
            }
            self.seen.push(action);
        }
    }

    /// Returns the actions since the last call.
    pub fn take_seen(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.seen)
    }

    pub fn hello(&mut self, process: i32, cookie: Option<u32>) -> Welcome {
        self.connections += 1;
        let hello = Hello { version: VERSION, pid: 1, cookie, name: ByteBuf::new(), kind: TaskKind::Program };
        self.machine.handle_hello(self.connections, process, &hello);
        self.run();
        let welcomes = self.seen.iter().rev().find_map(|action| match action {
            Action::Welcome { welcome, .. } => Some(welcome.clone()),
            _ => None,
        });
        welcomes.expect("let in")
    }

    /// Enrolls a new task that is started by hand.
    pub fn task(&mut self) -> Tid {
        let tid = self.hello(99, None).tid;
        self.seen.clear();
        tid
    }

    pub fn tasks(&mut self, count: usize) {
        for _ in 0..count {
            self.task();
        }
    }

    /// Sends a request; returns the answer, if there is one.
    pub fn ask(&mut self, from: Tid, request: Request) -> Option<Reply> {
        self.seen.clear();
        self.machine.handle_frame(NOW, from, ToDaemon::Request { wait: 42, request });
        self.run();
        self.replies(from).into_iter().next()
    }

    pub fn forget_seen(&mut self) {
        self.seen.clear();
    }

    /// Returns the lines of the log with that tid.
    pub fn logged(&self, under: Tid) -> Vec<String> {
        let line = |action: &Action| match action {
            Action::Log { tid, line } if *tid == under => Some(String::from_utf8_lossy(line).into_owned()),
            _ => None,
        };
        self.seen.iter().filter_map(line).collect()
    }

    pub fn frames(&self, to: Tid) -> Vec<ToTask> {
        let frame = |action: &Action| match action {
            Action::Send { to: receiver, frame } if *receiver == to => Some(frame.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(frame).collect()
    }

    pub fn replies(&self, to: Tid) -> Vec<Reply> {
        let reply = |frame| match frame {
            ToTask::Reply { wait: 42, reply } => Some(reply),
            _ => None,
        };
        self.frames(to).into_iter().filter_map(reply).collect()
    }

    pub fn messages(&self, to: Tid) -> Vec<Message> {
        let message = |frame| match frame {
            ToTask::Message(message) => Some(message),
            _ => None,
        };
        self.frames(to).into_iter().filter_map(message).collect()
    }

    pub fn message(&mut self, from: Tid, tag: i32, wid: i32, body: Writer) {
        self.seen.clear();
        let body = body.finish();
        let message = Message { wid, ..Message::new(from, Tid::DAEMON, 0, tag, body) };
        self.machine.handle_frame(NOW, from, ToDaemon::Message(message));
        self.run();
    }

    pub fn spawn(&mut self, from: Tid, spawn: Spawn) -> Vec<i32> {
        match self.ask(from, Request::Spawn(spawn)) {
            Some(Reply::Tids(tids)) => tids,
            other => panic!("{other:?}"),
        }
    }

    pub fn ends(&mut self, tid: Tid, status: i32) {
        self.seen.clear();
        self.machine.handle_process_end(tid, TaskEnd { status, ..TaskEnd::default() });
        self.run();
    }

    pub fn disconnects(&mut self, tid: Tid) {
        self.seen.clear();
        self.machine.handle_disconnect(tid);
        self.run();
    }
}

pub(in crate::machine) fn spawn_of(file: &str, count: i32) -> Spawn {
    Spawn {
        file: ByteBuf::from(file.as_bytes().to_vec()),
        arguments: Vec::new(),
        flags: 0,
        place: ByteBuf::new(),
        count,
        environment: Vec::new(),
        children: TraceSettings::default(),
    }
}

pub(in crate::machine) fn ints(body: &[u8]) -> Vec<i32> {
    let mut reader = Reader::new(body);
    std::iter::from_fn(|| reader.int()).collect()
}

pub(in crate::machine) fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

#[test]
fn tids_follow_one_another_and_are_not_used_again_soon() {
    let mut world = World::new();
    assert_eq!((world.task(), world.task()), (ONE, TWO));
    world.disconnects(ONE);
    assert_eq!(world.task(), THREE);
}

#[test]
fn numbers_go_round_past_slots_in_use() {
    let mut world = World::new();
    world.task();
    let mut last = ONE;
    for _ in 0..(1 << 18) {
        last = world.task();
        world.disconnects(last);
        assert_ne!(last.slot(), 1);
        assert_ne!(last.slot(), 0);
    }
    assert!(last.local() < 1 << 17, "{last}");
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let mut world = World::new();
    let hello = Hello { version: VERSION + 1, pid: 1, cookie: None, name: ByteBuf::new(), kind: TaskKind::Program };
    world.machine.handle_hello(7, 1, &hello);
    world.run();
    assert_eq!(world.seen, [Action::Refuse { connection: 7, code: Code::BadVersion }]);
}

#[test]
fn a_spawned_task_claims_its_place_by_its_cookie_once() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.spawn(ONE, spawn_of("prog", 1)), [TWO.0 as i32]);
    let cookie = world.starts[0].cookie;
    let welcome = world.hello(501, Some(cookie));
    assert_eq!((welcome.tid, welcome.parent), (TWO, ONE.0 as i32));
    let welcome = world.hello(502, Some(cookie));
    assert_eq!((welcome.tid, welcome.parent), (THREE, 0));
}

#[test]
fn a_spawn_gives_good_tids_first_and_then_codes() {
    let mut world = World::new();
    world.task();
    world.machine.core.settings.tasks_max = 3;
    let out = Code::OutOfRes.number();
    assert_eq!(world.spawn(ONE, spawn_of("prog", 4)), [TWO.0 as i32, THREE.0 as i32, out, out]);
    assert_eq!(world.spawn(ONE, spawn_of("missing", 2)), [Code::NoFile.number(); 2]);
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("prog", 0))), Some(Reply::Error(Code::BadParam)));
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("prog", i32::MAX))), Some(Reply::Error(Code::OutOfRes)));
}

#[test]
fn a_process_that_cannot_be_started_leaves_nothing_behind() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.spawn(ONE, spawn_of("broken", 3)), [Code::OutOfRes.number(); 3]);
    assert!(world.seen.contains(&Action::Forget { tid: TWO }));
    assert_eq!(world.machine.core.tasks.count(), 1);
    // Each of the three had a tid.
    assert_eq!(world.spawn(ONE, spawn_of("prog", 1)), [ONE.0 as i32 + 4]);
}

#[test]
fn a_spawn_whose_file_system_does_not_answer_fails_after_a_while() {
    let mut world = World::new();
    world.task();
    for (name, seconds) in [("hangs", 100), ("sticks", 200)] {
        world.machine.handle_time(Duration::from_secs(seconds));
        assert_eq!(world.ask(ONE, Request::Spawn(spawn_of(name, 3))), None);
        world.machine.handle_time(Duration::from_secs(seconds + 29));
        world.run();
        assert_eq!(world.replies(ONE), []);
        world.machine.handle_time(Duration::from_secs(seconds + 31));
        world.run();
        assert_eq!(world.replies(ONE), [Reply::Tids(vec![Code::DSysErr.number(); 3])]);
        assert_eq!(world.machine.core.tasks.count(), 1);
        let lines = world.logged(Tid::DAEMON);
        assert!(lines.iter().any(|line| line.contains("a file system does not answer")), "{lines:?}");
    }
    // What comes later is of no use.
    let now = Duration::from_secs(300);
    world.machine.handle_found(now, SpawnId { host: ONE.host(), number: 1 }, Err(Code::NoFile));
    (1..7).for_each(|number| world.machine.handle_started(now, Tid(ONE.0 + number), Ok(900)));
    world.run();
    assert_eq!(world.machine.core.tasks.count(), 1);
}

#[test]
fn the_tids_of_a_spawn_are_in_order_whichever_process_starts_first() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("sticks", 2))), None);
    world.machine.handle_started(NOW, THREE, Ok(901));
    world.machine.handle_started(NOW, TWO, Ok(900));
    world.run();
    assert_eq!(world.replies(ONE), [Reply::Tids(vec![TWO.0 as i32, THREE.0 as i32])]);
}

#[test]
fn signals_to_a_process_that_is_being_started_wait_for_its_start() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("sticks", 2))), None);
    for signal in [15, 9, 15, 0, 65] {
        assert_eq!(world.ask(ONE, Request::Signal { tid: TWO, signal }), Some(Reply::Done));
    }
    let signals = |world: &mut World| -> Vec<Action> {
        world.run();
        world.take_seen().into_iter().filter(|action| matches!(action, Action::Signal { .. })).collect()
    };
    assert_eq!(signals(&mut world), []);
    world.machine.handle_started(NOW, TWO, Ok(900));
    let signal = |tid, process, signal| Action::Signal { tid, process, signal };
    assert_eq!(signals(&mut world), [9, 15].map(|number| signal(TWO, 900, number)));
    // A halt waits for what is being started, and then ends it, too.
    world.machine.halt(NOW);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    assert!(!world.take_seen().contains(&Action::Stop));
    world.machine.handle_started(NOW, THREE, Ok(901));
    assert_eq!(signals(&mut world), [signal(THREE, 901, 15)]);
    world.machine.handle_process_end(THREE, TaskEnd::default());
    world.run();
    assert!(world.take_seen().contains(&Action::Stop));
}

#[test]
fn the_place_of_a_spawn_chooses_the_host() {
    let mut world = World::new();
    world.task();
    let no_host = Code::NoHost.number();
    let complement = crate::codes::HOST_COMPL;
    let cases = [
        (TASK_HOST, "alfa", true),
        (TASK_HOST, ".", true),
        (TASK_HOST, "", false),
        (TASK_HOST, ":/tmp", true),
        (TASK_HOST, "beta", false),
        (TASK_HOST | complement, "beta", true),
        (TASK_HOST | complement, "alfa", false),
        (TASK_HOST, "beta,alfa", true),
        (TASK_HOST, "beta,gamma:/tmp", false),
        (TASK_ARCH, "LINUX64", true),
        (TASK_ARCH, "LINUX", false),
        (complement, "", false),
        (0, "nonsense", true),
    ];
    for (flags, place, works) in cases {
        let spawn = Spawn { flags, place: text(place), ..spawn_of("prog", 1) };
        assert_eq!(world.spawn(ONE, spawn)[0] != no_host, works, "{flags} {place}");
    }
}

#[test]
fn children_get_their_settings_and_directory() {
    let mut world = World::new();
    world.task();
    let environment = vec![text("PVM_EXPORT=X"), text("X=1"), text("PVMTRCOPT=3")];
    let spawn = Spawn {
        flags: NO_SPAWN_PARENT | TASK_HOST,
        place: text(".:/tmp"),
        arguments: vec![text("a b")],
        environment,
        ..spawn_of("/bin/prog", 1)
    };
    world.spawn(ONE, spawn);
    let start = world.starts[0].clone();
    assert_eq!(start.arguments, [text("/bin/prog"), text("a b")]);
    assert_eq!(start.directory, Some(text("/tmp")));
    let variables: Vec<_> = start.environment.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect();
    let mask = format!("PVMTMASK={}", "@".repeat(35));
    let expected = [
        "PVM_EXPORT=X",
        "X=1",
        "PVMTRCOPT=3",
        &mask,
        "PVMTRCBUF=0",
        "PVMSPAWNWD=/tmp",
        "HPVM_TASK_INDEX=0",
        "HPVM_TASK_COUNT=1",
        "HPVM_LOCAL_INDEX=0",
        "HPVM_LOCAL_COUNT=1",
    ];
    assert_eq!(variables, expected);
    assert_eq!(world.hello(501, Some(start.cookie)).parent, Code::ParentNotSet.number());
}

#[test]
fn siblings_are_those_of_the_same_spawn() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 2));
    for start in world.starts.clone() {
        world.hello(1, Some(start.cookie));
    }
    let both = Some(Reply::Tids(vec![TWO.0 as i32, THREE.0 as i32]));
    assert_eq!(world.ask(TWO, Request::Siblings), both);
    world.ends(THREE, 0);
    assert_eq!(world.ask(TWO, Request::Siblings), both);
    assert_eq!(world.ask(ONE, Request::Siblings), Some(Reply::Tids(vec![ONE.0 as i32])));
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.disconnects(TWO);
    assert_eq!(world.machine.parts.spawns.pending(), 0);
}

#[test]
fn tasks_are_introduced_once_and_hear_of_each_others_end() {
    let mut world = World::new();
    world.tasks(2);
    assert_eq!(world.ask(ONE, Request::Connect(TWO)), Some(Reply::Done));
    assert_eq!(world.seen[0], Action::Introduce { one: ONE, other: TWO });
    assert_eq!(world.ask(TWO, Request::Connect(ONE)), Some(Reply::Done));
    assert!(!world.seen.iter().any(|action| matches!(action, Action::Introduce { .. })));
    world.disconnects(TWO);
    assert_eq!(world.frames(ONE), [ToTask::PeerGone(TWO)]);
    assert_eq!(world.ask(ONE, Request::Connect(TWO)), Some(Reply::Error(Code::NoTask)));
}

#[test]
fn an_introduction_that_failed_can_be_asked_for_again() {
    let mut world = World::new();
    world.tasks(2);
    for peer in [TWO, world.machine.own_host()] {
        let action = Action::Introduce { one: ONE, other: peer };
        world.ask(ONE, Request::Connect(peer));
        assert_eq!(world.seen[0], action);
        world.machine.handle_not_introduced(ONE, peer);
        world.ask(ONE, Request::Connect(peer));
        assert_eq!(world.seen[0], action);
    }
}

#[test]
fn a_task_that_has_not_come_yet_can_be_sent_to() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    assert_eq!(world.ask(ONE, Request::Connect(TWO)), Some(Reply::Done));
    assert_eq!(world.seen[0], Action::Introduce { one: ONE, other: TWO });
    world.disconnects(ONE);
    assert_eq!(world.frames(TWO), [ToTask::PeerGone(ONE)]);
}

#[test]
fn the_end_of_a_task_is_told_to_all_who_asked_after_the_goodbye_of_the_peer() {
    let mut world = World::new();
    world.tasks(2);
    let notify = |what, tag, tids: Vec<Tid>| Request::Notify { what, ctx: 5, tag, count: 0, tids };
    for tag in [7, 7, 8] {
        assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, tag, vec![TWO])), Some(Reply::Done));
    }
    world.ask(ONE, Request::Connect(TWO));
    world.disconnects(TWO);
    assert_eq!(world.frames(ONE)[0], ToTask::PeerGone(TWO));
    let messages = world.messages(ONE);
    let seen: Vec<_> = messages.iter().map(|one| (one.src, one.ctx, one.tag, one.wid, ints(&one.body))).collect();
    let expected = |tag| (Tid::DAEMON, 5, tag, 0, vec![TWO.0 as i32]);
    assert_eq!(seen, [expected(7), expected(7), expected(8)]);
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 9, vec![TWO])), Some(Reply::Done));
    assert_eq!(world.messages(ONE).len(), 1);
}

#[test]
fn a_cancelled_notify_is_delivered_at_once_and_only_once() {
    let mut world = World::new();
    world.tasks(2);
    for (what, tids) in [(NOTIFY_TASK_EXIT, vec![TWO]), (NOTIFY_HOST_DELETE, vec![TWO])] {
        let notify = |what| Request::Notify { what, ctx: 0, tag: 3, count: 0, tids: tids.clone() };
        world.ask(ONE, notify(what));
        world.ask(ONE, notify(what | NOTIFY_CANCEL));
        assert_eq!(ints(&world.messages(ONE)[0].body), [TWO.0 as i32]);
        world.ask(ONE, notify(what | NOTIFY_CANCEL));
        assert!(world.messages(ONE).is_empty());
    }
    world.disconnects(TWO);
    assert!(world.messages(ONE).is_empty());
}

#[test]
fn notifies_of_nonsense_are_refused_and_unknown_hosts_are_gone() {
    let mut world = World::new();
    world.task();
    let notify = |what, tag, tids: Vec<Tid>| Request::Notify { what, ctx: 0, tag, count: -1, tids };
    let bad = Some(Reply::Error(Code::BadParam));
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 1, vec![])), bad);
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 1, vec![Tid::DAEMON])), bad);
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, -1, vec![ONE])), bad);
    assert_eq!(world.ask(ONE, notify(9, 1, vec![ONE])), bad);
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_ADD, 1, vec![])), Some(Reply::Done));
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_DELETE, 1, vec![Tid(0x80001)])), Some(Reply::Done));
    assert_eq!(ints(&world.messages(ONE)[0].body), [0x80001]);
}

#[test]
fn a_spawned_task_lives_until_its_process_ends() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    world.hello(501, Some(world.starts[0].cookie));
    world.machine.handle_frame(NOW, TWO, ToDaemon::Bye);
    world.run();
    assert_eq!(world.ask(ONE, Request::TaskStatus(TWO)), Some(Reply::Code(0)));
    assert_eq!(world.ask(ONE, Request::Connect(TWO)), Some(Reply::Error(Code::NoTask)));
    world.ends(TWO, 0);
    assert_eq!(world.ask(ONE, Request::TaskStatus(TWO)), Some(Reply::Code(Code::NoTask.number())));
}

#[test]
fn a_task_whose_script_has_ended_lives_until_it_disconnects() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("script", 1));
    world.hello(777, Some(world.starts[0].cookie));
    world.ends(TWO, 0);
    assert_eq!(world.ask(ONE, Request::TaskStatus(TWO)), Some(Reply::Code(0)));
    world.disconnects(TWO);
    assert!(world.seen.contains(&Action::Forget { tid: TWO }));
}

#[test]
fn how_a_task_ended_is_remembered_for_a_while() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    assert_eq!(world.ask(ONE, Request::ExitStatus(TWO)), None);
    world.ends(TWO, 0x100);
    assert_eq!(world.replies(ONE), [Reply::Ended(TaskEnd { status: 0x100, ..TaskEnd::default() })]);
    assert_eq!(
        world.ask(ONE, Request::ExitStatus(TWO)),
        Some(Reply::Ended(TaskEnd { status: 0x100, ..TaskEnd::default() }))
    );
    assert_eq!(world.ask(ONE, Request::ExitStatus(ONE)), Some(Reply::Error(Code::NoTask)));
    for _ in 0..task_table::ENDED_MAX {
        let tid = world.spawn(ONE, spawn_of("prog", 1))[0];
        world.ends(Tid(tid as u32), 0);
    }
    assert_eq!(world.ask(ONE, Request::ExitStatus(TWO)), Some(Reply::Error(Code::NoTask)));
}

#[test]
fn output_goes_to_the_collector_from_start_to_end() {
    let mut world = World::new();
    world.task();
    let children = TraceSettings { output_tid: ONE.0 as i32, output_ctx: 4, output_tag: 9, ..Default::default() };
    world.spawn(ONE, Spawn { children, ..spawn_of("prog", 1) });
    let start: Vec<_> = world.messages(ONE).iter().map(|one| (one.ctx, one.tag, ints(&one.body))).collect();
    let two = TWO.0 as i32;
    assert_eq!(start, [(4, 9, vec![two, -2, ONE.0 as i32]), (4, 9, vec![two, -1, ONE.0 as i32])]);
    world.seen.clear();
    world.machine.handle_output(TWO, &[b'x'; output::CHUNK_BYTES_MAX + 2]);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    let heads: Vec<_> = world.messages(ONE).iter().map(|one| ints(&one.body)[1]).collect();
    assert_eq!(heads, [output::CHUNK_BYTES_MAX as i32, 2, 0]);
}

#[test]
fn output_that_a_task_closes_ends_once() {
    let mut world = World::new();
    world.task();
    let children = TraceSettings { output_tid: ONE.0 as i32, output_tag: 9, ..Default::default() };
    world.spawn(ONE, Spawn { children: children.clone(), ..spawn_of("prog", 2) });
    world.hello(2, Some(world.starts[0].cookie));
    world.forget_seen();
    let heads = |world: &mut World| {
        world.run();
        let heads: Vec<_> = world.messages(ONE).iter().map(|one| (one.tag, ints(&one.body)[1])).collect();
        world.forget_seen();
        heads
    };
    world.machine.handle_output(TWO, b"x");
    world.machine.handle_output_closed(TWO);
    world.machine.handle_output_closed(TWO);
    assert_eq!(heads(&mut world), [(9, 1), (9, 0)]);
    // Another collector gets an end of its own.
    world.ask(TWO, Request::SetOwn(TraceSettings { output_tag: 8, ..children }));
    assert_eq!(heads(&mut world), [(8, -2), (8, -1)]);
    world.machine.handle_disconnect(TWO);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    assert_eq!(heads(&mut world), [(8, 0)]);
    let three = Tid(TWO.0 + 1);
    world.machine.handle_output_closed(three);
    world.machine.handle_process_end(three, TaskEnd::default());
    assert_eq!(heads(&mut world), [(9, 0)]);
}

#[test]
fn what_comes_on_the_standard_error_has_its_own_tag_where_that_is_wanted() {
    let mut world = World::new();
    world.task();
    let tag_of_errors = |world: &mut World, errors_tag| {
        let run = RunSettings { errors_tag, ..RunSettings::default() };
        let children = TraceSettings { output_tid: ONE.0 as i32, output_tag: 7, run, ..TraceSettings::default() };
        let tid = Tid(world.spawn(ONE, Spawn { children, ..spawn_of("prog", 1) })[0] as u32);
        world.forget_seen();
        world.machine.handle_errors(tid, b"oops");
        world.run();
        world.messages(ONE)[0].tag
    };
    assert_eq!(tag_of_errors(&mut world, 0), 7);
    assert_eq!(tag_of_errors(&mut world, 9), 9);
}

#[test]
fn output_without_collector_is_logged_by_the_line() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    world.seen.clear();
    for piece in ["one\ntw", "o\n", "three"] {
        world.machine.handle_output(TWO, piece.as_bytes());
    }
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    let lines = world.seen.iter().filter_map(|action| match action {
        Action::Log { tid: TWO, line } => Some(String::from_utf8_lossy(line).into_owned()),
        _ => None,
    });
    assert_eq!(lines.collect::<Vec<_>>(), ["one", "two", "three"]);
}

#[test]
fn changed_own_output_ends_for_the_old_collector_and_starts_for_the_new() {
    let mut world = World::new();
    world.tasks(2);
    let to = |tid: Tid| TraceSettings { output_tid: tid.0 as i32, output_tag: 1, ..Default::default() };
    world.ask(ONE, Request::SetOwn(to(TWO)));
    assert_eq!(world.messages(TWO).iter().map(|one| ints(&one.body)[1]).collect::<Vec<_>>(), [-2, -1]);
    world.ask(ONE, Request::SetOwn(TraceSettings::default()));
    assert_eq!(ints(&world.messages(TWO)[0].body), [ONE.0 as i32, 0]);
}

#[test]
fn who_waits_for_a_mailbox_entry_gets_it_when_it_comes() {
    let mut world = World::new();
    world.tasks(2);
    let wait = || Request::RecvInfo { name: text("box"), index: 0, flags: MBOX_WAIT_FOR_INFO };
    let message = Message { wid: 5, enc: 6, ..Message::new(ONE, TWO, 3, 4, text("body")) };
    let put = || Request::PutInfo { name: text("box"), flags: MBOX_PERSISTENT, message: message.clone() };
    assert_eq!(world.ask(ONE, wait()), None);
    assert_eq!(world.ask(TWO, put()), Some(Reply::Int(0)));
    assert_eq!(world.replies(ONE), [Reply::Info(message.clone())]);
    world.disconnects(TWO);
    assert_eq!(world.ask(ONE, Request::DeleteInfo { name: text("box"), index: 0, flags: 0 }), Some(Reply::Int(0)));
    assert_eq!(
        world.ask(ONE, Request::RecvInfo { name: text("box"), index: 0, flags: 0 }),
        Some(Reply::Error(Code::NotFound))
    );
}

#[test]
fn who_has_left_takes_nothing_out_of_a_mailbox_any_more() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    let cookie = world.machine.core.tasks.get(TWO).unwrap().cookie;
    world.hello(501, Some(cookie));
    let flags = MBOX_WAIT_FOR_INFO | MBOX_READ_AND_DELETE;
    assert_eq!(world.ask(TWO, Request::RecvInfo { name: text("box"), index: 0, flags }), None);
    // Its process continues.
    world.disconnects(TWO);
    assert!(world.machine.core.tasks.exists(TWO));
    let message = Message::new(ONE, ONE, 3, 4, text("body"));
    let put = Request::PutInfo { name: text("box"), flags: MBOX_OVER_WRITABLE, message: message.clone() };
    assert_eq!(world.ask(ONE, put), Some(Reply::Int(0)));
    let there = world.ask(ONE, Request::RecvInfo { name: text("box"), index: 0, flags: 0 });
    assert_eq!(there, Some(Reply::Info(message)));
}

#[test]
fn tasks_and_hosts_are_listed() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    let Some(Reply::Tasks(list)) = world.ask(ONE, Request::Tasks(Tid::NONE)) else { panic!() };
    let seen: Vec<_> = list.iter().map(|task| (task.tid, task.parent, task.flags, task.pid)).collect();
    assert_eq!(seen, [(ONE, 0, TASK_CONNECTED, 99), (TWO, ONE.0 as i32, TASK_FORKED, 501)]);
    let count = |world: &mut World, place| match world.ask(ONE, Request::Tasks(place)) {
        Some(Reply::Tasks(list)) => list.len() as i32,
        Some(Reply::Error(code)) => code.number(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(&mut world, Tid(0x40000)), 2);
    assert_eq!(count(&mut world, TWO), 1);
    assert_eq!(count(&mut world, THREE), 0);
    assert_eq!(count(&mut world, Tid(0x80000)), Code::NoHost.number());
    assert!(matches!(world.ask(ONE, Request::Config), Some(Reply::Hosts { hosts, formats: 1 }) if hosts.len() == 1));
    for (name, code) in [("alfa", 0), (".", 0), ("beta", -6)] {
        assert_eq!(world.ask(ONE, Request::HostStatus(text(name))), Some(Reply::Code(code)));
    }
    assert_eq!(world.ask(ONE, Request::HostStatus(text(""))), Some(Reply::Error(Code::BadParam)));
}

#[test]
fn hosts_are_checked_before_they_are_added_and_the_master_stays() {
    let mut world = World::new();
    world.task();
    let names = ["alfa", "x y", "nowhere", "beta ip=10.0.0.2"].map(text).to_vec();
    assert_eq!(world.ask(ONE, Request::AddHosts(names.clone())), None);
    assert_eq!(
        world.seen,
        [Action::CheckHosts { request: 1, names: ["alfa", "nowhere", "10.0.0.2"].map(text).to_vec() }]
    );
    assert_eq!(world.ask(ONE, Request::AddHosts(names)), Some(Reply::Error(Code::Already)));
    world.machine.handle_hosts_checked(1, vec![Err(Code::DupHost), Err(Code::NoHost), Ok(ResolvedHost::default())]);
    world.run();
    let known = format!("{KNOWN_AS}alfa\ntry: $NAME for a second pvmd on the same host");
    let reasons = [known.as_str(), "", "", ""].map(str::to_owned).to_vec();
    let added = Reply::AddedHosts { count: 0, hosts: vec![-28, -2, -6, -29], reasons };
    assert!(world.replies(ONE).contains(&added));
    // A name in the host table is recognized, whatever the resolver returns.
    assert_eq!(world.ask(ONE, Request::AddHosts(vec![text("alfa")])), None);
    world.machine.handle_hosts_checked(2, vec![Err(Code::NoHost)]);
    world.run();
    let added = Reply::AddedHosts { count: 0, hosts: vec![-28], reasons: vec![known] };
    assert!(world.replies(ONE).contains(&added));
    assert_eq!(world.ask(ONE, Request::AddHosts(vec![])), Some(Reply::Error(Code::BadParam)));
    let names = ["alfa", "alfa", "beta"].map(text).to_vec();
    assert_eq!(world.ask(ONE, Request::DeleteHosts(names)), Some(Reply::Codes(vec![-2, -28, -6])));
}

#[test]
fn a_message_by_way_of_the_daemon_carries_its_true_sender() {
    let mut world = World::new();
    world.tasks(2);
    let message = Message { enc: 3, ..Message::new(THREE, TWO, 1, 2, text("x")) };
    world.machine.handle_frame(NOW, ONE, ToDaemon::Message(message));
    world.run();
    assert_eq!(world.messages(TWO)[0].src, ONE);
}

#[test]
fn signals_go_to_the_process_and_nowhere_else() {
    let mut world = World::new();
    world.task();
    let signal = |tid| Request::Signal { tid, signal: 9 };
    assert_eq!(world.ask(ONE, signal(ONE)), Some(Reply::Done));
    assert_eq!(world.seen[0], Action::Signal { tid: ONE, process: 99, signal: 9 });
    assert_eq!(world.ask(ONE, signal(TWO)), Some(Reply::Done));
    assert_eq!(world.seen.len(), 1);
    assert_eq!(world.ask(ONE, signal(Tid(0x40000))), Some(Reply::Error(Code::BadParam)));
}

#[test]
fn a_halt_asks_then_kills_then_stops() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 2));
    world.ask(ONE, Request::Halt);
    assert_eq!(world.frames(ONE), [ToTask::Reply { wait: 42, reply: Reply::Done }, ToTask::Halting(String::new())]);
    let signals = |world: &World, wanted| {
        let is = |action: &&Action| matches!(action, Action::Signal { signal, .. } if *signal == wanted);
        world.seen.iter().filter(is).count()
    };
    assert_eq!(signals(&world, 15), 3);
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("prog", 1))), Some(Reply::Error(Code::SysErr)));
    world.ends(TWO, 15);
    assert!(!world.seen.contains(&Action::Stop));
    let when = world.machine.next_wakeup().unwrap();
    assert_eq!(when, NOW + Duration::from_secs(2));
    world.machine.handle_time(when);
    world.run();
    assert_eq!(signals(&world, 9), 1);
    world.ends(THREE, 9);
    assert!(world.seen.contains(&Action::Stop));
    assert_eq!(world.machine.next_wakeup(), None);
}

#[test]
fn a_halt_does_not_wait_for_what_cannot_be_killed() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    world.ask(ONE, Request::Halt);
    for _ in 0..2 {
        let when = world.machine.next_wakeup().unwrap();
        world.machine.handle_time(when);
        world.run();
    }
    assert!(world.seen.contains(&Action::Stop));
}

#[test]
fn contexts_of_the_dead_are_free_and_tickles_answer() {
    let mut world = World::new();
    world.tasks(2);
    assert_eq!(world.ask(ONE, Request::NewContext), Some(Reply::Int(0x40001)));
    assert_eq!(world.ask(TWO, Request::FreeContext(0x40001)), Some(Reply::Error(Code::NotFound)));
    world.disconnects(ONE);
    assert_eq!(world.ask(TWO, Request::NewContext), Some(Reply::Int(0x40002)));
    assert_eq!(world.ask(TWO, Request::Tickle(vec![])), Some(Reply::Error(Code::BadParam)));
    assert_eq!(world.ask(TWO, Request::Tickle(vec![0; 11])), Some(Reply::Error(Code::BadParam)));
    assert_eq!(world.ask(TWO, Request::Tickle(vec![6, 12])), Some(Reply::Ints(vec![])));
    assert_eq!(world.ask(TWO, Request::Tickle(vec![5])), Some(Reply::Ints(vec![12])));
    world.ask(TWO, Request::Tickle(vec![2]));
    assert!(world.seen.iter().any(|action| matches!(action, Action::Log { tid: Tid::DAEMON, .. })));
}

#[test]
fn a_reset_of_mailboxes_spares_what_living_tasks_keep() {
    let mut world = World::new();
    world.tasks(2);
    let message = Message { enc: 0, ..Message::new(ONE, TWO, 0, 0, text("")) };
    for (task, name) in [(ONE, "orphan"), (TWO, CLASS_NO_RESET)] {
        world.ask(task, Request::PutInfo { name: text(name), flags: MBOX_PERSISTENT, message: message.clone() });
    }
    world.disconnects(ONE);
    assert_eq!(world.ask(TWO, Request::ResetInfo { name: None, index: None }), Some(Reply::Done));
    let Some(Reply::Mailboxes(left)) = world.ask(TWO, Request::MailboxInfo { pattern: text("") }) else { panic!() };
    assert_eq!(left.len(), 1);
}

#[test]
fn the_time_of_day_is_asked_of_the_edge() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::HostSync(ONE)), None);
    assert_eq!(world.seen, [Action::TellTime { to: ONE, wait: 42 }]);
    assert_eq!(world.ask(ONE, Request::HostSync(Tid::NONE)), Some(Reply::Error(Code::NoHost)));
}
