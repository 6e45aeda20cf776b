//! Barriers over many hosts: releases by broadcast or to each host, with losses and deaths.
use super::fleet::{Fleet, MASTER};
use super::world::text;
use super::*;
use crate::release::{CHAIN_VALUE_BYTES, Passed, Release};
use crate::wire::{Arrival, GroupChange};

/// Longer than arrivals are kept back, and releases are repeated.
const LATER: Duration = Duration::from_millis(200);
/// Longer than the time after which a host repeats an arrival.
const MUCH_LATER: Duration = Duration::from_secs(2);

/// The program of one member: barrier after barrier.
pub(super) struct Member {
    pub tid: Tid,
    /// The request of its present arrival: wait id, count, and when it arrived.
    pub waits: Option<(u32, usize, usize)>,
    /// When it last passed a barrier that opened.
    opened: Option<usize>,
    pub passed: usize,
}

/// Members of one group on several hosts.
pub(super) struct Programs {
    pub group: u64,
    pub members: Vec<Member>,
    /// The number of steps so far, as a clock.
    steps: usize,
    pub opened: usize,
    pub failed: usize,
    /// Whether members pass -1 for the count now and then. Then the master counts the members.
    pub leaves_count_open: bool,
    /// The members that have gone. Those that waited stay counted at the barrier at which they had arrived.
    gone: Vec<Member>,
}

impl Programs {
    pub fn new(fleet: &mut Fleet, hosts: &[u32]) -> Programs {
        let tids: Vec<Tid> = hosts.iter().map(|host| fleet.task(Fleet::host(*host))).collect();
        let mut programs = Programs {
            group: 0,
            members: Vec::new(),
            steps: 0,
            opened: 0,
            failed: 0,
            leaves_count_open: true,
            gone: Vec::new(),
        };
        tids.into_iter().for_each(|tid| programs.join(fleet, tid));
        programs
    }

    pub fn join(&mut self, fleet: &mut Fleet, tid: Tid) {
        match fleet.ask(tid, Request::JoinGroup(text("g"))) {
            Some(Reply::Group { id, .. }) => self.group = id,
            other => panic!("{other:?}"),
        }
        self.members.push(Member { tid, waits: None, opened: None, passed: 0 });
    }

    /// Lets one member, if it does not wait, arrive at a barrier of `count` members.
    pub fn arrive(&mut self, fleet: &mut Fleet, member: usize, count: usize) {
        let Member { tid, waits: None, .. } = self.members[member] else { return };
        let (group, all) = (self.group, self.members.len());
        let is_open = self.leaves_count_open && count == all && fleet.prng.below(2) == 0;
        let count_passed = if is_open { -1 } else { count as i32 };
        let request = match fleet.prng.below(3) {
            0 => Request::LanBarrier { group, count: count_passed },
            _ => Request::Barrier { group, count: count_passed },
        };
        self.steps += 1;
        let request = fleet.ears.with_news(tid, request);
        let wait = fleet.send(tid, request);
        self.members[member].waits = Some((wait, count, self.steps));
        self.look(fleet);
    }

    /// Notes which barriers have ended. Asserts that enough members have met in each one that opened.
    pub fn look(&mut self, fleet: &Fleet) {
        self.steps += 1;
        for member in 0..self.members.len() {
            let one = &mut self.members[member];
            let Some((wait, count, since)) = one.waits else { continue };
            let Some(answer) = fleet.answer(one.tid, wait) else { continue };
            one.waits = None;
            if !matches!(answer, Reply::Done | Reply::Released(_)) {
                assert!(matches!(answer, Reply::Error(Code::NoTask | Code::Mismatch)), "{answer:?}");
                self.failed += 1;
                continue;
            }
            self.opened += 1;
            (one.opened, one.passed) = (Some(self.steps), one.passed + 1);
            let met = |other: &&Member| other.waits.is_some() || other.opened.is_some_and(|at| at >= since);
            let met = self.members.iter().chain(&self.gone).filter(met).count();
            assert!(met >= count, "{} has met {met} of {count}", self.members[member].tid);
        }
    }

