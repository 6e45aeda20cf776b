//! The memory of groups: who is a member, and who waits in the barrier.
use crate::network::NodeId;
use crate::program::TaskId;
use crate::world::World;
use pvm_core::machine::{Barrier, GroupAction, Listing, Taken, Waiting};
use pvm_core::proto::Request;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;

/// A program meets few others, or all that its group has: by the number of the group, so that most
/// agree.
const FEW: usize = 2;

/// What a host keeps of a group.
#[derive(Default)]
pub struct Board {
    /// Members by their numbers.
    pub members: BTreeMap<u32, Tid>,
    generation: u32,
    need: u16,
    arrived: u16,
    /// Members who have arrived here, and wait.
    here: BTreeMap<u32, TaskId>,
    /// Members arrive by the daemon.
    taken: bool,
}

impl Board {
    fn seen(&self) -> Barrier {
        let absent = self.members.len() as u32 - self.here.len() as u32;
        Barrier { generation: self.generation, need: self.need, arrived: self.arrived, absent, arriving: 0 }
    }
    fn tids(&self) -> Vec<Tid> {
        self.here.keys().filter_map(|instance| self.members.get(instance)).copied().collect()
    }
}

impl World {
    /// What a daemon does with the memory of a group.
    pub fn act_on_group(&mut self, node: NodeId, group: u64, action: &GroupAction) {
        let now = self.time(node);
        let one = &mut self.nodes[node];
        if *action == GroupAction::Make {
            one.boards.insert(group, Board::default());
            return one.machine.handle_group_made(group, true);
        }
        let Some(board) = one.boards.get_mut(&group) else { return };
        match action {
            GroupAction::Joined { instance, tid } => drop(board.members.insert(*instance, *tid)),
            GroupAction::Gone { instance } => {
                board.members.remove(instance);
                board.here.remove(instance);
            }
            GroupAction::Close => {
                self.barrier_is_over(node, group, false);
                self.nodes[node].boards.remove(&group);
            }
            GroupAction::Look => {
                let seen = board.seen();
                one.machine.handle_barrier(now, group, seen);
            }
            GroupAction::Take => {
                let (need, arrived, here) = (board.need, board.arrived, board.tids());
                (board.taken, board.need, board.arrived) = (true, 0, 0);
                one.machine.handle_barrier_taken(group, Taken { need, arrived, here, doubtful: Vec::new() });
            }
            GroupAction::Release { opened } => self.barrier_is_over(node, group, *opened),
            GroupAction::Give => board.taken = false,
            GroupAction::Fail(barrier) if *barrier == board.seen() => {
                self.barrier_is_over(node, group, false);
                self.nodes[node].machine.handle_barrier_failed(group);
            }
            GroupAction::Fail(_) => one.machine.handle_barrier_changed(now, group),
            // Nobody freezes a group; all see all memory of their host.
            GroupAction::Make | GroupAction::Freeze | GroupAction::Break | GroupAction::Show { .. } => {}
        }
    }

    /// Who waits in the barriers of a host.
    pub fn list_barriers(&mut self, node: NodeId, listing: Listing) {
        let one = &mut self.nodes[node];
        let waiting = |board: &Board| Waiting { need: board.need, tids: board.tids() };
        let waiting = one.boards.iter().map(|(group, board)| (*group, waiting(board))).collect();
        one.machine.handle_barriers_listed(listing, waiting);
    }

    /// Those who wait in a host's memory go on, or hear that they wait in vain.
    fn barrier_is_over(&mut self, node: NodeId, group: u64, opened: bool) {
        let Some(board) = self.nodes[node].boards.get_mut(&group) else { return };
        board.generation += 1;
        (board.need, board.arrived) = (0, 0);
        for task in std::mem::take(&mut board.here).into_values() {
            self.tasks[task].meets_in = None;
            if self.tasks[task].is_enrolled() {
                self.left_barrier(task, group, opened);
                self.plan_step(task);
            }
        }
    }

    /// A program arrives at the barrier of one of its groups.
    pub fn some_barrier(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let (tid, node) = (one.tid, one.node);
        let Some((_, group, instance)) = one.dice.pick(&one.joined).cloned() else { return self.plan_step(task) };
        let board = self.nodes[node].boards.get_mut(&group);
        let Some(board) = board.filter(|board| board.members.get(&instance) == Some(&tid)) else {
            return self.plan_step(task);
        };
        let size = board.members.len();
        let need = if group % 2 == 0 { size.min(FEW) } else { size } as u16;
        if board.taken {
            self.checks.arrived(group, task, need, self.now);
            return self.ask(task, Request::Barrier { group, count: need.into() });
        }
        if board.need != 0 && board.need != need {
            return self.plan_step(task);
        }
        (board.need, board.arrived) = (need, board.arrived + 1);
        board.here.insert(instance, task);
        let full = board.arrived >= need;
        self.tasks[task].meets_in = Some(group);
        self.checks.arrived(group, task, need, self.now);
        if full {
            self.barrier_is_over(node, group, true);
        }
    }

    /// A barrier lies behind a program.
    pub fn left_barrier(&mut self, task: TaskId, group: u64, opened: bool) {
        let (tid, host) = (self.tasks[task].tid, self.nodes[self.tasks[task].node].tid);
        self.trace.number(u64::from(tid.0) << 1 | u64::from(opened));
        self.trace.line(self.now, host, || format!("{tid} leaves the barrier of {group}: {opened}"));
        self.checks.left_barrier(group, task, tid, opened, self.now);
    }
}
