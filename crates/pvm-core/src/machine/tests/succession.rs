//! The master dies, and its deputy becomes the master.
use super::fleet::{Fleet, LastFrames, MASTER};
use super::moving_master::{Known, group_of, join, put};
use super::several_hosts::names;
use super::world::{ints, text};
use super::*;
use crate::codes::{
    MBOX_FIRST_AVAIL, MBOX_MULTI_INSTANCE, MBOX_PERSISTENT, MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO,
    NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT, SM_CONFIG,
};
use crate::proto::Role;

const SEEDS: u64 = 60;

fn entries(fleet: &mut Fleet, from: Tid, name: &str) -> usize {
    match fleet.ask(from, Request::MailboxInfo { pattern: text(name) }) {
        Some(Reply::Mailboxes(boxes)) => boxes.iter().map(|class| class.entries.len()).sum(),
        other => panic!("{other:?}"),
    }
}

/// Lets some events happen, then kills the master, and lets the others agree.
fn master_dies(fleet: &mut Fleet, steps: usize) {
    for _ in 0..fleet.prng.below(steps) {
        fleet.step();
    }
    fleet.die(MASTER);
    fleet.pass(Duration::from_secs(3));
}

#[test]
fn when_the_master_dies_its_deputy_goes_on_with_all_that_it_knew() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let known = Known::new(&mut fleet);
        let ([one, two, _], group) = (known.tasks, known.group);
        for (what, about) in [(NOTIFY_HOST_DELETE, MASTER), (NOTIFY_TASK_EXIT, one)] {
            fleet.ask(two, Request::Notify { what, ctx: 0, tag: 5, count: 1, tids: vec![about] });
        }
        master_dies(&mut fleet, 1);
        assert_eq!((fleet.living(), fleet.master()), ([2, 3, 4].map(Fleet::host).to_vec(), Some(Fleet::host(2))));
        fleet.check_tables();
        let mut told: Vec<i32> = fleet.messages(two, 5).iter().map(|one| ints(&one.body)[0]).collect();
        told.sort_unstable();
        assert_eq!(told, [MASTER.0 as i32, one.0 as i32]);
        let late = known.check(&mut fleet);
        let added = fleet.ask(late, Request::AddHosts(names(&["h5", "h1"])));
        assert!(matches!(&added, Some(Reply::AddedHosts { count: 2, .. })), "{added:?}");
        fleet.check_tables();
        // The next master has a deputy, too.
        fleet.die(Fleet::host(2));
        fleet.pass(Duration::from_secs(3));
        assert!([3, 4].map(|host| Some(Fleet::host(host))).contains(&fleet.master()), "seed {seed}");
        fleet.check_tables();
        assert_eq!(group_of(fleet.ask(late, Request::Group(text("g")))), (group, 0));
    }
}

