//! The master cannot be heard any more, and nothing proves that it has died: a majority of the council decides.
use super::fleet::{Fleet, MASTER};
use super::moving_master::{Known, put};
use super::several_hosts::names;
use super::world::text;
use super::*;
use crate::codes::MBOX_PERSISTENT;
use crate::proto::Office;
use crate::wire::Backup;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 30;
const TIMEOUT: Duration = Duration::from_secs(10);

fn hosts(numbers: &[u32]) -> Vec<Tid> {
    numbers.iter().map(|number| Fleet::host(*number)).collect()
}

#[test]
fn the_deputy_takes_the_place_of_a_silent_master() {
    for seed in 1..=SEEDS {
        let count = [4, 5, 17][seed as usize % 3];
        let mut fleet = Fleet::new(count, seed);
        let known = Known::new(&mut fleet);
        if fleet.prng.below(2) == 0 {
            fleet.kill(MASTER);
        } else {
            fleet.freeze(MASTER);
        }
        fleet.pass(TIMEOUT + Duration::from_secs(1));
        fleet.nodes.remove(&MASTER);
        assert_eq!((fleet.living().len(), fleet.master()), (count - 1, Some(Fleet::host(2))), "seed {seed}");
        fleet.check_tables();
        known.check(&mut fleet);
    }
}

#[test]
fn every_host_knows_the_council() {
    for (count, members) in [(1, vec![]), (2, vec![]), (3, vec![3]), (15, vec![3]), (16, vec![3, 4, 5])] {
        let mut fleet = Fleet::new(count, 3);
        fleet.settle();
        for host in fleet.living() {
            let office = |number: u32| match number {
                1 => Office::Master,
                2 => Office::Deputy,
                number if members.contains(&number) => Office::Council,
                _ => Office::None,
            };
            let offices: Vec<Office> = fleet.machine(host).host_list().iter().map(|host| host.office).collect();
            assert_eq!(offices, (1..=count as u32).map(office).collect::<Vec<_>>(), "{host}");
        }
    }
}

#[test]
fn a_third_host_that_takes_no_tasks_decides_between_two() {
    for seed in 1..=SEEDS {
        let silent = [MASTER, Fleet::host(2)][seed as usize % 2];
        let mut fleet = Fleet::new(3, seed);
        let [one, two] = [1, 2].map(|host| fleet.task(Fleet::host(host)));
        let left = if silent == MASTER { two } else { one };
        fleet.ask(left, Request::DrainHosts { names: names(&["h3"]), drain: true });
        fleet.ask(left, put("kept", left, 0));
        fleet.freeze(silent);
        fleet.pass(TIMEOUT + Duration::from_secs(5));
        fleet.nodes.remove(&silent);
        assert_eq!((fleet.master(), fleet.ask(left, put("new", left, 0))), (Some(left.host()), Some(Reply::Int(0))));
        let Some(Reply::Mailboxes(boxes)) = fleet.ask(left, Request::MailboxInfo { pattern: text("") }) else {
            panic!()
        };
        assert_eq!(boxes.len(), 2, "seed {seed}");
    }
}

/// The master has gone on without the deputy, with the consent of host 3 if there is one.
#[test]
fn a_deputy_that_wakes_up_is_no_master_although_the_former_one_has_died() {
    for seed in 1..=SEEDS {
        for count in [2, 3, 4] {
            let mut fleet = Fleet::new(count, seed);
            let one = fleet.task(MASTER);
            fleet.freeze(Fleet::host(2));
            fleet.pass(TIMEOUT + Duration::from_secs(5));
            assert_eq!(fleet.ask(one, put("new", one, 0)), Some(Reply::Int(0)), "seed {seed}");
            fleet.die(MASTER);
            fleet.thaw(Fleet::host(2));
            fleet.pass(2 * TIMEOUT);
            let left: Vec<u32> = (3..=count as u32).collect();
            assert_eq!(fleet.living(), hosts(&left), "seed {seed}, {count} hosts");
        }
    }
}

/// The deputy has become the master and has ended, or has only ended.
#[test]
fn a_master_that_wakes_up_needs_consent_although_its_deputy_has_ended() {
    for seed in 1..=SEEDS {
        for (sleep, master) in [(Duration::from_secs(30), 3), (TIMEOUT / 3, 1)] {
            let mut fleet = Fleet::new(3, seed);
            let tasks = hosts(&[1, 2, 3]).into_iter().map(|host| (host, fleet.task(host))).collect::<BTreeMap<_, _>>();
            fleet.freeze(MASTER);
            fleet.pass(sleep);
            fleet.die(Fleet::host(2));
            fleet.pass(Duration::from_secs(1));
            fleet.prove_end(Fleet::host(2), MASTER);
            fleet.thaw(MASTER);
            fleet.pass(2 * TIMEOUT);
            assert_eq!(fleet.living(), if master == 1 { hosts(&[1, 3]) } else { hosts(&[3]) }, "seed {seed}");
            let asker = tasks[&Fleet::host(master)];
            assert_eq!(fleet.ask(asker, put("new", asker, 0)), Some(Reply::Int(0)), "seed {seed}");
            fleet.check_tables();
        }
    }
}

