//! Lists, hosts, messages by way of the daemon, signals, halt, contexts, clock.
use super::world::{NOW, ONE, THREE, TWO, World, spawn_of, text};
use super::*;
use crate::codes::{TASK_CONNECTED, TASK_FORKED};
use crate::wire::ResolvedHost;

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
fn the_time_of_day_is_asked_of_the_edge() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::HostSync(ONE)), None);
    assert_eq!(world.seen, [Action::TellTime { to: ONE, wait: 42 }]);
    assert_eq!(world.ask(ONE, Request::HostSync(Tid::NONE)), Some(Reply::Error(Code::NoHost)));
}