#[test]
fn no_request_is_executed_twice_or_lost() {
    for seed in 1..=4 * SEEDS {
        let mut fleet = Fleet::new(4, seed);
        // Only some of the frames of the last step may come.
        fleet.last_frames = [LastFrames::Come, LastFrames::MayBeLost][seed as usize % 2];
        let tasks: Vec<Tid> = (0..6).map(|at| fleet.task(Fleet::host(2 + at % 3))).collect();
        for task in &tasks {
            fleet.ask(*task, put("work", *task, MBOX_MULTI_INSTANCE | MBOX_PERSISTENT));
        }
        let joined = tasks[0];
        fleet.ask(joined, join("left"));
        let mut puts = Vec::new();
        let mut takes = Vec::new();
        let mut joins = Vec::new();
        for task in &tasks {
            puts.push((*task, fleet.send(*task, put("new", *task, MBOX_MULTI_INSTANCE))));
            let flags = MBOX_FIRST_AVAIL | MBOX_READ_AND_DELETE;
            if *task != joined {
                let take = Request::RecvInfo { name: text("work"), index: 0, flags };
                takes.push((*task, fleet.send(*task, take)));
            }
            joins.push((*task, fleet.send(*task, join("new"))));
        }
        let leave = fleet.send(joined, Request::LeaveGroup(text("left")));
        master_dies(&mut fleet, 120);
        assert_eq!(fleet.master(), Some(Fleet::host(2)), "seed {seed}");
        assert!(fleet.open.is_empty(), "seed {seed}: {:?}", fleet.open);
        let mut indices: Vec<Reply> = puts.iter().filter_map(|(task, wait)| fleet.answer(*task, *wait)).collect();
        indices.sort_by_key(|reply| format!("{reply:?}"));
        assert_eq!(indices, (0..6).map(Reply::Int).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(entries(&mut fleet, joined, "new"), 6, "seed {seed}");
        let taken = |(task, wait): &&(Tid, u32)| matches!(fleet.answer(*task, *wait), Some(Reply::Info(_)));
        let taken = takes.iter().filter(taken).count();
        assert_eq!(taken + entries(&mut fleet, joined, "work"), 6, "seed {seed}");
        let mut instances: Vec<i32> = joins.iter().map(|(task, wait)| group_of(fleet.answer(*task, *wait)).1).collect();
        instances.sort_unstable();
        assert_eq!(instances, [0, 1, 2, 3, 4, 5], "seed {seed}");
        assert_eq!(fleet.answer(joined, leave), Some(Reply::Done), "seed {seed}");
        for (task, wait) in &joins {
            let instance = group_of(fleet.answer(*task, *wait)).1;
            assert_eq!(group_of(fleet.ask(*task, Request::Group(text("new")))).1, instance, "seed {seed}");
        }
        fleet.check_tables();
    }
}

#[test]
fn who_waits_for_an_entry_or_a_freeze_gets_it_from_the_next_master() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let [two, three] = [2, 3].map(|host| fleet.task(Fleet::host(host)));
        let wanted = Request::RecvInfo { name: text("later"), index: 0, flags: MBOX_WAIT_FOR_INFO };
        let waits = [two, three].map(|task| fleet.send(task, wanted.clone()));
        for task in [two, three] {
            fleet.ask(task, join("g"));
        }
        let freeze = fleet.send(two, Request::FreezeGroup { name: text("g"), count: 2 });
        master_dies(&mut fleet, 40);
        let other = fleet.send(three, Request::FreezeGroup { name: text("g"), count: 2 });
        fleet.ask(three, put("later", three, 0));
        assert!(fleet.open.is_empty(), "seed {seed}: {:?}", fleet.open);
        for (task, wait) in [two, three].into_iter().zip(waits) {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Info(_))), "{:?}", fleet.answer(task, wait));
        }
        assert_eq!((fleet.answer(two, freeze), fleet.answer(three, other)), (Some(Reply::Int(2)), Some(Reply::Int(2))));
    }
}

#[test]
fn a_barrier_at_which_all_have_arrived_opens_and_the_next_one_too() {
    for seed in 1..=2 * SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let tasks = [2, 3, 4].map(|host| fleet.task(Fleet::host(host)));
        let mut group = 0;
        for task in tasks {
            group = group_of(fleet.ask(task, join("g"))).0;
        }
        let arrive = |fleet: &mut Fleet, task: Tid| fleet.send(task, Request::Barrier { group, count: -1 });
        for _ in 0..seed % 4 {
            tasks.iter().for_each(|task| _ = arrive(&mut fleet, *task));
            fleet.pass(Duration::from_secs(1));
        }
        let first = tasks.map(|task| (task, arrive(&mut fleet, task)));
        master_dies(&mut fleet, 40);
        assert!(fleet.open.is_empty(), "seed {seed}: {:?}", fleet.open);
        for (task, wait) in first {
            let answer = fleet.answer(task, wait);
            assert!(matches!(answer, Some(Reply::Done | Reply::Released(_))), "seed {seed}: {task} {answer:?}");
        }
        let next = tasks.map(|task| (task, arrive(&mut fleet, task)));
        fleet.pass(Duration::from_secs(3));
        for (task, wait) in next {
            let answer = fleet.answer(task, wait);
            assert!(matches!(answer, Some(Reply::Done | Reply::Released(_))), "seed {seed}: {task} {answer:?}");
        }
    }
}

