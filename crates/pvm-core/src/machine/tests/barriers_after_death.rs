//! Barriers over several hosts while the master dies, at any moment: they go on at its successor.
use super::barriers_over_hosts::{Programs, fleet};
use super::fleet::{Fleet, LastFrames, MASTER};
use super::moving_master::{group_of, join};
use super::*;

/// Longer than it takes to prepare for a coordinator.
const PREPARED: Duration = Duration::from_millis(150);
/// Longer than the hosts need to follow another master.
const FOLLOWED: Duration = Duration::from_secs(3);

/// How the hosts of a story learn of releases, and where barriers meet.
fn story(seed: u64, hosts: &[u32], coordinator: Option<u32>) -> (Fleet, Programs) {
    let mut fleet = fleet(6, seed, [1, 2, usize::MAX][seed as usize % 3]);
    fleet.ears.are_open = seed % 2 == 0;
    fleet.loses_datagrams = seed % 5 == 0;
    fleet.last_frames = LastFrames::MayBeLost;
    let mut programs = Programs::new(&mut fleet, hosts);
    if let Some(host) = coordinator {
        fleet.ask(programs.members[0].tid, Request::SetGroupHost(Fleet::host(host)));
        fleet.pass(PREPARED);
    }
    programs.pass(&mut fleet, 1 + seed as usize % 5);
    (fleet, programs)
}

/// Lets members arrive while these hosts die one after another, each at a random step and with a proof. The tasks there are gone.
fn die(fleet: &mut Fleet, programs: &mut Programs, pauses: bool) {
    let dies_at = fleet.prng.below(60);
    for step in 0..=dies_at {
        let all = programs.members.len();
        let member = fleet.prng.below(all);
        if fleet.prng.below(4) == 0 {
            programs.arrive(fleet, member, all);
        }
        if step < dies_at {
            fleet.step();
            programs.look(fleet);
        }
    }
    let Some(master) = fleet.master() else { return };
    fleet.die(master);
    programs.forget(|tid| tid.host() == master);
    if pauses {
        fleet.pass(FOLLOWED);
        programs.look(fleet);
    }
}

/// Lets those who are behind catch up. Asserts that all have passed the same barriers, and pass others.
fn all_pass(fleet: &mut Fleet, programs: &mut Programs, seed: u64) {
    let most = programs.members.iter().map(|one| one.passed).max().expect("members");
    let ends = most + usize::from(programs.members.iter().any(|one| one.passed == most && one.waits.is_some()));
    let all = programs.members.len();
    for _ in 0..60 {
        for member in 0..all {
            if programs.members[member].passed < ends {
                programs.arrive(fleet, member, all);
            }
        }
        fleet.pass(Duration::from_millis(50));
        programs.look(fleet);
    }
    let passed: Vec<usize> = programs.members.iter().map(|one| one.passed).collect();
    assert_eq!((programs.failed, passed), (0, vec![ends; all]), "seed {seed}");
    programs.members.iter_mut().for_each(|one| one.passed = 0);
    programs.pass(fleet, 3);
}

#[test]
fn a_barrier_without_members_on_the_dead_host_opens_for_all_and_once() {
    for seed in 1..=300 {
        let (mut fleet, mut programs) = story(seed, &[2, 3, 4, 5, 5], None);
        die(&mut fleet, &mut programs, true);
        assert_eq!(fleet.master(), Some(Fleet::host(2)), "seed {seed}");
        all_pass(&mut fleet, &mut programs, seed);
        fleet.check_tables();
    }
}

#[test]
fn two_masters_may_die_one_after_another() {
    for seed in 1..=300 {
        let (mut fleet, mut programs) = story(seed, &[3, 4, 5, 5, 6], None);
        // The second one also dies while it asks the hosts.
        die(&mut fleet, &mut programs, seed % 2 == 0);
        for _ in 0..200 {
            fleet.step();
        }
        programs.look(&fleet);
        let has_deputy = fleet.master() == Some(Fleet::host(2)) && fleet.machine(Fleet::host(4)).core.deputy.is_some();
        if !has_deputy {
            fleet.pass(FOLLOWED);
            programs.look(&fleet);
        }
        die(&mut fleet, &mut programs, true);
        if fleet.living().is_empty() {
            // One host did not know the deputy.
            continue;
        }
        assert_eq!(fleet.living().len(), 4, "seed {seed}");
        programs.forget(|tid| tid.host() == Fleet::host(2));
        all_pass(&mut fleet, &mut programs, seed);
    }
}

