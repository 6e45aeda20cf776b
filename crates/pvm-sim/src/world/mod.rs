//! The whole simulated state, and time.
mod behaviour;
mod broadcast;
mod checks;
mod collect;
mod control;
mod data;
mod edge;
mod group_memory;
mod library;
mod links;
mod multicast;
mod office;
mod starts;

pub use checks::Violation;

use crate::event::Event;
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::network::{Link, Network};
use crate::node::{Node, NodeState};
use crate::prng::Prng;
use crate::program::{ProgramRole, QueuedMessage, Stage, Task};
use crate::queue::{MICROSECOND, MILLISECOND, Nanos, Queue, SECOND};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::tried::Coverage;
use checks::Checks;
use office::Office;
use pvm_core::flows::multicast::BodyKey;
use pvm_core::machine::Rank;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The index of the first daemon: the first master, and the operator's host.
pub const FIRST_NODE: NodeId = 0;
/// The index of the first process: the operator.
pub const OPERATOR: TaskId = 0;
/// The interval at which the simulator checks whether the machine has settled.
const CHECK_INTERVAL: Nanos = SECOND / 2;
/// Without work, a machine must settle within this time plus the time that it takes to detect lost hosts, and to end
/// removed daemons.
const SETTLE_WAIT: Nanos = 40 * SECOND;

/// Messages that were on their way when the faults ended arrive within this time.
const ARRIVALS_MAX: Nanos = 300 * SECOND;

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The scenario's faults happen.
    Faults,
    /// All faults are over; programs finish, and the machine has to settle.
    Settle,
    /// All tasks but the operator have ended, and everything about them has to be forgotten.
    Alone,
    /// The machine was halted, or has lost its master: everything has to end.
    End,
    /// The run is over.
    Over,
}

/// A computer.
pub struct Computer {
    /// Whether it has power.
    pub powered: bool,
    /// How many starts of a daemon on this computer will fail from now on.
    pub refusals: usize,
    /// The newest daemon there.
    pub newest: Option<NodeId>,
}

/// The whole simulated state.
pub struct World {
    /// The seed.
    pub seed: u64,
    /// The scenario.
    pub scenario: Scenario,
    /// The current time.
    pub now: Nanos,
    /// The future events.
    pub queue: Queue<Event>,
    /// How many events have happened.
    pub events: u64,
    /// The random numbers of the world. Each program has a generator of its own.
    pub prng: Prng,
    /// The computers, indexed by their number. Element 0 is not used.
    pub computers: Vec<Computer>,
    /// Daemons.
    pub nodes: Vec<Node>,
    /// Processes.
    pub tasks: Vec<Task>,
    /// Links.
    pub links: Vec<Link>,
    /// The bodies of multicasts along trees.
    pub bodies: BTreeMap<BodyKey, Rc<QueuedMessage>>,
    /// How often the ways of multicasts and their faults have occurred.
    pub tried: Coverage,
    /// As in [`Outcome`].
    pub early_data_ends: u64,
    /// How many of the next hosts that are seen to relay a body will be killed.
    pub relays_to_kill: usize,
    /// Decides when a file system hangs.
    pub file_systems: Prng,
    /// When all file systems answer, so that all processes have been started soon after.
    pub file_systems_answer_at: Nanos,
    /// Which traffic passes between computers.
    pub network: Network,
    /// Daemons by address.
    pub listeners: BTreeMap<SocketAddr, NodeId>,
    /// Processes by tid.
    pub by_tid: BTreeMap<Tid, TaskId>,
    /// The phase of the run.
    pub phase: Phase,
    /// When the phase began.
    pub phase_since: Nanos,
    /// When a task last received a message.
    pub received_at: Nanos,
    /// The invariants.
    pub checks: Checks,
    /// The events so far.
    pub trace: Trace,
    /// The typical time between two steps of a program.
    pub step_interval: Nanos,
    /// The number of the last attempt to connect.
    pub last_attempt: u64,
    /// The number of messages that tasks have sent.
    pub last_message: u64,
    /// How many workers live.
    pub population: usize,
    /// The number of steps of one program.
    pub steps: usize,
    /// Which host is the master.
    pub office: Office,
    /// Whether the operator has been given the request that deletes all mailboxes.
    pub reset_queued: bool,
}

