//! Hosts that start and end: the commands of the scenario, and the starts of daemons.
use crate::event::Event;
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::node::{Node, NodeState, address_of, lines, name_of, place_of};
use crate::program::{ProgramRole, Stage, Task};
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::scenario::{Command, Place};
use crate::world::behaviour::spawn_of;
use crate::world::{OPERATOR, Phase, World};
use pvm_core::codes::Code;
use pvm_core::machine::{HostStart, Rank};
use pvm_core::proto::{ByteBuf, Request};
use pvm_core::wire::{ResolvedHost, StartFailure, Started};
use std::time::Duration;

impl World {
    // ----- The scenario

    /// Executes a command of the scenario.
    pub fn execute_command(&mut self, index: usize) {
        let command = match self.scenario.commands[index].command.clone() {
            Command::KillMaster => Command::Kill(self.nodes[self.office.master].place),
            command => command,
        };
        self.trace.line(self.now, pvm_core::tid::Tid::NONE, || format!("----- {command}"));
        let ended = !matches!(self.phase, Phase::Faults | Phase::Settle);
        if self.breaks_hand_over(&command) {
            return;
        }
        let hits_office = command.places().into_iter().any(|place| self.is_place_in_office(place));
        self.checks.note_fault(&command, hits_office);
        match command {
            Command::Add(places) if !ended => self.queue_operator_request(Request::AddHosts(lines(&places))),
            Command::Delete(places) if !ended => self.queue_operator_request(Request::DeleteHosts(lines(&places))),
            Command::DrainMaster | Command::DeleteMaster if !ended => {
                self.move_master(command == Command::DeleteMaster)
            }
            Command::Restore if !ended => self.restore_hosts(),
            Command::Spawn(count) => self.queue_operator_request(Request::Spawn(spawn_of("prog", count, ""))),
            Command::Crash(place) => self.crash(place),
            Command::Power(place) => self.power(place),
            Command::Kill(place) => self.with_daemon(place, |world, node| world.end_daemon(node, "is killed", true)),
            Command::KillRelay => self.relays_to_kill += 1,
            Command::Stop(place, span) => self.with_daemon(place, |world, node| world.stop(node, span)),
            Command::Cut(places, span) => {
                let number = self.network.cut(&places);
                self.queue.push(self.now + span, Event::EndFault(number));
            }
            Command::Part(one, other, span) => {
                let number = self.network.part(one, other);
                self.queue.push(self.now + span, Event::EndFault(number));
            }
            Command::Snap(one, other, span) => self.break_data_links(one, other, span),
            Command::Sever(one, other, span) => self.break_control_links(one, other, span),
            Command::Slow(place, span, delay) => {
                self.network.slow(place, delay);
                self.queue.push(self.now + span, Event::EndSlowness(place));
            }
            Command::Lossy(place, span, share) => {
                let until = (self.now + span).min(self.scenario.quiet().unwrap_or(Nanos::MAX));
                self.network.lose(place, share, until);
            }
            Command::Refuse(place) => self.computers[place].refusals += 1,
            Command::KillTasks(count) => (0..count).for_each(|_| self.kill_somebody()),
            Command::Quiet => self.quiet(),
            Command::Halt => self.halt_somewhere(),
            Command::Add(_) | Command::Delete(_) => {}
            Command::DrainMaster | Command::DeleteMaster | Command::KillMaster | Command::Restore => {}
        }
    }

    /// Ends all faults.
    fn quiet(&mut self) {
        self.enter(Phase::Settle);
        self.finish_programs();
        if self.prng.chance(500) {
            // Request all hosts once more: those that were lost are added again.
            let all: Vec<Place> = (2..=self.scenario.hosts).collect();
            self.queue_operator_request(Request::AddHosts(lines(&all)));
        }
    }

    fn halt_somewhere(&mut self) {
        self.ask_somewhere(Request::Halt);
        if self.tasks[OPERATOR].stage == Stage::Dead {
            // If the master is dead, its deputy hears of the halt when it takes the office.
            self.office.is_lost |= self.has_lost_master();
            self.halt_at_master();
        }
        self.enter(Phase::End);
    }

    /// Lets a task that does nothing else ask something; without one, the operator.
    pub fn ask_somewhere(&mut self, request: Request) {
        let free = |one: &Task| one.is_enrolled() && one.open.is_none() && one.waits_in_barrier.is_none();
        let idle = |task: &TaskId| free(&self.tasks[*task]);
        let all: Vec<TaskId> = (1..self.tasks.len()).filter(idle).filter(|task| self.in_machine(*task)).collect();
        match self.prng.pick(&all).copied() {
            Some(task) if self.tasks[task].unsent.is_none() => self.ask(task, request),
            _ => self.queue_operator_request(request),
        }
    }

