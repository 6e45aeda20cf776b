//! The behaviour of simulated programs: a random mixture of messages and requests.
use crate::event::Event;
use crate::ids::TaskId;
use crate::program::{ProgramRole, Stage};
use crate::queue::{MILLISECOND, SECOND};
use crate::world::office::BUSY_PAUSE;
use crate::world::{OPERATOR, Phase, World};
use pvm_core::codes::{
    MBOX_FIRST_AVAIL, MBOX_MULTI_INSTANCE, MBOX_OVER_WRITABLE, MBOX_PERSISTENT, MBOX_READ_AND_DELETE,
    MBOX_WAIT_FOR_INFO, NO_SPAWN_PARENT, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT,
    TASK_HOST, TASK_INPUT,
};
use pvm_core::proto::{ByteBuf, Message, Reply, Request, Spawn, TraceSettings};
use pvm_core::tid::Tid;

/// The approximate number of steps of a run, summed over all programs.
const STEPS: usize = 40_000;
/// The least and the largest number of steps of one program.
const STEPS_LEAST: usize = 20;
const STEPS_MOST: usize = 300;
/// The names of the mailboxes that programs use.
pub const BOXES: [&str; 4] = ["box0", "box1", "box2", "box3"];
/// The number of tasks for each group. Each change of a group is sent to all hosts that know the group. If all tasks
/// were in one group, the changes of this group would therefore dominate the events of a large machine.
const TASKS_PER_GROUP: usize = 10;
/// The number of messages that each program sends after all faults are over.
const LAST_STEPS: usize = 3;

/// Returns the request that spawns `count` programs.
pub fn spawn_of(file: &str, count: usize, place: &str) -> Spawn {
    Spawn {
        file: text(file),
        arguments: Vec::new(),
        flags: if place.is_empty() { 0 } else { TASK_HOST },
        place: text(place),
        count: count as i32,
        environment: Vec::new(),
        children: TraceSettings::default(),
    }
}

fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

/// Returns the probability, in thousandths, that a step of a program may request a list of the whole machine. The
/// probability is smaller in a large machine, where such requests would otherwise dominate the events.
fn often(hosts: usize) -> usize {
    8000 / (hosts + 8)
}

/// The longest body of the multicasts whose lengths are all equally frequent. Most of them travel in several parts, so
/// that a relay can die in the middle of one.
const MULTICAST_BYTES_MAX: usize = 256 << 10;

impl World {
    /// Returns the number of steps of one program.
    pub fn steps_of_one(&self) -> usize {
        (STEPS / self.scenario.tasks.max(1)).clamp(STEPS_LEAST, STEPS_MOST)
    }

    /// Plans the next step of a task's program.
    pub fn plan_step(&mut self, task: TaskId) {
        match self.tasks[task].role {
            ProgramRole::Operator => self.queue.push(self.now + MILLISECOND, Event::Step(task)),
            ProgramRole::Worker => {
                let pause = if self.is_busy() { BUSY_PAUSE } else { 2 * self.step_interval };
                let late = self.prng.span(0, pause);
                self.queue.push(self.now + late, Event::Step(task));
            }
        }
    }

    /// Stores in a program's state what the program learns from the answer to a request.
    pub fn learn_from(&mut self, task: TaskId, request: &Request, reply: &Reply) {
        let one = &mut self.tasks[task];
        match (request, reply) {
            (Request::Spawn(_), Reply::Tids(tids)) => {
                tids.iter().filter(|tid| **tid > 0).for_each(|tid| one.learn(Tid(*tid as u32)));
            }
            (Request::Siblings, Reply::Tids(tids)) => tids.iter().for_each(|tid| one.learn(Tid(*tid as u32))),
            (Request::Tasks(_), Reply::Tasks(tasks)) => tasks.iter().for_each(|task| one.learn(task.tid)),
            (Request::NewContext, Reply::Int(context)) => one.contexts.push(*context),
            (Request::JoinGroup(name), Reply::Group { id, instance }) => {
                one.joined.push((String::from_utf8_lossy(name).into_owned(), *id, *instance as u32));
            }
            (Request::Register { on: true, .. }, Reply::Int(_)) => self.became_tracer(task),
            (Request::Barrier { group, .. } | Request::LanBarrier { group, .. }, reply) => {
                self.left_barrier(task, *group, matches!(reply, Reply::Done | Reply::Released(_)))
            }
            _ => {}
        }
    }

    /// Runs the next step of a task's program.
    pub fn step(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        if !one.is_enrolled() || one.open.is_some() || one.unsent.is_some() || one.waits_in_barrier.is_some() {
            return;
        }
        if one.role == ProgramRole::Operator {
            if let Some(request) = one.planned_requests.pop_front() {
                self.ask(task, request);
            }
            return;
        }
        let Some(left) = one.steps_left.checked_sub(1) else { return };
        one.steps_left = left;
        match self.phase {
            Phase::Faults => self.some_step(task),
            Phase::Settle => self.some_send(task, 1),
            _ => {}
        }
    }

