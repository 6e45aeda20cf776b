//! Invariant: a barrier opens when enough members have arrived, and no task waits at a barrier for members that do not
//! exist.
use super::{Checks, Unsettled};
use crate::ids::TaskId;
use crate::queue::Nanos;
use crate::world::World;
use pvm_core::proto::Request;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;

/// The last arrival of a task at the barrier of a group.
struct Arrival {
    need: u16,
    at: Nanos,
    waits: bool,
    /// The last time at which the task learnt that a barrier had opened.
    opened: Option<Nanos>,
}

/// All barriers, by group.
#[derive(Default)]
pub struct Barriers {
    groups: BTreeMap<u64, BTreeMap<TaskId, Arrival>>,
}

impl Checks {
    /// Notes the arrival of a task.
    pub fn arrived(&mut self, group: u64, task: TaskId, need: u16, now: Nanos) {
        let tasks = self.barriers.groups.entry(group).or_default();
        let opened = tasks.get(&task).and_then(|arrival| arrival.opened);
        tasks.insert(task, Arrival { need, at: now, waits: true, opened });
    }

    /// Notes that a task has left a barrier.
    pub fn left_barrier(&mut self, group: u64, task: TaskId, tid: Tid, opened: bool, now: Nanos) {
        let Some(tasks) = self.barriers.groups.get_mut(&group) else { return };
        let Some(arrival) = tasks.get_mut(&task) else { return };
        arrival.waits = false;
        if !opened {
            return;
        }
        arrival.opened = Some(now);
        let (need, since) = (usize::from(arrival.need), arrival.at);
        // The members of this barrier are the tasks that still wait, and those that learnt since this task's arrival
        // that a barrier had opened.
        let met = |arrival: &&Arrival| arrival.waits || arrival.opened.is_some_and(|at| at >= since);
        let count = tasks.values().filter(met).count();
        if count < need {
            self.fail("barriers", &format!("{tid} has met {count} of {need} in group {group}"), &[tid]);
        }
    }
}

impl World {
    /// Returns whether the task waits at the barrier of the group.
    fn waits_in_barrier(&self, task: TaskId, group: u64) -> bool {
        let one = &self.tasks[task];
        let asks = |request: &Request| match request {
            Request::Barrier { group: other, .. } | Request::LanBarrier { group: other, .. } => *other == group,
            _ => false,
        };
        one.waits_in_barrier == Some(group) || one.open.as_ref().is_some_and(|open| asks(&open.request))
    }

    /// Checks that each task at a barrier waits for a living member that may still arrive.
    pub fn barriers_can_open(&self) -> Unsettled {
        let lives = |task: &TaskId| self.tasks[*task].is_enrolled() && self.in_machine(*task);
        for (group, tasks) in &self.checks.barriers.groups {
            let waits = |task: &&TaskId| lives(task) && self.waits_in_barrier(**task, *group);
            let Some(task) = tasks.keys().find(waits) else { continue };
            let one = &self.tasks[*task];
            let members =
                self.nodes[one.node].group_memories.get(group).into_iter().flat_map(|memory| memory.members.values());
            let mut others = members.filter_map(|tid| self.by_tid.get(tid)).filter(|task| lives(task));
            if others.all(|other| self.waits_in_barrier(*other, *group)) {
                let text = format!("{} waits in the barrier of group {group} though all have arrived", one.tid);
                return Err((text, vec![one.tid.host()]));
            }
        }
        Ok(())
    }
}
