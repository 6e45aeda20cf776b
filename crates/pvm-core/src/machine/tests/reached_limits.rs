//! Tests that reach each limit on what tasks and other hosts can make a daemon store.
use super::fleet::{Fleet, MASTER};
use super::limits::{DAEMON_MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use super::world::{ONE, THREE, TWO, World, spawn_of, text};
use super::*;
use crate::codes::{
    MBOX_WAIT_FOR_INFO, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT, TASK_HOST, TASK_INPUT,
};
use crate::proto::VERSION;

const REFUSED: Option<Reply> = Some(Reply::Error(Code::OutOfRes));
const DONE: Option<Reply> = Some(Reply::Done);

fn notify(what: i32, tag: i32, tids: &[Tid]) -> Request {
    Request::Notify { what, ctx: 0, tag, count: -1, tids: tids.to_vec() }
}

fn awaited(name: &str) -> Request {
    Request::RecvInfo { name: text(name), index: 0, flags: MBOX_WAIT_FOR_INFO }
}

fn message(dst: Tid, bytes: usize) -> Message {
    Message::new(TWO, dst, 0, 1, vec![0; bytes])
}

fn joined(reply: Option<Reply>) -> bool {
    match reply {
        Some(Reply::Group { .. }) => true,
        Some(Reply::Error(Code::OutOfRes)) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_watches_of_a_task_are_limited() {
    let mut world = World::new();
    world.tasks(3);
    world.machine.core.settings.limits.task_watches = 3;
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 1, &[TWO, THREE])), DONE);
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 1, &[TWO, THREE])), REFUSED);
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT, 2, &[TWO])), DONE);
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_DELETE, 1, &[MASTER])), REFUSED);
    assert_eq!(world.ask(TWO, notify(NOTIFY_TASK_EXIT, 1, &[THREE])), DONE);
    // A notify stops counting against the limit when it is cancelled or its message has been delivered.
    assert_eq!(world.ask(ONE, notify(NOTIFY_TASK_EXIT | NOTIFY_CANCEL, 2, &[TWO])), DONE);
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_DELETE, 1, &[MASTER])), DONE);
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_DELETE, 2, &[MASTER])), REFUSED);
    world.disconnects(THREE);
    assert_eq!(world.ask(ONE, notify(NOTIFY_HOST_DELETE, 2, &[MASTER])), DONE);
    let wishes: Vec<_> = (0..4).map(|tag| world.ask(ONE, notify(NOTIFY_HOST_ADD, tag, &[]))).collect();
    assert_eq!(wishes, [DONE, DONE, DONE, REFUSED]);
    world.disconnects(ONE);
    world.disconnects(TWO);
    assert_eq!(world.machine.leftovers(), [""; 0]);
}

#[test]
fn the_watches_of_a_host_are_limited() {
    let mut fleet = Fleet::new(3, 1);
    let other = Fleet::host(2);
    for host in [MASTER, other] {
        fleet.machine(host).core.settings.limits.host_watches = 2;
    }
    let watcher = fleet.task(other);
    let tasks = [1, 2, 3].map(|_| fleet.task(MASTER));
    assert_eq!(fleet.ask(watcher, notify(NOTIFY_TASK_EXIT, 1, &tasks[..2])), DONE);
    assert_eq!(fleet.ask(watcher, notify(NOTIFY_TASK_EXIT, 1, &tasks[2..])), REFUSED);
    // A host that ignores the limit gains nothing, and does not reduce what other hosts may watch.
    let now = fleet.now;
    for number in 5..1000 {
        let frame = Frame::Watch { tid: tasks[2], watcher: Tid(other.0 | number) };
        fleet.machine(MASTER).handle_host_frame(now, other, frame);
    }
    let third = fleet.task(Fleet::host(3));
    assert_eq!(fleet.ask(third, notify(NOTIFY_TASK_EXIT, 1, &tasks[2..])), DONE);
    fleet.leave(tasks[0]);
    fleet.settle();
    assert_eq!(fleet.ask(watcher, notify(NOTIFY_TASK_EXIT, 1, &tasks[2..])), DONE);
    fleet.leave(tasks[2]);
    fleet.settle();
    assert_eq!((fleet.messages(watcher, 1).len(), fleet.messages(third, 1).len()), (2, 1));
    [watcher, third, tasks[1]].into_iter().for_each(|tid| fleet.leave(tid));
    fleet.settle();
    for host in fleet.living() {
        assert!(!fleet.machine(host).leftovers().contains(&"notifies"), "{host}");
    }
}