#[test]
fn a_master_that_wakes_up_ends() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let (one, three) = (fleet.task(MASTER), fleet.task(Fleet::host(3)));
        fleet.freeze(MASTER);
        fleet.pass(Duration::from_secs(30));
        assert_eq!(fleet.ask(three, put("new", three, 0)), Some(Reply::Int(0)));
        fleet.thaw(MASTER);
        let wait = fleet.send(one, put("new", one, 0));
        fleet.pass(TIMEOUT + Duration::from_secs(1));
        assert_eq!(fleet.answer(one, wait), None, "seed {seed}");
        assert_eq!(fleet.living(), hosts(&[2, 3, 4]));
        let says_why = |(host, _, line): &(Tid, Tid, String)| *host == MASTER && line.contains("lost most other hosts");
        assert_eq!(fleet.log.iter().filter(|line| says_why(line)).count(), 1, "{:?}", fleet.log);
        fleet.check_tables();
    }
}

/// The council of five hosts is 1 (the master), 2 (the deputy) and 3.
#[test]
fn the_side_with_the_majority_of_the_council_goes_on() {
    let cases: [(&[u32], &[u32]); 8] = [
        (&[1], &[2, 3, 4, 5]),
        (&[2], &[1, 3, 4, 5]),
        (&[3], &[1, 2, 4, 5]),
        (&[1, 4, 5], &[2, 3]),
        (&[2, 4, 5], &[1, 3]),
        (&[3, 4, 5], &[1, 2]),
        (&[1, 4], &[2, 3, 5]),
        (&[2, 5], &[1, 3, 4]),
    ];
    for seed in 1..=SEEDS {
        for (ends, stays) in cases {
            let mut fleet = Fleet::new(5, seed);
            let tasks: BTreeMap<u32, Tid> = (1..=5).map(|host| (host, fleet.task(Fleet::host(host)))).collect();
            fleet.part(&hosts(ends));
            let waits: BTreeMap<u32, u32> = tasks
                .iter()
                .map(|(host, task)| (*host, fleet.send(*task, put(&format!("{host}"), *task, 0))))
                .collect();
            fleet.pass(TIMEOUT + Duration::from_secs(1));
            assert_eq!(fleet.living(), hosts(stays), "seed {seed}, {ends:?} end");
            fleet.check_tables();
            for (host, wait) in waits {
                let expected = stays.contains(&host).then_some(Reply::Int(0));
                assert_eq!(fleet.answer(tasks[&host], wait), expected, "seed {seed}, {ends:?} end, {host}");
            }
            // There is another deputy.
            let master = fleet.master().expect("a master");
            if stays.len() > 2 {
                fleet.kill(master);
                fleet.pass(TIMEOUT + Duration::from_secs(1));
                assert_eq!(fleet.living().len(), stays.len() - 1, "seed {seed}, {ends:?} end");
                fleet.check_tables();
            }
        }
    }
}

#[test]
fn a_master_whose_deputy_is_silent_answers_when_the_council_has_agreed() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let (one, three) = (fleet.task(MASTER), Fleet::host(3));
        fleet.freeze(three);
        fleet.cut(MASTER, Fleet::host(2));
        let wait = fleet.send(one, put("new", one, 0));
        fleet.settle();
        assert_eq!(fleet.answer(one, wait), None, "seed {seed}");
        fleet.thaw(three);
        fleet.settle();
        assert_eq!(fleet.answer(one, wait), Some(Reply::Int(0)), "seed {seed}");
        fleet.pass(TIMEOUT);
        assert_eq!(fleet.living(), hosts(&[1, 3, 4]));
        fleet.check_tables();
    }
}

/// The third host agrees at once. But the deputy, which has not heard of it, could take the end of the master for its vote.
#[test]
fn a_silent_deputy_is_deposed_only_when_it_is_lost() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(4, seed);
        let three = fleet.task(Fleet::host(3));
        fleet.freeze(Fleet::host(2));
        let wait = fleet.send(three, Request::DeleteHosts(names(&["h1"])));
        fleet.pass(TIMEOUT * 7 / 10);
        assert_eq!((fleet.answer(three, wait), fleet.living().len()), (None, 4), "seed {seed}");
        fleet.pass(TIMEOUT / 2);
        assert_eq!(fleet.answer(three, wait), Some(Reply::Codes(vec![0])), "seed {seed}");
        assert_eq!(fleet.living(), hosts(&[2, 3, 4]), "seed {seed}");
    }
}