    /// Queues a request that the operator will send after its earlier requests.
    pub fn queue_operator_request(&mut self, request: Request) {
        self.tasks[OPERATOR].planned_requests.push_back(request);
        self.queue.push(self.now, Event::Step(OPERATOR));
    }

    fn with_daemon(&mut self, place: Place, does: impl FnOnce(&mut World, NodeId)) {
        let newest = self.computers[place].newest.filter(|node| self.nodes[*node].state != NodeState::Dead);
        if let Some(node) = newest {
            does(self, node);
        }
    }

    fn stop(&mut self, node: NodeId, span: Nanos) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || "is stopped".into());
        self.nodes[node].state = NodeState::Stopped;
        self.queue.push(self.now + span, Event::Continue(node));
    }

    /// Switches off the power of a computer.
    fn crash(&mut self, place: Place) {
        self.computers[place].powered = false;
        for node in 0..self.nodes.len() {
            if self.nodes[node].place == place {
                self.end_daemon(node, "loses its power", false);
            }
        }
    }

    /// Switches on the power of a computer. The computer has forgotten all connections.
    pub fn power(&mut self, place: Place) {
        if std::mem::replace(&mut self.computers[place].powered, true) {
            return;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].place == place && self.nodes[node].state == NodeState::Dead {
                self.reset_links(node);
            }
        }
    }

    fn kill_somebody(&mut self) {
        let alive =
            |task: &TaskId| self.tasks[*task].stage != Stage::Dead && self.tasks[*task].role == ProgramRole::Worker;
        let alive: Vec<TaskId> = (0..self.tasks.len()).filter(alive).collect();
        if let Some(task) = self.prng.pick(&alive).copied() {
            self.end_process(task, 9);
        }
    }

    // ----- Starts

    /// Starts a daemon.
    pub fn start_daemon(&mut self, place: Place, rank: Rank) -> NodeId {
        let number = self.nodes.len();
        let timeout = Duration::from_nanos(self.scenario.timeout);
        let mut node = Node::new(place, number, rank, timeout, self.now);
        if let Rank::Slave { master, .. } = rank {
            let key = self.nodes.iter().find(|node| node.tid == master).expect("the master has started it").key;
            node.known.insert(master, key);
        }
        self.listeners.insert(node.address, number);
        self.checks.daemon_started(node.tid, number);
        self.computers[place].newest = Some(number);
        self.nodes.push(node);
        self.plan_wake(number);
        number
    }

    /// Reports that names have been looked up.
    pub fn hosts_checked(&mut self, node: NodeId, request: u32, names: &[ByteBuf]) {
        let check = |name: &ByteBuf| {
            let place = place_of(&String::from_utf8_lossy(name), self.scenario.hosts).ok_or(Code::NoHost)?;
            let aliases = vec![format!("{}.example", name_of(place))];
            Ok(ResolvedHost { aliases, addresses: vec![address_of(place)] })
        };
        let checked = names.iter().map(check).collect();
        self.nodes[node].machine.handle_hosts_checked(request, checked);
    }

    /// Starts a daemon on another host for the master.
    pub fn start_host(&mut self, node: NodeId, request: u32, host: HostStart) {
        let place = place_of(host.line.name(), self.scenario.hosts);
        let late = self.prng.span(20 * MILLISECOND, 400 * MILLISECOND);
        let there = place
            .is_some_and(|place| self.computers[place].powered && self.network.passes(self.nodes[node].place, place));
        let (place, started, late) = match place {
            Some(place) if there => (place, Ok(()), late),
            place => (place.unwrap_or(1), Err(Code::CantStart), 5 * SECOND),
        };
        let refused = self.computers[place].refusals > 0;
        let started = match started {
            Ok(()) if refused => {
                self.computers[place].refusals -= 1;
                Err([Code::CantStart, Code::BadVersion][self.prng.below(2)])
            }
            Ok(()) => {
                let rank = Rank::Slave { own: host.tid, master: self.nodes[node].tid };
                Ok(self.start_daemon(place, rank))
            }
            Err(code) => Err(code),
        };
        let event = Event::HostStarted { node, request, index: host.index, started };
        self.queue.push(self.now + late, event);
    }

    /// Reports the result of a start to the master.
    pub fn host_started(&mut self, node: NodeId, request: u32, index: usize, started: Result<NodeId, Code>) {
        let now = self.time(node);
        let started = started.map_err(StartFailure::from).and_then(|new| {
            let new = &self.nodes[new];
            // If the network is cut, the output of the new daemon does not reach the master.
            if !self.network.passes(self.nodes[node].place, new.place) {
                return Err(Code::CantStart.into());
            }
            let names = vec![format!("{}.example", name_of(new.place))];
            Ok(Started { names, arch: "LINUX64".into(), dsig: 7, addresses: vec![new.address], key: new.key })
        });
        self.nodes[node].machine.handle_host_started(now, request, index, started);
    }
}
