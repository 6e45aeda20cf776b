//! Tests of what daemons tell of managers, children and servers on other hosts.
use super::fleet::{Fleet, MASTER};
use super::several_hosts::{many, names, tids};
use super::world::{ints, spawn_of, text};
use super::*;
use crate::codes::{NO_SPAWN_PARENT, NOTIFY_CANCEL, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT, SM_HANDOFF, TASK_HOST};
use crate::encoding::Writer;
use crate::proto::{Role, Spawn, TraceSettings};

fn manages(fleet: &mut Fleet, host: Tid) -> Tid {
    let manager = fleet.task(host);
    let reply = fleet.ask(manager, Request::Register { role: Role::ResourceManager, on: true });
    assert!(matches!(reply, Some(Reply::Manager { .. })), "{reply:?}");
    manager
}

/// A manager passes its role on to a task of any host, and this task dies at some moment.
#[test]
fn the_end_of_a_manager_to_which_the_office_was_handed_on_does_not_go_unnoticed() {
    for (own, heirs) in [(1, 2), (2, 3), (2, 1), (3, 3)] {
        many(4, |fleet| {
            let (manager, heir) = (manages(fleet, Fleet::host(own)), fleet.task(Fleet::host(heirs)));
            let body = Writer::new().int(heir.0 as i32).finish();
            let message = Message::new(manager, Tid::DAEMON, 0, SM_HANDOFF, body);
            fleet.frame(manager, ToDaemon::Message(message));
            for _ in 0..fleet.prng.below(20) {
                fleet.step();
            }
            fleet.leave(heir);
            fleet.settle();
            for host in 1..=4 {
                let task = fleet.task(Fleet::host(host));
                assert!(matches!(fleet.ask(task, Request::Config), Some(Reply::Hosts { .. })), "{own} {heirs} {host}");
            }
        });
    }
}

#[test]
fn of_the_dead_of_which_a_manager_was_to_tell_the_daemon_does_not_tell_again() {
    many(4, |fleet| {
        let manager = manages(fleet, MASTER);
        let asker = fleet.task(Fleet::host(2));
        let others = [2, 3, 3, 4, 3].map(|host| fleet.task(Fleet::host(host)));
        let notify = |what, tids: &[Tid]| Request::Notify { what, ctx: 0, tag: 5, count: 1, tids: tids.to_vec() };
        for (what, tids) in [
            (NOTIFY_TASK_EXIT, &others[..]),
            (NOTIFY_TASK_EXIT | NOTIFY_CANCEL, &others[4..]),
            (NOTIFY_HOST_DELETE, &[Fleet::host(3), Fleet::host(4)]),
        ] {
            assert_eq!(fleet.ask(asker, notify(what, tids)), Some(Reply::Done));
        }
        // The manager reports these ends.
        fleet.leave(others[0]);
        fleet.leave(others[1]);
        fleet.kill(Fleet::host(4));
        fleet.settle();
        fleet.leave(manager);
        fleet.settle();
        assert!(fleet.messages(asker, 5).is_empty(), "{:?}", fleet.messages(asker, 5));
        // The daemon reports these ends.
        fleet.leave(others[4]);
        fleet.leave(others[2]);
        fleet.settle();
        fleet.kill(Fleet::host(3));
        fleet.settle();
        let told: Vec<i32> = fleet.messages(asker, 5).iter().map(|one| ints(&one.body)[0]).collect();
        assert_eq!(told, [others[2].0 as i32, Fleet::host(3).0 as i32]);
        // Nothing is pending any more.
        fleet.leave(asker);
        fleet.settle();
        for host in [1, 2] {
            assert!(!fleet.machine(Fleet::host(host)).leftovers().contains(&"notifies"));
        }
    });
}

#[test]
fn a_task_without_a_parent_that_ends_at_once_is_announced_once() {
    many(3, |fleet| {
        let collector = fleet.task(MASTER);
        let children = TraceSettings { output_tid: collector.0 as i32, output_tag: 77, ..Default::default() };
        let flags = TASK_HOST | NO_SPAWN_PARENT;
        fleet.send(collector, Request::Spawn(Spawn { flags, place: text("h2"), children, ..spawn_of("p", 1) }));
        while fleet.nodes[&Fleet::host(2)].starts.is_empty() {
            assert!(fleet.step());
        }
        let child = fleet.nodes[&Fleet::host(2)].starts[0].tid;
        fleet.leave(child);
        fleet.settle();
        let told: Vec<Vec<i32>> = fleet.messages(collector, 77).iter().map(|one| ints(&one.body)).collect();
        for kind in [-1, 0] {
            assert_eq!(told.iter().filter(|one| one[..2] == [child.0 as i32, kind]).count(), 1, "{told:?}");
        }
    });
}

