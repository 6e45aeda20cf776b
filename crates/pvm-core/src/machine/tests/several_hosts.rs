//! Tests of the rules for several hosts.
use super::fleet::{Fleet, MASTER, Received};
use super::world::{ints, spawn_of, text};
use super::*;
use crate::codes::{
    CLASS_TASKER, HOST_COMPL, MBOX_PERSISTENT, MBOX_WAIT_FOR_INFO, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE,
    NOTIFY_TASK_EXIT, TASK_HOST,
};
use crate::encoding::Writer;
use crate::proto::{Role, Spawn, TaskEnd, TraceSettings, Usage};

const SEEDS: u64 = 30;

/// Runs a scenario with many seeds.
pub(super) fn many(hosts: usize, story: impl Fn(&mut Fleet)) {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(hosts, seed);
        story(&mut fleet);
    }
}

pub(super) fn notify(what: i32, tag: i32, tids: Vec<Tid>) -> Request {
    Request::Notify { what, ctx: 0, tag, count: -1, tids }
}

pub(super) fn names(list: &[&str]) -> Vec<ByteBuf> {
    list.iter().map(|name| text(name)).collect()
}

pub(super) fn tids(results: &[i32]) -> Vec<Tid> {
    results.iter().map(|tid| Tid(*tid as u32)).collect()
}

#[test]
fn added_hosts_know_one_another_and_all_are_told_once() {
    many(3, |fleet| {
        let watchers: Vec<Tid> = [1, 2, 3].map(|host| fleet.task(Fleet::host(host))).to_vec();
        for watcher in &watchers {
            fleet.send(*watcher, notify(NOTIFY_HOST_ADD, 7, vec![]));
        }
        let asker = watchers[1];
        let reply = fleet.ask(asker, Request::AddHosts(names(&["h4", "broken", "h5", "nowhere", "h4", "h2", "x=y z"])));
        let (four, five) = (Fleet::host(4).0 as i32, Fleet::host(6).0 as i32);
        let Some(Reply::AddedHosts { count, hosts, .. }) = reply else { panic!("{reply:?}") };
        assert_eq!((count, hosts), (2, vec![four, -29, five, -6, -28, -28, -2]));
        fleet.check_tables();
        for watcher in watchers {
            let told: Vec<_> = fleet.messages(watcher, 7).iter().map(|one| ints(&one.body)).collect();
            assert_eq!(told, [vec![2, four, five]]);
        }
        let Some(Reply::Hosts { hosts, formats: 1 }) = fleet.ask(asker, Request::Config) else { panic!() };
        let known: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(known, ["h1", "h2", "h3", "h4", "h5"]);
    });
}

#[test]
fn notifies_of_a_change_of_hosts_come_before_its_answer() {
    for host in [1, 2] {
        let mut fleet = Fleet::new(3, 6);
        let task = fleet.task(Fleet::host(host));
        fleet.ask(task, notify(NOTIFY_HOST_ADD, 7, vec![]));
        fleet.ask(task, Request::AddHosts(names(&["h4"]))).expect("an answer");
        assert_eq!(fleet.came_before_last_reply(task, 7), 1, "an add, asked at host {host}");
        fleet.ask(task, notify(NOTIFY_HOST_DELETE, 8, vec![Fleet::host(4)]));
        fleet.ask(task, Request::Tickle(vec![8, Fleet::host(4).0 as i32])).expect("an answer");
        assert_eq!(fleet.came_before_last_reply(task, 8), 1, "a failure, declared at host {host}");
    }
}

#[test]
fn one_add_runs_at_a_time() {
    let mut fleet = Fleet::new(2, 5);
    let (one, two) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
    let first = fleet.send(one, Request::AddHosts(names(&["h3"])));
    let waits = fleet.send(one, Request::AwaitHosts);
    assert_eq!(fleet.answer(one, waits), None);
    let Some(Reply::Error(code)) = fleet.ask(one, Request::AddHosts(names(&["h4"]))).or(None) else { panic!() };
    assert_eq!(code, Code::Already);
    fleet.settle();
    assert!(fleet.answer(one, first).is_some());
    assert_eq!(fleet.answer(one, waits), Some(Reply::Failures(vec![])));
    assert_eq!(fleet.ask(two, Request::AwaitHosts), Some(Reply::Failures(vec![])));
}

