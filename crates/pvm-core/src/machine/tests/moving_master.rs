//! The master moves to another host, because its host is deleted or drained.
use super::fleet::{Fleet, MASTER};
use super::several_hosts::names;
use super::world::{ints, text};
use super::*;
use crate::codes::{MBOX_PERSISTENT, MBOX_WAIT_FOR_INFO, NOTIFY_HOST_DELETE};

const SEEDS: u64 = 30;

pub(super) fn put(name: &str, from: Tid, flags: i32) -> Request {
    let message = Message { enc: 0, ..Message::new(from, Tid::NONE, 0, 0, b"body".to_vec()) };
    Request::PutInfo { name: text(name), flags, message }
}

pub(super) fn join(name: &str) -> Request {
    Request::JoinGroup(text(name))
}

fn delete(host: &str) -> Request {
    Request::DeleteHosts(names(&[host]))
}

pub(super) fn group_of(reply: Option<Reply>) -> (u64, i32) {
    match reply {
        Some(Reply::Group { id, instance }) => (id, instance),
        other => panic!("{other:?}"),
    }
}

/// Entries of mailboxes and a group of four hosts, whose first host leaves or dies.
pub(super) struct Known {
    /// A task on each of the first three hosts.
    pub tasks: [Tid; 3],
    pub group: u64,
}

impl Known {
    pub fn new(fleet: &mut Fleet) -> Known {
        let tasks = [1, 2, 3].map(|host| fleet.task(Fleet::host(host)));
        let [one, two, three] = tasks;
        fleet.ask(three, put("kept", three, 0));
        fleet.ask(one, put("gone", one, 0));
        fleet.ask(one, put("old", one, MBOX_PERSISTENT));
        let (group, _) = group_of(fleet.ask(one, join("g")));
        assert_eq!(group_of(fleet.ask(two, join("g"))), (group, 1));
        assert_eq!(group_of(fleet.ask(three, join("g"))), (group, 2));
        Known { tasks, group }
    }

    /// Checks that the next master knows all that is left, and goes on with it. Returns a new member, on host 4.
    pub fn check(&self, fleet: &mut Fleet) -> Tid {
        let (group, [_, two, three]) = (self.group, self.tasks);
        let Some(Reply::Mailboxes(boxes)) = fleet.ask(two, Request::MailboxInfo { pattern: text("") }) else {
            panic!()
        };
        let owners: Vec<_> = boxes.iter().map(|class| (class.name.to_vec(), class.entries[0].1)).collect();
        assert_eq!(owners, [(b"kept".to_vec(), three), (b"old".to_vec(), Tid::NONE)]);
        assert_eq!(group_of(fleet.ask(three, Request::Group(text("g")))), (group, 2));
        let late = fleet.task(Fleet::host(4));
        assert_eq!(group_of(fleet.ask(late, join("g"))), (group, 0));
        let waits = [late, two, three].map(|task| fleet.send(task, Request::Barrier { group, count: -1 }));
        fleet.pass(Duration::from_secs(2));
        for (task, wait) in [late, two, three].into_iter().zip(waits) {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Done | Reply::Released(_))), "{task}");
        }
        assert_ne!(group_of(fleet.ask(late, join("other"))).0, group);
        late
    }
}

#[test]
fn a_task_of_any_host_can_delete_the_first_host_and_the_others_go_on() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let known = Known::new(&mut fleet);
        let [_, two, three] = known.tasks;
        let watch = Request::Notify { what: NOTIFY_HOST_DELETE, ctx: 0, tag: 5, count: 1, tids: vec![MASTER] };
        fleet.ask(two, watch);
        let asker = [two, three][seed as usize % 2];
        assert_eq!(fleet.ask(asker, delete("h1")), Some(Reply::Codes(vec![0])), "seed {seed}");
        fleet.pass(Duration::from_secs(3));
        assert_eq!(fleet.living(), [2, 3, 4].map(Fleet::host));
        assert_eq!(fleet.master(), Some(Fleet::host(2)));
        fleet.check_tables();
        assert_eq!(fleet.messages(two, 5).iter().map(|one| ints(&one.body)).collect::<Vec<_>>(), [[MASTER.0 as i32]]);
        let late = known.check(&mut fleet);
        // Hosts can be added, and get numbers that nobody had.
        let added = fleet.ask(late, Request::AddHosts(names(&["h5", "h1"])));
        let expected = [5, 6].map(|number| Fleet::host(number).0 as i32).to_vec();
        assert!(matches!(&added, Some(Reply::AddedHosts { hosts, .. }) if *hosts == expected), "{added:?}");
        fleet.check_tables();
        assert!(fleet.open.is_empty(), "{:?}", fleet.open);
    }
}