#[test]
fn the_master_says_how_many_watches_a_host_may_have() {
    let mut fleet = Fleet::new(1, 1);
    fleet.machine(MASTER).core.settings.limits.host_watches = 7;
    let task = fleet.task(MASTER);
    fleet.ask(task, Request::AddHosts(vec![text("h2")]));
    assert_eq!(fleet.machine(Fleet::host(2)).core.settings.limits.host_watches, 7);
}

#[test]
fn the_number_of_groups_is_limited() {
    let mut world = World::new();
    world.tasks(2);
    world.machine.core.settings.limits.groups = 2;
    let join = |world: &mut World, tid, name| joined(world.ask(tid, Request::JoinGroup(text(name))));
    assert_eq!(["a", "b", "c"].map(|name| join(&mut world, ONE, name)), [true, true, false]);
    assert!(join(&mut world, TWO, "a"), "to one that there is");
    world.ask(ONE, Request::LeaveGroup(text("b")));
    assert!(join(&mut world, TWO, "c"));
}

#[test]
fn the_members_of_all_groups_together_are_limited() {
    let mut world = World::new();
    world.tasks(2);
    world.machine.core.settings.limits.members = 3;
    let join = |world: &mut World, tid, name| joined(world.ask(tid, Request::JoinGroup(text(name))));
    assert!(join(&mut world, ONE, "a") && join(&mut world, TWO, "a") && join(&mut world, ONE, "b"));
    assert!(!join(&mut world, TWO, "b") && !join(&mut world, TWO, "c"));
    world.disconnects(ONE);
    assert!(join(&mut world, TWO, "c"));
    world.disconnects(TWO);
    assert_eq!(world.machine.leftovers(), [""; 0]);
}

#[test]
fn the_members_of_a_group_are_limited() {
    let mut world = World::new();
    world.tasks(2);
    let Some(Reply::Group { id, .. }) = world.ask(ONE, Request::JoinGroup(text("g"))) else { panic!("not joined") };
    for instance in 1..groups::GROUP_MEMBERS_MAX as u32 {
        world.machine.parts.groups.put_member(id, instance, Tid(0x80000 + instance));
    }
    assert_eq!(world.ask(TWO, Request::JoinGroup(text("g"))), REFUSED);
}

#[test]
fn the_length_of_stored_names_is_limited() {
    let mut world = World::new();
    world.task();
    let (longest, longer) = ("x".repeat(NAME_BYTES_MAX), "x".repeat(NAME_BYTES_MAX + 1));
    assert!(joined(world.ask(ONE, Request::JoinGroup(text(&longest)))));
    assert_eq!(world.ask(ONE, Request::JoinGroup(text(&longer))), REFUSED);
    assert_eq!(world.ask(ONE, awaited(&longest)), None);
    assert_eq!(world.ask(ONE, awaited(&longer)), REFUSED);
}

#[test]
fn the_open_requests_of_a_task_are_limited() {
    let mut world = World::new();
    world.tasks(2);
    world.machine.core.settings.limits.task_requests = 3;
    let replies = [(); 3].map(|()| world.ask(ONE, awaited("x")));
    assert_eq!(replies, [None, None, None]);
    assert_eq!(world.ask(ONE, awaited("y")), REFUSED);
    assert_eq!(world.ask(ONE, Request::Config), REFUSED);
    // Requests of other tasks, and later requests, are answered.
    let entry = Request::PutInfo { name: text("x"), flags: 0, message: message(TWO, 1) };
    assert_eq!(world.ask(TWO, entry), Some(Reply::Int(0)));
    assert_eq!(world.replies(ONE).len(), 3);
    assert!(matches!(world.ask(ONE, Request::Config), Some(Reply::Hosts { .. })));
    assert_eq!(world.ask(ONE, awaited("y")), None);
    world.disconnects(ONE);
    world.disconnects(TWO);
    assert_eq!(world.machine.leftovers(), [""; 0]);
}