    /// Lets all members pass `rounds` barriers of the whole group, in any order.
    pub fn pass(&mut self, fleet: &mut Fleet, rounds: usize) {
        let (all, ends) = (self.members.len(), self.members.iter().map(|one| one.passed).max().unwrap_or(0) + rounds);
        let mut idle = 0;
        while self.members.iter().any(|one| one.passed < ends) {
            let member = fleet.prng.below(all);
            if self.members[member].passed < ends {
                self.arrive(fleet, member, all);
            }
            for _ in 0..fleet.prng.below(6) {
                fleet.step();
                self.look(fleet);
            }
            // Members compute for a while now and then.
            if fleet.prng.below(20) == 0 {
                fleet.pass(Duration::from_millis(5));
                self.look(fleet);
            }
            idle = if self.members.iter().all(|one| one.waits.is_some() || one.passed == ends) { idle + 1 } else { 0 };
            // Arrivals are kept back for a while; some are repeated much later.
            if idle > 20 {
                fleet.pass(if idle > 30 { MUCH_LATER } else { Duration::from_millis(20) });
                self.look(fleet);
            }
            assert!(idle < 40, "members wait at {:?}", self.members.iter().map(|one| one.passed).collect::<Vec<_>>());
        }
        self.members.iter().for_each(|one| assert_eq!(one.passed, ends));
    }

    /// Lets all members leave. Asserts that nobody waits any more but for members that may still come, and that nothing is left
    /// of the group. `later`: how long arrivals and releases may be on their way.
    pub fn end(&mut self, fleet: &mut Fleet, later: Duration, seed: u64) {
        fleet.pass(super::BARRIER_PATIENCE + later);
        self.look(fleet);
        let all = self.members.len();
        let waiting = self.members.iter().filter(|member| member.waits.is_some()).count();
        let needs = self.members.iter().filter_map(|member| member.waits).map(|(_, count, _)| count).max();
        assert!(waiting < all || needs.is_some_and(|need| need > all), "seed {seed}: {waiting} of {all} wait");
        for member in std::mem::take(&mut self.members) {
            fleet.leave(member.tid);
        }
        fleet.settle();
        assert!(fleet.nodes.values().all(|node| node.machine.leftovers().is_empty()), "seed {seed}");
    }

    pub fn forget(&mut self, gone: impl Fn(Tid) -> bool) {
        let (gone, stay) = std::mem::take(&mut self.members).into_iter().partition(|one| gone(one.tid));
        self.members = stay;
        self.gone.extend::<Vec<Member>>(gone);
    }
}

/// Sets from how many hosts on broadcasts are used.
pub(super) fn fleet(hosts: usize, seed: u64, broadcast: usize) -> Fleet {
    let mut fleet = Fleet::new(hosts, seed);
    for host in fleet.living() {
        fleet.machine(host).core.settings.barrier_broadcast_hosts = broadcast;
    }
    fleet
}

#[test]
fn members_of_many_hosts_pass_barriers_in_step_by_all_ways() {
    for broadcast in [2, usize::MAX] {
        for seed in 1..=12 {
            let mut fleet = fleet(9, seed, broadcast);
            fleet.loses_datagrams = seed % 4 == 0;
            let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9, 9]);
            programs.pass(&mut fleet, 12);
            assert_eq!(programs.failed, 0);
            assert!(broadcast == usize::MAX || fleet.broadcasts >= 3, "{} broadcasts", fleet.broadcasts);
            // Another member: other expectations, another chain.
            let late = fleet.task(Fleet::host(4));
            programs.members.iter_mut().for_each(|member| member.passed = 0);
            programs.join(&mut fleet, late);
            programs.pass(&mut fleet, 6);
            assert_eq!(programs.failed, 0);
        }
    }
}

