//! Barriers that meet at another host than the master: its choice, its death at any moment, changes while barriers are
//! open, and hosts that lie.
use super::barriers_over_hosts::{Programs, fleet, says};
use super::fleet::{Fleet, MASTER};
use super::*;
use crate::proto::GroupPlace;
use crate::release::{CHAIN_VALUE_BYTES, Release};
use crate::wire::{Arrival, GroupChange};

/// Longer than it takes to prepare for a coordinator.
const PREPARED: Duration = Duration::from_millis(150);
/// Longer than a barrier may be open at a coordinator.
const SLOW: Duration = Duration::from_millis(2500);
/// Longer than barriers that were taken back stay at the master.
const PAUSED: Duration = Duration::from_secs(70);

/// Returns where the barriers of the only group meet.
fn place(fleet: &Fleet) -> Tid {
    match fleet.nodes[&MASTER].machine.parts.groups.places(&fleet.nodes[&MASTER].machine.core) {
        Reply::GroupPlaces(places) => places[0].at,
        other => panic!("{other:?}"),
    }
}

fn name(fleet: &mut Fleet, task: Tid, host: Tid) {
    assert_eq!(fleet.ask(task, Request::SetGroupHost(host)), Some(Reply::Done));
}

/// Starts a group with members on these hosts, and lets its barriers meet at that host.
fn meeting_at(fleet: &mut Fleet, hosts: &[u32], host: Tid) -> Programs {
    let mut programs = Programs::new(fleet, hosts);
    name(fleet, programs.members[0].tid, host);
    fleet.pass(PREPARED);
    programs.pass(fleet, 2);
    assert_eq!(place(fleet), host);
    programs
}

fn waits(programs: &Programs) -> usize {
    programs.members.iter().filter(|member| member.waits.is_some()).count()
}

#[test]
fn barriers_meet_in_step_at_the_host_that_a_member_names() {
    for broadcast in [1, usize::MAX] {
        for seed in 1..=20 {
            let mut fleet = fleet(6, seed, broadcast);
            fleet.loses_datagrams = seed % 4 == 0;
            // With and without members there and at the master.
            let hosts = [&[1, 2, 3, 4, 5, 5][..], &[2, 3, 4, 6], &[1, 2, 3, 6]][seed as usize % 3];
            let mut programs = meeting_at(&mut fleet, hosts, Fleet::host(4));
            let arrived_at_master = fleet.nodes[&MASTER].machine.parts.groups.waiting_here();
            assert!(arrived_at_master.is_none());
            programs.pass(&mut fleet, 40);
            assert_eq!((place(&fleet), programs.failed), (Fleet::host(4), 0), "seed {seed}");
            assert!(fleet.broadcasts > 0 || broadcast == usize::MAX && fleet.broadcasts == 0 || seed % 4 == 0);
            // Back to the master, and on to another one.
            name(&mut fleet, programs.members[0].tid, MASTER);
            assert_eq!(place(&fleet), MASTER);
            programs.pass(&mut fleet, 3);
            name(&mut fleet, programs.members[0].tid, Fleet::host(2));
            fleet.pass(PREPARED);
            programs.pass(&mut fleet, 3);
            assert_eq!((place(&fleet), programs.failed), (Fleet::host(2), 0));
        }
    }
}

#[test]
fn the_death_of_the_coordinator_hangs_no_barrier_and_opens_none_early() {
    let mut open_at_death = 0;
    for seed in 1..=400 {
        let mut fleet = fleet(5, seed, [1, usize::MAX][seed as usize % 2]);
        let dies = Fleet::host(3);
        let hosts = [&[1, 2, 4, 5][..], &[2, 4, 4, 5]][seed as usize / 2 % 2];
        let mut programs = meeting_at(&mut fleet, hosts, dies);
        // Members arrive while the coordinator dies, at any step of one or two barriers.
        let dies_at = fleet.prng.below(60);
        for step in 0..80 {
            if step == dies_at {
                open_at_death += usize::from(waits(&programs) > 0);
                fleet.kill(dies);
            }
            let member = fleet.prng.below(4);
            if fleet.prng.below(4) == 0 {
                programs.arrive(&mut fleet, member, 4);
            }
            fleet.step();
            programs.look(&fleet);
        }
        // Those who are behind arrive as well.
        let most = programs.members.iter().map(|member| member.passed).max().expect("four");
        let ends =
            most + programs.members.iter().filter(|one| one.passed == most && one.waits.is_some()).count().min(1);
        for turn in 0..300 {
            for member in 0..4 {
                if programs.members[member].passed < ends {
                    programs.arrive(&mut fleet, member, 4);
                }
            }
            // At last, datagrams that were lost are repeated, and arrivals that were kept back are sent.
            match turn < 290 {
                true => _ = fleet.step(),
                false => fleet.pass(Duration::from_millis(30)),
            }
            programs.look(&fleet);
        }
        assert_eq!((programs.failed, waits(&programs)), (0, 0), "seed {seed}");
        assert!(programs.members.iter().all(|member| member.passed == ends), "seed {seed}");
        assert_eq!(place(&fleet), MASTER);
        programs.pass(&mut fleet, 3);
    }
    assert!(open_at_death > 200, "{open_at_death}");
}