#[test]
fn adds_and_deletions_under_way_are_answered() {
    for seed in 1..=4 * SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let [three, four] = [3, 4].map(|host| fleet.task(Fleet::host(host)));
        let request = match seed % 3 {
            0 => Request::AddHosts(names(&["h5", "h6"])),
            1 => Request::DeleteHosts(names(&["h4"])),
            _ => Request::DrainHosts { names: names(&["h4"]), drain: true },
        };
        let wait = fleet.send(three, request);
        master_dies(&mut fleet, 60);
        fleet.pass(Duration::from_secs(60));
        assert!(fleet.answer(three, wait).is_some(), "seed {seed}");
        assert_eq!(fleet.master(), Some(Fleet::host(2)), "seed {seed}");
        fleet.check_tables();
        assert!(fleet.living().contains(&four.host()) || seed % 3 == 1, "seed {seed}");
        let added = fleet.ask(three, Request::AddHosts(names(&["h9"])));
        assert!(matches!(&added, Some(Reply::AddedHosts { count: 1, .. })), "seed {seed}: {added:?}");
        fleet.check_tables();
    }
}

#[test]
fn nothing_is_told_before_the_deputy_keeps_it() {
    let mut fleet = Fleet::new(3, 2);
    let (one, three) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
    fleet.freeze(Fleet::host(2));
    let waits = [one, three].map(|task| fleet.send(task, put("box", task, MBOX_MULTI_INSTANCE)));
    let read = fleet.send(three, Request::MailboxInfo { pattern: text("") });
    fleet.settle();
    assert_eq!(
        (fleet.answer(one, waits[0]), fleet.answer(three, waits[1]), fleet.answer(three, read)),
        (None, None, None)
    );
    fleet.thaw(Fleet::host(2));
    fleet.settle();
    assert!(fleet.open.is_empty(), "{:?}", fleet.open);
    // The same if the deputy is lost: then another host is chosen.
    fleet.freeze(Fleet::host(2));
    let wait = fleet.send(one, put("box", one, MBOX_MULTI_INSTANCE));
    fleet.settle();
    assert_eq!(fleet.answer(one, wait), None);
    fleet.kill(Fleet::host(2));
    fleet.settle();
    assert_eq!(fleet.answer(one, wait), Some(Reply::Int(2)));
    fleet.die(MASTER);
    fleet.pass(Duration::from_secs(3));
    assert_eq!((fleet.master(), entries(&mut fleet, three, "box")), (Some(Fleet::host(3)), 1));
}

#[test]
fn a_member_of_the_masters_host_is_told_of_nobody_before_the_deputy_keeps_it() {
    let mut fleet = Fleet::new(3, 3);
    let [one, three] = [1, 3].map(|host| fleet.task(Fleet::host(host)));
    let (group, _) = group_of(fleet.ask(three, join("g")));
    fleet.freeze(Fleet::host(2));
    let joined = fleet.send(one, join("g"));
    fleet.settle();
    assert_eq!(fleet.answer(one, joined), None);
    let members = |fleet: &Fleet| fleet.nodes[&Fleet::host(3)].boards.boards[&group].members.len();
    assert_eq!(members(&fleet), 1);
    fleet.thaw(Fleet::host(2));
    fleet.settle();
    assert_eq!((group_of(fleet.answer(one, joined)).1, members(&fleet)), (1, 2));
}