#[test]
fn a_coordinator_may_live_on_or_have_died_before() {
    for seed in 1..=400 {
        // Without and with members at the coordinator, which is the next master now and then.
        let coordinator = [4, 6, 2][seed as usize % 3];
        let (mut fleet, mut programs) = story(seed, &[2, 3, 4, 5, 5], Some(coordinator));
        if seed % 4 == 0 {
            // The coordinator without members dies first.
            fleet.die(Fleet::host(6));
        }
        die(&mut fleet, &mut programs, true);
        assert!(fleet.master().is_some(), "seed {seed}");
        all_pass(&mut fleet, &mut programs, seed);
    }
}

#[test]
fn members_of_the_dead_host_are_missed_and_nobody_waits_for_ever() {
    let (mut opened, mut failed) = (0, 0);
    for seed in 1..=400 {
        let coordinator = [None, Some(1), Some(3)][seed as usize % 3];
        let (mut fleet, mut programs) = story(seed, &[1, 2, 3, 4, 5, 5], coordinator);
        programs.leaves_count_open = false;
        // A release by datagram that the deputy does not hear of may be lost with those who have heard it.
        fleet.last_frames = LastFrames::ComeToTheDeputy;
        die(&mut fleet, &mut programs, seed % 2 == 0);
        for _ in 0..40 {
            let all = programs.members.len();
            let member = fleet.prng.below(all);
            programs.arrive(&mut fleet, member, all);
            for _ in 0..fleet.prng.below(12) {
                fleet.step();
                programs.look(&fleet);
            }
        }
        programs.end(&mut fleet, FOLLOWED, seed);
        (opened, failed) = (opened + programs.opened, failed + programs.failed);
    }
    assert!(opened > 2000 && failed > 300, "{opened} opened, {failed} failed");
}

#[test]
fn barriers_of_some_members_open_once() {
    for seed in 1..=300 {
        let (mut fleet, mut programs) = story(seed, &[2, 3, 4, 5], None);
        programs.leaves_count_open = false;
        let dies_at = fleet.prng.below(60);
        for step in 0..90 {
            if step == dies_at {
                fleet.die(MASTER);
            }
            let member = fleet.prng.below(4);
            if fleet.prng.below(3) == 0 {
                programs.arrive(&mut fleet, member, 2);
            }
            fleet.step();
            programs.look(&fleet);
        }
        fleet.pass(FOLLOWED);
        programs.look(&fleet);
        let waiting = programs.members.iter().filter(|one| one.waits.is_some()).count();
        // Two pass each time.
        assert_eq!((programs.failed, programs.opened % 2), (0, 0), "seed {seed}");
        assert!(waiting < 2, "seed {seed}: {waiting} wait");
    }
}