/// Then the master may have gone on without the deputy.
#[test]
fn the_end_of_a_master_after_a_silence_is_no_vote() {
    for seed in 1..=SEEDS {
        for (silence, stays) in [(TIMEOUT * 3 / 10, true), (TIMEOUT * 7 / 10, false)] {
            for count in [2, 4] {
                let mut fleet = Fleet::new(count, seed);
                fleet.freeze(MASTER);
                fleet.pass(silence);
                fleet.die(MASTER);
                fleet.pass(TIMEOUT);
                // The third host of four votes.
                let expected = if stays || count > 2 { (2..=count as u32).collect() } else { vec![] };
                assert_eq!(fleet.living(), hosts(&expected), "seed {seed}, {count} hosts, {silence:?}");
            }
        }
    }
}

/// The master alone has lost its deputy, which still hears it, and dies as soon as it has gone on.
#[test]
fn a_deputy_that_is_lost_hears_that_the_master_goes_on_without_it() {
    for seed in 1..=SEEDS {
        for count in [2, 3, 4] {
            let mut fleet = Fleet::new(count, seed);
            let (one, two, now) = (fleet.task(MASTER), Fleet::host(2), fleet.now);
            fleet.settle();
            fleet.freeze(two);
            fleet.machine(MASTER).handle_link_down(now, two);
            fleet.work(MASTER);
            assert_eq!(fleet.ask(one, put("new", one, 0)), Some(Reply::Int(0)), "seed {seed}");
            fleet.die(MASTER);
            fleet.prove_end_last(MASTER, two);
            fleet.thaw(two);
            fleet.pass(2 * TIMEOUT);
            let left: Vec<u32> = (3..=count as u32).collect();
            assert_eq!(fleet.living(), hosts(&left), "seed {seed}, {count} hosts");
        }
    }
}

/// What a master has sent before its deputy gave it up may come late, for example because it waited for messages.
#[test]
fn a_deputy_that_stands_does_not_hear_the_master_any_more() {
    let mut fleet = Fleet::new(3, 5);
    let (two, three) = (Fleet::host(2), Fleet::host(3));
    fleet.freeze(three);
    fleet.kill(MASTER);
    fleet.settle();
    assert_eq!(fleet.machine(two).master(), MASTER, "it has no majority yet");
    let now = fleet.now;
    let hand_over = Frame::NewMaster { master: three };
    for frame in [Frame::Backup(Backup::Begin), Frame::Depose { deputy: two, number: 7 }, Frame::Leave, hand_over] {
        fleet.machine(two).handle_host_frame(now, MASTER, frame);
        fleet.work(two);
    }
    fleet.thaw(three);
    fleet.pass(Duration::from_secs(3));
    assert_eq!((fleet.living(), fleet.master()), (vec![two, three], Some(two)));
    fleet.check_tables();
}

#[test]
fn a_deputy_that_is_deleted_agrees_itself() {
    for seed in 1..=SEEDS {
        let mut fleet = Fleet::new(3, seed);
        let (one, three) = (fleet.task(MASTER), Fleet::host(3));
        fleet.freeze(three);
        let wait = fleet.send(one, Request::DeleteHosts(names(&["h2"])));
        fleet.settle();
        assert_eq!(fleet.answer(one, wait), Some(Reply::Codes(vec![0])), "seed {seed}");
        assert_eq!(fleet.living(), hosts(&[1, 3]));
        fleet.thaw(three);
        fleet.settle();
        fleet.check_tables();
        fleet.die(MASTER);
        fleet.pass(Duration::from_secs(3));
        assert_eq!((fleet.living(), fleet.master()), (vec![three], Some(three)));
    }
}

// ----- any order of faults

/// Tasks put entries; hosts are cut off, freeze, end, leave and come.
struct Storm {
    fleet: Fleet,
    tasks: Vec<Tid>,
    /// The entries: who puts it, and the number of the request.
    entries: Vec<(Tid, u32)>,
    next_host: u32,
    /// How rare faults are: 1, so that few machines are left, or 3, so that most are.
    calm: usize,
}