#[test]
fn a_member_that_is_admitted_after_the_loss_of_all_others_passes_barriers() {
    let mut fleet = Fleet::new(3, 3);
    let [one, two] = [1, 2].map(|host| fleet.task(Fleet::host(host)));
    fleet.ask(two, join("g"));
    // The page for the member of the master's host is made only when the deputy keeps what was changed before.
    fleet.freeze(Fleet::host(2));
    fleet.send(one, put("box", one, 0));
    let joined = fleet.send(one, join("g"));
    fleet.kill(Fleet::host(2));
    fleet.pass(Duration::from_secs(1));
    let (group, _) = group_of(fleet.answer(one, joined));
    assert!(matches!(fleet.ask(one, Request::Barrier { group, count: -1 }), Some(Reply::Done)));
}

#[test]
fn a_deputy_gets_more_than_may_wait_for_a_host_piece_by_piece() {
    let mut fleet = Fleet::new(2, 4);
    let (one, two) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
    for index in 0..40 {
        let body = vec![index; 1 << 20];
        let message = Message { enc: 0, ..Message::new(one, Tid::NONE, 0, 0, body) };
        let flags = MBOX_MULTI_INSTANCE | MBOX_PERSISTENT;
        fleet.ask(one, Request::PutInfo { name: text("long"), flags, message });
    }
    // Another host becomes the deputy, and gets everything.
    fleet.ask(one, Request::AddHosts(names(&["h3"])));
    fleet.kill(Fleet::host(2));
    let mut most = 0;
    while fleet.step() {
        most = most.max(fleet.bytes_on_way(MASTER, Fleet::host(3)));
    }
    assert!((4 << 20..24 << 20).contains(&most), "{most}");
    let three = fleet.task(Fleet::host(3));
    fleet.die(MASTER);
    fleet.pass(Duration::from_secs(3));
    assert_eq!((fleet.master(), entries(&mut fleet, three, "long")), (Some(Fleet::host(3)), 40));
    assert!(!fleet.living().contains(&two.host()));
}

#[test]
fn a_host_that_cannot_reach_the_next_master_ends_although_it_has_nothing_else_to_do() {
    let mut fleet = Fleet::new(3, 6);
    let three = Fleet::host(3);
    // Nobody tells it that the deputy has died as well, and no event comes in time.
    fleet.die(MASTER);
    fleet.kill(Fleet::host(2));
    fleet.settle();
    assert_eq!(fleet.machine(three).master(), Fleet::host(2));
    let died = fleet.now;
    while let Some(node) = fleet.nodes.get(&three) {
        let late = node.machine.next_wakeup().expect("a deadline") + Duration::from_millis(20);
        fleet.now = fleet.now.max(late);
        assert!(fleet.now < died + Duration::from_secs(15), "it waits too long");
        let now = fleet.now;
        fleet.machine(three).handle_time(now);
        fleet.work(three);
    }
}

#[test]
fn the_next_master_knows_the_servers_of_the_machine() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let [two, three] = [2, 3].map(|host| fleet.task(Fleet::host(host)));
        let register = |role| Request::Register { role, on: true };
        for (task, role) in [(two, Role::Tracer), (three, Role::ResourceManager)] {
            let wait = fleet.send(task, register(role));
            while fleet.answer(task, wait).is_none() {
                assert!(fleet.step(), "seed {seed}: {role:?} is not answered");
            }
        }
        // The other hosts may not know them yet.
        fleet.die(MASTER);
        fleet.pass(Duration::from_secs(3));
        for host in [2, 3].map(Fleet::host) {
            let roles = &fleet.machine(host).core.roles;
            assert_eq!([Role::Tracer, Role::ResourceManager].map(|role| roles.of(role)), [Some(two), Some(three)]);
        }
        let late = fleet.task(Fleet::host(2));
        let asked = fleet.send(late, Request::Config);
        fleet.settle();
        assert_eq!(fleet.answer(late, asked), None);
        assert_eq!(fleet.messages(three, SM_CONFIG).len(), 1, "seed {seed}");
    }
}