#[test]
fn the_open_requests_of_a_host_are_limited() {
    let mut fleet = Fleet::new(3, 1);
    fleet.machine(MASTER).core.settings.limits.host_requests = 2;
    let tasks = [2, 2, 2, 3].map(|host| fleet.task(Fleet::host(host)));
    assert_eq!(tasks.map(|task| fleet.ask(task, awaited("x"))), [None, None, REFUSED, None]);
    fleet.leave(tasks[0]);
    fleet.settle();
    assert_eq!(fleet.ask(tasks[2], awaited("x")), None);
    fleet.kill(Fleet::host(2));
    fleet.leave(tasks[3]);
    fleet.settle();
    assert!(!fleet.machine(MASTER).leftovers().contains(&"answers"));
}

#[test]
fn the_length_of_a_message_by_way_of_the_daemon_is_limited() {
    let mut world = World::new();
    world.tasks(2);
    for (bytes, count) in [(DAEMON_MESSAGE_BYTES_MAX, 1), (DAEMON_MESSAGE_BYTES_MAX + 1, 0)] {
        world.forget_seen();
        world.machine.handle_frame(Time::ZERO, TWO, ToDaemon::Message(message(ONE, bytes)));
        world.run();
        assert_eq!((world.messages(ONE).len(), world.logged(Tid::DAEMON).len()), (count, 1 - count));
    }
}

#[test]
fn the_tasks_of_a_host_are_limited() {
    let mut world = World::new();
    let hello = Hello { version: VERSION, pid: 1, cookie: None, name: ByteBuf::new(), kind: TaskKind::Program };
    for connection in 0..=TASKS_MAX as u64 {
        world.machine.handle_hello(connection, 1, &hello);
        let actions: Vec<Action> = std::iter::from_fn(|| world.machine.poll_action()).collect();
        let refused = actions.iter().any(|action| matches!(action, Action::Refuse { code: Code::OutOfRes, .. }));
        assert_eq!(refused, connection == TASKS_MAX as u64);
    }
    world.machine.core.settings.tasks_max = usize::MAX;
    assert_eq!(world.spawn(ONE, spawn_of("prog", 1)), [Code::OutOfRes.number()]);
    let mut world = World::new();
    world.task();
    world.machine.core.settings.tasks_max = 3;
    assert_eq!(world.spawn(ONE, spawn_of("prog", 3))[2], Code::OutOfRes.number());
    assert_eq!(world.machine.core.tasks.count(), 3);
}

#[test]
fn the_number_of_hosts_is_limited() {
    let mut world = World::new();
    world.task();
    let names = (0..=host_table::HOSTS_MAX).map(|number| text(&format!("h{number}"))).collect();
    assert_eq!(world.ask(ONE, Request::AddHosts(names)), Some(Reply::Error(Code::BadParam)));
    // All host numbers except that of this host are assigned, each once.
    let mut taken = std::collections::BTreeSet::new();
    while let Some(tid) = world.machine.core.hosts.new_number(|tid| taken.contains(&tid)) {
        assert!(tid.is_host() && tid != world.machine.own_host() && taken.insert(tid), "{tid}");
    }
    assert_eq!(taken.len(), host_table::HOSTS_MAX - 1);
}

#[test]
fn a_line_without_an_end_is_cut_for_the_log() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    world.forget_seen();
    world.machine.handle_output(TWO, &[b'x'; 3 * output::LINE_BYTES_MAX]);
    world.run();
    let lines = world.logged(TWO);
    assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [output::LINE_BYTES_MAX; 3]);
}

#[test]
fn the_links_that_wait_for_a_task_are_limited() {
    let mut fleet = Fleet::new(2, 1);
    let (parent, other, now) = (fleet.task(MASTER), Fleet::host(2), fleet.now);
    let mut spawn = spawn_of("prog", 1);
    (spawn.flags, spawn.place) = (TASK_HOST, text("h2"));
    let to = Tid(fleet.spawn(parent, spawn)[0] as u32);
    for number in 0..direct::WAITING_MAX as u32 + 1 {
        let frame = Frame::Direct { number, from: parent, to, call: None, cause: LinkCause::Program };
        fleet.machine(other).handle_host_frame(now, MASTER, frame);
        let actions: Vec<Action> = std::iter::from_fn(|| fleet.machine(other).poll_action()).collect();
        let refused = Action::SendHost { host: MASTER, frame: Frame::DirectRefused { number, why: Refusal::Denied } };
        assert_eq!(actions.contains(&refused), number == direct::WAITING_MAX as u32, "{number}");
    }
}