/// The outcome of a run.
pub struct Outcome {
    /// The hash of all events.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
    /// The simulated time at the end.
    pub end: Nanos,
    /// The invariant that was violated, if any.
    pub violation: Option<Violation>,
    /// How often the ways of multicasts and their faults occurred.
    pub tried: Coverage,
    /// How many data links ended at a daemon before it knew that the link was up. Few runs have one.
    pub early_data_ends: u64,
    /// How many hosts without a fault were removed because the master could not know better.
    pub undecidable: u64,
}

impl World {
    /// Makes a world in which the master has just started.
    pub fn new(seed: u64, scenario: Scenario, readable: bool) -> World {
        let mut prng = Prng::new(seed, 2);
        let network = Network::new(&mut prng, scenario.hosts);
        let computer = || Computer { powered: true, refusals: 0, newest: None };
        let mut world = World {
            seed,
            now: 0,
            queue: Queue::default(),
            events: 0,
            prng,
            computers: (0..=scenario.hosts).map(|_| computer()).collect(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            links: Vec::new(),
            bodies: BTreeMap::new(),
            tried: Coverage::default(),
            early_data_ends: 0,
            relays_to_kill: 0,
            file_systems: Prng::new(seed, 4),
            file_systems_answer_at: 0,
            network,
            listeners: BTreeMap::new(),
            by_tid: BTreeMap::new(),
            phase: Phase::Faults,
            phase_since: 0,
            received_at: 0,
            checks: Checks::default(),
            trace: Trace::new(readable),
            step_interval: MILLISECOND,
            last_attempt: 0,
            last_message: 0,
            population: 0,
            steps: 0,
            office: Office::default(),
            reset_queued: false,
            scenario,
        };
        // Programs run their steps during the whole run, or in a quarter of its time.
        world.steps = world.steps_of_one();
        let share = [4, 1, 1][world.prng.below(3)];
        world.step_interval = (world.scenario.end() / world.steps as Nanos / share).max(MILLISECOND);
        world.start_daemon(1, Rank::Master);
        let operator = world.start_process(FIRST_NODE, None, ProgramRole::Operator);
        world.queue.push(0, Event::Hello(operator));
        for (index, timed) in world.scenario.commands.iter().enumerate() {
            world.queue.push(timed.at, Event::Command(index));
        }
        world
    }

    /// Sets the number of steps of each program.
    pub fn with_steps(mut self, steps: usize) -> World {
        self.steps = steps;
        self.step_interval = self.scenario.end() / steps as Nanos / 2;
        self
    }

    /// Returns the time that a daemon's rules see: the time since the daemon started.
    pub fn time(&self, node: NodeId) -> Duration {
        Duration::from_nanos(self.now - self.nodes[node].since)
    }

    /// Runs the next event. Returns false if the run is over.
    pub fn run_next_event(&mut self) -> bool {
        if self.phase == Phase::Over || self.checks.violation.is_some() {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = at;
        self.dispatch(event);
        true
    }

    /// Runs the scenario to its end, or to the first violation of an invariant.
    pub fn run(mut self) -> (Outcome, Trace) {
        while self.run_next_event() {}
        if self.phase != Phase::Over && self.checks.violation.is_none() {
            self.checks.fail("progress", "nothing will ever happen any more", &[]);
        }
        let violation = self.checks.violation.take();
        let outcome = Outcome {
            hash: self.trace.hash(),
            events: self.events,
            end: self.now,
            violation,
            tried: self.tried,
            early_data_ends: self.early_data_ends,
            undecidable: self.checks.undecidable(),
        };
        (outcome, self.trace)
    }

    /// Returns the daemon that handles an event.
    fn daemon_of(&self, event: &Event) -> Option<NodeId> {
        match event {
            Event::Wake(node) => Some(*node),
            Event::Attempt { from, .. } => Some(*from),
            Event::Arrive { link, end, .. }
            | Event::GiveUp { link, end, .. }
            | Event::ControlUp { link, end, .. }
            | Event::ControlEnded { link, end, .. }
            | Event::DataUp { link, end, .. }
            | Event::DataEnded { link, end, .. } => Some(self.links[*link].ends[*end]),
            Event::ControlAttempt { node, .. } => Some(*node),
            Event::DataAttempt { node, .. } | Event::Datagram { node, .. } | Event::Part { node, .. } => Some(*node),
            Event::LateReport { node, .. } => Some(*node),
            Event::HostsChecked { node, .. } | Event::HostStarted { node, .. } => Some(*node),
            Event::ProgramFound { node, .. } | Event::ProcessStarted { node, .. } => Some(*node),
            Event::Hello(task) | Event::FromTask(task) | Event::PollQueue(task) => Some(self.tasks[*task].node),
            Event::Released(task, _) | Event::Output(task) | Event::SocketClosed(task) | Event::ProcessEnd(task, _) => {
                Some(self.tasks[*task].node)
            }
            _ => None,
        }
    }

    /// Runs an event. If the daemon that must handle it has ended, drops the event; if this daemon is stopped, keeps
    /// the event for later.
    pub fn dispatch(&mut self, event: Event) {
        let Some(node) = self.daemon_of(&event) else {
            self.events += 1;
            self.trace.number(self.now);
            return self.happen_outside(event);
        };
        match self.nodes[node].state {
            NodeState::Dead => {}
            NodeState::Stopped => self.nodes[node].deferred.push_back(event),
            NodeState::Running => {
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
            Event::Part { part, .. } => self.part_arrived(node, &part),
            Event::LateReport { host, report, .. } => self.send_body_request(node, host, report.0, report.1),
            Event::Arrive { link, end, kind } => self.arrive(link, end, kind),
            Event::GiveUp { link, connection, .. } => self.give_up(link, connection),
            Event::ControlAttempt { host, number, .. } => self.control_attempt(node, host, number),
            Event::ControlUp { link, end, connection, call } => self.control_up(link, end, connection, call),
            Event::ControlEnded { link, end, connection, how } => self.control_ended(link, end, connection, how),
            Event::Attempt { host, number, .. } => self.attempt(node, host, number),
            Event::DataAttempt { host, number, .. } => self.data_attempt(node, host, number),
            Event::Datagram { bytes, .. } => {
                let now = self.time(node);
                let _ = self.nodes[node].machine.handle_broadcast(now, &bytes);
            }
            Event::DataUp { link, end, connection } => self.data_up(link, end, connection),
            Event::DataEnded { link, end, connection } => self.data_ended(link, end, connection),
            Event::HostsChecked { request, names, .. } => self.hosts_checked(node, request, &names),
            Event::HostStarted { request, index, started, .. } => self.host_started(node, request, index, started),
            Event::ProgramFound { spawn, found, .. } => {
                let now = self.time(node);
                self.nodes[node].machine.handle_found(now, spawn, *found);
            }
            Event::ProcessStarted { task, start, fails, .. } => self.process_started(node, task, &start, fails),
            Event::Hello(task) => self.hello(node, task),
            Event::FromTask(task) => self.read_from_task(node, task),
            Event::PollQueue(task) => {
                self.tasks[task].poll_planned = false;
                self.poll_queues(node, None);
            }
            Event::Released(task, mark) => {
                let tid = self.tasks[task].tid;
                self.nodes[node].inbound.consumed_to(tid, mark);
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
            Event::Command(index) => self.execute_command(index),
            Event::Continue(node) => self.resume(node),
            Event::EndFault(number) => {
                self.network.remove_fault(number);
                self.unblock();
            }
            Event::EndSlowness(place) => self.network.slow(place, 0),
            Event::CheckSettled => self.check_phase(),
            _ => {}
        }
    }

    fn wake(&mut self, node: NodeId) {
        if self.now >= self.nodes[node].last_body_tick + SECOND {
            self.nodes[node].last_body_tick = self.now;
            self.tick_bodies(node);
        }
        let now = self.time(node);
        let node = &mut self.nodes[node];
        if node.wake_at.is_some_and(|at| at <= self.now) {
            node.wake_at = None;
            node.machine.handle_time(now);
        }
    }

    /// Schedules the next wake-up that a daemon's rules have requested.
    pub fn plan_wake(&mut self, number: NodeId) {
        let node = &mut self.nodes[number];
        let wakeups = [node.machine.next_wakeup(), node.pacer.next_wakeup(), node.flows.next_wakeup()];
        let Some(when) = wakeups.into_iter().flatten().min() else { return };
        let when = (node.since + when.as_nanos() as Nanos).max(self.now);
        if node.wake_at.is_none_or(|at| when < at) {
            node.wake_at = Some(when);
            self.queue.push(when, Event::Wake(number));
        }
    }

    /// Lets a stopped daemon handle all events that it has missed.
    pub fn resume(&mut self, node: NodeId) {
        if self.nodes[node].state != NodeState::Stopped {
            return;
        }
        self.nodes[node].state = NodeState::Running;
        self.trace.line(self.now, self.nodes[node].tid, || "goes on".into());
        for event in std::mem::take(&mut self.nodes[node].deferred) {
            self.dispatch(event);
        }
    }

    // ----- Phases

    /// Enters another phase.
    pub fn enter(&mut self, phase: Phase) {
        self.trace.line(self.now, Tid::NONE, || format!("----- {phase:?}"));
        (self.phase, self.phase_since) = (phase, self.now);
        match phase {
            Phase::Settle => {
                self.end_faults();
                self.queue.push(self.now + CHECK_INTERVAL, Event::CheckSettled);
            }
            Phase::Alone => self.end_all_tasks(),
            Phase::End => {
                self.end_faults();
                self.queue.push(self.now + CHECK_INTERVAL, Event::CheckSettled);
            }
            Phase::Faults | Phase::Over => {}
        }
    }

    /// Ends all faults.
    fn end_faults(&mut self) {
        self.network.remove_all_faults();
        self.relays_to_kill = 0;
        self.unblock();
        for place in 1..self.computers.len() {
            self.computers[place].refusals = 0;
            self.power(place);
        }
        for node in 0..self.nodes.len() {
            self.resume(node);
        }
    }

    /// Ends all tasks but the operator.
    fn end_all_tasks(&mut self) {
        for task in 0..self.tasks.len() {
            let late = self.prng.span(0, 20 * MILLISECOND);
            if self.tasks[task].role != ProgramRole::Operator && self.tasks[task].stage != Stage::Dead {
                let signal = if self.prng.chance(300) { 9 } else { 0 };
                self.queue.push(self.now + late, Event::Signal(task, signal));
            }
        }
    }

    /// Checks whether the phase has reached its end. Reports a failure if the phase should have ended long ago.
    fn check_phase(&mut self) {
        let timeout = self.scenario.timeout;
        // Where many senders share slow links, messages may arrive for long after the last fault.
        let since = self.phase_since.max(self.received_at).min(self.phase_since + ARRIVALS_MAX);
        let late = self.now > since + 3 * timeout + SETTLE_WAIT + 60 * SECOND;
        let open = match self.phase {
            // Too many hosts were lost at once.
            Phase::Settle if self.is_empty() && self.checks.may_end() => {
                self.tried.ended += 1;
                return self.enter(Phase::End);
            }
            Phase::Settle => self.unsettled(),
            Phase::Alone => self.left_over(),
            Phase::End => self.still_there(),
            Phase::Faults | Phase::Over => return,
        };
        match open {
            None => match self.phase {
                Phase::Settle => self.enter(Phase::Alone),
                Phase::Alone => {
                    self.halt_at_master();
                    return self.enter(Phase::End);
                }
                _ => return self.enter(Phase::Over),
            },
            Some(violation) if late => self.checks.violation = Some(violation),
            Some(_) => {}
        }
        self.queue.push(self.now + CHECK_INTERVAL, Event::CheckSettled);
    }

    /// Returns a short random time, such as the delay of an event within one host.
    pub fn short_time(&mut self) -> Nanos {
        self.prng.span(MICROSECOND, 50 * MICROSECOND)
    }
}