#[test]
fn the_place_changes_while_barriers_are_open() {
    for seed in 1..=60 {
        let mut fleet = fleet(5, seed, [1, usize::MAX][seed as usize % 2]);
        let mut programs = meeting_at(&mut fleet, &[1, 2, 3, 4, 5, 5], Fleet::host(3));
        for _ in 0..20 {
            let namer = fleet.task(MASTER);
            let to = Fleet::host(1 + fleet.prng.below(5) as u32);
            (0..3).for_each(|member| programs.arrive(&mut fleet, member, 6));
            (0..fleet.prng.below(10)).for_each(|_| _ = fleet.step());
            // The first member waits, so the daemon of its host speaks for it.
            let from = programs.members[0].tid;
            fleet.send(from, Request::SetGroupHost(to));
            (0..fleet.prng.below(10)).for_each(|_| _ = fleet.step());
            (3..6).for_each(|member| programs.arrive(&mut fleet, member, 6));
            fleet.pass(PREPARED);
            programs.look(&fleet);
            assert_eq!((waits(&programs), programs.failed), (0, 0), "seed {seed}");
            fleet.leave(namer);
        }
    }
}

#[test]
fn members_hosts_and_places_that_come_and_go_leave_nobody_waiting() {
    let (mut opened, mut failed, mut elsewhere) = (0, 0, 0);
    for seed in 1..=120 {
        let mut fleet = fleet(8, seed, [2, usize::MAX, 5][seed as usize % 3]);
        let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4, 5, 6, 7, 8, 2, 5]);
        programs.leaves_count_open = false;
        for turn in 0..200 {
            let all = programs.members.len();
            let member = fleet.prng.below(all);
            let tid = programs.members[member].tid;
            let other = fleet.living()[fleet.prng.below(fleet.nodes.len())];
            match fleet.prng.below(120) {
                0 if all > 4 => {
                    fleet.leave(tid);
                    programs.forget(|other| other == tid);
                }
                1 if turn % 3 == 0 && fleet.nodes.len() > 4 && other != MASTER && all > 6 => {
                    fleet.kill(other);
                    programs.forget(|tid| tid.host() == other);
                }
                2 => {
                    let tid = fleet.task(other);
                    programs.join(&mut fleet, tid);
                }
                3 => programs.arrive(&mut fleet, member, all.div_ceil(2)),
                4..8 => _ = fleet.send(tid, Request::SetGroupHost(other)),
                10 => fleet.pass(PAUSED),
                11 => fleet.pass(PREPARED),
                _ => programs.arrive(&mut fleet, member, all),
            }
            for _ in 0..fleet.prng.below(16) {
                fleet.step();
                programs.look(&fleet);
            }
            elsewhere += usize::from(place(&fleet) != MASTER);
            if fleet.prng.below(10) == 0 {
                fleet.pass(Duration::from_millis(30));
                programs.look(&fleet);
            }
        }
        programs.end(&mut fleet, SLOW, seed);
        (opened, failed) = (opened + programs.opened, failed + programs.failed);
    }
    assert!(opened > 1000 && failed > 300 && elsewhere > 50, "{opened} opened, {failed} failed, {elsewhere} elsewhere");
}

