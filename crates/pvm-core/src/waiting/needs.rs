//! Which tasks could end a wait.
use super::graph::Need;
use super::look::{Look, State};
use crate::host_look::TaskLook;
use crate::proto::GroupPlace;
use crate::state_line::{Call, Label, Wait, Wanted};
use crate::tid::Tid;
use std::collections::BTreeMap;

/// The tasks, and what the needs are found by.
pub(super) struct Scene<'a> {
    pub last: &'a Look,
    pub states: BTreeMap<Tid, (State, &'a TaskLook)>,
    /// The tids in order; the nodes of the graph are places in this list.
    pub tids: Vec<Tid>,
}

/// Who could end a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Freer {
    /// This task alone.
    Task(Tid),
    /// Any other task.
    Anybody,
    /// `count` of these members. `others`: or tasks that join the group.
    Members { missing: Vec<Tid>, count: usize, others: bool },
    /// All of these.
    All(Vec<Tid>),
    /// Not a task: a daemon, or time.
    Daemon,
}

impl<'a> Scene<'a> {
    pub fn new(last: &'a Look, states: BTreeMap<Tid, (State, &'a TaskLook)>) -> Scene<'a> {
        let tids = states.keys().copied().collect();
        Scene { last, states, tids }
    }

    /// Returns the state of a task.
    pub fn state(&self, tid: Tid) -> Option<State> {
        self.states.get(&tid).map(|(state, _)| *state)
    }

    /// Returns whether nothing is known of the task, because its host is silent.
    pub fn is_hidden(&self, tid: Tid) -> bool {
        self.last.silent.contains(&tid.host())
    }

    /// Returns the group of that name, if there is one and no other has the same label.
    pub fn group(&self, label: Label) -> Option<&'a GroupPlace> {
        let mut groups = self.last.groups.iter().filter(|group| label.is_of(&group.name));
        groups.next().filter(|_| groups.next().is_none())
    }

    /// Returns who could end the wait of that task.
    pub fn freer(&self, tid: Tid, wait: &Wait) -> Freer {
        match wait.call {
            Call::Receive(wanted) | Call::PostedReceive(wanted, _) => sender(wanted),
            Call::Matching | Call::Mailbox(_) => Freer::Anybody,
            Call::Collective { of, .. } => Freer::Task(of),
            Call::Barrier { group, count } => self.members(group, count as usize, |call| is_barrier(call, group)),
            Call::Freeze { group, count } => {
                let size = self.group(group).map_or(0, |group| group.members.len());
                let count = usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(size);
                self.members(group, count, |call| is_freeze(call, group))
            }
            Call::Output => {
                let is_child = |task: &&TaskLook| task.info.parent as u32 == tid.0;
                Freer::All(self.last.tasks().filter(is_child).map(|task| task.info.tid).collect())
            }
            Call::Send | Call::Spawn | Call::Hosts | Call::Daemon | Call::Pause => Freer::Daemon,
        }
    }

    fn members(&self, label: Label, count: usize, is_there: impl Fn(&Call) -> bool) -> Freer {
        let Some(group) = self.group(label) else { return Freer::Daemon };
        let has_come = |tid: &Tid| self.state(*tid).and_then(|state| state.wait().map(|wait| is_there(&wait.call)));
        let (come, missing): (Vec<Tid>, Vec<Tid>) =
            group.members.iter().partition(|member| has_come(member).unwrap_or(false));
        match count.saturating_sub(come.len()) {
            // It is just opening.
            0 => Freer::Daemon,
            count => Freer::Members { missing, count, others: !group.is_frozen },
        }
    }

    /// Returns what the task with that tid needs.
    pub fn need(&self, tid: Tid) -> Need {
        let Some(State::Waits(wait)) = self.state(tid) else { return Need::Nothing };
        let place = |other: Tid| self.tids.binary_search(&other).ok().filter(|_| self.may_act(other));
        let others = || (0..self.tids.len()).filter(|at| self.tids[*at] != tid && self.may_act(self.tids[*at]));
        match self.freer(tid, &wait) {
            Freer::Daemon => Need::Nothing,
            Freer::Task(other) if self.is_hidden(other) => Need::Nothing,
            // The daemon is about to end the operation.
            Freer::Task(other) if matches!(wait.call, Call::Collective { .. }) && place(other).is_none() => {
                Need::Nothing
            }
            Freer::Task(other) => Need::Some { count: 1, of: place(other).into_iter().collect() },
            Freer::Anybody if !self.last.silent.is_empty() => Need::Nothing,
            Freer::Anybody => Need::Some { count: 1, of: others().collect() },
            Freer::Members { missing, .. } if missing.iter().any(|tid| self.is_hidden(*tid)) => Need::Nothing,
            // One that runs may start more that join.
            Freer::Members { others: true, .. } if self.last.silent.is_empty() => {
                Need::Some { count: 1, of: others().collect() }
            }
            Freer::Members { others: true, .. } => Need::Nothing,
            Freer::Members { missing, count, .. } => {
                Need::Some { count, of: missing.into_iter().filter_map(place).collect() }
            }
            Freer::All(tasks) => {
                let of: Vec<usize> = tasks.into_iter().filter_map(place).collect();
                Need::Some { count: of.len(), of }
            }
        }
    }

    /// Returns whether the task may do something in the machine.
    fn may_act(&self, tid: Tid) -> bool {
        self.state(tid).is_some_and(|state| state != State::HasLeft)
    }
}

fn sender(wanted: Wanted) -> Freer {
    match wanted.from {
        None => Freer::Anybody,
        Some(tid) if tid.is_task() && !tid.is_service() => Freer::Task(tid),
        Some(_) => Freer::Daemon,
    }
}

fn is_barrier(call: &Call, of: Label) -> bool {
    matches!(call, Call::Barrier { group, .. } if *group == of)
}

fn is_freeze(call: &Call, of: Label) -> bool {
    matches!(call, Call::Freeze { group, .. } if *group == of)
}
