//! `pvm conf`, `pvm ps`, `pvm jobs`: print the state of the machine without a console.
use crate::console::listing::{self, PsOptions};
use crate::{cli, control, json, machine, shape};
use pvm_core::codes::Code;
use pvm_core::jobs;
use pvm_core::tid::Tid;
use pvm_task::Session;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// Joins the machine, prints the text that `look` returns, and leaves.
fn show(look: impl FnOnce(&mut Session) -> Result<String, Code>) -> ExitCode {
    machine::visit(ExitCode::FAILURE, |session| match look(session) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(code) => {
            eprintln!("pvm: {code}");
            ExitCode::FAILURE
        }
    })
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
        tasks.retain(|task| task.tid != own);
        let tasks = jobs::started(tasks);
        let jobs = jobs::families(&tasks);
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