#[test]
fn requests_that_wait_are_answered_once_by_the_next_master() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let [one, two, three] = [1, 2, 3].map(|host| fleet.task(Fleet::host(host)));
        let wanted = Request::RecvInfo { name: text("later"), index: 0, flags: MBOX_WAIT_FOR_INFO };
        let waits = [two, three].map(|task| fleet.send(task, wanted.clone()));
        for task in [one, two, three] {
            fleet.ask(task, join("g"));
        }
        let freezes = [two, three].map(|task| fleet.send(task, Request::FreezeGroup { name: text("g"), count: 2 }));
        // All this is under way when the master moves.
        let deletion = fleet.send(two, delete("h1"));
        let later = fleet.send(three, put("later", three, 0));
        let joins = [two, three].map(|task| fleet.send(task, join("new")));
        fleet.pass(Duration::from_secs(3));
        assert_eq!(fleet.living(), [2, 3].map(Fleet::host), "seed {seed}");
        assert!(fleet.open.is_empty(), "seed {seed}: {:?}", fleet.open);
        assert_eq!(fleet.answer(two, deletion), Some(Reply::Codes(vec![0])));
        assert_eq!(fleet.answer(three, later), Some(Reply::Int(0)));
        for (task, wait) in [two, three].into_iter().zip(waits) {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Info(_))), "{:?}", fleet.answer(task, wait));
        }
        for (task, wait) in [two, three].into_iter().zip(freezes) {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Int(_))), "{:?}", fleet.answer(task, wait));
        }
        let mut instances =
            [two, three].into_iter().zip(joins).map(|(task, wait)| group_of(fleet.answer(task, wait)).1);
        assert_eq!(instances.clone().min(), Some(0));
        assert_eq!(instances.next().into_iter().chain(instances).max(), Some(1));
    }
}

#[test]
fn members_that_wait_at_a_barrier_pass_it_once_although_the_master_moves() {
    for seed in 1..=SEEDS {
        for early in [0, 1, 2] {
            let mut fleet = Fleet::new(4, seed);
            let tasks = [2, 3, 4].map(|host| fleet.task(Fleet::host(host)));
            let mut group = 0;
            for task in tasks {
                group = group_of(fleet.ask(task, join("g"))).0;
            }
            for _ in 0..2 {
                tasks.iter().for_each(|task| _ = fleet.send(*task, Request::Barrier { group, count: -1 }));
                fleet.pass(Duration::from_secs(1));
            }
            let arrive = |fleet: &mut Fleet, task: Tid| fleet.send(task, Request::Barrier { group, count: -1 });
            let mut waits: Vec<u32> = tasks[..early].iter().map(|task| arrive(&mut fleet, *task)).collect();
            if seed % 2 == 0 {
                fleet.settle();
            }
            fleet.send(tasks[2], delete("h1"));
            for _ in 0..fleet.prng.below(30) {
                fleet.step();
            }
            waits.extend(tasks[early..].iter().map(|task| arrive(&mut fleet, *task)));
            fleet.pass(Duration::from_secs(3));
            assert_eq!(fleet.master(), Some(Fleet::host(2)), "seed {seed}");
            for (task, wait) in tasks.into_iter().zip(waits) {
                let answer = fleet.answer(task, wait);
                assert!(matches!(answer, Some(Reply::Done | Reply::Released(_))), "seed {seed}: {task} {answer:?}");
            }
            assert!(fleet.open.is_empty(), "seed {seed}: {:?}", fleet.open);
        }
    }
}

#[test]
fn the_first_host_drains_like_any_other_and_may_come_back_under_another_number() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let (one, three) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
        let drain = Request::DrainHosts { names: names(&["h1"]), drain: true };
        let asker = [one, three][seed as usize % 2];
        assert_eq!(fleet.ask(asker, drain), Some(Reply::Codes(vec![MASTER.0 as i32])), "seed {seed}");
        assert_eq!(fleet.master(), Some(Fleet::host(2)));
        fleet.check_tables();
        // It still serves its tasks, and follows the new master.
        assert_eq!(fleet.ask(one, put("mine", one, 0)), Some(Reply::Int(0)));
        fleet.leave(one);
        fleet.settle();
        assert_eq!(fleet.ask(three, Request::MailboxInfo { pattern: text("") }), Some(Reply::Mailboxes(Vec::new())));
        assert_eq!(fleet.ask(three, delete("h1")), Some(Reply::Codes(vec![0])));
        fleet.pass(Duration::from_secs(3));
        let added = fleet.ask(three, Request::AddHosts(names(&["h1"])));
        assert!(matches!(&added, Some(Reply::AddedHosts { count: 1, .. })), "{added:?}");
        // The master moves again, and again.
        for (host, next) in [("h2", 3), ("h3", 4)] {
            let asker = fleet.task(Fleet::host(4));
            assert_eq!(fleet.ask(asker, delete(host)), Some(Reply::Codes(vec![0])));
            fleet.pass(Duration::from_secs(3));
            assert_eq!(fleet.master(), Some(Fleet::host(next)));
        }
        fleet.check_tables();
    }
}

