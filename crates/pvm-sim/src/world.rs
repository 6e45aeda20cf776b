//! Everything that there is, and time.
use crate::checks::{Checks, Violation};
use crate::dice::Dice;
use crate::network::{Kind, Link, LinkId, Network, NodeId};
use crate::node::{Life, Node};
use crate::program::{Part, Stage, Task, TaskId};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, Queue, SECOND};
use crate::scenario::{Place, Scenario};
use crate::trace::Trace;
use pvm_core::codes::Code;
use pvm_core::machine::{Found, Rank, SpawnId, Start};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The number of the first daemon: the master.
pub const MASTER: NodeId = 0;
/// The number of the first process: the operator.
pub const OPERATOR: TaskId = 0;
/// How often the world looks whether the machine has settled.
const LOOK_EVERY: Nanos = SECOND / 2;
/// A machine without work for so long has to have settled, beside the times in which hosts are
/// found to be lost and unwelcome daemons end.
const SETTLE_WAIT: Nanos = 40 * SECOND;

/// What happens.
pub enum Event {
    /// A daemon's rules want the time.
    Wake(NodeId),
    /// The first item of a channel arrives.
    Arrive { link: LinkId, end: usize, kind: Kind },
    /// The system of that end gives a connection up.
    GiveUp { link: LinkId, end: usize },
    /// A connection is tried.
    Attempt { from: NodeId, host: Tid, number: u64 },
    /// A data link is called for, or has not come in time.
    DataAttempt { node: NodeId, host: Tid, number: u64 },
    /// An end of a data link has a new connection; finds that one has ended.
    DataUp { link: LinkId, end: usize, connection: u64 },
    /// See `DataUp`.
    DataEnded { link: LinkId, end: usize, connection: u64 },
    /// Names have been looked up.
    HostsChecked { node: NodeId, request: u32, names: Box<[ByteBuf]> },
    /// A daemon was started, or not.
    HostStarted { node: NodeId, request: u32, index: usize, started: Result<NodeId, Code> },
    /// A program was looked for.
    ProgramFound { node: NodeId, spawn: SpawnId, found: Box<Result<Found, Code>> },
    /// A process was started, or not.
    ProcessStarted { node: NodeId, start: Box<Start>, fails: bool },
    /// A process says hello.
    Hello(TaskId),
    /// The daemon reads a frame from a task's socket; the task reads one.
    FromTask(TaskId),
    /// See `FromTask`.
    ToTask(TaskId),
    /// The daemon looks at a task's queue.
    PollRing(TaskId),
    /// A task looks at its queues.
    Take(TaskId),
    /// The daemon reads what a process has printed.
    Output(TaskId),
    /// The daemon hears how far a task has come with what it was given.
    Released(TaskId, u64),
    /// A task goes on with its program.
    Step(TaskId),
    /// A process gets a signal.
    Signal(TaskId, i32),
    /// The daemon finds that a task's socket has closed.
    SocketClosed(TaskId),
    /// The daemon finds that a process has ended.
    ProcessEnd(TaskId, i32),
    /// Something of the scenario.
    Deed(usize),
    /// A stopped daemon goes on.
    Continue(NodeId),
    /// A part of the network is well again.
    Mend(u64),
    /// A computer is as fast as it was.
    Hasten(Place),
    /// A computer's connections lose nothing any more.
    Clear(Place),
    /// Look whether the machine has settled.
    Look,
}

/// How far the run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The scenario happens.
    Hurt,
    /// Everything is well; programs finish, and the machine has to settle.
    Heal,
    /// All tasks but the operator have gone, and everything about them has to be forgotten.
    Alone,
    /// The machine was halted, or has lost its master: everything has to end.
    End,
    /// It is over.
    Over,
}

/// A computer.
pub struct Computer {
    /// Whether it has power.
    pub powered: bool,
    /// How many of the next starts of a daemon fail.
    pub refusals: usize,
    /// The newest daemon there.
    pub newest: Option<NodeId>,
}