#[test]
fn members_that_hear_the_releases_themselves_pass_barriers_in_step() {
    let mut ended_by_a_task = 0;
    for seed in 1..=24 {
        let mut fleet = fleet(7, seed, 2);
        fleet.ears.are_open = true;
        let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4, 5, 6, 6, 7, 7]);
        programs.pass(&mut fleet, 12);
        fleet.loses_datagrams = seed % 4 == 0;
        programs.pass(&mut fleet, 3);
        fleet.loses_datagrams = false;
        // Others join and leave, which ends the chain; a host dies.
        let late = fleet.task(Fleet::host(4));
        programs.members.iter_mut().for_each(|member| member.passed = 0);
        programs.join(&mut fleet, late);
        programs.pass(&mut fleet, 6);
        assert_eq!(programs.failed, 0);
        fleet.kill(Fleet::host(5));
        fleet.settle();
        programs.forget(|tid| tid.host() == Fleet::host(5));
        programs.pass(&mut fleet, 6);
        ended_by_a_task += fleet.ears.count;
    }
    assert!(ended_by_a_task > 1000, "{ended_by_a_task}");
}

#[test]
fn members_that_compute_long_between_barriers_and_hear_their_releases_have_missed_none() {
    let mut fleet = fleet(4, 1, 1);
    (fleet.ears.are_open, fleet.keeps_datagrams) = (true, true);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4]);
    for _ in 0..40 {
        programs.pass(&mut fleet, 1);
        fleet.pass(LATER);
        programs.look(&fleet);
    }
    assert!(fleet.broadcasts > 20, "the hosts count as reached: {} broadcasts", fleet.broadcasts);
}

#[test]
fn a_release_is_not_repeated_while_hosts_give_signs_one_after_another() {
    // The time between two arrivals in ms, and the number of hosts: with 14 of them, 15 ms each are too much in all.
    for (pause, hosts, is_repeated) in [(15, 6, false), (25, 6, true), (15, 14, true)] {
        let mut fleet = fleet(hosts, 1, 1);
        fleet.keeps_datagrams = true;
        let mut programs = Programs::new(&mut fleet, &(1..=hosts as u32).collect::<Vec<_>>());
        programs.pass(&mut fleet, 3);
        fleet.repeated_releases = 0;
        for _ in 0..3 {
            for member in 0..hosts {
                programs.arrive(&mut fleet, member, hosts);
                // The last arrival and the first one of the next barrier follow each other.
                fleet.pass(Duration::from_millis(if member < hosts - 1 { pause } else { 0 }));
                programs.look(&fleet);
            }
        }
        assert_eq!(fleet.repeated_releases > 0, is_repeated, "{pause} ms, {hosts} hosts");
    }
}

#[test]
fn a_release_that_was_lost_is_repeated_before_the_members_change() {
    let mut fleet = fleet(4, 1, 1);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4]);
    programs.pass(&mut fleet, 3);
    fleet.loses_datagrams = true;
    (0..4).for_each(|member| programs.arrive(&mut fleet, member, 4));
    fleet.settle();
    programs.look(&fleet);
    assert!(programs.members[1].waits.is_some(), "its host has not heard the release");
    // A new member of that host arrives, which is no sign that the host knows the release.
    let late = fleet.task(Fleet::host(2));
    programs.join(&mut fleet, late);
    programs.arrive(&mut fleet, 4, 5);
    fleet.pass(LATER);
    programs.look(&fleet);
    assert!((0..4).all(|member| programs.members[member].waits.is_none()));
}

#[test]
fn an_arrival_of_another_thread_is_no_sign_that_a_host_knows_a_release() {
    let mut fleet = fleet(4, 1, 1);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4]);
    programs.pass(&mut fleet, 3);
    programs.leaves_count_open = false;
    fleet.loses_datagrams = true;
    (0..4).for_each(|member| programs.arrive(&mut fleet, member, 4));
    fleet.settle();
    programs.look(&fleet);
    let (tid, group) = (programs.members[1].tid, programs.group);
    assert!(programs.members[1].waits.is_some(), "its host has not heard the release");
    let request = fleet.ears.with_news(tid, Request::Barrier { group, count: 4 });
    let second = fleet.send(tid, request);
    fleet.pass(LATER);
    programs.look(&fleet);
    assert!(programs.members.iter().all(|member| member.waits.is_none()));
    assert_eq!(fleet.answer(tid, second), None, "the others have not arrived at the next barrier");
    [0, 2, 3].into_iter().for_each(|member| programs.arrive(&mut fleet, member, 4));
    fleet.pass(LATER);
    assert!(matches!(fleet.answer(tid, second), Some(Reply::Done | Reply::Released(_))));
}

