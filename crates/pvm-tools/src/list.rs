//! `pvm conf`, `pvm ps`, `pvm jobs`: print the state of the machine without a console.
use crate::console::listing::{self, PsOptions};
use crate::{cli, control, json, machine, shape};
use pvm_core::codes::{self, Code};
use pvm_core::proto::TaskInfo;
use pvm_core::tid::Tid;
use pvm_task::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// Joins the machine, prints the text that `look` returns, and leaves.
fn show(look: impl FnOnce(&mut Session) -> Result<String, Code>) -> ExitCode {
    let mut session = match machine::join() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("pvm: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = look(&mut session);
    // The result is printed; it does not matter whether leaving the machine succeeds.
    let _ = session.leave();
    match result {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(code) => {
            eprintln!("pvm: {code}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `pvm conf`.
pub fn conf(arguments: &cli::Conf) -> ExitCode {
    show(|session| {
        let (hosts, formats) = control::hosts(session)?;
        Ok(match arguments.json {
            true => json::text(&json::configuration(&hosts, formats)),
            false => shape::configuration(&hosts, formats, arguments.verbose),
        })
    })
}

/// Runs `pvm ps`.
pub fn ps(arguments: &cli::Ps) -> ExitCode {
    show(|session| {
        let options = PsOptions {
            all_hosts: arguments.all_hosts,
            long: arguments.long,
            every_task: arguments.every_task,
            ..PsOptions::default()
        };
        let own = session.tid();
        let place = if arguments.all_hosts { Tid::NONE } else { own.host() };
        let (mut tasks, hosts) = listing::select(session, &options, place)?;
        tasks.retain(|task| task.tid != own);
        Ok(match arguments.json {
            true => json::text(&json::tasks(&tasks, &hosts)),
            false => listing::table(&tasks, &hosts, own, arguments.long),
        })
    })
}

/// Runs `pvm jobs`.
pub fn jobs(arguments: &cli::Jobs) -> ExitCode {
    show(|session| {
        let (hosts, _) = control::hosts(session)?;
        let mut tasks = control::tasks(session, Tid::NONE)?;
        let own = session.tid();
        tasks.retain(|task| task.tid != own && task.flags & codes::TASK_FORKED != 0);
        let jobs = families(&tasks);
        if arguments.json {
            return Ok(json::text(&json::jobs(jobs.into_iter())));
        }
        let mut text = if arguments.long { shape::task_head(false) } else { String::new() };
        for (number, tids) in jobs {
            let names: Vec<String> = tids.iter().map(Tid::to_string).collect();
            let names = if arguments.long { String::new() } else { format!(" {}", names.join(" ")) };
            let _ = writeln!(text, "{number:>2}:{names}");
            for task in tasks.iter().filter(|task| arguments.long && tids.contains(&task.tid)) {
                text.push_str(&shape::task_row(task, &hosts, own, false));
            }
        }
        Ok(text)
    })
}

/// The property that the tasks of one job share: the receiver of their output, which each `pvm run` and each job of a
/// console sets, or else their common ancestor.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Output(i32, i32, i32),
    Task(Tid),
}

/// Returns the jobs, numbered from 1, as far as the list of tasks shows them: tasks that were started together, with
/// all tasks that they spawned, directly or indirectly.
fn families(tasks: &[TaskInfo]) -> Vec<(i32, Vec<Tid>)> {
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
    use serde_bytes::ByteBuf;

    #[test]
    fn a_family_is_a_task_and_all_that_came_of_it() {
        let task = |tid, parent| TaskInfo {
            tid: Tid(tid),
            parent,
            host: Tid(0x40000),
            flags: 6,
            name: ByteBuf::from(*b"p"),
            pid: 1,
            output: (0, 0, 0),
        };
        let tasks = [task(0x40002, -35), task(0x40003, 0x40002), task(0x40004, 0x40003), task(0x40005, 0x40099)];
        assert_eq!(families(&tasks), [(1, vec![Tid(0x40002), Tid(0x40003), Tid(0x40004)]), (2, vec![Tid(0x40005)])]);
    }

    #[test]
    fn what_one_command_has_started_is_one_job() {
        let task = |tid, parent, output| TaskInfo {
            tid: Tid(tid),
            parent,
            host: Tid(0x40000),
            flags: 6,
            name: ByteBuf::from(*b"p"),
            pid: 1,
            output,
        };
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
