//! A host of the machine that sends well-formed frames with false content.
use super::fleet::{Fleet, MASTER};
use super::world::spawn_of;
use super::*;
use crate::codes::{NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use crate::flows::pacing::Pacing;
use crate::proto::{Order, Role};
use crate::release::{CHAIN_VALUE_BYTES, Passed, Release};
use crate::wire::{Arrival, GroupChange, HostEntry, MachineSettings, Servers, StartNews, StartOrder};

const EXIT_TAG: i32 = 7;

fn says(fleet: &mut Fleet, from: Tid, to: Tid, frame: Frame) {
    let now = fleet.now;
    fleet.machine(to).handle_host_frame(now, from, frame);
    fleet.work(to);
}

fn entry(tid: Tid) -> HostEntry {
    let (name, arch) = ("evil".to_owned(), "LINUX64".to_owned());
    HostEntry {
        tid,
        name,
        aliases: Vec::new(),
        arch,
        speed: 1,
        node: None,
        groups: None,
        is_draining: false,
        dsig: 7,
        addresses: Vec::new(),
        key: [6; KEY_BYTES],
    }
}

fn hosts_of(fleet: &mut Fleet, asker: Tid) -> usize {
    match fleet.ask(asker, Request::Config) {
        Some(Reply::Hosts { hosts, .. }) => hosts.len(),
        other => panic!("{other:?}"),
    }
}

fn message(src: Tid, dst: Tid) -> Message {
    let (body, format) = (ByteBuf::from(vec![0; 8]), crate::codes::native_dsig());
    Message { src, dst, ctx: 0, tag: EXIT_TAG, wid: 0, enc: 0, format, body }
}

/// Returns frames that only the master may send, and frames about a task that only the task's host may send.
fn lies(other: Tid, task: Tid, watcher: Tid) -> Vec<Frame> {
    let servers = Servers::default();
    let shared = MachineSettings {
        host_timeout_ms: 1,
        halt_grace_ms: u64::MAX,
        trusted: true,
        servers,
        debug_mask: -1,
        host_watches: 0,
        pacing: Pacing::Off,
        order: Order::Hosts,
        barrier_broadcast_hosts: 3,
        fabric: Default::default(),
        broadcast: None,
    };
    let name = ByteBuf::from(b"g".to_vec());
    vec![
        Frame::Welcome {
            wire: 1,
            version: 0,
            hosts: vec![entry(other)],
            joining: Vec::new(),
            shared,
            options: HostOptions::default(),
        },
        Frame::Table { version: 0, added: vec![entry(Tid::host_number(9))], removed: vec![other, MASTER] },
        Frame::Table { version: u64::MAX, added: vec![entry(other)], removed: Vec::new() },
        Frame::TableAck { version: u64::MAX },
        Frame::Joined { hosts: vec![Tid::host_number(9), other] },
        Frame::Servers(Servers { manager: Some(watcher), tracer: Some(watcher), tracer_settings: None }),
        Frame::StartOrder { number: 1, order: StartOrder::Run { words: vec![name.clone()], input: ByteBuf::new() } },
        Frame::GroupChanged { id: 1, number: 0, change: GroupChange::Close },
        Frame::GroupSeen { number: u64::MAX },
        Frame::Arrived {
            id: 1,
            arrivals: vec![Arrival { tid: task, turn: u64::MAX, version: u64::MAX, count: 1, lan: true }],
            chain: None,
        },
        Frame::BarrierEnded { id: 1, ended: vec![(task, 1)], failure: None, release: None, passed: None, late: true },
        Frame::ReleaseMissed,
        Frame::Arrived { id: 1, arrivals: Vec::new(), chain: Some(1) },
        Frame::Recalled { id: 1, number: 1, passed: u32::MAX, arrivals: Vec::new() },
        Frame::HandBack { id: 1 },
        Frame::GroupChanged { id: 1, number: 0, change: GroupChange::Recall { number: 1 } },
        Frame::GroupChanged {
            id: 1,
            number: 0,
            change: GroupChange::Coordinate {
                by: other,
                anchor: Release { chain: 1, index: 0, value: [0; CHAIN_VALUE_BYTES] },
                start: Some([0; CHAIN_VALUE_BYTES]),
                passed: Passed::default(),
            },
        },
        Frame::Left { tid: task, ended: true },
        Frame::Died { tid: task, watcher },
        Frame::Serves { role: Role::Tasker, tid: task, on: true },
        Frame::Watch { tid: task, watcher },
        Frame::Unwatch { tid: task, watcher },
        Frame::Log { tid: task, line: b"not said".to_vec() },
        Frame::Request { wait: 1, from: task, request: Request::LeaveGroup(name), again: false },
        Frame::Request { wait: 1, from: task, request: Request::Halt, again: false },
        Frame::Reply { wait: 1, reply: Reply::Done },
        Frame::Spawned { wait: 1, results: vec![task.0 as i32; 1000] },
        Frame::Siblings { wait: 1, tids: vec![task] },
        Frame::Direct { number: 1, from: task, to: watcher, call: None, cause: LinkCause::Program },
        Frame::DirectRefused { number: 1, why: Refusal::Denied },
        Frame::Fabric {
            number: 1,
            from: task,
            to: watcher,
            offer: FabricOffer { introduction: ByteBuf::from(b"evil".to_vec()), secrets: None },
            cause: LinkCause::Program,
        },
        Frame::FabricAnswer { number: 1, answer: LinkAnswer::Introduction(ByteBuf::from(b"evil".to_vec())) },
        Frame::PleaseConnect { to: other, from: MASTER },
        Frame::PleaseConnect { to: Tid::host_number(9), from: Tid::host_number(8) },
        Frame::Signal { tid: Tid::host_number(9), signal: 9 },
        Frame::Deliver(message(task, watcher)),
        Frame::Deliver(message(Tid::DAEMON, watcher)),
        Frame::Deliver(message(Tid::group_server(MASTER), watcher)),
        Frame::Deliver(message(Tid::group_server(other), watcher)),
    ]
}

#[test]
fn a_host_that_speaks_for_others_is_not_believed() {
    let mut fleet = Fleet::new(3, 1);
    let (evil, good) = (Fleet::host(2), Fleet::host(3));
    let (watcher, task) = (fleet.task(MASTER), fleet.task(good));
    let wish = |what, tids| Request::Notify { what, ctx: 0, tag: EXIT_TAG, count: -1, tids };
    fleet.ask(watcher, wish(NOTIFY_TASK_EXIT, vec![task]));
    fleet.ask(watcher, wish(NOTIFY_HOST_DELETE, vec![good]));
    fleet.ask(task, Request::JoinGroup(ByteBuf::from(b"g".to_vec())));
    for _ in 0..100 {
        for to in [MASTER, good] {
            for frame in lies(good, task, watcher) {
                says(&mut fleet, evil, to, frame);
            }
        }
        fleet.settle();
    }
    assert!(fleet.messages(watcher, EXIT_TAG).is_empty());
    assert_eq!((hosts_of(&mut fleet, watcher), hosts_of(&mut fleet, task)), (3, 3));
    assert!(fleet.log.iter().all(|(_, _, line)| line != "not said"));
    // The machine still works: the end of the task is reported when the task really ends.
    fleet.leave(task);
    fleet.settle();
    assert_eq!(fleet.messages(watcher, EXIT_TAG).len(), 1);
    assert_eq!(fleet.machine(MASTER).debug_mask(), fleet.machine(good).debug_mask());
}

#[test]
fn a_new_host_does_not_stay_with_a_master_of_another_version() {
    let mut fleet = Fleet::new(2, 1);
    let slave = Fleet::host(2);
    let Some(Frame::Welcome { version, hosts, joining, shared, options, .. }) =
        lies(slave, slave, slave).into_iter().next()
    else {
        panic!("the first lie is a welcome")
    };
    says(&mut fleet, MASTER, slave, Frame::Welcome { wire: 77, version, hosts, joining, shared, options });
    let wanted =
        format!("speaks version 77 of what daemons say to each other, this host version {}", crate::wire::VERSION);
    let said = |(at, _, line): &(Tid, Tid, String)| {
        *at == slave && line.contains("lost the master h1") && line.contains(&wanted)
    };
    assert!(fleet.log.iter().any(said), "{:?}", fleet.log);
}

#[test]
fn a_tid_that_only_looks_like_that_of_a_host_is_none() {
    let mut fleet = Fleet::new(3, 9);
    let (evil, good) = (Fleet::host(2), Fleet::host(3));
    for other in [good, MASTER] {
        for strange in [Tid(other.0 | crate::tid::DAEMON_BIT), Tid(other.0 | 1), Tid(other.0 | crate::tid::GROUP_BIT)] {
            for (from, to) in [(evil, MASTER), (MASTER, good)] {
                says(&mut fleet, from, to, Frame::PleaseConnect { to: strange, from });
                says(&mut fleet, from, to, Frame::PleaseConnect { to, from: strange });
                says(&mut fleet, from, to, Frame::Suspect(strange));
            }
        }
    }
    fleet.pass(Duration::from_secs(60));
    assert!(fleet.log.iter().all(|(_, _, line)| !line.contains("out of the machine")), "{:?}", fleet.log);
    fleet.check_tables();
}

#[test]
fn a_host_that_reaches_nobody_is_removed_itself() {
    let mut fleet = Fleet::new(6, 2);
    let asker = fleet.task(MASTER);
    for other in 3..=6 {
        says(&mut fleet, Fleet::host(2), MASTER, Frame::Suspect(Fleet::host(other)));
        fleet.settle();
    }
    // Host 2 is removed, and none of the hosts that it has reported.
    fleet.pass(Duration::from_secs(30));
    assert_eq!(hosts_of(&mut fleet, asker), 5);
    for other in 3..=6 {
        let task = fleet.task(Fleet::host(other));
        assert_eq!(hosts_of(&mut fleet, task), 5);
    }
}

#[test]
fn a_spawn_of_more_tasks_than_a_host_can_have_is_refused() {
    let mut fleet = Fleet::new(2, 4);
    let task = fleet.task(MASTER);
    for count in [i32::MAX, i32::MIN, 0, -1, 1 << 18] {
        let frame =
            Frame::Spawn { wait: 99, parent: 1, first: i32::MAX, total: count, spawn: spawn_of("missing", count) };
        says(&mut fleet, Fleet::host(2), MASTER, frame);
    }
    for first in [i32::MAX, i32::MIN, -1] {
        let spawn = spawn_of("worker", 2);
        says(&mut fleet, Fleet::host(2), MASTER, Frame::Spawn { wait: 98, parent: 1, first, total: 2, spawn });
    }
    fleet.settle();
    assert_eq!(hosts_of(&mut fleet, task), 2);
    assert_eq!(fleet.machine(MASTER).core.tasks.count(), 1);
}

#[test]
fn a_host_that_breaks_its_links_and_comes_back_does_not_have_others_removed_for_it() {
    let mut fleet = Fleet::new(3, 5);
    let (good, asker) = (Fleet::host(2), fleet.task(MASTER));
    for life in 0..5 {
        // The good host reports at once that it cannot reach the evil host; the master's own link to the evil host is
        // up.
        let evil = *fleet.living().last().expect("the last to come");
        says(&mut fleet, good, MASTER, Frame::Suspect(evil));
        fleet.pass(Duration::from_secs(11));
        assert_eq!(hosts_of(&mut fleet, asker), 2, "life {life}");
        let added = fleet.ask(asker, Request::AddHosts(vec![ByteBuf::from(b"h3".to_vec())]));
        assert!(matches!(added, Some(Reply::AddedHosts { count: 1, .. })), "{added:?}");
    }
    assert!(fleet.living().contains(&good));
}

/// A host of the machine reports that it cannot reach the joining host.
#[test]
fn a_host_that_is_joining_is_not_turned_away_because_others_do_not_reach_it() {
    for seed in 0..20 {
        let mut fleet = Fleet::new(2, seed);
        let (evil, asker, comer) = (Fleet::host(2), fleet.task(MASTER), Fleet::host(3));
        let wait = fleet.send(asker, Request::AddHosts(vec![ByteBuf::from(b"h3".to_vec())]));
        while fleet.answer(asker, wait).is_none() && fleet.step() {
            if fleet.machine(MASTER).core.hosts.joining(comer).is_some() {
                says(&mut fleet, evil, MASTER, Frame::Suspect(comer));
            }
        }
        fleet.settle();
        assert_eq!(hosts_of(&mut fleet, asker), 3);
    }
}

/// Lets the host `evil` send a beat each second, and nothing else, for that many seconds.
fn only_beats(fleet: &mut Fleet, evil: Tid, seconds: u64) {
    fleet.freeze(evil);
    for _ in 0..seconds {
        if fleet.machine(MASTER).core.hosts.is_known(evil) {
            says(fleet, evil, MASTER, Frame::Beat);
        }
        fleet.pass(Duration::from_secs(1));
    }
}

#[test]
fn a_host_that_never_says_that_it_knows_the_table_does_not_hold_up_adds() {
    let mut fleet = Fleet::new(3, 6);
    let (evil, asker) = (Fleet::host(2), fleet.task(MASTER));
    only_beats(&mut fleet, evil, 1);
    fleet.ask(asker, Request::AddHosts(vec![ByteBuf::from(b"h4".to_vec())]));
    only_beats(&mut fleet, evil, 40);
    assert_eq!(hosts_of(&mut fleet, asker), 3);
    assert!(fleet.open.is_empty(), "{:?}", fleet.open);
}

#[test]
fn a_host_that_does_not_tell_of_its_tasks_does_not_hold_up_who_asks_for_those_of_all() {
    let mut fleet = Fleet::new(3, 7);
    let (evil, asker) = (Fleet::host(2), fleet.task(Fleet::host(3)));
    only_beats(&mut fleet, evil, 1);
    assert_eq!(fleet.ask(asker, Request::Tasks(Tid::NONE)), None);
    only_beats(&mut fleet, evil, 40);
    assert!(fleet.open.is_empty(), "{:?}", fleet.open);
}

#[test]
fn a_host_that_never_says_that_it_knows_a_group_does_not_hold_up_who_joins_it() {
    let mut fleet = Fleet::new(3, 8);
    let evil = Fleet::host(2);
    let (theirs, ours) = (fleet.task(evil), fleet.task(Fleet::host(3)));
    let join = || Request::JoinGroup(ByteBuf::from(b"g".to_vec()));
    fleet.ask(theirs, join());
    only_beats(&mut fleet, evil, 1);
    assert_eq!(fleet.ask(ours, join()), None);
    only_beats(&mut fleet, evil, 40);
    assert!(fleet.open.keys().all(|(task, _)| task.host() == evil), "{:?}", fleet.open);
}

#[test]
fn only_the_master_has_commands_run_and_only_it_hears_of_them() {
    let mut fleet = Fleet::new(3, 1);
    let (one, other) = (Fleet::host(2), Fleet::host(3));
    let order = || StartOrder::Run { words: vec![ByteBuf::from(b"ssh".to_vec())], input: ByteBuf::new() };
    let heard = |fleet: &mut Fleet, from, to, frame| {
        let now = fleet.now;
        fleet.machine(to).handle_host_frame(now, from, frame);
        let first = fleet.machine(to).poll_action();
        fleet.work(to);
        first
    };
    for to in [MASTER, other] {
        assert_eq!(heard(&mut fleet, one, to, Frame::StartOrder { number: 7, order: order() }), None);
    }
    let ordered = heard(&mut fleet, MASTER, other, Frame::StartOrder { number: 7, order: order() });
    assert_eq!(ordered, Some(Action::OrderStart { number: 7, order: order() }));
    let news = Frame::StartNews { number: 7, news: StartNews::Ended(0) };
    assert_eq!(heard(&mut fleet, MASTER, other, news.clone()), None);
    let told = heard(&mut fleet, other, MASTER, news.clone());
    assert_eq!(told, Some(Action::StartNews { host: other, number: 7, news: StartNews::Ended(0) }));
    assert_eq!(heard(&mut fleet, Tid::host_number(9), MASTER, news), None);
}