#[test]
fn without_a_group_to_broadcast_to_nothing_is_broadcast() {
    let mut fleet = fleet(4, 1, 1);
    fleet.machine(MASTER).core.settings.broadcast = None;
    Programs::new(&mut fleet, &[1, 2, 3, 4]).pass(&mut fleet, 5);
    assert_eq!(fleet.broadcasts, 0);
}

#[test]
fn hosts_that_broadcasts_do_not_reach_are_served_by_their_links() {
    let mut fleet = fleet(4, 1, 1);
    fleet.loses_datagrams = true;
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4]);
    programs.pass(&mut fleet, 12);
    let broadcasts = fleet.broadcasts;
    assert!((1..9).contains(&broadcasts), "{broadcasts} broadcasts");
    programs.pass(&mut fleet, 12);
    assert_eq!(fleet.broadcasts, broadcasts, "nobody would hear them");
}

#[test]
fn members_and_hosts_that_come_and_go_leave_nobody_waiting() {
    let (mut opened, mut failed) = (0, 0);
    for seed in 1..=90 {
        let mut fleet = fleet(8, seed, [2, usize::MAX, 5][seed as usize % 3]);
        let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4, 5, 6, 7, 8, 2, 5]);
        programs.leaves_count_open = false;
        for turn in 0..120 {
            let all = programs.members.len();
            let member = fleet.prng.below(all);
            match fleet.prng.below(60) {
                0 if all > 4 => {
                    let tid = programs.members[member].tid;
                    fleet.leave(tid);
                    programs.forget(|other| other == tid);
                }
                1 if turn % 3 == 0 && all > 6 && programs.members[member].tid.host() != MASTER => {
                    let host = programs.members[member].tid.host();
                    fleet.kill(host);
                    programs.forget(|tid| tid.host() == host);
                }
                2 => {
                    let host = fleet.living()[fleet.prng.below(fleet.nodes.len())];
                    let tid = fleet.task(host);
                    programs.join(&mut fleet, tid);
                }
                // Members that do not know of the latest change, and others who want only some members.
                3 => programs.arrive(&mut fleet, member, all.div_ceil(2)),
                _ => programs.arrive(&mut fleet, member, all),
            }
            for _ in 0..fleet.prng.below(12) {
                fleet.step();
                programs.look(&fleet);
            }
            if fleet.prng.below(10) == 0 {
                fleet.pass(Duration::from_millis(30));
                programs.look(&fleet);
            }
        }
        programs.end(&mut fleet, MUCH_LATER, seed);
        (opened, failed) = (opened + programs.opened, failed + programs.failed);
    }
    assert!(opened > 800 && failed > 300, "{opened} opened, {failed} failed");
}

#[test]
fn a_member_that_has_gone_is_not_told_of_a_new_chain() {
    let mut fleet = fleet(3, 11, 2);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 2, 3]);
    programs.pass(&mut fleet, 4);
    let (id, gone) = (programs.group, programs.members[1].tid);
    // The chain crosses the news that the member has gone. The fleet checks that nothing is sent to such a task.
    fleet.leave(gone);
    let anchor = Release { chain: 7, index: 0, value: [1; CHAIN_VALUE_BYTES] };
    let told = Frame::GroupChanged { id, number: 0, change: GroupChange::Chain(anchor) };
    says(&mut fleet, MASTER, gone.host(), told);
    fleet.settle();
    programs.forget(|tid| tid == gone);
    programs.pass(&mut fleet, 3);
}