#[test]
fn hosts_go_by_all_their_names() {
    let mut fleet = Fleet::new(3, 9);
    let task = fleet.task(Fleet::host(3));
    for (name, code) in [("h2", 0), ("h2.example", 0), ("H2.LOCAL", 0), (".", 0), ("h9", -6)] {
        assert_eq!(fleet.ask(task, Request::HostStatus(text(name))), Some(Reply::Code(code)), "{name}");
    }
    let request = Request::DeleteHosts(names(&["h2.example", "h2", "h9", "h1"]));
    assert_eq!(fleet.ask(task, request), Some(Reply::Codes(vec![0, -28, -6, 0])));
    fleet.pass(Duration::from_secs(5));
    fleet.check_tables();
    assert_eq!(fleet.living(), [Fleet::host(3)]);
}

#[test]
fn a_deleted_host_ends_its_tasks_and_is_announced() {
    many(3, |fleet| {
        let (near, far) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
        let victim = fleet.task(Fleet::host(2));
        for watcher in [near, far] {
            fleet.ask(watcher, notify(NOTIFY_HOST_DELETE, 8, vec![victim]));
            fleet.ask(watcher, notify(NOTIFY_TASK_EXIT, 9, vec![victim]));
        }
        assert_eq!(fleet.ask(far, Request::DeleteHosts(names(&["h2"]))), Some(Reply::Codes(vec![0])));
        fleet.pass(Duration::from_secs(5));
        for watcher in [near, far] {
            for tag in [8, 9] {
                let told: Vec<_> = fleet.messages(watcher, tag).iter().map(|one| ints(&one.body)).collect();
                assert_eq!(told, [vec![victim.0 as i32]]);
            }
        }
        assert!(fleet.received[&victim].iter().any(|frame| matches!(frame, Received::Halting(_))));
        assert_eq!(fleet.ask(near, Request::TaskStatus(victim)), Some(Reply::Code(-31)));
    });
}

#[test]
fn tasks_are_dealt_out_in_blocks_and_the_start_goes_round() {
    let mut fleet = Fleet::new(3, 3);
    let task = fleet.task(Fleet::host(2));
    let hosts = |tids: &[i32]| tids.iter().map(|tid| *tid as u32 >> 18).collect::<Vec<_>>();
    assert_eq!(hosts(&fleet.spawn(task, spawn_of("prog", 5))), [3, 3, 1, 1, 2]);
    assert_eq!(hosts(&fleet.spawn(task, spawn_of("prog", 2))), [3, 1]);
    assert_eq!(hosts(&fleet.spawn(task, spawn_of("prog", 1))), [2]);
    assert_eq!(hosts(&fleet.spawn(task, spawn_of("prog", 1))), [3]);
    let on = |place: &str, flags| Spawn { flags, place: text(place), ..spawn_of("prog", 2) };
    assert_eq!(hosts(&fleet.spawn(task, on("h3.example", TASK_HOST))), [3, 3]);
    assert_eq!(hosts(&fleet.spawn(task, on(".", TASK_HOST))), [2, 2]);
    assert_eq!(hosts(&fleet.spawn(task, on(".", TASK_HOST | HOST_COMPL))), [3, 1]);
    assert_eq!(fleet.spawn(task, on("h9", TASK_HOST)), [-6, -6]);
    assert_eq!(hosts(&fleet.spawn(task, on("h1", TASK_HOST))), [1, 1]);
    assert_eq!(hosts(&fleet.spawn(task, on(".", TASK_HOST | HOST_COMPL))), [1, 3]);
    assert_eq!(hosts(&fleet.spawn(task, on(".", TASK_HOST))), [2, 2]);
    assert_eq!(hosts(&fleet.spawn(task, on("h2", TASK_HOST | HOST_COMPL))), [3, 1]);
    assert_eq!(fleet.spawn(task, spawn_of("missing", 3)), [-7; 3]);
}