/// Everything that there is.
pub struct World {
    /// The seed, and what befalls the machine.
    pub seed: u64,
    /// See `seed`.
    pub scenario: Scenario,
    /// The time.
    pub now: Nanos,
    /// What will happen.
    pub queue: Queue<Event>,
    /// How many events have happened.
    pub events: u64,
    /// Chances of the world, of each program another.
    pub dice: Dice,
    /// Computers, by their number; the first is not used.
    pub computers: Vec<Computer>,
    /// Daemons.
    pub nodes: Vec<Node>,
    /// Processes.
    pub tasks: Vec<Task>,
    /// Links.
    pub links: Vec<Link>,
    /// What passes between computers.
    pub network: Network,
    /// Daemons by their addresses.
    pub listeners: BTreeMap<SocketAddr, NodeId>,
    /// Processes by their tids.
    pub by_tid: BTreeMap<Tid, TaskId>,
    /// How far the run has come.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Nanos,
    /// What has to be true.
    pub checks: Checks,
    /// What happened.
    pub trace: Trace,
    /// How often programs do something.
    pub tempo: Nanos,
    /// The number of the last attempt to connect.
    pub last_attempt: u64,
    /// Workers that live.
    pub population: usize,
    /// Steps of one program.
    pub steps: usize,
    /// Whether the mailboxes have been emptied.
    pub reset: bool,
}

/// What came of a run.
pub struct Outcome {
    /// The hash of all that happened.
    pub hash: u64,
    /// How many events that were.
    pub events: u64,
    /// Simulated time.
    pub end: Nanos,
    /// What was not as it must be.
    pub violation: Option<Violation>,
}