    /// Lets programs finish: each sends a few more messages.
    pub fn finish_programs(&mut self) {
        for task in 0..self.tasks.len() {
            if self.tasks[task].role == ProgramRole::Worker && self.tasks[task].stage != Stage::Dead {
                self.tasks[task].steps_left = LAST_STEPS;
                self.tasks[task].silent_until = 0;
                self.plan_step(task);
            }
        }
        for name in BOXES {
            let request = self.put_into(OPERATOR, name, MBOX_MULTI_INSTANCE);
            self.queue_operator_request(request);
        }
    }

    fn some_step(&mut self, task: TaskId) {
        let is_busy = self.is_busy();
        let prng = &mut self.tasks[task].prng;
        let kinds = [400, 80, 40, 80, 20, 40, 90, 50, 60, 10, 15, 8, 20, 30, 40, 10, 6];
        // What the master decides, and what it must hear of.
        let busy = [20, 0, 40, 20, 0, 0, 200, 200, 20, 0, 20, 10, 0, 300, 0, 20, 0];
        let kinds = if is_busy { busy } else { kinds };
        match prng.weighted(&kinds) {
            0 => self.some_send(task, 1),
            1 => {
                let count = 2 + self.tasks[task].prng.below(8);
                self.some_send(task, count);
            }
            2 => self.some_spawn(task),
            3 => self.some_notify(task),
            4 => self.cancel_notify(task),
            5 => self.some_context(task),
            6 => self.some_mailbox(task),
            7 => self.some_group(task),
            8 => self.some_question(task),
            9 => {
                let signal = [9, 15, 15][self.tasks[task].prng.below(3)];
                match self.somebody(task) {
                    Some(tid) if self.tasks[task].prng.chance(500) => {
                        self.ask(task, Request::SignalGroup { tid, signal })
                    }
                    Some(tid) => self.ask(task, Request::Signal { tid, signal }),
                    None => self.plan_step(task),
                }
            }
            10 => self.signalled(task, 0),
            11 => {
                let status = [1 << 8, 9, 11][self.tasks[task].prng.below(3)];
                self.end_process(task, status);
            }
            12 => {
                let one = &mut self.tasks[task];
                one.silent_until = self.now + one.prng.span(MILLISECOND, 2 * SECOND);
                self.plan_step(task);
            }
            13 => self.arrive_at_barrier(task),
            14 => self.print_lines(task),
            15 => self.change_tracer(task),
            _ => self.start_unspawned_task(task),
        }
    }

    /// Starts a process on the same host. The process becomes a task although nobody spawned it.
    fn start_unspawned_task(&mut self, task: TaskId) {
        if self.may_grow() {
            let new = self.start_process(self.tasks[task].node, None, ProgramRole::Worker);
            self.queue.push(self.now + MILLISECOND, Event::Hello(new));
        }
        self.plan_step(task);
    }

    fn somebody(&mut self, task: TaskId) -> Option<Tid> {
        let one = &mut self.tasks[task];
        one.prng.pick(&one.known).copied()
    }

    fn some_send(&mut self, task: TaskId, count: usize) {
        let mut to: Vec<Tid> = (0..count).filter_map(|_| self.somebody(task)).collect();
        to.sort_unstable();
        to.dedup();
        let prng = &mut self.tasks[task].prng;
        // Only long messages to several hosts travel along trees.
        let chances = if to.len() > 2 { [400, 200, 400] } else { [980, 20, 0] };
        let bytes = match prng.weighted(&chances) {
            0 => prng.size(20_000),
            1 => prng.size(2 << 20),
            _ => prng.below(MULTICAST_BYTES_MAX),
        };
        self.send_message(task, to, bytes);
    }

    fn may_grow(&self) -> bool {
        self.population < self.scenario.tasks + self.scenario.tasks / 4 + 4
    }

    fn some_spawn(&mut self, task: TaskId) {
        if !self.may_grow() {
            return self.plan_step(task);
        }
        let hosts = self.scenario.hosts;
        let children = self.settings_of_children(task);
        let prng = &mut self.tasks[task].prng;
        let file = ["prog", "prog", "prog", "prog", "missing", "broken"][prng.below(6)];
        let place = match prng.below(4) {
            0 => crate::node::name_of(1 + prng.below(hosts)),
            1 => ".".into(),
            _ => String::new(),
        };
        let mut spawn = Spawn { children, ..spawn_of(file, 1 + prng.below(4), &place) };
        if prng.chance(200) {
            spawn.flags |= NO_SPAWN_PARENT;
        }
        if prng.chance(300) {
            spawn.flags |= TASK_INPUT;
        }
        self.ask(task, Request::Spawn(spawn));
    }