#[test]
fn siblings_are_known_on_all_hosts() {
    many(3, |fleet| {
        let parent = fleet.task(MASTER);
        let children = tids(&fleet.spawn(parent, spawn_of("prog", 5)));
        let mut started: Vec<(Tid, u32)> = Vec::new();
        for node in fleet.nodes.values() {
            started.extend(node.starts.iter().map(|start| (start.tid, start.cookie)));
        }
        for (tid, cookie) in started {
            assert_eq!(fleet.hello(tid.host(), Some(cookie)), tid);
            let all = children.iter().map(|tid| tid.0 as i32).collect();
            assert_eq!(fleet.ask(tid, Request::Siblings), Some(Reply::Tids(all)));
        }
    });
}

#[test]
fn a_lost_host_fails_its_block_and_answers_what_it_owed() {
    many(3, |fleet| {
        let task = fleet.task(MASTER);
        let victim = fleet.task(Fleet::host(2));
        let frozen = Fleet::host(2);
        fleet.freeze(frozen);
        let spawn = fleet.send(task, Request::Spawn(spawn_of("prog", 3)));
        let status = fleet.send(task, Request::TaskStatus(victim));
        let host = fleet.send(task, Request::HostStatus(text("h2")));
        let list = fleet.send(task, Request::Tasks(Tid::NONE));
        fleet.settle();
        for wait in [spawn, status, host, list] {
            assert_eq!(fleet.answer(task, wait), None);
        }
        fleet.pass(HOST_TIMEOUT + Duration::from_secs(1));
        let Some(Reply::Tids(results)) = fleet.answer(task, spawn) else { panic!() };
        assert_eq!(results.iter().map(|result| (*result).min(0)).collect::<Vec<_>>(), [0, 0, -22]);
        assert_eq!(fleet.answer(task, status), Some(Reply::Code(-31)));
        assert_eq!(fleet.answer(task, host), Some(Reply::Code(-22)));
        assert!(matches!(fleet.answer(task, list), Some(Reply::Tasks(tasks)) if tasks.len() == 3));
        // The frozen host resumes, notices that it was removed, and ends.
        fleet.thaw(frozen);
        fleet.pass(HOST_TIMEOUT);
        fleet.check_tables();
        assert_eq!(fleet.living(), [MASTER, Fleet::host(3)]);
    });
}

#[test]
fn ends_are_told_to_watchers_on_other_hosts_once_for_each_wish() {
    many(3, |fleet| {
        let (one, two, victim) = (fleet.task(MASTER), fleet.task(Fleet::host(3)), fleet.task(Fleet::host(2)));
        for watcher in [one, two] {
            for tag in [5, 5, 6] {
                fleet.send(watcher, notify(NOTIFY_TASK_EXIT, tag, vec![victim]));
            }
            fleet.send(watcher, notify(NOTIFY_TASK_EXIT | NOTIFY_CANCEL, 6, vec![victim]));
        }
        if fleet.prng.below(2) == 0 {
            fleet.settle();
        }
        fleet.leave(victim);
        fleet.settle();
        for watcher in [one, two] {
            assert_eq!((fleet.messages(watcher, 5).len(), fleet.messages(watcher, 6).len()), (2, 1));
        }
        fleet.ask(one, notify(NOTIFY_TASK_EXIT, 7, vec![victim]));
        assert_eq!(fleet.messages(one, 7).len(), 1);
        fleet.leave(one);
        fleet.leave(two);
        fleet.settle();
        assert!(fleet.nodes.values().all(|node| node.machine.leftovers().is_empty()));
    });
}