#[test]
fn members_that_arrived_in_a_page_before_the_group_grew_pass_with_the_others() {
    for seed in 1..=400 {
        let mut fleet = fleet(5, seed, 2);
        fleet.last_frames = LastFrames::MayBeLost;
        let (page, grows) = (Fleet::host(3 + seed as u32 % 2), seed % 3 == 0);
        let [one, two, late] = [page, page, Fleet::host(5)].map(|host| fleet.task(host));
        let group = [one, two].map(|task| group_of(fleet.ask(task, join("g"))).0)[0];
        let board = |fleet: &mut Fleet| fleet.nodes.get_mut(&page).expect("a host").boards.boards.remove(&group);
        let mut memory = board(&mut fleet).expect("it has members");
        assert_eq!(memory.arrive(0, 3), Some(0));
        fleet.nodes.get_mut(&page).expect("a host").boards.boards.insert(group, memory);
        // The master dies while the group grows, or while the others arrive.
        let joined = fleet.send(late, join("g"));
        let dies = |fleet: &mut Fleet| {
            for _ in 0..fleet.prng.below(30) {
                fleet.step();
            }
            fleet.die(MASTER);
        };
        if grows {
            dies(&mut fleet);
        }
        fleet.pass(FOLLOWED);
        assert!(fleet.answer(late, joined).is_some(), "seed {seed}");
        let waits = [two, late].map(|task| (task, fleet.send(task, Request::Barrier { group, count: 3 })));
        if !grows {
            dies(&mut fleet);
        }
        fleet.pass(FOLLOWED);
        for (task, wait) in waits {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Done | Reply::Released(_))), "seed {seed}: {task}");
        }
        let memory = board(&mut fleet).expect("it has members");
        assert_eq!((memory.released, memory.failed), (vec![(0, true)], vec![]), "seed {seed}");
    }
}

#[test]
fn a_member_of_the_dead_host_that_a_coordinator_has_counted_stays_counted() {
    for seed in 1..=60 {
        let (mut fleet, mut programs) = story(seed, &[1, 2, 4, 5], Some(3));
        programs.arrive(&mut fleet, 0, 4);
        fleet.settle();
        fleet.die(MASTER);
        programs.forget(|tid| tid.host() == MASTER);
        (0..3).for_each(|member| programs.arrive(&mut fleet, member, 4));
        fleet.pass(FOLLOWED);
        programs.look(&fleet);
        let waiting = programs.members.iter().filter(|one| one.waits.is_some()).count();
        assert_eq!((programs.failed, waiting), (0, 0), "seed {seed}");
    }
}

#[test]
fn an_arrival_is_counted_once_although_its_host_repeats_it_while_others_are_asked() {
    for seed in 1..=40 {
        let mut fleet = fleet(5, seed, 1);
        (fleet.ears.are_open, fleet.keeps_datagrams) = (true, true);
        let mut programs = Programs::new(&mut fleet, &[3, 4, 5]);
        programs.pass(&mut fleet, 3);
        // The members hear the release themselves, and their daemons do not know that.
        (0..3).for_each(|member| programs.arrive(&mut fleet, member, 3));
        fleet.settle();
        programs.look(&fleet);
        let waiting = programs.members.iter().filter(|one| one.waits.is_some()).count();
        assert_eq!(waiting, 0, "seed {seed}");
        let late = Fleet::host(5);
        fleet.freeze(late);
        fleet.die(MASTER);
        fleet.settle();
        programs.arrive(&mut fleet, 0, 3);
        fleet.settle();
        fleet.thaw(late);
        fleet.pass(FOLLOWED);
        programs.arrive(&mut fleet, 1, 3);
        fleet.pass(FOLLOWED);
        programs.look(&fleet);
        assert!(programs.members[0].waits.is_some() && programs.members[1].waits.is_some(), "seed {seed}");
        programs.pass(&mut fleet, 2);
        assert_eq!(programs.failed, 0, "seed {seed}");
    }
}

#[test]
fn a_group_of_which_the_host_of_its_only_member_has_not_heard_can_grow() {
    for seed in 1..=200 {
        let mut fleet = fleet(4, seed, 2);
        fleet.last_frames = LastFrames::MayBeLost;
        let [one, two] = [3, 4].map(|host| fleet.task(Fleet::host(host)));
        let joins = [one, two].map(|task| (task, fleet.send(task, join("g"))));
        for _ in 0..fleet.prng.below(20) {
            fleet.step();
        }
        fleet.die(MASTER);
        fleet.pass(FOLLOWED);
        let groups = joins.map(|(task, wait)| group_of(fleet.answer(task, wait)).0);
        let waits = [one, two].map(|task| (task, fleet.send(task, Request::Barrier { group: groups[0], count: 2 })));
        fleet.pass(FOLLOWED);
        for (task, wait) in waits {
            assert!(matches!(fleet.answer(task, wait), Some(Reply::Done | Reply::Released(_))), "seed {seed}: {task}");
        }
    }
}
