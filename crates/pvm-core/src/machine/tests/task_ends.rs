//! Introductions, notifies, and the ends of tasks.
use super::world::{NOW, ONE, TWO, World, ints, spawn_of};
use super::*;
use crate::codes::{NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use crate::proto::TaskEnd;

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
