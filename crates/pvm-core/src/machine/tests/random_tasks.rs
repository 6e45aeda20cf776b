//! One machine with random requests, deaths and answers, made from a seed.
use super::world::{World, spawn_of, text};
use super::*;
use crate::codes::{SM_ADD, SM_EXEC, SM_HANDOFF, SM_SPAWN, SM_STHOSTACK, SM_TASKX};
use crate::encoding::Writer;
use crate::prng::Prng;
use crate::proto::{Role, Spawn, TraceSettings};
use crate::wire::ResolvedHost;

/// Values that requests may carry.
impl Prng {
    fn int(&mut self) -> i32 {
        [0, 1, 2, -1, 5, 8, 16, 32, 256, 257, i32::MAX, i32::MIN][self.below(12) as usize]
    }
    fn tid(&mut self) -> Tid {
        match self.below(12) {
            0 => Tid(self.int() as u32),
            1 => Tid(0x40000),
            2 => Tid(0x80001),
            _ => Tid(0x40001 + self.below(40) as u32),
        }
    }
    fn name(&mut self) -> ByteBuf {
        text(["", "a", "b", "alfa", "missing", "prog", "broken", "*", "###_PVM_TASKER_###"][self.below(9) as usize])
    }
    fn settings(&mut self) -> TraceSettings {
        let (output_tid, trace_tid) = (self.tid().0 as i32, self.tid().0 as i32);
        TraceSettings { output_tid, output_tag: self.int(), trace_tid, ..Default::default() }
    }
    fn role(&mut self) -> Role {
        [Role::Hoster, Role::Tasker, Role::ResourceManager, Role::Tracer][self.below(4) as usize]
    }

    fn request(&mut self) -> Request {
        let spawn = |prng: &mut Prng| Spawn {
            flags: prng.int(),
            place: prng.name(),
            children: prng.settings(),
            count: prng.below(4) as i32,
            ..spawn_of(["prog", "missing", "broken"][prng.below(3) as usize], 1)
        };
        let message = Message { enc: 0, ..Message::new(self.tid(), self.tid(), self.int(), self.int(), self.name()) };
        match self.below(31) {
            0 | 1 => Request::Connect(self.tid()),
            2..=4 => Request::Spawn(spawn(self)),
            5 => Request::Siblings,
            6 => Request::Config,
            7 => Request::AddHosts((0..self.below(3)).map(|_| self.name()).collect()),
            8 => Request::DeleteHosts((0..self.below(3)).map(|_| self.name()).collect()),
            9 => Request::HostStatus(self.name()),
            10 => Request::TaskStatus(self.tid()),
            11 => Request::Tasks(self.tid()),
            12 => Request::Signal { tid: self.tid(), signal: self.int() },
            13 | 14 => {
                let tids = (0..self.below(3)).map(|_| self.tid()).collect();
                Request::Notify { what: self.int(), ctx: 0, tag: self.int(), count: self.int(), tids }
            }
            15 => Request::NewContext,
            16 => Request::FreeContext(0x40001 + self.below(5) as i32),
            17 => Request::PutInfo { name: self.name(), flags: self.int(), message },
            18 => Request::RecvInfo { name: self.name(), index: self.int(), flags: self.int() },
            19 => Request::DeleteInfo { name: self.name(), index: self.int(), flags: self.int() },
            20 => Request::MailboxInfo { pattern: self.name() },
            21 => Request::ResetInfo { name: Some(self.name()), index: Some(self.int()) },
            22 => Request::Register { role: self.role(), on: self.below(2) == 0 },
            23 => Request::SetOwn(self.settings()),
            24 => Request::ExitStatus(self.tid()),
            25 => Request::JoinGroup(self.name()),
            26 => Request::LeaveGroup(self.name()),
            27 => Request::Group(self.name()),
            29 => Request::SetTracer(self.settings()),
            28 => Request::FreezeGroup { name: self.name(), count: self.int() },
            _ => Request::Tickle((0..self.below(3)).map(|_| self.int()).collect()),
        }
    }

    fn server_message(&mut self) -> (i32, Writer) {
        let tag = [SM_EXEC, SM_TASKX, SM_STHOSTACK, SM_ADD, SM_HANDOFF, SM_SPAWN][self.below(6) as usize];
        let mut body = Writer::new();
        for _ in 0..self.below(16) {
            body = match self.below(3) {
                0 => body.int(self.tid().0 as i32),
                1 => body.int(self.int()),
                _ => body.string(&self.name()),
            };
        }
        (tag, body)
    }
}

const STEPS: u32 = 600;

