//! Hosts that take no new tasks, because they are to leave the machine.
use super::fleet::{Fleet, MASTER};
use super::several_hosts::names;
use super::world::{spawn_of, text};
use super::*;
use crate::codes::TASK_HOST;
use crate::proto::Spawn;

fn drain(fleet: &mut Fleet, from: Tid, host: &str, drain: bool) -> Option<Vec<i32>> {
    match fleet.ask(from, Request::DrainHosts { names: names(&[host]), drain })? {
        Reply::Codes(codes) => Some(codes),
        other => panic!("{other:?}"),
    }
}

/// Returns the hosts on which `count` tasks of a spawn start, in order; host 0 stands for a failure.
fn hosts_of(fleet: &mut Fleet, from: Tid, spawn: Spawn) -> Vec<u32> {
    let mut hosts: Vec<u32> = fleet.spawn(from, spawn).into_iter().map(|tid| tid.max(0) as u32 >> 18).collect();
    hosts.sort_unstable();
    hosts
}

#[test]
fn a_host_that_drains_keeps_its_tasks_and_gets_no_new_ones_from_any_host() {
    let mut fleet = Fleet::new(3, 1);
    let (one, three) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
    let old = fleet.task(Fleet::host(2));
    assert_eq!(drain(&mut fleet, three, "h2", true), Some(vec![Fleet::host(2).0 as i32]));
    for from in [one, three, old] {
        assert_eq!(hosts_of(&mut fleet, from, spawn_of("prog", 4)), [1, 1, 3, 3]);
        let named = Spawn { flags: TASK_HOST, place: text("h2"), ..spawn_of("prog", 1) };
        assert_eq!(hosts_of(&mut fleet, from, named), [0]);
    }
    assert!(fleet.machine(Fleet::host(2)).takes_messages(old));
    // A host that joins later knows it, too.
    fleet.ask(one, Request::AddHosts(names(&["h4"])));
    let late = fleet.task(Fleet::host(4));
    assert_eq!(hosts_of(&mut fleet, late, spawn_of("prog", 3)), [1, 3, 4]);
    assert_eq!(drain(&mut fleet, late, "h2", false), Some(vec![Fleet::host(2).0 as i32]));
    assert_eq!(hosts_of(&mut fleet, late, spawn_of("prog", 4)), [1, 2, 3, 4]);
    assert_eq!(drain(&mut fleet, one, "nowhere", true), Some(vec![Code::NoHost.number()]));
    // Hosts are found by all their names. The first one drains like the others.
    assert_eq!(drain(&mut fleet, late, "H3.example", true), Some(vec![Fleet::host(3).0 as i32]));
    assert_eq!(drain(&mut fleet, late, "h1", true), Some(vec![MASTER.0 as i32]));
    assert_eq!(hosts_of(&mut fleet, late, spawn_of("prog", 2)), [2, 4]);
    assert_eq!(drain(&mut fleet, late, "h1", false), Some(vec![MASTER.0 as i32]));
    assert_eq!(hosts_of(&mut fleet, late, spawn_of("prog", 3)), [1, 2, 4]);
}

#[test]
fn a_drain_is_answered_when_all_hosts_know_it_or_are_gone() {
    let mut fleet = Fleet::new(4, 2);
    let asker = fleet.task(MASTER);
    fleet.freeze(Fleet::host(3));
    assert_eq!(drain(&mut fleet, asker, "h2", true), None);
    // Also an answer to a request that changes nothing waits for that.
    assert_eq!(drain(&mut fleet, asker, "h2", true), None);
    fleet.kill(Fleet::host(3));
    fleet.settle();
    assert!(fleet.open.is_empty(), "{:?}", fleet.open);
}

#[test]
fn who_leaves_before_the_answer_to_a_drain_leaves_nothing_behind() {
    let mut fleet = Fleet::new(5, 4);
    let askers = [MASTER, Fleet::host(4), Fleet::host(5)].map(|host| fleet.task(host));
    fleet.freeze(Fleet::host(3));
    askers.iter().for_each(|asker| assert_eq!(drain(&mut fleet, *asker, "h2", true), None));
    fleet.leave(askers[0]);
    fleet.leave(askers[1]);
    fleet.kill(Fleet::host(5));
    fleet.settle();
    assert!(!fleet.machine(MASTER).leftovers().contains(&"adds"));
}

#[test]
fn a_host_that_drains_can_be_deleted() {
    let mut fleet = Fleet::new(2, 3);
    let asker = fleet.task(MASTER);
    assert_eq!(drain(&mut fleet, asker, "h2", true), Some(vec![Fleet::host(2).0 as i32]));
    fleet.ask(asker, Request::DeleteHosts(names(&["h2"])));
    assert_eq!(fleet.living(), [MASTER]);
    // Under its old name comes another host.
    fleet.ask(asker, Request::AddHosts(names(&["h2"])));
    assert_eq!(hosts_of(&mut fleet, asker, spawn_of("prog", 2)), [1, 3]);
}
