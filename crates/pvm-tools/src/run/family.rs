//! Finds all tasks that descend from a run, wherever their output goes, and sends signals to them.
use crate::control;
use crate::control::Control;
use pvm_core::codes::Code;
use pvm_core::proto::{Request, TaskInfo};
use pvm_core::tid::Tid;
use pvm_task::Session;
use std::collections::BTreeSet;

/// Returns the tasks of a run: the `known` tasks, the tasks whose output goes to `runner`, and all descendants of these
/// tasks and of `runner`. Adds all tasks found to `known`, since a task can outlive its parent.
pub fn members(tasks: &[TaskInfo], runner: Tid, known: &mut BTreeSet<Tid>) -> Vec<Tid> {
    loop {
        let before = known.len();
        for task in tasks.iter().filter(|task| task.tid != runner) {
            let parent = Tid(task.parent.max(0) as u32);
            if task.output.0 == runner.0 as i32 || parent == runner || known.contains(&parent) {
                known.insert(task.tid);
            }
        }
        if known.len() == before {
            break;
        }
    }
    tasks.iter().map(|task| task.tid).filter(|tid| known.contains(tid)).collect()
}

/// Sends a signal to all tasks of the run and to their process groups. Returns these tasks.
pub fn signal(session: &mut Session, runner: Tid, known: &mut BTreeSet<Tid>, signal: i32) -> Result<Vec<Tid>, Code> {
    let tasks = control::tasks(session as &mut dyn Control, Tid::NONE)?;
    let members = members(&tasks, runner, known);
    for &tid in &members {
        // The answer carries no information and may arrive after much output, so nobody waits for it.
        let ticket = session.task().begin(Request::SignalGroup { tid, signal })?;
        session.task().forget(ticket);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;

    #[test]
    fn children_of_those_that_have_ended_and_of_collectors_belong_to_the_run() {
        let runner = Tid(0x40001);
        let task = |tid, parent, output| TaskInfo {
            tid: Tid(tid),
            parent,
            host: Tid(0x40000),
            flags: 6,
            name: ByteBuf::from(*b"p"),
            pid: 1,
            output: (output, 0, 0),
        };
        let tasks = [
            task(0x40001, 0, 0),
            task(0x40002, -35, 0x40001),
            task(0x40005, 0x40004, 0),
            task(0x40004, 0x40003, 0x40003),
            task(0x40006, 0, 0),
        ];
        let mut known = BTreeSet::from([Tid(0x40003)]);
        let expected = [Tid(0x40002), Tid(0x40005), Tid(0x40004)];
        assert_eq!(members(&tasks, runner, &mut known), expected);
        // The result is the same after the parents have ended.
        assert_eq!(members(&tasks[2..3], runner, &mut known), [Tid(0x40005)]);
    }
}
