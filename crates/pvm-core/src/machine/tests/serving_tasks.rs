//! Hosters, taskers, managers, tracers, and their deaths.
use super::world::{NOW, ONE, THREE, TWO, World, ints, spawn_of, text};
use super::*;
use crate::codes::{
    CLASS_TASKER, MBOX_MULTI_INSTANCE, NOTIFY_CANCEL, NOTIFY_TASK_EXIT, SM_CONFIG, SM_EXEC, SM_EXECACK, SM_SPAWN,
    SM_STHOST, SM_STHOSTACK, SM_STTASK, SM_TASKX, TASK_CONNECTED, TASK_TASKER,
};
use crate::encoding::{Reader, Writer};
use crate::proto::{Role, TaskEnd, TraceSettings, Usage};

#[test]
fn a_hoster_is_asked_to_start_hosts_and_its_death_ends_the_wait() {
    let mut world = World::new();
    world.tasks(2);
    let register = |on| Request::Register { role: Role::Hoster, on };
    assert_eq!(world.ask(TWO, register(true)), Some(Reply::Int(0)));
    assert_eq!(world.ask(ONE, register(true)), Some(Reply::Error(Code::Already)));
    for answers in [true, false] {
        world.ask(ONE, Request::AddHosts(vec![text("beta")]));
        let Some(Action::CheckHosts { request, .. }) = world.seen.first().cloned() else { panic!() };
        world.machine.handle_hosts_checked(request, vec![Ok(Default::default())]);
        world.run();
        let asked = world.messages(TWO).remove(0);
        assert_eq!((asked.tag, asked.src, ints(&asked.body)[0]), (SM_STHOST, Tid::DAEMON, 1));
        let reply = if answers {
            let body = Writer::new().int(1).int(0x80000).string(b"PvmCantStart");
            world.message(TWO, SM_STHOSTACK, asked.wid, body);
            Reply::AddedHosts { count: 0, hosts: vec![-29], reasons: vec![String::new()] }
        } else {
            world.disconnects(TWO);
            Reply::Error(Code::DSysErr)
        };
        assert_eq!(world.replies(ONE), [reply]);
    }
}

