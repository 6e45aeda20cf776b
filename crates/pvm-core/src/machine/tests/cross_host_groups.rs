//! Groups with members on several hosts; on each host, a board stands in for the shared memory of a group.
use super::fleet::{Fleet, MASTER};
use super::world::text;
use super::*;
use std::collections::BTreeMap;

const SEEDS: u64 = 60;

/// Where a member waits at a barrier: at the board of its host, or for an answer of its daemon.
#[derive(Debug, Clone, Copy)]
enum At {
    Board { host: Tid, group: u64, generation: u32 },
    Daemon { task: Tid, wait: u32 },
}

impl Fleet {
    fn join(&mut self, tid: Tid) -> Result<(u64, u32), Code> {
        match self.ask(tid, Request::JoinGroup(text("g"))) {
            Some(Reply::Group { id, instance }) => Ok((id, instance as u32)),
            Some(Reply::Error(code)) => Err(code),
            other => panic!("{other:?}"),
        }
    }

    /// Lets a member arrive: on the board of its host or, if that board is out of use, by way of its daemon.
    fn arrive(&mut self, tid: Tid, need: u16) -> At {
        self.arrive_late(tid, need, 0)
    }

    /// Lets a member arrive; the group had `before` members when the member decided to arrive.
    fn arrive_late(&mut self, tid: Tid, need: u16, before: u32) -> At {
        let host = tid.host();
        let boards = &mut self.nodes.get_mut(&host).expect("lives").boards;
        let (group, board) = boards.boards.first_key_value().expect("keeps the group");
        let group = *group;
        if board.taken {
            let wait = self.send(tid, Request::Barrier { group, count: need.into() });
            return At::Daemon { task: tid, wait };
        }
        let instance = *board.members.iter().find(|(_, member)| **member == tid).expect("a member").0;
        let size = board.members.len();
        let board = boards.boards.get_mut(&group).expect("looked up just now");
        let generation = board.arrive(instance, need).expect("all have the same need");
        if size < need.into() {
            self.frame(tid, ToDaemon::CheckBarrier { group, size: before.max(size as u32) });
        }
        At::Board { host, group, generation }
    }

    /// Returns how the barrier has ended: opened or failed; `None` if it is pending.
    fn fate(&self, at: At) -> Option<Result<(), Code>> {
        match at {
            At::Daemon { task, wait } => match self.answer(task, wait)? {
                Reply::Done | Reply::Released(_) => Some(Ok(())),
                Reply::Error(code) => Some(Err(code)),
                other => panic!("{other:?}"),
            },
            At::Board { host, group, generation } => {
                let Some(board) = self.nodes.get(&host)?.boards.boards.get(&group) else {
                    return Some(Err(Code::NoGroup));
                };
                let failed = board.failed.contains(&generation) || board.released.contains(&(generation, false));
                let fate = if failed { Err(Code::NoTask) } else { Ok(()) };
                (board.generation > generation).then_some(fate)
            }
        }
    }

    /// Returns how many members the pending barrier needs, if there is one.
    fn pending_need(&mut self) -> Option<u16> {
        let machine = self.machine(MASTER);
        let here = machine.parts.groups.waiting_here();
        let boards = self.nodes.values().flat_map(|node| node.boards.waiting().into_values().collect::<Vec<_>>());
        here.into_iter().chain(boards).map(|waiting| waiting.need).find(|need| *need > 0)
    }

    fn check_boards(&self) {
        let mut all = self.nodes.values().flat_map(|node| node.boards.boards.values()).map(|board| &board.members);
        let Some(first) = all.next() else { return };
        all.for_each(|members| assert_eq!(members, first));
    }
}

fn many(hosts: usize, story: impl Fn(&mut Fleet)) {
    (1..=SEEDS).for_each(|seed| story(&mut Fleet::new(hosts, seed)));
}

