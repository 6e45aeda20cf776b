//! Groups: tasks that meet at barriers. The barriers are in shared memory that the daemon makes.
#![forbid(unsafe_code)]
mod common;

use common::{Client, Daemon, Directory, eventually, text};
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request, ToDaemon, ToTask};
use pvm_fmp::{Failed, GroupView, Refused};
use std::os::fd::OwnedFd;

/// Asks for the group "g". Returns the group's number, the task's instance and the memory.
fn group(task: &mut Client, request: Request) -> (u64, i32, GroupView) {
    let Reply::Group { id, instance } = task.ask(request) else { panic!("not answered with a group") };
    let at = task.inbox.iter().position(|(frame, _)| *frame == ToTask::Group { id });
    let (_, descriptors) = task.inbox.remove(at.expect("comes before the reply"));
    assert_eq!(descriptors.len(), if instance < 0 { 1 } else { 2 });
    let mut descriptors = descriptors.into_iter();
    let mut next = || -> Option<OwnedFd> { descriptors.next() };
    (id, instance, GroupView::open(next().unwrap(), next()).unwrap())
}

fn join(task: &mut Client) -> GroupView {
    group(task, Request::JoinGroup(text("g"))).2
}

fn rang(task: &Client) -> bool {
    rustix::io::read(&task.bell, &mut [0; 8]).is_ok()
}

#[test]
fn members_meet_without_the_daemon() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut tasks: Vec<Client> = (0..4).map(|_| Client::enroll(&daemon.socket)).collect();
    let views: Vec<GroupView> = (0..3).map(|member| join(&mut tasks[member])).collect();
    let (_, instance, stranger) = group(&mut tasks[3], Request::Group(text("g")));
    assert_eq!((instance, stranger.size(), stranger.arrive(0, 3)), (-1, 3, Err(Refused::NotMember)));
    let members: Vec<(u32, u32)> = (0..3).map(|member| (member, tasks[member as usize].tid().0)).collect();
    assert_eq!(stranger.members(), members);
    for generation in 0..3 {
        for (instance, view) in (0..).zip(&views) {
            assert_eq!(view.arrive(instance, 3).unwrap().last, instance == 2);
        }
        assert_eq!(views[0].passed(generation), Some(Ok(())));
    }
    assert_eq!(tasks[0].ask(Request::LeaveGroup(text("g"))), Reply::Done);
    assert_eq!(stranger.members(), members[1..]);
    let (_, instance, _) = group(&mut tasks[3], Request::JoinGroup(text("g")));
    assert_eq!((instance, views[1].tid_of(0)), (0, Some(tasks[3].tid().0)));
}

#[test]
fn a_death_makes_the_barrier_fail_and_wakes_the_waiters() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut tasks: Vec<Client> = (0..3).map(|_| Client::enroll(&daemon.socket)).collect();
    let views: Vec<GroupView> = tasks.iter_mut().map(join).collect();
    let version = views[0].version();
    assert!(!views[0].arrive(0, 3).unwrap().last);
    views[0].prepare_park(0);
    drop(tasks.pop());
    eventually("the waiter is rung", || rang(&tasks[0]));
    assert_ne!(views[0].version(), version);
    eventually("the barrier has failed", || views[0].passed(0) == Some(Err(Failed)));
    views[0].unpark(0);
    // The other member arrives too late, finds that a member is missing, and asks the daemon to check the barrier.
    let size = views[1].size();
    assert!(views[1].arrive(1, 3).unwrap().short);
    let Reply::Group { id, .. } = tasks[1].ask(Request::Group(text("g"))) else { panic!() };
    tasks[1].link.send_to_daemon(&ToDaemon::CheckBarrier { group: id, size }, &[]).unwrap();
    eventually("it fails, too", || views[1].passed(1) == Some(Err(Failed)));
    // The two remaining members still form a group.
    views[0].arrive(0, 2).unwrap();
    assert!(views[1].arrive(1, 2).unwrap().last);
}

#[test]
fn a_group_is_frozen_by_all_and_broken_by_one() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let (mut one, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let (first, second) = (join(&mut one), join(&mut other));
    let freeze = || Request::FreezeGroup { name: text("g"), count: 2 };
    let wait = one.begin(freeze());
    assert_eq!(other.ask(freeze()), Reply::Int(2));
    assert!(first.is_frozen() && !first.is_broken());
    assert_eq!(one.finish(wait), Reply::Int(2));
    first.arrive(0, 2).unwrap();
    assert_eq!(other.ask(Request::LeaveGroup(text("g"))), Reply::Done);
    eventually("the waiter is let go", || first.passed(0) == Some(Err(Failed)));
    assert!(first.is_broken() && !first.is_closed());
    assert_eq!(first.arrive(0, 1), Err(Refused::Closed));
    assert_eq!(other.ask(Request::JoinGroup(text("g"))), Reply::Error(Code::NotInGroup));
    drop(one);
    eventually("the group is gone", || second.is_closed());
    assert_eq!(other.ask(Request::Group(text("g"))), Reply::Error(Code::NoGroup));
}