#[test]
fn the_former_master_can_be_the_deputy_of_the_next_one() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let (one, three) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
        for drain in [true, false] {
            let drain = Request::DrainHosts { names: names(&["h1"]), drain };
            assert!(matches!(fleet.ask(one, drain), Some(Reply::Codes(_))), "seed {seed}");
        }
        // The deputy would be removed if it did not answer.
        fleet.pass(Duration::from_secs(40));
        assert_eq!(fleet.living(), [1, 2, 3].map(Fleet::host), "seed {seed}");
        fleet.ask(three, put("kept", three, 0));
        fleet.die(Fleet::host(2));
        fleet.pass(Duration::from_secs(30));
        assert_eq!(fleet.living(), [1, 3].map(Fleet::host), "seed {seed}");
        let Some(Reply::Mailboxes(boxes)) = fleet.ask(one, Request::MailboxInfo { pattern: text("") }) else {
            panic!()
        };
        assert_eq!(boxes.len(), 1, "seed {seed}");
    }
}

#[test]
fn the_former_master_is_told_to_leave_although_other_hosts_follow_sooner() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(5, seed);
        let four = fleet.task(Fleet::host(4));
        assert_eq!(fleet.ask(four, Request::DeleteHosts(names(&["h1", "h5"]))), Some(Reply::Codes(vec![0, 0])));
        fleet.settle();
        assert_eq!(fleet.living(), [2, 3, 4].map(Fleet::host), "seed {seed}");
        let lost = fleet.log.iter().find(|(.., line)| line.contains("lost the master"));
        assert!(lost.is_none(), "seed {seed}: {lost:?}");
    }
}

#[test]
fn the_next_master_knows_all_however_much_it_is() {
    let mut fleet = Fleet::new(3, 11);
    let three = fleet.task(Fleet::host(3));
    for number in 0..20 {
        fleet.ask(three, put(&format!("box {number}"), three, 0));
        fleet.ask(three, join(&format!("group {number}")));
    }
    fleet.ask(three, delete("h1"));
    fleet.settle();
    assert_eq!(fleet.master(), Some(Fleet::host(2)));
    let Some(Reply::Mailboxes(boxes)) = fleet.ask(three, Request::MailboxInfo { pattern: text("") }) else { panic!() };
    assert_eq!(boxes.len(), 20);
}

fn told_to_end(fleet: &mut Fleet, host: Tid) {
    let now = fleet.now;
    fleet.machine(host).leave(now);
    fleet.work(host);
}

#[test]
fn a_master_that_is_told_to_end_hands_over_first() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let known = Known::new(&mut fleet);
        told_to_end(&mut fleet, MASTER);
        fleet.pass(Duration::from_secs(3));
        assert_eq!(fleet.living(), [2, 3, 4].map(Fleet::host), "seed {seed}");
        assert_eq!(fleet.master(), Some(Fleet::host(2)), "seed {seed}");
        fleet.check_tables();
        known.check(&mut fleet);
    }
}

#[test]
fn hosts_that_are_told_to_end_at_once_all_end() {
    for seed in 1..=SEEDS {
        for count in 1..=4 {
            let mut fleet = Fleet::new(4, seed);
            let task = fleet.task(Fleet::host(4));
            if seed % 2 == 0 {
                fleet.settle();
            }
            for host in 1..=count {
                told_to_end(&mut fleet, Fleet::host(host));
                for _ in 0..fleet.prng.below(4) {
                    fleet.step();
                }
            }
            fleet.pass(Duration::from_secs(60));
            let left = fleet.living();
            assert!(left.iter().all(|host| *host > Fleet::host(count)), "seed {seed}: {left:?} of {count}");
            // If the next master ends before it has the office, the machine ends.
            assert!(count > 1 || left.len() == 3, "seed {seed}: {left:?}");
            if count < 4 && !left.is_empty() {
                assert_eq!(fleet.ask(task, put("kept", task, 0)), Some(Reply::Int(0)), "seed {seed}");
                fleet.check_tables();
            }
        }
    }
}