fn tasks_on(fleet: &mut Fleet, hosts: &[u32]) -> Vec<Tid> {
    hosts.iter().map(|host| fleet.task(Fleet::host(*host))).collect()
}

#[test]
fn who_has_joined_or_left_is_known_on_all_hosts_before_it_is_answered() {
    many(3, |fleet| {
        let tasks = tasks_on(fleet, &[1, 2, 3, 3, 2]);
        for (number, tid) in tasks.iter().enumerate() {
            let wait = fleet.send(*tid, Request::JoinGroup(text("g")));
            while fleet.answer(*tid, wait).is_none() {
                assert!(fleet.step());
            }
            let known = |board: &super::group_members::Board| board.members.get(&(number as u32)) == Some(tid);
            assert!(fleet.nodes.values().flat_map(|node| node.boards.boards.values()).all(known));
        }
        let wait = fleet.send(tasks[1], Request::LeaveGroup(text("g")));
        while fleet.answer(tasks[1], wait).is_none() {
            assert!(fleet.step());
        }
        assert!(
            fleet.nodes.values().flat_map(|node| node.boards.boards.values()).all(|board| board.members.len() == 4)
        );
        assert_eq!(fleet.join(tasks[1]).unwrap().1, 1);
        assert_eq!(fleet.join(tasks[2]), Err(Code::DupGroup));
        fleet.check_boards();
        for tid in tasks {
            fleet.leave(tid);
        }
        fleet.settle();
        assert!(fleet.nodes.values().all(|node| node.boards.boards.is_empty() && node.machine.leftovers().is_empty()));
    });
}

#[test]
fn members_of_one_host_meet_in_its_memory_wherever_it_is() {
    let mut fleet = Fleet::new(3, 1);
    let tasks = tasks_on(&mut fleet, &[2, 2, 3]);
    fleet.join(tasks[0]).unwrap();
    fleet.join(tasks[1]).unwrap();
    assert!(matches!(fleet.ask(tasks[2], Request::Group(text("g"))), Some(Reply::Group { instance: -1, .. })));
    let first = fleet.arrive(tasks[0], 2);
    assert!(matches!(first, At::Board { .. }));
    assert_eq!(fleet.fate(first), None);
    fleet.arrive(tasks[1], 2);
    assert_eq!(fleet.fate(first), Some(Ok(())));
    // A member that has not arrived dies.
    let waits = fleet.arrive(tasks[0], 2);
    fleet.leave(tasks[1]);
    fleet.settle();
    assert_eq!(fleet.fate(waits), Some(Err(Code::NoTask)));
    assert!(!fleet.nodes.contains_key(&MASTER) || fleet.nodes[&MASTER].boards.boards.is_empty());
}

#[test]
fn arrivals_are_kept_when_members_of_another_host_come_and_go() {
    many(3, |fleet| {
        let tasks = tasks_on(fleet, &[2, 2, 3, 1]);
        for tid in &tasks[..2] {
            fleet.join(*tid).unwrap();
        }
        let mut waiting = vec![fleet.arrive(tasks[0], 4), fleet.arrive(tasks[1], 4)];
        fleet.settle();
        let join = fleet.send(tasks[2], Request::JoinGroup(text("g")));
        for _ in 0..fleet.prng.below(9) {
            fleet.step();
        }
        fleet.join(tasks[3]).unwrap();
        assert!(fleet.answer(tasks[2], join).is_some());
        waiting.push(fleet.arrive(tasks[2], 4));
        fleet.settle();
        assert!(waiting.iter().all(|at| fleet.fate(*at).is_none()));
        waiting.push(fleet.arrive(tasks[3], 4));
        fleet.settle();
        assert!(waiting.iter().all(|at| fleet.fate(*at) == Some(Ok(()))));
        // The members pass one more barrier across hosts, then one on a single host.
        let last: Vec<At> = tasks.iter().map(|tid| fleet.arrive(*tid, 4)).collect();
        assert!(last.iter().all(|at| matches!(at, At::Daemon { .. })));
        fleet.settle();
        assert!(last.iter().all(|at| fleet.fate(*at) == Some(Ok(()))));
        fleet.leave(tasks[2]);
        fleet.leave(tasks[3]);
        fleet.settle();
        let back: Vec<At> = tasks[..2].iter().map(|tid| fleet.arrive(*tid, 2)).collect();
        assert!(back.iter().all(|at| matches!(at, At::Board { .. }) && fleet.fate(*at) == Some(Ok(()))));
    });
}