#[test]
fn a_member_that_dies_makes_the_barrier_fail_or_stays_counted() {
    for seed in 1..=60 {
        let mut fleet = fleet(4, seed, usize::MAX);
        let mut programs = meeting_at(&mut fleet, &[1, 2, 3, 4], Fleet::host(3));
        // It dies after it has arrived, at its host or with it; or before.
        let (arrives, with_host) = (seed % 2 == 0, seed % 3 == 0);
        (0..2).for_each(|member| programs.arrive(&mut fleet, member, 4));
        let dies = programs.members[3].tid;
        if arrives {
            programs.arrive(&mut fleet, 3, 4);
            fleet.settle();
        }
        match with_host {
            true => fleet.kill(dies.host()),
            false => fleet.leave(dies),
        }
        programs.forget(|tid| tid == dies);
        fleet.settle();
        programs.look(&fleet);
        programs.arrive(&mut fleet, 2, 4);
        fleet.settle();
        programs.look(&fleet);
        assert_eq!((waits(&programs), programs.failed), (0, if arrives { 0 } else { 3 }), "seed {seed}");
        programs.members.iter_mut().for_each(|member| member.passed = 0);
        programs.pass(&mut fleet, 3);
    }
}

#[test]
fn a_slow_barrier_and_a_count_of_some_members_go_to_the_master() {
    let mut fleet = fleet(3, 1, usize::MAX);
    let there = Fleet::host(2);
    let mut programs = meeting_at(&mut fleet, &[1, 2, 3], there);
    (0..2).for_each(|member| programs.arrive(&mut fleet, member, 3));
    fleet.pass(Duration::from_millis(1300));
    assert_eq!(place(&fleet), MASTER);
    programs.arrive(&mut fleet, 2, 3);
    fleet.settle();
    programs.look(&fleet);
    assert_eq!((waits(&programs), programs.failed), (0, 0));
    programs.pass(&mut fleet, 5);
    assert_eq!(place(&fleet), MASTER, "after a pause");
    fleet.pass(PAUSED);
    programs.pass(&mut fleet, 2);
    assert_eq!(place(&fleet), there);
    (0..2).for_each(|member| programs.arrive(&mut fleet, member, 2));
    fleet.settle();
    programs.look(&fleet);
    assert_eq!((waits(&programs), programs.failed, place(&fleet)), (0, 0, MASTER));
}

#[test]
fn a_coordinator_without_a_link_to_a_host_gets_no_barriers_and_no_blame() {
    let mut fleet = fleet(4, 1, usize::MAX);
    fleet.refuse(Fleet::host(2), Fleet::host(3));
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4]);
    name(&mut fleet, programs.members[0].tid, Fleet::host(3));
    fleet.pass(PREPARED);
    programs.pass(&mut fleet, 10);
    assert_eq!((fleet.nodes.len(), place(&fleet), programs.failed), (4, MASTER, 0));
}

#[test]
fn a_new_chain_follows_when_one_is_used_up() {
    let mut fleet = fleet(3, 1, usize::MAX);
    let mut programs = meeting_at(&mut fleet, &[1, 2, 3], Fleet::host(2));
    let mut at_master = 0;
    for _ in 0..1100 {
        (0..3).for_each(|member| programs.arrive(&mut fleet, member, 3));
        fleet.pass(Duration::from_millis(30));
        programs.look(&fleet);
        assert_eq!(waits(&programs), 0);
        at_master += usize::from(place(&fleet) == MASTER);
    }
    assert_eq!((at_master, place(&fleet), programs.failed), (0, Fleet::host(2), 0));
}

#[test]
fn the_hostfile_names_hosts_and_excludes_hosts() {
    let mut fleet = fleet(4, 1, usize::MAX);
    let says = |fleet: &mut Fleet, host: u32, groups| {
        let record = fleet.machine(MASTER).core.hosts.record_mut(Fleet::host(host)).expect("a host");
        record.entry.groups = groups;
    };
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3]);
    let member = programs.members[0].tid;
    let mut settles_at = |fleet: &mut Fleet| {
        programs.pass(fleet, 1);
        fleet.pass(PREPARED);
        programs.pass(fleet, 1);
        place(fleet)
    };
    says(&mut fleet, 1, Some(false));
    says(&mut fleet, 2, Some(false));
    assert_eq!(settles_at(&mut fleet), Fleet::host(3));
    says(&mut fleet, 4, Some(true));
    name(&mut fleet, member, Tid::NONE);
    assert_eq!(settles_at(&mut fleet), Fleet::host(4), "it has no members");
}