#[test]
fn mailboxes_are_the_same_everywhere_and_the_dead_leave_them() {
    many(3, |fleet| {
        let (one, two) = (fleet.task(Fleet::host(2)), fleet.task(Fleet::host(3)));
        let message = Message { enc: 0, ..Message::new(one, Tid::NONE, 0, 3, text("body")) };
        let wait = fleet.send(two, Request::RecvInfo { name: text("a"), index: 0, flags: MBOX_WAIT_FOR_INFO });
        fleet.settle();
        let put = |flags, name: &str| Request::PutInfo { name: text(name), flags, message: message.clone() };
        assert_eq!(fleet.ask(one, put(0, "a")), Some(Reply::Int(0)));
        assert_eq!(fleet.ask(one, put(MBOX_PERSISTENT, "b")), Some(Reply::Int(0)));
        assert!(matches!(fleet.answer(two, wait), Some(Reply::Info(got)) if got == message));
        match fleet.prng.below(2) {
            0 => fleet.leave(one),
            _ => {
                fleet.kill(Fleet::host(2));
                fleet.settle();
            }
        }
        fleet.settle();
        let Some(Reply::Mailboxes(left)) = fleet.ask(two, Request::MailboxInfo { pattern: text("") }) else { panic!() };
        assert_eq!(
            left.iter().map(|one| (one.name.clone(), one.entries.clone())).collect::<Vec<_>>(),
            [(text("b"), vec![(0, Tid::NONE, MBOX_PERSISTENT)])]
        );
    });
}

#[test]
fn output_goes_to_collectors_elsewhere_or_to_the_log_of_the_master() {
    let mut fleet = Fleet::new(2, 1);
    let parent = fleet.task(MASTER);
    let on = Spawn { flags: TASK_HOST, place: text("h2"), ..spawn_of("prog", 1) };
    let silent = tids(&fleet.spawn(parent, on.clone()))[0];
    let children = TraceSettings { output_tid: parent.0 as i32, output_tag: 77, ..Default::default() };
    let told = tids(&fleet.spawn(parent, Spawn { children, ..on }))[0];
    for task in [silent, told] {
        fleet.machine(Fleet::host(2)).handle_output(task, b"hello\n");
        fleet.leave(task);
        fleet.settle();
    }
    let lines: Vec<_> = fleet.log.iter().filter(|(_, task, _)| *task == silent).collect();
    assert_eq!(lines, [&(MASTER, silent, "hello".to_owned())]);
    let kinds: Vec<i32> = fleet.messages(parent, 77).iter().map(|one| ints(&one.body)[1]).collect();
    assert_eq!(kinds, [-2, -1, 6, 0]);
}

#[test]
fn who_misses_several_lost_hosts_first_is_not_blamed() {
    let mut fleet = Fleet::new(6, 1);
    let (near, far) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
    let others: Vec<Tid> = (3..=5).map(|number| fleet.task(Fleet::host(number))).collect();
    let ask = |fleet: &mut Fleet, from: Tid| {
        for other in &others {
            fleet.ask(from, Request::TaskStatus(*other));
        }
        fleet.settle();
    };
    // Hosts 3 to 5 answer host 2 first and the master a second later, so host 2 is the first to notice their silence.
    ask(&mut fleet, far);
    fleet.pass(Duration::from_secs(1));
    ask(&mut fleet, near);
    (3..=5).for_each(|number| fleet.freeze(Fleet::host(number)));
    fleet.pass(Duration::from_secs(15));
    let left: Vec<Tid> = fleet.machine(MASTER).core.hosts.tids().collect();
    assert_eq!(left, [1, 2, 6].map(Fleet::host));
}

#[test]
fn collectors_hear_the_end_of_tasks_whose_host_is_lost() {
    let mut fleet = Fleet::new(3, 1);
    let parent = fleet.task(MASTER);
    let on = |place: &str, collector: Tid| Spawn {
        flags: TASK_HOST,
        place: text(place),
        children: TraceSettings { output_tid: collector.0 as i32, output_tag: 77, ..Default::default() },
        ..spawn_of("prog", 1)
    };
    let told = |fleet: &mut Fleet, task: Tid| -> Vec<i32> {
        let messages = fleet.messages(parent, 77);
        let bodies = messages.iter().map(|one| ints(&one.body));
        bodies.filter(|body| body[0] == task.0 as i32).map(|body| body[1]).collect()
    };
    let child = tids(&fleet.spawn(parent, on("h2", parent)))[0];
    fleet.machine(Fleet::host(2)).handle_output(child, b"hello\n");
    fleet.work(Fleet::host(2));
    fleet.settle();
    // A task of host 2 spawns a task on another host. Then host 2 is lost, and can no longer announce that task. The
    // collector still receives the end of the task's output.
    let spawner = fleet.task(Fleet::host(2));
    let grandchild = tids(&fleet.spawn(spawner, on("h3", parent)))[0];
    fleet.settle();
    fleet.kill(Fleet::host(2));
    fleet.settle();
    fleet.leave(grandchild);
    fleet.settle();
    let mut kinds = told(&mut fleet, child);
    kinds[..2].sort_unstable();
    assert_eq!(kinds, [-2, -1, 6, 0]);
    let kinds = told(&mut fleet, grandchild);
    assert!(kinds.contains(&-1) && kinds.last() == Some(&0), "{kinds:?}");
    fleet.leave(parent);
    fleet.settle();
    assert_eq!(fleet.machine(MASTER).leftovers(), [""; 0]);
}