#[test]
fn a_barrier_over_hosts_fails_when_members_or_hosts_die() {
    many(3, |fleet| {
        let tasks = tasks_on(fleet, &[1, 2, 2, 3]);
        for tid in &tasks {
            fleet.join(*tid).unwrap();
        }
        let waiting = [fleet.arrive(tasks[0], 4), fleet.arrive(tasks[1], 4)];
        fleet.settle();
        match fleet.prng.below(3) {
            0 => fleet.leave(tasks[3]),
            1 => drop(fleet.send(tasks[3], Request::LeaveGroup(text("g")))),
            _ => fleet.kill(Fleet::host(3)),
        }
        fleet.settle();
        assert!(waiting.iter().all(|at| fleet.fate(*at) == Some(Err(Code::NoTask))));
        let another = [0, 1, 2].map(|member| fleet.arrive(tasks[member], 3));
        fleet.settle();
        assert!(another.iter().all(|at| fleet.fate(*at) == Some(Ok(()))));
        // A barrier opens for two members, although the group has three.
        let last = fleet.arrive(tasks[0], 2);
        fleet.arrive(tasks[1], 2);
        fleet.settle();
        assert_eq!(fleet.fate(last), Some(Ok(())));
        assert_eq!(fleet.ask(tasks[0], Request::Barrier { group: 99, count: 1 }), Some(Reply::Error(Code::NoGroup)));
    });
}

#[test]
fn one_who_left_before_a_barrier_over_hosts_may_be_replaced() {
    many(3, |fleet| {
        let tasks = tasks_on(fleet, &[1, 2, 3, 3]);
        for tid in &tasks {
            fleet.join(*tid).unwrap();
        }
        for turn in 0..2 {
            assert_eq!(fleet.ask(tasks[3], Request::LeaveGroup(text("g"))), Some(Reply::Done));
            let waiting = [0, 1, 2].map(|member| fleet.arrive(tasks[member], 4));
            fleet.pass(super::BARRIER_PATIENCE / 2);
            assert!(waiting.iter().all(|at| fleet.fate(*at).is_none()));
            if turn == 1 {
                // No substitute joins.
                fleet.pass(super::BARRIER_PATIENCE);
                assert!(waiting.iter().all(|at| fleet.fate(*at) == Some(Err(Code::NoTask))));
                return;
            }
            fleet.join(tasks[3]).unwrap();
            fleet.arrive(tasks[3], 4);
            fleet.settle();
            assert!(waiting.iter().all(|at| fleet.fate(*at) == Some(Ok(()))));
        }
    });
}

#[test]
fn groups_freeze_and_break_over_hosts() {
    many(3, |fleet| {
        let tasks = tasks_on(fleet, &[1, 2, 3]);
        for tid in &tasks {
            fleet.join(*tid).unwrap();
        }
        let freeze = || Request::FreezeGroup { name: text("g"), count: 3 };
        let waits: Vec<u32> = tasks.iter().map(|tid| fleet.send(*tid, freeze())).collect();
        fleet.settle();
        for (tid, wait) in tasks.iter().zip(waits) {
            assert_eq!(fleet.answer(*tid, wait), Some(Reply::Int(3)));
        }
        let late = fleet.task(Fleet::host(2));
        assert_eq!(fleet.join(late), Err(Code::NotInGroup));
        let waiting = fleet.arrive(tasks[0], 2);
        fleet.settle();
        fleet.kill(Fleet::host(3));
        fleet.settle();
        assert_eq!(fleet.fate(waiting), Some(Err(Code::NoGroup)), "though two members are enough");
        let broken = [GroupAction::Freeze, GroupAction::Break];
        assert!(fleet.nodes.values().flat_map(|node| node.boards.boards.values()).all(|board| board.state == broken));
    });
}