#[test]
fn the_last_host_stays() {
    let mut fleet = Fleet::new(2, 5);
    let one = fleet.task(MASTER);
    let bad = Code::BadParam.number();
    assert_eq!(fleet.ask(one, Request::DeleteHosts(names(&["h2", "h1"]))), Some(Reply::Codes(vec![0, bad])));
    assert_eq!(fleet.ask(one, delete("h1")), Some(Reply::Codes(vec![bad])));
    assert_eq!(fleet.ask(one, delete(".")), Some(Reply::Codes(vec![bad])));
    assert_eq!(fleet.living(), [MASTER]);
}

#[test]
fn a_move_is_given_up_if_no_other_host_is_left() {
    let mut fleet = Fleet::new(3, 7);
    let one = fleet.task(MASTER);
    fleet.freeze(Fleet::host(2));
    fleet.freeze(Fleet::host(3));
    // The hosts do not acknowledge that one of them drains.
    fleet.send(one, Request::DrainHosts { names: names(&["h2"]), drain: true });
    let deletion = fleet.send(one, delete("h1"));
    let later = fleet.send(one, put("later", one, 0));
    fleet.settle();
    assert_eq!((fleet.answer(one, deletion), fleet.answer(one, later)), (None, None));
    fleet.die(Fleet::host(2));
    fleet.die(Fleet::host(3));
    fleet.settle();
    assert_eq!(fleet.answer(one, deletion), Some(Reply::Codes(vec![Code::BadParam.number()])));
    assert_eq!(fleet.answer(one, later), Some(Reply::Int(0)));
    assert_eq!(fleet.master(), Some(MASTER));
}

#[test]
fn a_host_that_follows_nobody_cannot_fill_the_memory() {
    let mut fleet = Fleet::new(3, 9);
    let (two, three) = (Fleet::host(2), Fleet::host(3));
    let task = fleet.task(three);
    fleet.ask(task, Request::HostSync(two));
    let now = fleet.now;
    let false_claim = Frame::Following { clients: vec![(task, false)], tasker: None, groups: Vec::new(), table: None };
    fleet.machine(two).handle_host_frame(now, three, false_claim);
    let long = Frame::Log { tid: task, line: vec![0; 1 << 20] };
    for _ in 0..40 {
        fleet.machine(two).handle_host_frame(now, three, long.clone());
        assert!(fleet.machine(two).core.links.early_bytes() <= crate::machine::links::EARLY_BYTES_MAX + (2 << 20));
    }
    assert_eq!(fleet.machine(two).core.links.take_early(), []);
}

#[test]
fn hosts_with_links_may_hear_of_the_next_master_before_it_does_or_after_it_has_decided() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let [two, three, four] = [2, 3, 4].map(Fleet::host);
        let now = fleet.now;
        for (one, other) in [(two, three), (two, four), (three, four)] {
            fleet.machine(one).want_link(now, other);
            fleet.work(one);
        }
        fleet.settle();
        let [asker, ending] = [two, three].map(|host| fleet.task(host));
        fleet.ask(ending, put("gone", ending, 0));
        fleet.send(asker, delete("h1"));
        for _ in 0..fleet.prng.below(20) {
            fleet.step();
        }
        // The former master may not handle the end of this task any more.
        fleet.leave(ending);
        fleet.pass(Duration::from_secs(90));
        assert_eq!(fleet.living(), [two, three, four], "seed {seed}");
        fleet.check_tables();
        let boxes = fleet.ask(asker, Request::MailboxInfo { pattern: text("") });
        assert_eq!(boxes, Some(Reply::Mailboxes(Vec::new())), "seed {seed}");
    }
}

/// The next master hears it a silence limit later at most, for example because its frames wait for messages.
#[test]
fn a_host_waits_for_a_next_master_that_hears_of_it_later() {
    for hears in [true, false] {
        let mut fleet = Fleet::new(3, 3);
        let [two, three] = [2, 3].map(Fleet::host);
        let now = fleet.now;
        fleet.machine(three).handle_host_frame(now, MASTER, Frame::NewMaster { master: two });
        fleet.work(three);
        fleet.pass(HOST_TIMEOUT * 3 / 2);
        assert!(fleet.living().contains(&three));
        if hears {
            let now = fleet.now;
            fleet.machine(two).want_link(now, three);
            fleet.work(two);
        }
        fleet.pass(HOST_TIMEOUT);
        assert_eq!(fleet.living().contains(&three), hears);
    }
}
