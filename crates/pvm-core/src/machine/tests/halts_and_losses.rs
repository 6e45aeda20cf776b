//! Tests of halts, and of hosts that are lost or cannot reach each other.
use super::fleet::{Fleet, MASTER, Received};
use super::several_hosts::{many, names, tids};
use super::world::spawn_of;
use super::*;

#[test]
fn a_halt_from_anywhere_ends_all_hosts() {
    many(4, |fleet| {
        let asker = fleet.task(Fleet::host(3));
        let other = fleet.task(Fleet::host(4));
        let spawned = fleet.spawn(asker, spawn_of("prog", 4));
        fleet.send(asker, Request::Halt);
        fleet.settle();
        assert!(fleet.received[&other].iter().any(|frame| matches!(frame, Received::Halting(_))));
        for tid in tids(&spawned) {
            if fleet.nodes.contains_key(&tid.host()) {
                fleet.leave(tid);
            }
        }
        fleet.pass(Duration::from_secs(1));
        assert_eq!(fleet.living(), []);
    });
}

#[test]
fn a_halt_does_not_wait_for_ever_for_other_hosts() {
    let mut fleet = Fleet::new(3, 2);
    let task = fleet.task(MASTER);
    fleet.freeze(Fleet::host(3));
    fleet.send(task, Request::Halt);
    fleet.pass(Duration::from_secs(6));
    assert_eq!(fleet.living(), [Fleet::host(3)]);
}

#[test]
fn a_halt_outlives_a_deputy_that_may_not_have_heard_of_it() {
    let mut fleet = Fleet::new(3, 2);
    let task = fleet.task(MASTER);
    fleet.freeze(Fleet::host(2));
    fleet.send(task, Request::Halt);
    // The deputy is lost by its silence, and might have heard the master until then.
    fleet.pass(Duration::from_secs(20));
    assert_eq!(fleet.living(), [MASTER, Fleet::host(2)]);
    fleet.pass(Duration::from_secs(10));
    assert_eq!(fleet.living(), [Fleet::host(2)]);
}

#[test]
fn a_halt_outlives_a_deputy_that_was_lost_just_before() {
    for count in [2, 3, 5] {
        let mut fleet = Fleet::new(count, 2);
        let (task, two) = (fleet.task(MASTER), Fleet::host(2));
        fleet.freeze(two);
        // The others go on without the deputy, and may have another one.
        fleet.pass(HOST_TIMEOUT + Duration::from_secs(1));
        assert_eq!(fleet.machine(MASTER).host_list().len(), count - 1);
        fleet.send(task, Request::Halt);
        fleet.pass(Duration::from_secs(13));
        assert_eq!(fleet.living(), [MASTER, two], "{count} hosts");
        fleet.pass(Duration::from_secs(4));
        assert_eq!(fleet.living(), [two], "{count} hosts");
    }
}

#[test]
fn of_two_hosts_the_second_ends_without_the_first_and_says_so_once() {
    many(2, |fleet| {
        let task = fleet.task(Fleet::host(2));
        match fleet.prng.below(2) {
            0 => fleet.kill(MASTER),
            _ => fleet.freeze(MASTER),
        }
        fleet.pass(HOST_TIMEOUT + Duration::from_secs(5));
        let says_why = |frame: &Received| matches!(frame, Received::Halting(why) if why.contains("lost the master"));
        assert!(fleet.received[&task].iter().any(says_why));
        fleet.nodes.remove(&MASTER);
        assert_eq!(fleet.living(), []);
        let lost = |(.., line): &&(Tid, Tid, String)| line.contains("lost the master");
        assert_eq!(fleet.log.iter().filter(lost).count(), 1);
    });
}

#[test]
fn a_slave_that_nobody_welcomes_ends() {
    let mut fleet = Fleet::new(1, 2);
    let task = fleet.task(MASTER);
    fleet.send(task, Request::AddHosts(names(&["h2"])));
    while !fleet.nodes.contains_key(&Fleet::host(2)) {
        fleet.step();
    }
    fleet.kill(MASTER);
    fleet.pass(WELCOME_WAIT + Duration::from_secs(2));
    assert_eq!(fleet.living(), []);
}

#[test]
fn hosts_that_cannot_reach_each_other_do_not_both_stay() {
    many(4, |fleet| {
        let (two, three) = (fleet.task(Fleet::host(2)), fleet.task(Fleet::host(3)));
        assert_eq!(fleet.ask(two, Request::TaskStatus(three)), Some(Reply::Code(0)));
        fleet.cut(Fleet::host(2), Fleet::host(3));
        // The master waits for evidence. There is none against either host, so it removes the one that joined later.
        fleet.pass(Duration::from_secs(5));
        assert_eq!(fleet.living().len(), 4);
        fleet.pass(Duration::from_secs(6));
        assert_eq!(fleet.living(), [MASTER, Fleet::host(2), Fleet::host(4)]);
        fleet.check_tables();
    });
}

#[test]
fn the_host_that_loses_frames_goes_and_not_the_one_that_it_complains_of() {
    many(4, |fleet| {
        let (ill, well) = (Fleet::host(2), Fleet::host(4));
        let (one, other) = (fleet.task(ill), fleet.task(well));
        assert_eq!(fleet.ask(one, Request::TaskStatus(other)), Some(Reply::Code(0)));
        // In each beat interval, the master retransmits a packet to the host `ill`.
        for total in 1..=6 {
            fleet.pass(Duration::from_secs(2));
            fleet.machine(MASTER).handle_retransmissions(ill, total);
        }
        fleet.cut(ill, well);
        // The master hears from the other one that it lives. The ill one is its deputy, and waits for votes in vain.
        fleet.pass(Duration::from_secs(12));
        assert_eq!(fleet.living(), [MASTER, Fleet::host(3), well]);
        fleet.check_tables();
    });
}

#[test]
fn a_host_that_several_cannot_reach_goes() {
    many(5, |fleet| {
        let ill = Fleet::host(2);
        let one = fleet.task(ill);
        for other in 3..=5 {
            let other = fleet.task(Fleet::host(other));
            assert_eq!(fleet.ask(one, Request::TaskStatus(other)), Some(Reply::Code(0)));
        }
        fleet.pass(Duration::from_secs(3));
        (3..=5).for_each(|other| fleet.cut(ill, Fleet::host(other)));
        // The master hears from all of them that they are alive.
        fleet.pass(Duration::from_secs(10));
        assert_eq!(fleet.living(), [MASTER, Fleet::host(3), Fleet::host(4), Fleet::host(5)]);
        fleet.check_tables();
    });
}

#[test]
fn a_task_of_any_host_can_declare_others_to_have_failed() {
    many(5, |fleet| {
        let task = fleet.task(Fleet::host(2));
        let declare = |fleet: &mut Fleet, host: Tid| fleet.ask(task, Request::Tickle(vec![8, host.0 as i32]));
        for (host, answer) in [(5, 1), (5, 0), (4, 1), (3, 1), (1, 0)] {
            assert_eq!(declare(fleet, Fleet::host(host)), Some(Reply::Ints(vec![answer])), "{host}");
        }
        fleet.pass(Duration::from_secs(30));
        assert_eq!(fleet.living(), [MASTER, Fleet::host(2)]);
        fleet.check_tables();
    });
}

#[test]
fn a_daemon_that_slept_does_not_blame_the_others() {
    let mut fleet = Fleet::new(3, 2);
    fleet.pass(Duration::from_secs(3));
    fleet.now += Duration::from_secs(9);
    fleet.pass(Duration::from_secs(30));
    assert_eq!(fleet.living().len(), 3);
    fleet.check_tables();
}