#[test]
fn the_tasks_of_a_lost_host_whose_end_a_collector_hears_are_limited() {
    const REMEMBERED: usize = 16_384;
    let mut fleet = Fleet::new(2, 1);
    let collector = fleet.task(MASTER);
    let host = Fleet::host(2);
    let now = fleet.now;
    // The host claims output of tasks that do not exist.
    for number in 1..=REMEMBERED as i32 + 10 {
        let body = Writer::new().int(host.0 as i32 | number).int(-2).int(0).finish();
        let src = Tid(crate::tid::DAEMON_BIT | host.0);
        let message = Message { tag: 77, ..Message::new(src, collector, 0, 77, ByteBuf::from(body)) };
        fleet.machine(MASTER).handle_host_frame(now, host, Frame::Output(message));
    }
    fleet.work(MASTER);
    fleet.settle();
    let ends = |fleet: &mut Fleet| fleet.messages(collector, 77).iter().filter(|one| ints(&one.body)[1] == 0).count();
    assert_eq!((fleet.messages(collector, 77).len(), ends(&mut fleet)), (REMEMBERED + 10, 0));
    fleet.kill(host);
    fleet.settle();
    assert_eq!(ends(&mut fleet), REMEMBERED);
    fleet.leave(collector);
    fleet.settle();
    assert_eq!(fleet.machine(MASTER).leftovers(), [""; 0]);
}

#[test]
fn output_on_its_way_to_another_host_counts_until_its_collector_takes_it_or_is_no_more() {
    many(4, |fleet| {
        let (printer, collector) = (fleet.task(Fleet::host(2)), fleet.task(MASTER));
        let settings = TraceSettings { output_tid: collector.0 as i32, output_tag: 44, ..Default::default() };
        fleet.ask(printer, Request::SetOwn(settings));
        fleet.settle();
        let piece = vec![b'x'; 200 << 10];
        let print = |fleet: &mut Fleet| {
            fleet.machine(Fleet::host(2)).handle_output(printer, &piece);
            fleet.work(Fleet::host(2));
            fleet.settle();
            fleet.machine(Fleet::host(2)).output_in_flight(collector)
        };
        let first = print(fleet);
        assert!(first > piece.len() as u64);
        assert_eq!(print(fleet), 2 * first);
        assert!(fleet.machine(MASTER).has_untaken_output(collector));
        fleet.machine(MASTER).handle_output_taken(collector);
        fleet.work(MASTER);
        fleet.settle();
        assert!(!fleet.machine(MASTER).has_untaken_output(collector));
        assert_eq!(fleet.machine(Fleet::host(2)).output_in_flight(collector), 0);
        // The collector ends before it takes this output, so the printing task need not wait for the collector any
        // more.
        assert_eq!(print(fleet), first);
        fleet.leave(collector);
        fleet.settle();
        assert_eq!(fleet.machine(Fleet::host(2)).output_in_flight(collector), 0);
        assert_eq!(print(fleet), 0);
        fleet.leave(printer);
        fleet.settle();
        for host in [MASTER, Fleet::host(2)] {
            assert_eq!(fleet.machine(host).leftovers(), [""; 0]);
        }
    });
}

