//! Jobs: tasks that were started together, with all tasks that they spawned.
use crate::codes::TASK_FORKED;
use crate::proto::TaskInfo;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// The property that the tasks of one job share: the receiver of their output, which each `pvm run` and each job of a
/// console sets, or else their common ancestor.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Output(i32, i32, i32),
    Task(Tid),
}

/// Returns the tasks that the machine has started: only those belong to jobs.
pub fn started(mut tasks: Vec<TaskInfo>) -> Vec<TaskInfo> {
    tasks.retain(|task| task.flags & TASK_FORKED != 0);
    tasks
}

/// Returns the jobs, numbered from 1, as far as the list of tasks shows them: tasks that were started together, with
/// all tasks that they spawned, directly or indirectly.
pub fn families(tasks: &[TaskInfo]) -> Vec<(i32, Vec<Tid>)> {
    let known: BTreeMap<Tid, &TaskInfo> = tasks.iter().map(|task| (task.tid, task)).collect();
    let parent_of = |tid: Tid| known.get(&Tid(known.get(&tid)?.parent.max(0) as u32)).copied();
    let mut families: BTreeMap<Origin, Vec<Tid>> = BTreeMap::new();
    for task in tasks {
        let (mut root, mut seen) = (task, BTreeSet::new());
        while let Some(parent) = parent_of(root.tid).filter(|_| seen.insert(root.tid)) {
            root = parent;
        }
        let (collector, ctx, tag) = root.output;
        let origin = if collector > 0 { Origin::Output(collector, ctx, tag) } else { Origin::Task(root.tid) };
        families.entry(origin).or_default().push(task.tid);
    }
    let mut families: Vec<Vec<Tid>> = families.into_values().collect();
    families.iter_mut().for_each(|family| family.sort());
    families.sort();
    (1..).zip(families).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ByteBuf;

    fn task(tid: u32, parent: i32, output: (i32, i32, i32)) -> TaskInfo {
        let (tid, host, name) = (Tid(tid), Tid(0x40000), ByteBuf::from(*b"p"));
        TaskInfo { tid, parent, host, flags: 6, name, pid: 1, output }
    }

    #[test]
    fn a_family_is_a_task_and_all_that_came_of_it() {
        let none = (0, 0, 0);
        let tasks = [
            task(0x40002, -35, none),
            task(0x40003, 0x40002, none),
            task(0x40004, 0x40003, none),
            task(0x40005, 0x40099, none),
        ];
        assert_eq!(families(&tasks), [(1, vec![Tid(0x40002), Tid(0x40003), Tid(0x40004)]), (2, vec![Tid(0x40005)])]);
    }

    #[test]
    fn what_one_command_has_started_is_one_job() {
        let run = (0x40001, 7, 1);
        // The last task is a child of the second, which collects its output.
        let tasks = [
            task(0x40002, -35, run),
            task(0x40003, -35, run),
            task(0x40004, -35, (0x40001, 7, 2)),
            task(0x40005, 0x40003, (0x40003, 0, 9)),
        ];
        let jobs = [(1, vec![Tid(0x40002), Tid(0x40003), Tid(0x40005)]), (2, vec![Tid(0x40004)])];
        assert_eq!(families(&tasks), jobs);
    }
}