#[test]
fn the_places_of_groups_are_listed_and_wrong_hosts_refused() {
    let mut fleet = fleet(3, 1, usize::MAX);
    let programs = meeting_at(&mut fleet, &[2, 3, 3], Fleet::host(3));
    let asker = fleet.task(Fleet::host(2));
    let Some(Reply::GroupPlaces(places)) = fleet.ask(asker, Request::GroupPlaces) else { panic!("no list") };
    let [GroupPlace { name, members, is_frozen: false, hosts: 2, at }] = &places[..] else { panic!("{places:?}") };
    assert_eq!((&name[..], members.len(), *at), (&b"g"[..], 3, Fleet::host(3)));
    for (host, code) in [(Tid(0x40001), Code::BadParam), (Fleet::host(9), Code::NoHost)] {
        assert_eq!(fleet.ask(asker, Request::SetGroupHost(host)), Some(Reply::Error(code)));
    }
    assert_eq!(programs.failed, 0);
}

// ----- hostile hosts

/// A host without members, or with a member but without the secret of the chain, cannot release a barrier; what a
/// coordinator says about others is not believed.
#[test]
fn only_the_named_host_coordinates() {
    let mut fleet = fleet(5, 3, usize::MAX);
    let there = Fleet::host(3);
    let mut programs = meeting_at(&mut fleet, &[1, 2, 3, 4], there);
    let (stranger, id) = (Fleet::host(5), programs.group);
    (0..3).for_each(|member| programs.arrive(&mut fleet, member, 4));
    fleet.settle();
    let victim = programs.members[3].tid;
    let version = 4;
    let arrival = Arrival { tid: victim, turn: 1 << 40, version, count: -1, lan: false };
    let release = Release { chain: 1, index: 3, value: [7; CHAIN_VALUE_BYTES] };
    let ended: Vec<(Tid, u64)> = programs.members.iter().flat_map(|one| (0..60).map(|turn| (one.tid, turn))).collect();
    let frames = || {
        vec![
            Frame::Arrived { id, arrivals: vec![arrival.clone()], chain: None },
            Frame::Arrived { id, arrivals: vec![arrival.clone()], chain: Some(1) },
            Frame::Arrived { id, arrivals: vec![arrival.clone()], chain: Some(2) },
            Frame::BarrierEnded {
                id,
                ended: ended.clone(),
                failure: None,
                release: Some(release.clone()),
                passed: None,
                late: true,
            },
            Frame::HandBack { id },
            Frame::Recalled { id, number: 1, passed: 900, arrivals: vec![arrival.clone()] },
            Frame::GroupChanged { id, number: 0, change: GroupChange::Recall { number: 1 } },
            Frame::GroupChanged { id, number: 0, change: GroupChange::Prepare { by: stranger } },
            Frame::GroupChanged {
                id,
                number: 0,
                change: GroupChange::Coordinate {
                    by: stranger,
                    anchor: release.clone(),
                    start: None,
                    passed: Default::default(),
                },
            },
        ]
    };
    for to in fleet.living().into_iter().filter(|to| *to != stranger) {
        for frame in frames() {
            says(&mut fleet, stranger, to, frame);
        }
    }
    fleet.settle();
    programs.look(&fleet);
    assert_eq!((waits(&programs), place(&fleet)), (3, there), "the stranger changes nothing");
    // A host with a member, which could arrive in the name of its member only.
    for frame in frames().into_iter().filter(|frame| !matches!(frame, Frame::HandBack { .. })) {
        says(&mut fleet, Fleet::host(2), there, frame);
    }
    fleet.settle();
    programs.look(&fleet);
    assert_eq!(waits(&programs), 3);
    programs.pass(&mut fleet, 2);
    assert_eq!(programs.failed, 0);
}

#[test]
fn a_coordinator_that_keeps_silent_costs_a_second() {
    let mut fleet = fleet(4, 5, usize::MAX);
    let there = Fleet::host(4);
    let mut programs = meeting_at(&mut fleet, &[1, 2, 3], there);
    fleet.freeze(there);
    (0..3).for_each(|member| programs.arrive(&mut fleet, member, 3));
    fleet.pass(SLOW);
    programs.look(&fleet);
    assert_eq!(waits(&programs), 3, "the host may still tell what it has released");
    fleet.thaw(there);
    fleet.settle();
    programs.look(&fleet);
    assert_eq!((waits(&programs), programs.failed, place(&fleet)), (0, 0, MASTER));
    // If it stays silent, it is lost as every silent host is.
    fleet.pass(PAUSED);
    programs.pass(&mut fleet, 2);
    assert_eq!(place(&fleet), there);
    fleet.freeze(there);
    (0..3).for_each(|member| programs.arrive(&mut fleet, member, 3));
    fleet.pass(Duration::from_secs(40));
    programs.look(&fleet);
    assert_eq!((waits(&programs), programs.failed), (0, 0));
}