fn one_life(seed: u64) {
    let mut world = World::new();
    let mut prng = Prng(seed);
    let alive = |world: &World| world.machine.core.tasks.iter().map(|(tid, _)| tid).collect::<Vec<_>>();
    for _ in 0..STEPS {
        let tasks = alive(&world);
        let who = tasks.get(prng.below(tasks.len().max(1) as u64) as usize).copied().unwrap_or(prng.tid());
        match prng.below(12) {
            0 => drop(world.hello(99, None)),
            1 if !world.starts.is_empty() => {
                let start = world.starts[prng.below(world.starts.len() as u64) as usize].clone();
                world.hello(600, Some(start.cookie));
            }
            2 => world.disconnects(who),
            3 => world.ends(who, 0),
            4 => world.machine.handle_frame(NOW, who, ToDaemon::Bye),
            5 if prng.below(4) == 0 => world.machine.handle_output_closed(who),
            5 => world.machine.handle_output(who, b"some\nlines"),
            6 => {
                let (tag, body) = prng.server_message();
                world.message(who, tag, prng.below(3) as i32, body);
            }
            7 => {
                let checked = vec![Ok(ResolvedHost::default()), Err(Code::NoHost)];
                world.machine.handle_hosts_checked(prng.below(5) as u32, checked);
            }
            _ => {
                let request = prng.request();
                let may_wait = match request {
                    Request::RecvInfo { .. } | Request::ExitStatus(_) | Request::AddHosts(_) => true,
                    Request::FreezeGroup { .. } => true,
                    _ => world.machine.core.roles.manager.is_some() || !world.machine.core.tasks.is_connected(who),
                };
                world.ask(who, request.clone());
                assert!(may_wait || !world.replies(who).is_empty(), "{request:?} was not answered");
            }
        }
        world.run();
    }
    // The list of living tasks is read again each time: when a manager ends, the daemon decides the requests that the
    // manager has not answered, and may start tasks for them.
    while let Some(tid) = alive(&world).first().copied() {
        world.disconnects(tid);
        world.ends(tid, 0);
    }
    // An addition of hosts may still be pending under any number, so the checks of all numbers are answered.
    for request in 0..STEPS {
        world.machine.handle_hosts_checked(request, Vec::new());
    }
    world.machine.parts.mailboxes.reset(None, None);
    assert_eq!(alive(&world), []);
    assert_eq!(world.machine.parts.mailboxes.list(b""), []);
    assert!(world.machine.leftovers().is_empty(), "seed {seed}");
}

const NOW: Time = Duration::from_secs(1);

#[test]
fn whatever_is_asked_the_machine_survives_and_forgets_the_dead() {
    for seed in 1..200 {
        one_life(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
    }
}

/// One group whose members join, leave, die, and meet at barriers. A member decides how many members to wait for; when
/// it arrives, this number may be out of date. No member may wait in vain.
fn life_of_a_group(seed: u64) -> (usize, usize) {
    let mut world = World::new();
    let mut prng = Prng(seed);
    let mut now = NOW;
    let mut decided = std::collections::BTreeMap::new();
    let (mut failures, mut passed) = (0, 0);
    world.tasks(8);
    for _ in 0..400 {
        let tasks: Vec<Tid> = world.machine.core.tasks.iter().map(|(tid, _)| tid).collect();
        let who = tasks[prng.below(tasks.len() as u64) as usize];
        let board = world.boards.boards.first_key_value();
        let group = board.map_or(0, |(id, _)| *id);
        let instance =
            board.and_then(|(_, board)| board.members.iter().find(|(_, tid)| **tid == who)).map(|one| *one.0);
        let size = board.map_or(0, |(_, board)| board.members.len());
        let waits = instance.is_some_and(|instance| world.boards.boards[&group].waits(instance));
        match (prng.below(20), instance) {
            (0, _) => {
                world.disconnects(who);
                decided.remove(&who);
                world.task();
            }
            (1, Some(_)) if !waits => drop(world.ask(who, Request::LeaveGroup(text("g")))),
            (2..=6, None) => drop(world.ask(who, Request::JoinGroup(text("g")))),
            (7..=12, Some(_)) => drop(decided.entry(who).or_insert(size)),
            (13, _) => {
                for board in world.boards.boards.values_mut() {
                    board.in_doubt = !board.in_doubt;
                }
            }
            (_, Some(instance)) if !waits => {
                let Some(need) = decided.remove(&who) else { continue };
                let board = world.boards.boards.get_mut(&group).expect("its member's");
                if board.arrive(instance, need as u16).is_some() && board.members.len() < need {
                    let frame = ToDaemon::CheckBarrier { group, size: need as u32 };
                    world.machine.handle_frame(now, who, frame);
                }
            }
            _ => {}
        }
        world.run();
        if world.boards.boards.values().any(|board| board.in_doubt) {
            continue;
        }
        // No board is in doubt any more, so the daemon knows all arrivals: no member may wait for members that are
        // gone.
        while let Some(when) = world.machine.next_wakeup() {
            now = now.max(when);
            world.machine.handle_time(now);
            while let Some(action) = world.machine.poll_action() {
                if let Action::Group { group, action } = action {
                    world.boards.act(now, group, &action, &mut world.machine);
                }
            }
        }
        for board in world.boards.boards.values() {
            assert!(!board.is_stuck(), "seed {seed}: {board:?}");
            failures = failures.max(board.failed.len());
            passed = passed.max(board.generation as usize - board.failed.len());
        }
    }
    (failures, passed)
}

#[test]
fn nobody_waits_in_a_barrier_for_members_that_have_gone() {
    let lives = (1..500).map(|seed| life_of_a_group(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)));
    let (failures, passed) = lives.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(failures > 100 && passed > 100, "{failures} barriers failed, {passed} passed");
}
