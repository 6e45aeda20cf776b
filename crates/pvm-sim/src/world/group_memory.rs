//! The shared memory of groups: the members, and the tasks that wait at the barrier.
use crate::groups::GroupMemory;
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::queue::MICROSECOND;
use crate::world::World;
use pvm_core::machine::{GroupAction, Listing};
use pvm_core::proto::Request;
use pvm_core::wire::{Taken, Waiting};

/// The number of members that a barrier needs if the number of the group is even. If that number is odd, the barrier
/// needs all members. Since this depends only on the group, most members pass the same count.
const FEW_MEMBERS: usize = 2;

impl World {
    /// Executes a daemon's action that concerns the memory of a group.
    pub fn act_on_group(&mut self, node: NodeId, group: u64, action: &GroupAction) {
        let now = self.time(node);
        let one = &mut self.nodes[node];
        if *action == GroupAction::Make {
            one.group_memories.insert(group, GroupMemory::default());
            return one.machine.handle_group_made(group, true);
        }
        let Some(memory) = one.group_memories.get_mut(&group) else { return };
        match action {
            GroupAction::Joined { instance, tid } => drop(memory.members.insert(*instance, *tid)),
            GroupAction::Gone { instance } => {
                memory.members.remove(instance);
                memory.here.remove(instance);
            }
            GroupAction::Close => {
                self.barrier_is_over(node, group, false);
                self.nodes[node].group_memories.remove(&group);
            }
            GroupAction::Look => {
                let seen = memory.seen();
                one.machine.handle_barrier(now, group, seen);
            }
            GroupAction::Take => {
                let (need, arrived, here) = (memory.need, memory.arrived, memory.tids());
                (memory.uses_daemon, memory.need, memory.arrived) = (true, 0, 0);
                one.machine.handle_barrier_taken(
                    group,
                    Taken { need, arrived, arrived_members: here, maybe_arrived: Vec::new() },
                );
            }
            GroupAction::Release { opened } => self.barrier_is_over(node, group, *opened),
            GroupAction::Give => memory.uses_daemon = false,
            GroupAction::Fail(barrier) if *barrier == memory.seen() => {
                self.barrier_is_over(node, group, false);
                self.nodes[node].machine.handle_barrier_failed(group);
            }
            GroupAction::Fail(_) => one.machine.handle_barrier_changed(now, group),
            // In the simulator no group is frozen, and all tasks see the memory of all groups of their host.
            GroupAction::Make | GroupAction::Freeze | GroupAction::Break | GroupAction::Show { .. } => {}
        }
    }

    /// Reports to a daemon which tasks wait at the barriers of its host.
    pub fn list_barriers(&mut self, node: NodeId, listing: Listing) {
        let one = &mut self.nodes[node];
        let waiting = |memory: &GroupMemory| Waiting { need: memory.need, tids: memory.tids() };
        let waiting = one.group_memories.iter().map(|(group, memory)| (*group, waiting(memory))).collect();
        one.machine.handle_barriers_listed(listing, waiting);
    }

    /// Lets the waiting tasks of one host leave the group's barrier, because it has opened or has failed.
    fn barrier_is_over(&mut self, node: NodeId, group: u64, opened: bool) {
        let Some(memory) = self.nodes[node].group_memories.get_mut(&group) else { return };
        memory.generation += 1;
        (memory.need, memory.arrived) = (0, 0);
        for task in std::mem::take(&mut memory.here).into_values() {
            self.tasks[task].waits_in_barrier = None;
            if self.tasks[task].is_enrolled() {
                self.left_barrier(task, group, opened);
                self.plan_step(task);
            }
        }
    }

    /// Lets a program arrive at the barrier of one of its groups.
    pub fn arrive_at_barrier(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let (tid, node) = (one.tid, one.node);
        let Some((_, group, instance)) = one.prng.pick(&one.joined).cloned() else { return self.plan_step(task) };
        let memory = self.nodes[node].group_memories.get_mut(&group);
        let Some(memory) = memory.filter(|memory| memory.members.get(&instance) == Some(&tid)) else {
            return self.plan_step(task);
        };
        let size = memory.members.len();
        let need = if group % 2 == 0 { size.min(FEW_MEMBERS) } else { size } as u16;
        if memory.uses_daemon {
            self.checks.arrived(group, task, need, self.now);
            let count = need.into();
            // One in three, without a random number.
            let request = match self.now / MICROSECOND % 3 {
                0 => Request::LanBarrier { group, count },
                _ => Request::Barrier { group, count },
            };
            return self.ask(task, request);
        }
        if memory.need != 0 && memory.need != need {
            return self.plan_step(task);
        }
        (memory.need, memory.arrived) = (need, memory.arrived + 1);
        memory.here.insert(instance, task);
        let full = memory.arrived >= need;
        self.tasks[task].waits_in_barrier = Some(group);
        self.checks.arrived(group, task, need, self.now);
        if full {
            self.barrier_is_over(node, group, true);
        }
    }

    /// Records that a program has left a barrier.
    pub fn left_barrier(&mut self, task: TaskId, group: u64, opened: bool) {
        let (tid, host) = (self.tasks[task].tid, self.nodes[self.tasks[task].node].tid);
        self.trace.number(u64::from(tid.0) << 1 | u64::from(opened));
        self.trace.line(self.now, host, || format!("{tid} leaves the barrier of {group}: {opened}"));
        self.checks.left_barrier(group, task, tid, opened, self.now);
    }
}