#[test]
fn without_memory_on_its_host_nobody_stays_a_member() {
    let mut fleet = Fleet::new(2, 1);
    let tasks = tasks_on(&mut fleet, &[1, 2]);
    fleet.join(tasks[0]).unwrap();
    fleet.nodes.get_mut(&Fleet::host(2)).unwrap().boards.exhausted = true;
    assert_eq!(fleet.join(tasks[1]), Err(Code::OutOfRes));
    assert_eq!(fleet.nodes[&MASTER].boards.boards[&1].members.len(), 1);
    fleet.nodes.get_mut(&Fleet::host(2)).unwrap().boards.exhausted = false;
    assert_eq!(fleet.join(tasks[1]).unwrap().1, 1);
}

/// Members join and arrive, on all hosts, in any order: every barrier opens for as many members as it needs.
fn growing_group(seed: u64) {
    const NEED: u16 = 3;
    let mut fleet = Fleet::new(4, seed);
    let hosts: Vec<u32> = (0..8).map(|_| 1 + fleet.prng.below(4) as u32).collect();
    let tasks = tasks_on(&mut fleet, &hosts);
    let mut joining: BTreeMap<Tid, u32> = BTreeMap::new();
    let mut members: Vec<Tid> = Vec::new();
    let mut arrivals: BTreeMap<Tid, At> = BTreeMap::new();
    let (mut arrived, mut passed) = (0, 0);
    for _ in 0..400 {
        let tid = tasks[fleet.prng.below(tasks.len())];
        match fleet.prng.below(10) {
            0 if !joining.contains_key(&tid) && !members.contains(&tid) => {
                joining.insert(tid, fleet.send(tid, Request::JoinGroup(text("g"))));
            }
            1 | 2 if members.contains(&tid) && !arrivals.contains_key(&tid) => {
                arrivals.insert(tid, fleet.arrive(tid, NEED));
                arrived += 1;
            }
            3 => {
                let node = fleet.nodes.get_mut(&tid.host()).unwrap();
                node.boards.boards.values_mut().for_each(|board| board.in_doubt = !board.in_doubt);
            }
            _ => drop(fleet.step()),
        }
        joining.retain(|tid, wait| {
            let joined = fleet.answer(*tid, *wait).is_some();
            members.extend(joined.then_some(*tid));
            !joined
        });
        let count = arrivals.len();
        arrivals.retain(|_, at| fleet.fate(*at).is_none_or(|fate| fate.is_err()));
        passed += count - arrivals.len();
    }
    fleet.settle();
    arrivals.retain(|_, at| fleet.fate(*at).is_none());
    assert_eq!(arrivals.len(), arrived % usize::from(NEED), "seed {seed}: of {arrived}, {passed} had passed early");
}

#[test]
fn no_arrival_is_lost_or_counted_twice_while_hosts_join_in() {
    (1..=200).for_each(growing_group);
}