#[test]
fn servers_of_the_machine_serve_all_hosts() {
    let mut fleet = Fleet::new(3, 4);
    let (far, near) = (fleet.task(Fleet::host(2)), fleet.task(MASTER));
    let register = |role, on| Request::Register { role, on };
    let denied = Some(Reply::Error(Code::HostrNMstr));
    assert_eq!(fleet.ask(far, register(Role::Hoster, true)), denied);
    assert_eq!(fleet.ask(far, register(Role::Tasker, true)), Some(Reply::Int(0)));
    assert_eq!(fleet.ask(near, register(Role::Tasker, true)), Some(Reply::Int(0)));
    let listed = |fleet: &mut Fleet| {
        let Some(Reply::Mailboxes(list)) = fleet.ask(near, Request::MailboxInfo { pattern: text(CLASS_TASKER) }) else {
            panic!()
        };
        list.first().map_or(0, |class| class.entries.len())
    };
    assert_eq!(listed(&mut fleet), 2);
    let manager = fleet.task(Fleet::host(2));
    assert!(matches!(fleet.ask(manager, register(Role::ResourceManager, true)), Some(Reply::Manager { .. })));
    let bound = fleet.task(Fleet::host(3));
    let asked = fleet.send(bound, Request::Config);
    fleet.settle();
    assert_eq!(fleet.answer(bound, asked), None);
    assert_eq!(fleet.messages(manager, crate::codes::SM_CONFIG).len(), 1);
    fleet.leave(manager);
    fleet.settle();
    assert!(matches!(fleet.answer(bound, asked), Some(Reply::Hosts { hosts, .. }) if hosts.len() == 3));
    fleet.leave(far);
    fleet.settle();
    assert_eq!(listed(&mut fleet), 1);
}

#[test]
fn contexts_differ_between_hosts_and_clocks_are_asked_where_they_are() {
    let mut fleet = Fleet::new(2, 4);
    let (one, two) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
    assert_ne!(fleet.ask(one, Request::NewContext), fleet.ask(two, Request::NewContext));
    let clock = Some(Reply::Clock { seconds: 5, microseconds: 0 });
    assert_eq!(fleet.ask(one, Request::HostSync(Fleet::host(2))), clock);
    assert_eq!(fleet.ask(two, Request::HostSync(one)), clock);
    assert_eq!(fleet.ask(two, Request::HostSync(Fleet::host(7))), Some(Reply::Error(Code::NoHost)));
    assert_eq!(fleet.ask(two, Request::Tasks(Fleet::host(7))), Some(Reply::Error(Code::NoHost)));
    let Some(Reply::Tasks(tasks)) = fleet.ask(two, Request::Tasks(Tid::NONE)) else { panic!() };
    assert_eq!(tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), [one, two]);
    let Some(Reply::Tasks(tasks)) = fleet.ask(two, Request::Tasks(one)) else { panic!() };
    assert_eq!(tasks.len(), 1);
}

#[test]
fn how_a_task_on_another_host_ends_is_known() {
    let mut fleet = Fleet::new(2, 4);
    let task = fleet.task(MASTER);
    let child = tids(&fleet.spawn(task, Spawn { flags: TASK_HOST, place: text("h2"), ..spawn_of("prog", 1) }))[0];
    let wait = fleet.send(task, Request::ExitStatus(child));
    fleet.settle();
    let end = TaskEnd { status: 0x300, usage: Usage { user_us: 7, system_us: 8, memory_max_bytes: 9 << 30 } };
    fleet.machine(child.host()).handle_process_end(child, end);
    fleet.work(child.host());
    fleet.settle();
    assert_eq!(fleet.answer(task, wait), Some(Reply::Ended(end)));
}

#[test]
fn how_a_task_of_a_lost_host_has_ended_is_asked_in_vain_sooner_or_later() {
    let mut fleet = Fleet::new(2, 4);
    let task = fleet.task(MASTER);
    let child = tids(&fleet.spawn(task, Spawn { flags: TASK_HOST, place: text("h2"), ..spawn_of("prog", 1) }))[0];
    let sooner = fleet.send(task, Request::ExitStatus(child));
    fleet.settle();
    fleet.kill(child.host());
    fleet.settle();
    assert_eq!(fleet.answer(task, sooner), Some(Reply::Error(Code::HostFail)));
    for later in [Request::ExitStatus(child), Request::Input { tid: child, data: text("hello") }] {
        assert_eq!(fleet.ask(task, later), Some(Reply::Error(Code::HostFail)));
    }
}