    fn some_notify(&mut self, task: TaskId) {
        let hosts = self.scenario.hosts as u32;
        let some: Vec<Tid> = (0..1 + self.tasks[task].prng.below(4)).filter_map(|_| self.somebody(task)).collect();
        let one = &mut self.tasks[task];
        one.last_tag += 1;
        let (tag, ctx) = (one.last_tag, 0);
        let (what, tids) = match one.prng.below(10) {
            0 | 1 => (NOTIFY_HOST_DELETE, some.iter().map(|tid| tid.host()).collect()),
            2 => (NOTIFY_HOST_DELETE, vec![Tid::host_number(2 + one.prng.below(hosts as usize * 2) as u32)]),
            3 => (NOTIFY_HOST_ADD, Vec::new()),
            _ => (NOTIFY_TASK_EXIT, some),
        };
        let count = [-1, 1, 3][one.prng.below(3)];
        if tids.is_empty() && what != NOTIFY_HOST_ADD {
            return self.plan_step(task);
        }
        one.asked.push((what, tag, tids.clone()));
        self.ask(task, Request::Notify { what, ctx, tag, count, tids });
    }

    fn cancel_notify(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let Some((what, tag, tids)) = one.prng.pick(&one.asked).cloned() else { return self.plan_step(task) };
        one.asked.retain(|asked| asked.1 != tag);
        self.ask(task, Request::Notify { what: what | NOTIFY_CANCEL, ctx: 0, tag, count: 0, tids });
    }

    fn some_context(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let request = match one.contexts.pop() {
            Some(context) if one.prng.chance(500) => Request::FreeContext(context),
            context => {
                one.contexts.extend(context);
                Request::NewContext
            }
        };
        self.ask(task, request);
    }

    /// Returns a request that stores a message in a mailbox.
    pub fn put_into(&mut self, task: TaskId, name: &str, flags: i32) -> Request {
        let src = self.tasks[task].tid;
        self.last_message += 1;
        self.checks.ordered_send(src, &[], self.last_message);
        let body = ByteBuf::from(self.last_message.to_le_bytes().repeat(2));
        let message = Message { enc: 0, ..Message::new(src, Tid::DAEMON, 0, 1, body) };
        Request::PutInfo { name: text(name), flags, message }
    }

    fn some_mailbox(&mut self, task: TaskId) {
        let hosts = self.scenario.hosts;
        let prng = &mut self.tasks[task].prng;
        let name = BOXES[prng.below(BOXES.len())];
        let (index, whole) = (prng.below(3) as i32, prng.chance(often(hosts)));
        let request = match prng.below(12) {
            0..=4 => {
                let flags = [0, MBOX_MULTI_INSTANCE, MBOX_PERSISTENT | MBOX_MULTI_INSTANCE, MBOX_OVER_WRITABLE];
                let flags = flags[prng.below(4)];
                self.put_into(task, name, flags)
            }
            5 => Request::RecvInfo { name: text(name), index: 0, flags: MBOX_FIRST_AVAIL | MBOX_WAIT_FOR_INFO },
            6 => Request::RecvInfo { name: text(name), index, flags: MBOX_READ_AND_DELETE },
            7 => Request::RecvInfo { name: text(name), index, flags: MBOX_FIRST_AVAIL },
            8..=9 => Request::DeleteInfo { name: text(name), index, flags: MBOX_FIRST_AVAIL },
            10 if whole => Request::MailboxInfo { pattern: text(name) },
            _ => Request::RecvInfo { name: text(name), index: 0, flags: MBOX_FIRST_AVAIL },
        };
        self.ask(task, request);
    }

    fn some_group(&mut self, task: TaskId) {
        let groups = 2 + self.scenario.tasks / TASKS_PER_GROUP;
        let hosts = self.scenario.hosts;
        let one = &mut self.tasks[task];
        let name = format!("group{}", one.prng.below(groups));
        let request = match one.prng.below(6) {
            0 | 1 => Request::JoinGroup(text(&name)),
            2 => Request::Group(text(&name)),
            // Barriers of the task's groups are to meet there.
            3 | 4 => Request::SetGroupHost(Tid::host_number(1 + one.prng.below(hosts + 1) as u32)),
            _ => {
                one.joined.retain(|(joined, ..)| *joined != name);
                Request::LeaveGroup(text(&name))
            }
        };
        self.ask(task, request);
    }

    fn some_question(&mut self, task: TaskId) {
        let somebody = self.somebody(task).unwrap_or(self.tasks[task].tid);
        let hosts = self.scenario.hosts;
        let prng = &mut self.tasks[task].prng;
        let whole = prng.chance(often(hosts));
        let request = match prng.below(9) {
            0 if whole => Request::Config,
            1 if whole => Request::Tasks(Tid::NONE),
            2 => Request::Tasks(somebody.host()),
            3 => Request::HostStatus(text(&crate::node::name_of(1 + prng.below(hosts)))),
            4 => Request::HostSync(somebody.host()),
            5 if whole => Request::Siblings,
            6 => Request::Tickle(vec![5]),
            7 if prng.chance(300) => Request::ExitStatus(somebody),
            8 => Request::Input { tid: somebody, data: text(if prng.chance(800) { "line\n" } else { "" }) },
            _ => Request::TaskStatus(somebody),
        };
        self.ask(task, request);
    }
}