/// Members join, leave and die, and hosts die; no member is left waiting for members that have gone.
fn life_of_a_far_group(seed: u64) -> (usize, usize) {
    let mut fleet = Fleet::new(4, seed);
    let mut waiting: BTreeMap<Tid, At> = BTreeMap::new();
    let (mut opened, mut failed) = (0, 0);
    for host in [1, 1, 2, 2, 3, 4] {
        fleet.task(Fleet::host(host));
    }
    let mut need = 0;
    for step in 0..150 {
        let mut tasks = fleet.tasks();
        if tasks.is_empty() {
            tasks.push(fleet.task(MASTER));
        }
        let tid = tasks[fleet.prng.below(tasks.len())];
        let boards = &fleet.nodes[&tid.host()].boards.boards;
        let is_member = boards.values().any(|board| board.members.values().any(|member| *member == tid));
        let size = boards.values().next().map_or(0, |board| board.members.len());
        match (fleet.prng.below(12), is_member) {
            (0, _) if tasks.len() > 3 => {
                fleet.leave(tid);
                waiting.remove(&tid);
            }
            (1, _) => drop(fleet.task(tid.host())),
            (2, _) if step % 10 == 0 && tid.host() != MASTER => {
                fleet.kill(tid.host());
                waiting.retain(|task, _| task.host() != tid.host());
            }
            (3, true) if !waiting.contains_key(&tid) => drop(fleet.ask(tid, Request::LeaveGroup(text("g")))),
            (4..=7, false) => drop(fleet.join(tid)),
            (_, true) if !waiting.contains_key(&tid) => {
                // If all waiting members have died, no barrier is pending.
                need = fleet.pending_need().unwrap_or(size as u16);
                waiting.insert(tid, fleet.arrive_late(tid, need, need.into()));
            }
            _ => {}
        }
        if fleet.prng.below(3) == 0 {
            continue;
        }
        fleet.pass(super::BARRIER_PATIENCE + Duration::from_secs(1));
        fleet.check_boards();
        waiting.retain(|_, at| {
            let fate = fleet.fate(*at);
            opened += usize::from(fate == Some(Ok(())));
            failed += usize::from(matches!(fate, Some(Err(_))));
            fate.is_none()
        });
        let members = fleet.nodes.values().find_map(|node| node.boards.boards.values().next());
        let size = members.map_or(0, |board| board.members.len());
        let absent = size - waiting.len();
        // A pending barrier waits for at least one member that has not arrived, unless it needs more than the group
        // has. There may be fewer such members than `need - waiting.len()`, because members that arrived and have gone
        // since still count as arrived.
        assert!(waiting.is_empty() || absent > 0 || usize::from(need) > size, "seed {seed}: {waiting:?}");
    }
    (opened, failed)
}

#[test]
fn nobody_waits_over_hosts_for_members_that_have_gone() {
    let lives = (1..=40).map(life_of_a_far_group);
    let (opened, failed) = lives.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(opened > 50 && failed > 50, "{opened} opened, {failed} failed");
}

#[test]
fn the_group_server_of_every_host_knows_all_groups_and_who_waits() {
    use crate::codes::GROUP_SERVER_LIST;
    let mut fleet = Fleet::new(3, 7);
    let tasks = tasks_on(&mut fleet, &[2, 2, 3]);
    for tid in &tasks[..2] {
        fleet.join(*tid).unwrap();
    }
    fleet.arrive(tasks[1], 2);
    let server = Tid::group_server(tasks[2]);
    let body = ByteBuf::new();
    let message = Message::new(tasks[2], server, 9, GROUP_SERVER_LIST, body);
    for joins in [false, true] {
        if joins {
            fleet.join(tasks[2]).unwrap();
        }
        fleet.frame(tasks[2], ToDaemon::Message(message.clone()));
        fleet.settle();
        let lists = fleet.messages(tasks[2], GROUP_SERVER_LIST);
        let list = lists.last().expect("an answer");
        assert_eq!((list.src, list.ctx), (server, 9));
        let mut body = crate::encoding::Reader::new(&list.body);
        assert_eq!((body.int(), body.int(), body.string()), (Some(1), Some(1), Some(&b"g"[..])));
        let ints: Vec<i32> = std::iter::from_fn(|| body.int()).collect();
        assert_eq!(ints[..4], [2 + i32::from(joins), 10, 2, 1]);
        assert_eq!(ints.last(), Some(&(tasks[1].0 as i32)));
    }
}