#[test]
fn a_spawner_announces_its_children_elsewhere_before_its_own_output_ends() {
    many(3, |fleet| {
        let collector = fleet.task(MASTER);
        let children = TraceSettings { output_tid: collector.0 as i32, output_tag: 77, ..Default::default() };
        let on =
            |host: &str| Spawn { flags: TASK_HOST, place: text(host), children: children.clone(), ..spawn_of("p", 1) };
        let child = tids(&fleet.spawn(collector, on("h2")))[0];
        let cookie = fleet.nodes[&child.host()].starts[0].cookie;
        fleet.hello(child.host(), Some(cookie));
        let wait = fleet.send(child, Request::Spawn(on("h3")));
        while fleet.answer(child, wait).is_none() {
            assert!(fleet.step());
        }
        let Some(Reply::Tids(results)) = fleet.answer(child, wait) else { panic!() };
        fleet.leave(child);
        fleet.settle();
        let told: Vec<Vec<i32>> = fleet.messages(collector, 77).iter().map(|one| ints(&one.body)).collect();
        let at = |who: i32, kind| told.iter().position(|one| one[..2] == [who, kind]).expect("told");
        assert!(at(results[0], -1) < at(child.0 as i32, 0));
        assert_eq!(told.iter().filter(|one| one[..2] == [results[0], -1]).count(), 1);
    });
}

#[test]
fn what_another_daemon_tells_a_task_says_whose_daemon_it_is() {
    let mut fleet = Fleet::new(2, 1);
    let (near, far) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
    let collector = fleet.task(MASTER);
    for teller in [near, far] {
        let settings = TraceSettings { output_tid: collector.0 as i32, output_tag: 44, ..Default::default() };
        fleet.ask(teller, Request::SetOwn(settings));
        fleet.machine(teller.host()).handle_output(teller, b"hello");
        fleet.work(teller.host());
    }
    fleet.settle();
    let mut sources: Vec<u32> = fleet.messages(collector, 44).iter().map(|message| message.src.0).collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources, [0x8000_0000, 0x8008_0000]);
}

#[test]
fn what_was_described_to_a_collector_of_another_host_is_forgotten_with_the_tasks_it_heard_of() {
    many(2, |fleet| {
        let parent = fleet.task(Fleet::host(2));
        let children = TraceSettings { trace_tid: parent.0 as i32, ..TraceSettings::default() };
        let spawn = Spawn { children, flags: TASK_HOST, place: text("h1"), ..spawn_of("prog", 1) };
        let child = tids(&fleet.spawn(parent, spawn))[0];
        assert!(fleet.machine(MASTER).leftovers().contains(&"traces"));
        fleet.leave(child);
        fleet.leave(parent);
        fleet.settle();
        assert!(fleet.nodes.values().all(|node| node.machine.leftovers().is_empty()));
    });
}

#[test]
fn the_host_of_a_parent_describes_once_what_it_tells_of_children_elsewhere() {
    many(3, |fleet| {
        let (collector, parent) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
        let children = TraceSettings { trace_tid: collector.0 as i32, ..TraceSettings::default() };
        for _ in 0..2 {
            let spawn =
                Spawn { children: children.clone(), flags: TASK_HOST, place: text("h3"), ..spawn_of("prog", 1) };
            assert!(tids(&fleet.spawn(parent, spawn))[0].is_task());
        }
        fleet.settle();
        let count = |host| fleet.descriptions.iter().filter(|told| **told == (host, collector)).count();
        assert_eq!([2, 3].map(|number| count(Fleet::host(number))), [1, 1]);
    });
}

#[test]
fn a_host_that_came_before_a_server_went_hears_that_it_has_gone() {
    many(2, |fleet| {
        let tracer = fleet.task(MASTER);
        let serve = |on| Request::Register { role: Role::Tracer, on };
        // All hosts have received the news that there is no tracer, and no further news is sent.
        [true, false].into_iter().for_each(|on| drop(fleet.ask(tracer, serve(on))));
        fleet.ask(tracer, Request::DeleteHosts(names(&["h2"])));
        fleet.ask(tracer, serve(true));
        fleet.ask(tracer, Request::AddHosts(names(&["h3"])));
        fleet.leave(tracer);
        fleet.settle();
        assert!(fleet.nodes.values().all(|node| node.machine.leftovers().is_empty()));
    });
}
