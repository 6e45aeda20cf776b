//! The master moves from host to host: who has the office, and what the operator and the faults have to do with it.
use crate::ids::NodeId;
use crate::node::{NodeState, lines, name_of};
use crate::program::ProgramRole;
use crate::queue::{MILLISECOND, Nanos};
use crate::scenario::{Command, Place};
use crate::world::{FIRST_NODE, World};
use pvm_core::proto::{ByteBuf, Request};
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;

/// How long programs ask much of a master that is to move, and how long the pauses between their steps are then.
const BUSY_TIME: Nanos = 60 * MILLISECOND;
pub const BUSY_PAUSE: Nanos = 3 * MILLISECOND;
/// So many of a thousand programs begin with that at once.
const BUSY_PER_MILLE: usize = 300;

/// Which host is the master.
#[derive(Default)]
pub struct Office {
    /// The daemon that took the office last.
    pub master: NodeId,
    /// Since when.
    pub since: Nanos,
    /// Until then, programs ask much of the master, because it may just move.
    busy_until: Nanos,
    /// Whether the machine has to end because its master is lost. A deputy that takes the office after that is halted.
    pub is_lost: bool,
    /// The computers whose hosts are drained.
    drained: Vec<Place>,
    /// The computers whose hosts were deleted so that the master moves.
    deleted: Vec<Place>,
}

impl World {
    // ----- The office

    /// Notes a frame that the master sends.
    pub fn master_sends(&mut self, node: NodeId, frame: &Frame) {
        let tid = self.nodes[node].tid;
        self.checks.table_told(tid, frame);
        match frame {
            Frame::Joined { hosts } => self.checks.master_tells(tid, hosts),
            Frame::Table { removed, .. } => removed.iter().for_each(|host| self.has_reason(*host)),
            Frame::NewMaster { .. } => self.checks.hands_over(),
            _ => {}
        }
    }

    /// Notes what a master knows that is to move. It moves when nothing has changed after that.
    pub fn master_may_move(&mut self, node: NodeId) {
        let machine = &self.nodes[node].machine;
        if machine.next_master().is_some() {
            self.checks.may_hand_over(machine.master_state(), machine.host_list());
        }
    }

    /// Notes that a daemon follows another master, or is the master.
    pub fn master_changed(&mut self, node: NodeId) {
        let (tid, master) = (self.nodes[node].tid, self.nodes[node].machine.master());
        self.trace.line(self.now, tid, || format!("has the master {master}"));
        if !self.nodes[node].machine.is_master() {
            return;
        }
        (self.office.master, self.office.since) = (node, self.now);
        self.tried.moves += 1;
        self.checks.keeper_moved();
        self.checks.master_is_at(self.nodes[node].place);
        if !self.checks.is_handed_over() {
            self.checks.master_was_lost();
            self.tried.successions += 1;
        }
        self.takes_office(node);
        if self.office.is_lost {
            let now = self.time(node);
            self.nodes[node].machine.halt(now);
        }
    }

    /// Returns whether a daemon is the master, is to be the next one, or has followers that have not heard of the next master.
    pub fn is_in_office(&self, node: NodeId) -> bool {
        let tid = self.nodes[node].tid;
        let follows = |other: &crate::node::Node| other.state != NodeState::Dead && other.machine.master() == tid;
        let next = self.nodes[self.office.master].machine.next_master();
        self.nodes[node].state != NodeState::Dead && (next == Some(tid) || self.nodes.iter().any(follows))
    }

    /// Returns whether the daemon of a computer is in office.
    pub fn is_place_in_office(&self, place: Place) -> bool {
        self.computers[place].newest.is_some_and(|node| self.is_in_office(node))
    }

    /// Returns whether the machine has no master any more, so that it has to end.
    pub fn has_lost_master(&self) -> bool {
        let master = &self.nodes[self.office.master];
        let is_dead = |tid: Tid| !self.nodes.iter().any(|node| node.tid == tid && node.state != NodeState::Dead);
        master.state == NodeState::Dead || is_dead(master.machine.master())
    }

    /// Halts the machine at the master.
    pub fn halt_at_master(&mut self) {
        let (master, now) = (self.office.master, self.time(self.office.master));
        self.nodes[master].machine.halt(now);
        self.run_node(master);
    }

    // ----- The scenario

    /// Returns whether a command would break the connection over which the office is handed over.
    pub fn breaks_hand_over(&self, command: &Command) -> bool {
        match command {
            Command::Sever(one, other, _) => self.is_place_in_office(*one) && self.is_place_in_office(*other),
            _ => false,
        }
    }

    /// Lets a task or the operator drain or delete the host that is the master now, or tells its daemon to end.
    pub fn move_master(&mut self, delete: bool) {
        self.hurry_programs();
        let (node, place) = (self.office.master, self.nodes[self.office.master].place);
        if delete && node != FIRST_NODE && self.prng.chance(300) {
            self.office.deleted.push(place);
            self.checks.fault_of(place);
            let now = self.time(node);
            self.nodes[node].machine.leave(now);
            return self.run_node(node);
        }
        let request = match delete && node != FIRST_NODE {
            true => {
                self.office.deleted.push(place);
                self.checks.fault_of(place);
                Request::DeleteHosts(lines(&[place]))
            }
            false => {
                self.office.drained.push(place);
                Request::DrainHosts { names: vec![ByteBuf::from(name_of(place).into_bytes())], drain: true }
            }
        };
        match self.prng.chance(500) {
            true => self.ask_somewhere(request),
            false => self.queue_operator_request(request),
        }
    }

    /// Lets programs ask much of the master for a short time.
    fn hurry_programs(&mut self) {
        self.office.busy_until = self.now + BUSY_TIME;
        for task in 0..self.tasks.len() {
            if self.tasks[task].role == ProgramRole::Worker && self.prng.chance(BUSY_PER_MILLE) {
                self.plan_step(task);
            }
        }
    }

    /// Returns whether programs ask much of the master just now.
    pub fn is_busy(&self) -> bool {
        self.now < self.office.busy_until
    }

    /// Lets the operator end all drains, and add the hosts that were deleted.
    pub fn restore_hosts(&mut self) {
        let drained = std::mem::take(&mut self.office.drained);
        if !drained.is_empty() {
            self.queue_operator_request(Request::DrainHosts { names: lines(&drained), drain: false });
        }
        let deleted = std::mem::take(&mut self.office.deleted);
        if !deleted.is_empty() {
            self.queue_operator_request(Request::AddHosts(lines(&deleted)));
        }
    }
}