#[test]
fn a_tasker_starts_the_tasks_of_its_host() {
    let mut world = World::new();
    world.tasks(2);
    world.ask(TWO, Request::Register { role: Role::Tasker, on: true });
    let Some(Reply::Mailboxes(boxes)) = world.ask(ONE, Request::MailboxInfo { pattern: text(CLASS_TASKER) }) else {
        panic!()
    };
    assert_eq!(boxes[0].entries, [(0, TWO, MBOX_MULTI_INSTANCE)]);
    let tids = world.spawn(ONE, spawn_of("prog", 2));
    assert_eq!((tids.len(), world.starts.len()), (2, 0));
    let asked = world.messages(TWO);
    let mut body = Reader::new(&asked[0].body);
    assert_eq!((asked.len(), asked[0].tag, body.int()), (2, SM_STTASK, Some(THREE.0 as i32)));
    assert_eq!(
        (body.int(), body.string(), body.int(), body.string()),
        (Some(0), Some(&b"prog"[..]), Some(1), Some(&b"prog"[..]))
    );
    let count = body.int().unwrap();
    let variables: Vec<_> = (0..count).map(|_| body.string().unwrap().to_vec()).collect();
    assert!(variables[0].starts_with(b"PVMEPID=1000000"));
    assert_eq!((body.int(), body.int(), body.int()), (Some(0), Some(2), Some(2)));
    world.message(TWO, SM_TASKX, 0, Writer::new().int(THREE.0 as i32).int(0x200).int(1).int(500_000).int(0).int(-7));
    assert!(world.seen.contains(&Action::Forget { tid: THREE }));
    assert_eq!(
        world.ask(ONE, Request::ExitStatus(THREE)),
        Some(Reply::Ended(TaskEnd { status: 0x200, usage: Usage { user_us: 1_500_000, ..Usage::default() } }))
    );
    world.disconnects(TWO);
    assert!(world.seen.contains(&Action::Forget { tid: Tid(tids[1] as u32) }));
    world.spawn(ONE, spawn_of("prog", 1));
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn the_daemon_starts_its_helpers_itself_although_the_tasker_has_come_before() {
    let mut world = World::new();
    world.tasks(2);
    world.ask(TWO, Request::Register { role: Role::Tasker, on: true });
    world.machine.start_helper(&["prog"]);
    world.run();
    assert_eq!((world.starts.len(), world.messages(TWO)), (1, vec![]));
}

#[test]
fn a_task_of_which_its_tasker_has_spoken_ends_with_its_connection() {
    let mut world = World::new();
    world.tasks(2);
    world.ask(TWO, Request::Register { role: Role::Tasker, on: true });
    world.spawn(ONE, spawn_of("prog", 1));
    let asked = world.messages(TWO).remove(0);
    let mut body = Reader::new(&asked.body);
    let child = Tid(body.int().unwrap() as u32);
    let cookie = world.machine.core.tasks.get(child).unwrap().cookie;
    world.hello(777, Some(cookie));
    // The tasker reports the end of the child before the child's connection closes.
    world.message(TWO, SM_TASKX, 0, Writer::new().int(child.0 as i32).int(0));
    assert!(world.machine.core.tasks.exists(child));
    world.disconnects(child);
    assert!(!world.machine.core.tasks.exists(child));
}

#[test]
fn only_a_server_can_say_that_it_serves_no_more() {
    let mut world = World::new();
    world.tasks(2);
    let wish = TraceSettings { trace_tid: ONE.0 as i32, trace_tag: 5, ..Default::default() };
    world.ask(ONE, Request::Register { role: Role::Tracer, on: true });
    world.ask(ONE, Request::SetTracer(wish));
    let before = world.machine.core.roles.common();
    assert_eq!(world.ask(TWO, Request::Register { role: Role::Tracer, on: false }), Some(Reply::Int(0)));
    assert_eq!(world.machine.core.roles.common(), before);
}

#[test]
fn a_manager_answers_for_the_tasks_that_came_after_it() {
    let mut world = World::new();
    world.tasks(2);
    let register = Request::Register { role: Role::ResourceManager, on: true };
    assert!(matches!(world.ask(ONE, register), Some(Reply::Manager { previous: Tid::NONE, .. })));
    let three = world.task();
    assert!(matches!(world.ask(TWO, Request::Config), Some(Reply::Hosts { .. })));
    assert_eq!(world.ask(three, Request::Spawn(spawn_of("prog", 1))), None);
    let asked = world.messages(ONE).remove(0);
    assert_eq!((asked.tag, asked.src, asked.wid), (SM_SPAWN, three, 42));
    let body = Writer::new().int(three.0 as i32).string(b"prog").int(0).int(1).int(0);
    let body = body.int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(1);
    world.message(ONE, SM_EXEC, 6, body);
    let started = world.messages(ONE).remove(0);
    assert_eq!((started.tag, started.wid, ints(&started.body)), (SM_EXECACK, 6, vec![1, 0x40004]));
    world.message(three, SM_SPAWN, 42, Writer::new().int(1).int(0x40004));
    assert_eq!(world.replies(three), [Reply::Tids(vec![0x40004])]);
}

#[test]
fn what_a_manager_has_not_answered_the_daemon_answers_when_the_manager_is_gone() {
    let mut world = World::new();
    world.task();
    world.ask(ONE, Request::Register { role: Role::ResourceManager, on: true });
    let two = world.task();
    assert_eq!(world.ask(two, Request::Spawn(spawn_of("prog", 1))), None);
    world.disconnects(ONE);
    assert_eq!(world.replies(two), [Reply::Tids(vec![THREE.0 as i32])]);
}

#[test]
fn a_spawn_that_a_dead_manager_has_done_in_part_is_not_done_again() {
    let mut world = World::new();
    world.task();
    world.ask(ONE, Request::Register { role: Role::ResourceManager, on: true });
    let two = world.task();
    assert_eq!(world.ask(two, Request::Spawn(spawn_of("prog", 3))), None);
    let body = Writer::new().int(two.0 as i32).string(b"prog").int(0).int(2).int(0);
    let body = body.int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(3);
    world.message(ONE, SM_EXEC, 6, body);
    let starts = world.starts.len();
    world.disconnects(ONE);
    let lost = Code::DSysErr.number();
    assert_eq!(world.replies(two), [Reply::Tids(vec![0x40003, 0x40004, lost])]);
    assert_eq!(world.starts.len(), starts);
}

#[test]
fn a_spawn_of_an_impossible_size_that_a_dead_manager_has_done_in_part_is_answered() {
    for count in [i32::MIN, -1, i32::MAX] {
        let mut world = World::new();
        world.task();
        world.ask(ONE, Request::Register { role: Role::ResourceManager, on: true });
        let two = world.task();
        assert_eq!(world.ask(two, Request::Spawn(spawn_of("prog", count))), None);
        let body = Writer::new().int(two.0 as i32).string(b"prog").int(0).int(1).int(0);
        let body = body.int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(0).int(1);
        world.message(ONE, SM_EXEC, 6, body);
        world.disconnects(ONE);
        let Some(Reply::Tids(tids)) = world.replies(two).pop() else { panic!() };
        assert!(tids[0] == 0x40003 && tids.len() <= crate::tid::LOCAL_MASK as usize, "{count}: {}", tids.len());
    }
}

#[test]
fn a_manager_that_was_followed_by_another_still_answers_or_the_daemon_does() {
    let mut world = World::new();
    world.tasks(2);
    let register = Request::Register { role: Role::ResourceManager, on: true };
    world.ask(ONE, register.clone());
    let (three, four) = (world.task(), world.task());
    assert_eq!(world.ask(three, Request::Config), None);
    assert_eq!(world.ask(four, Request::Tasks(Tid::NONE)), None);
    assert!(matches!(world.ask(TWO, register), Some(Reply::Manager { previous: ONE, .. })));
    let answer = Writer::new().int(0).int(1).finish();
    let message = Message { wid: 42, ..Message::new(ONE, three, 0, SM_CONFIG, answer) };
    world.seen.clear();
    world.machine.handle_frame(NOW, ONE, ToDaemon::Message(message));
    world.run();
    assert_eq!(world.replies(three), [Reply::Hosts { hosts: vec![], formats: 1 }]);
    world.disconnects(ONE);
    assert!(matches!(world.replies(four)[..], [Reply::Tasks(_)]));
}

#[test]
fn what_a_dead_manager_was_to_tell_the_daemon_tells() {
    let mut world = World::new();
    world.task();
    world.ask(ONE, Request::Register { role: Role::ResourceManager, on: true });
    let (two, three, four, five) = (world.task(), world.task(), world.task(), world.task());
    let notify = |what, tids: &[Tid]| Request::Notify { what, ctx: 0, tag: 5, count: 1, tids: tids.to_vec() };
    for request in [notify(NOTIFY_TASK_EXIT, &[three, four, five]), notify(NOTIFY_TASK_EXIT | NOTIFY_CANCEL, &[three])]
    {
        assert_eq!(world.ask(two, request), Some(Reply::Done));
    }
    // The manager has reported the end of this task, so the daemon does not report it.
    world.disconnects(five);
    world.disconnects(ONE);
    assert!(world.messages(two).is_empty());
    world.disconnects(three);
    assert!(world.messages(two).is_empty());
    world.disconnects(four);
    assert_eq!(ints(&world.messages(two)[0].body), [four.0 as i32]);
}

#[test]
fn a_server_unregisters_and_leaves_no_trace() {
    let mut world = World::new();
    world.task();
    for role in [Role::Hoster, Role::Tasker, Role::ResourceManager, Role::Tracer] {
        world.ask(ONE, Request::Register { role, on: true });
        let Some(Reply::Tasks(list)) = world.ask(ONE, Request::Tasks(ONE)) else { panic!() };
        assert!(list[0].flags & !TASK_CONNECTED != 0);
        assert!(role != Role::Tasker || list[0].flags & TASK_TASKER != 0);
        assert_eq!(world.ask(ONE, Request::Register { role, on: false }), Some(Reply::Int(0)));
    }
    assert_eq!(world.ask(ONE, Request::MailboxInfo { pattern: text("") }), Some(Reply::Mailboxes(vec![])));
}

#[test]
fn a_helper_that_cannot_be_started_is_named_in_the_log() {
    let mut world = World::new();
    world.machine.start_helper(&["prog", "a"]);
    world.run();
    assert_eq!((world.starts[0].tid, world.starts[0].arguments.len()), (ONE, 2));
    world.machine.start_helper(&["missing"]);
    world.machine.start_helper(&[]);
    world.run();
    let line = b"cannot start a helper: No such file".to_vec();
    assert_eq!(world.seen.last(), Some(&Action::Log { tid: Tid::DAEMON, line }));
}