impl Storm {
    fn new(seed: u64, hosts: usize) -> Storm {
        let mut fleet = Fleet::new(hosts, seed);
        let tasks = fleet.living().into_iter().map(|host| fleet.task(host)).collect();
        let calm = [1, 3][fleet.prng.below(2)];
        Storm { fleet, tasks, entries: Vec::new(), next_host: hosts as u32 + 1, calm }
    }

    fn below(&mut self, sides: usize) -> usize {
        self.fleet.prng.below(sides)
    }
    fn host(&mut self) -> Option<Tid> {
        let living = self.fleet.living();
        let at = self.below(living.len());
        living.get(at).copied()
    }
    /// Returns a task of a host that runs.
    fn task(&mut self) -> Option<Tid> {
        let runs = |task: &&Tid| self.fleet.nodes.get(&task.host()).is_some_and(|node| !node.frozen);
        let tasks: Vec<Tid> = self.tasks.iter().filter(runs).copied().collect();
        let at = self.below(tasks.len());
        tasks.get(at).copied().filter(|task| self.fleet.machine(task.host()).core.tasks.is_connected(*task))
    }

    fn step(&mut self) {
        match self.below(40) {
            0..=9 => self.put(),
            10 => self.request(),
            11 if self.below(3 * self.calm) == 0 => {
                let living = self.fleet.living();
                let side: Vec<Tid> = living.into_iter().filter(|_| self.below(2) == 0).collect();
                self.fleet.part(&side);
            }
            12 => self.fleet.join_parts(),
            13 if self.below(3 * self.calm) == 0 => {
                if let (Some(one), Some(other)) = (self.host(), self.host()) {
                    self.fleet.cut(one, other);
                }
            }
            14 if self.below(self.calm) == 0 => self.freeze(),
            15 if self.below(8 * self.calm) == 0 => {
                if let Some(host) = self.host() {
                    self.fleet.die(host);
                }
            }
            16 if self.below(8 * self.calm) == 0 => {
                if let Some(host) = self.host() {
                    self.fleet.kill(host);
                }
            }
            17 => {
                let seconds = [0, 1, 6, 11][self.below(4)];
                self.fleet.pass(Duration::from_secs(seconds));
            }
            _ => drop(self.fleet.step()),
        }
    }

    fn put(&mut self) {
        if let Some(task) = self.task() {
            let name = format!("entry {}", self.entries.len());
            let wait = self.fleet.send(task, put(&name, task, MBOX_PERSISTENT));
            self.entries.push((task, wait));
        }
    }

    /// Lets a task ask for a change of the hosts.
    fn request(&mut self) {
        let Some(task) = self.task() else { return };
        let number = 1 + self.below(self.next_host as usize);
        let host = names(&[&format!("h{number}")]);
        let request = match self.below(6) {
            0 => Request::DeleteHosts(host),
            1 => Request::DrainHosts { names: host, drain: number % 3 > 0 },
            2 | 3 => {
                self.next_host += 1;
                Request::AddHosts(names(&[&format!("h{}", self.next_host - 1)]))
            }
            _ => return,
        };
        self.fleet.send(task, request);
    }

    fn freeze(&mut self) {
        let Some(host) = self.host() else { return };
        if let Some(node) = self.fleet.nodes.get_mut(&host) {
            node.frozen = !node.frozen;
        }
    }

    /// Ends all faults. Then one machine is left, or none, and it knows every entry that was put.
    fn check(&mut self) {
        self.fleet.nodes.values_mut().for_each(|node| node.frozen = false);
        self.fleet.join_parts();
        self.fleet.pass(Duration::from_secs(120));
        if self.fleet.living().is_empty() {
            return;
        }
        self.fleet.check_tables();
        let task = self.fleet.task(self.fleet.living()[0]);
        let Some(Reply::Mailboxes(boxes)) = self.fleet.ask(task, Request::MailboxInfo { pattern: text("") }) else {
            panic!("no answer")
        };
        let there: BTreeSet<String> =
            boxes.iter().map(|class| String::from_utf8_lossy(&class.name).into_owned()).collect();
        for (number, (task, wait)) in self.entries.iter().enumerate() {
            let name = format!("entry {number}");
            match self.fleet.answer(*task, *wait) {
                Some(Reply::Int(0)) => assert!(there.contains(&name), "{name} is lost"),
                None => {
                    let is_out = !self.fleet.nodes.contains_key(&task.host());
                    assert!(is_out, "{name} of {task} was not answered");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_hosts_lose_each_other_one_machine_is_left_and_nothing_that_was_answered_is_lost(
        seed in any::<u64>(),
        hosts in 3_usize..8,
    ) {
        let mut storm = Storm::new(seed, hosts);
        for _ in 0..300 {
            storm.step();
        }
        storm.check();
    }
}