impl World {
    /// A world in which the master has just started.
    pub fn new(seed: u64, scenario: Scenario, readable: bool) -> World {
        let mut dice = Dice::new(seed, 2);
        let network = Network::new(&mut dice, scenario.hosts);
        let computer = || Computer { powered: true, refusals: 0, newest: None };
        let mut world = World {
            seed,
            now: 0,
            queue: Queue::default(),
            events: 0,
            dice,
            computers: (0..=scenario.hosts).map(|_| computer()).collect(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            links: Vec::new(),
            network,
            listeners: BTreeMap::new(),
            by_tid: BTreeMap::new(),
            phase: Phase::Hurt,
            phase_since: 0,
            checks: Checks::default(),
            trace: Trace::new(readable),
            tempo: MILLISECOND,
            last_attempt: 0,
            population: 0,
            steps: 0,
            reset: false,
            scenario,
        };
        // Programs do what they do in a burst, or all the time.
        world.steps = world.steps_of_one();
        let share = [4, 1, 1][world.dice.roll(3)];
        world.tempo = (world.scenario.end() / world.steps as Nanos / share).max(MILLISECOND);
        world.start_daemon(1, Rank::Master);
        let operator = world.start_process(MASTER, None, Part::Operator);
        world.queue.push(0, Event::Hello(operator));
        for (index, timed) in world.scenario.deeds.iter().enumerate() {
            world.queue.push(timed.at, Event::Deed(index));
        }
        world
    }

    /// Each program does so many steps.
    pub fn with_steps(mut self, steps: usize) -> World {
        self.steps = steps;
        self.tempo = self.scenario.end() / steps as Nanos / 2;
        self
    }

    /// The time as a daemon's rules want it: since it started.
    pub fn time(&self, node: NodeId) -> Duration {
        Duration::from_nanos(self.now - self.nodes[node].since)
    }

    /// Lets the next event happen; `false` when it is over.
    pub fn go(&mut self) -> bool {
        if self.phase == Phase::Over || self.checks.violation.is_some() {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = at;
        self.happen(event);
        true
    }

    /// Runs the scenario to its end, or to the first thing that is not as it must be.
    pub fn run(mut self) -> (Outcome, Trace) {
        while self.go() {}
        if self.phase != Phase::Over && self.checks.violation.is_none() {
            self.checks.fail("progress", "nothing will ever happen any more", &[]);
        }
        let violation = self.checks.violation.take();
        (Outcome { hash: self.trace.hash(), events: self.events, end: self.now, violation }, self.trace)
    }

    /// The daemon that has to deal with an event.
    fn daemon_of(&self, event: &Event) -> Option<NodeId> {
        match event {
            Event::Wake(node) => Some(*node),
            Event::Attempt { from, .. } => Some(*from),
            Event::Arrive { link, end, .. }
            | Event::GiveUp { link, end }
            | Event::DataUp { link, end, .. }
            | Event::DataEnded { link, end, .. } => Some(self.links[*link].ends[*end]),
            Event::DataAttempt { node, .. } => Some(*node),
            Event::HostsChecked { node, .. } | Event::HostStarted { node, .. } => Some(*node),
            Event::ProgramFound { node, .. } | Event::ProcessStarted { node, .. } => Some(*node),
            Event::Hello(task) | Event::FromTask(task) | Event::PollRing(task) => Some(self.tasks[*task].node),
            Event::Released(task, _) | Event::Output(task) | Event::SocketClosed(task) | Event::ProcessEnd(task, _) => {
                Some(self.tasks[*task].node)
            }
            _ => None,
        }
    }

    /// Lets an event happen, unless its daemon is dead or, for now, stopped.
    pub fn happen(&mut self, event: Event) {
        let Some(node) = self.daemon_of(&event) else {
            self.events += 1;
            self.trace.number(self.now);
            return self.happen_outside(event);
        };
        match self.nodes[node].life {
            Life::Dead => {}
            Life::Stopped => self.nodes[node].deferred.push_back(event),
            Life::Running => {
                self.events += 1;
                self.trace.number(self.now ^ (node as u64) << 48);
                self.happen_at(node, event);
                self.run_node(node);
            }
        }
    }

    fn happen_at(&mut self, node: NodeId, event: Event) {
        match event {
            Event::Wake(_) => self.wake(node),
            Event::Arrive { link, end, kind } => self.arrive(link, end, kind),
            Event::GiveUp { link, end } => self.give_up(link, end),
            Event::Attempt { host, number, .. } => self.attempt(node, host, number),
            Event::DataAttempt { host, number, .. } => self.data_attempt(node, host, number),
            Event::DataUp { link, end, connection } => self.data_up(link, end, connection),
            Event::DataEnded { link, end, connection } => self.data_ended(link, end, connection),
            Event::HostsChecked { request, names, .. } => self.hosts_checked(node, request, &names),
            Event::HostStarted { request, index, started, .. } => self.host_started(node, request, index, started),
            Event::ProgramFound { spawn, found, .. } => self.nodes[node].machine.handle_found(spawn, *found),
            Event::ProcessStarted { start, fails, .. } => self.process_started(node, &start, fails),
            Event::Hello(task) => self.hello(node, task),
            Event::FromTask(task) => self.read_from_task(node, task),
            Event::PollRing(task) => self.poll_ring(node, task, false),
            Event::Released(task, mark) => {
                let tid = self.tasks[task].tid;
                self.nodes[node].intake.consumed_to(tid, mark);
            }
            Event::Output(task) => self.read_output(node, task),
            Event::SocketClosed(task) => self.socket_closed(node, task),
            Event::ProcessEnd(task, status) => self.process_ended(node, task, status),
            _ => {}
        }
    }

    fn happen_outside(&mut self, event: Event) {
        match event {
            Event::ToTask(task) => self.read_from_daemon(task),
            Event::Take(task) => self.take(task),
            Event::Step(task) => self.step(task),
            Event::Signal(task, signal) => self.signalled(task, signal),
            Event::Deed(index) => self.deed(index),
            Event::Continue(node) => self.go_on(node),
            Event::Mend(number) => {
                self.network.mend(number);
                self.unblock();
            }
            Event::Hasten(place) => self.network.slow(place, 0),
            Event::Clear(place) => self.network.lose(place, 0),
            Event::Look => self.look(),
            _ => {}
        }
    }

    fn wake(&mut self, node: NodeId) {
        let now = self.time(node);
        let node = &mut self.nodes[node];
        if node.wake_at.is_some_and(|at| at <= self.now) {
            node.wake_at = None;
            node.machine.handle_time(now);
        }
    }

    /// Plans the next time that a daemon's rules want to know of.
    pub fn plan_wake(&mut self, number: NodeId) {
        let node = &mut self.nodes[number];
        let Some(when) = node.machine.next_wakeup() else { return };
        let when = (node.since + when.as_nanos() as Nanos).max(self.now);
        if node.wake_at.is_none_or(|at| when < at) {
            node.wake_at = Some(when);
            self.queue.push(when, Event::Wake(number));
        }
    }

    /// A stopped daemon finds all that has happened meanwhile.
    pub fn go_on(&mut self, node: NodeId) {
        if self.nodes[node].life != Life::Stopped {
            return;
        }
        self.nodes[node].life = Life::Running;
        self.trace.line(self.now, self.nodes[node].tid, || "goes on".into());
        for event in std::mem::take(&mut self.nodes[node].deferred) {
            self.happen(event);
        }
    }

    // ----- phases

    /// Goes over to another phase.
    pub fn enter(&mut self, phase: Phase) {
        self.trace.line(self.now, Tid::NONE, || format!("----- {phase:?}"));
        (self.phase, self.phase_since) = (phase, self.now);
        match phase {
            Phase::Heal => {
                self.heal();
                self.queue.push(self.now + LOOK_EVERY, Event::Look);
            }
            Phase::Alone => self.dismiss(),
            Phase::End => {
                self.heal();
                self.queue.push(self.now + LOOK_EVERY, Event::Look);
            }
            Phase::Hurt | Phase::Over => {}
        }
    }

    /// Everything is well from now on.
    fn heal(&mut self) {
        self.network.mend_all();
        self.unblock();
        for place in 1..self.computers.len() {
            self.computers[place].refusals = 0;
            self.power(place);
        }
        for node in 0..self.nodes.len() {
            self.go_on(node);
        }
    }

    /// All tasks but the operator end.
    fn dismiss(&mut self) {
        for task in 0..self.tasks.len() {
            let late = self.dice.span(0, 20 * MILLISECOND);
            if self.tasks[task].part != Part::Operator && self.tasks[task].stage != Stage::Dead {
                let signal = if self.dice.chance(300) { 9 } else { 0 };
                self.queue.push(self.now + late, Event::Signal(task, signal));
            }
        }
    }

    /// Whether the phase has reached its end; if it should have long ago, that is a failure.
    fn look(&mut self) {
        let timeout = self.scenario.timeout;
        let late = self.now > self.phase_since + 3 * timeout + SETTLE_WAIT + 60 * SECOND;
        let open = match self.phase {
            Phase::Heal => self.unsettled(),
            Phase::Alone => self.left_over(),
            Phase::End => self.still_there(),
            Phase::Hurt | Phase::Over => return,
        };
        match open {
            None => match self.phase {
                Phase::Heal => self.enter(Phase::Alone),
                Phase::Alone => {
                    let now = self.time(MASTER);
                    self.nodes[MASTER].machine.halt(now);
                    self.run_node(MASTER);
                    return self.enter(Phase::End);
                }
                _ => return self.enter(Phase::Over),
            },
            Some(violation) if late => self.checks.violation = Some(violation),
            Some(_) => {}
        }
        self.queue.push(self.now + LOOK_EVERY, Event::Look);
    }

    /// A short while, as things take on one host.
    pub fn moment(&mut self) -> Nanos {
        self.dice.span(MICROSECOND, 50 * MICROSECOND)
    }
}