#[test]
fn the_questions_that_wait_for_a_task_are_limited() {
    let mut fleet = Fleet::new(2, 1);
    let (asker, other, now) = (fleet.task(MASTER), Fleet::host(2), fleet.now);
    let to = fleet.task(other);
    for number in 0..fabrics::QUESTIONS_MAX as u32 + 1 {
        let offer = FabricOffer { introduction: ByteBuf::default(), secrets: None };
        fleet.machine(other).handle_host_frame(
            now,
            MASTER,
            Frame::Fabric { number, from: asker, to, offer, cause: LinkCause::Program },
        );
        let actions: Vec<Action> = std::iter::from_fn(|| fleet.machine(other).poll_action()).collect();
        let refused = Action::SendHost {
            host: MASTER,
            frame: Frame::FabricAnswer { number, answer: LinkAnswer::Refused(Refusal::Denied) },
        };
        assert_eq!(actions.contains(&refused), number == fabrics::QUESTIONS_MAX as u32, "{number}");
    }
}

#[test]
fn why_hosts_were_lost_is_remembered_for_a_while() {
    let mut world = World::new();
    world.task();
    for number in 2..membership::LOST_HOSTS_MAX as u32 + 4 {
        let core = &mut world.machine.core;
        world.machine.parts.membership.remember_loss(core, Tid::host_number(number), "it is silent");
    }
    let Some(Reply::Failures(reasons)) = world.ask(ONE, Request::LostHosts) else { panic!() };
    assert_eq!(reasons.len(), membership::LOST_HOSTS_MAX);
    assert!(reasons[0].ends_with(" is out of the machine: it is silent"), "{reasons:?}");
    assert_ne!(reasons[0], reasons[1]);
}

#[test]
fn input_comes_in_pieces_and_one_at_a_time() {
    let mut world = World::new();
    world.task();
    let mut spawn = spawn_of("prog", 2);
    (spawn.flags, spawn.children.run.group) = (TASK_INPUT, true);
    world.spawn(ONE, spawn);
    let input = |tid, length: usize| Request::Input { tid, data: ByteBuf::from(vec![b'x'; length]) };
    let refused = |code| Some(Reply::Error(code));
    // Only the first task of the spawn has an input that requests can write to.
    assert_eq!(world.ask(ONE, input(THREE, 1)), refused(Code::NoTask));
    assert_eq!(world.ask(ONE, input(TWO, crate::proto::INPUT_BYTES_MAX + 1)), refused(Code::BadParam));
    assert_eq!(world.ask(ONE, input(TWO, crate::proto::INPUT_BYTES_MAX)), None);
    assert_eq!(world.ask(ONE, input(TWO, 1)), refused(Code::Already));
    world.forget_seen();
    world.machine.handle_input_taken(TWO, true);
    world.run();
    assert_eq!(world.replies(ONE), [Reply::Done]);
    // After the input is closed, further input is refused.
    assert_eq!(world.ask(ONE, input(TWO, 0)), None);
    world.machine.handle_input_taken(TWO, true);
    world.run();
    world.forget_seen();
    assert_eq!(world.ask(ONE, input(TWO, 1)), refused(Code::NoTask));
}

#[test]
fn whose_task_ends_waits_no_more_for_its_input() {
    let mut world = World::new();
    world.task();
    let mut spawn = spawn_of("prog", 1);
    (spawn.flags, spawn.children.run.group) = (TASK_INPUT, true);
    world.spawn(ONE, spawn);
    let input = Request::Input { tid: TWO, data: ByteBuf::from(vec![b'x']) };
    assert_eq!(world.ask(ONE, input), None);
    world.ends(TWO, 0);
    assert_eq!(world.replies(ONE), [Reply::Error(Code::NoTask)]);
}