// ----- hostile hosts and strangers

pub(super) fn says(fleet: &mut Fleet, from: Tid, to: Tid, frame: Frame) {
    let now = fleet.now;
    fleet.machine(to).handle_host_frame(now, from, frame);
    fleet.work(to);
}

#[test]
fn strangers_cannot_release_a_barrier() {
    let mut fleet = fleet(5, 3, 2);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3, 4, 5]);
    programs.pass(&mut fleet, 6);
    (1..4).for_each(|member| programs.arrive(&mut fleet, member, 5));
    fleet.settle();
    let (group, now) = (programs.group, fleet.now);
    for old in fleet.sent_datagrams.clone() {
        for chain in 0..4 {
            for index in 0..40 {
                let release = Release { chain, index, value: [index as u8; CHAIN_VALUE_BYTES] };
                let bytes = crate::wire::encode(&(group, release));
                assert!(fleet.machine(Fleet::host(3)).handle_broadcast(now, &bytes).is_err());
            }
        }
        for cut in 0..old.len() {
            let mut changed = old.clone();
            changed[cut] ^= 0x55;
            let is_malformed = |bytes: &[u8], fleet: &mut Fleet| {
                let result = fleet.machine(Fleet::host(3)).handle_broadcast(now, bytes);
                result.expect_err("not accepted") == DatagramError::Malformed
            };
            assert!(is_malformed(&old[..cut], &mut fleet));
            assert!(is_malformed(&[&old[..], &[0; 3000]].concat(), &mut fleet));
            assert!(!is_malformed(&old, &mut fleet), "a replay");
            is_malformed(&changed, &mut fleet);
        }
    }
    fleet.work(Fleet::host(3));
    fleet.settle();
    programs.look(&fleet);
    assert!((1..4).all(|member| programs.members[member].waits.is_some()));
    programs.pass(&mut fleet, 3);
}

#[test]
fn a_host_without_members_cannot_touch_a_group() {
    let mut fleet = fleet(4, 3, 2);
    let mut programs = Programs::new(&mut fleet, &[1, 2, 3]);
    programs.pass(&mut fleet, 4);
    let (evil, id) = (Fleet::host(4), programs.group);
    (0..2).for_each(|member| programs.arrive(&mut fleet, member, 3));
    fleet.pass(LATER);
    let victim = programs.members[2].tid;
    let arrival = |tid, turn| Arrival { tid, turn, version: 1000, count: 3, lan: false };
    let release = Release { chain: 1, index: 5, value: [1; CHAIN_VALUE_BYTES] };
    let ended = programs.members.iter().flat_map(|one| (0..60).map(|turn| (one.tid, turn))).collect();
    for to in [MASTER, Fleet::host(2), Fleet::host(3)] {
        for frame in [
            Frame::Arrived { id, arrivals: vec![arrival(victim, u64::MAX), arrival(Tid(evil.0 | 1), 5)], chain: None },
            Frame::BarrierEnded {
                id,
                ended: Vec::clone(&ended),
                failure: None,
                release: None,
                passed: None,
                late: false,
            },
            Frame::BarrierEnded {
                id,
                ended: Vec::new(),
                failure: None,
                release: Some(release.clone()),
                passed: None,
                late: false,
            },
            Frame::BarrierEnded {
                id,
                ended: Vec::clone(&ended),
                failure: None,
                release: Some(release.clone()),
                passed: Some(Passed { version: 1000, number: 1000 }),
                late: true,
            },
            Frame::GroupChanged { id, number: 0, change: GroupChange::Chain(release.clone()) },
            Frame::ReleaseMissed,
        ] {
            says(&mut fleet, evil, to, frame);
        }
    }
    fleet.pass(LATER);
    programs.look(&fleet);
    assert!((0..2).all(|member| programs.members[member].waits.is_some()), "one has not arrived");
    programs.pass(&mut fleet, 4);
    assert_eq!(programs.failed, 0);
}
