//! `pvm run --dry-run`: shows what would be started where.
use super::placement::Hosts;
use super::{EXIT_FAILURE, EXIT_USAGE, RunError, report, start};
use crate::cli::{self, MapBy, Program};
use crate::machine::MachineError;
use crate::wanted::Wanted;
use crate::{batch, json, machine};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// What would be started.
struct Plan {
    /// Whether a machine runs already.
    runs: bool,
    /// Hosts that would be added.
    added: Vec<String>,
    /// For each program, the hosts of its tasks, in the order of their numbers.
    tasks: Vec<Vec<String>>,
}

/// Prints the plan of the run. Starts nothing.
pub fn run(arguments: &cli::Run, programs: &[Program], wanted: Option<Vec<Wanted>>) -> ExitCode {
    let result = plan(arguments, programs, wanted).and_then(|plan| match arguments.json {
        true => document(programs, &plan),
        false => text(programs, &plan),
    });
    match result {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(EXIT_FAILURE),
        },
        Err(error) => {
            eprintln!("pvm run: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn plan(arguments: &cli::Run, programs: &[Program], wanted: Option<Vec<Wanted>>) -> Result<Plan, RunError> {
    let known = match machine::join() {
        Ok(mut session) => {
            let names = report::host_names(&mut session);
            let _ = session.leave();
            Some(names?)
        }
        Err(MachineError::None) => None,
        Err(error) => return Err(RunError::Hosts(error.to_string())),
    };
    let wanted = match (wanted, &known) {
        (None, None) => batch::hosts().map_err(RunError::Hosts)?,
        (wanted, _) => wanted,
    };
    let runs = known.is_some();
    let known = known.unwrap_or_else(|| vec![this_host()]);
    let names =
        wanted.as_ref().map_or_else(|| known.clone(), |wanted| wanted.iter().map(|host| host.name.clone()).collect());
    let hosts = match (arguments.map_by, &wanted) {
        (MapBy::Node, _) => Hosts::in_turns(names.iter().cloned()),
        (MapBy::Slot, None) => Hosts::default(),
        (MapBy::Slot, Some(wanted)) => Hosts::in_blocks(place(wanted)),
    };
    let mut first = 0;
    let tasks = programs.iter().map(|program| {
        let hosts = hosts.names(first, program.count, &known);
        first += program.count;
        hosts
    });
    Ok(Plan { runs, tasks: tasks.collect(), added: names.into_iter().filter(|name| !known.contains(name)).collect() })
}

/// Returns the place argument for hosts that are not in the machine yet.
fn place(wanted: &[Wanted]) -> String {
    let weighted = wanted.iter().any(|host| host.slots.is_some());
    let slots = |host: &Wanted| if weighted { host.slots.unwrap_or(1) as usize } else { 1 };
    wanted.iter().flat_map(|host| std::iter::repeat_n(format!("{},", host.name), slots(host))).collect()
}

fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn words(program: &Program) -> Vec<String> {
    let words = std::iter::once(program.file()).chain(program.arguments().iter().map(|word| word.as_os_str()));
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

fn text(programs: &[Program], plan: &Plan) -> Result<String, RunError> {
    let mut text =
        String::from(if plan.runs { "the running machine is used\n" } else { "a machine is started and halted\n" });
    if !plan.added.is_empty() {
        let _ = writeln!(text, "hosts are added and removed: {}", plan.added.join(" "));
    }
    let here = std::env::current_dir().map_err(|error| RunError::System("current directory".into(), error))?;
    let mut index = 0;
    for (program, hosts) in programs.iter().zip(&plan.tasks) {
        let directory = start::directory_of(program, &here)?;
        start::environment(program, &directory)?;
        let command: Vec<String> = words(program).iter().map(|word| pvm_core::dialogue::quoted(word)).collect();
        for host in hosts {
            let _ = writeln!(text, "task {index} on {host} in {}: {}", directory.display(), command.join(" "));
            index += 1;
        }
    }
    Ok(text)
}

fn document(programs: &[Program], plan: &Plan) -> Result<String, RunError> {
    let here = std::env::current_dir().map_err(|error| RunError::System("current directory".into(), error))?;
    let mut tasks: Vec<Value> = Vec::new();
    for (program, hosts) in programs.iter().zip(&plan.tasks) {
        let directory = start::directory_of(program, &here)?.display().to_string();
        start::environment(program, &here)?;
        for host in hosts {
            let index = tasks.len();
            tasks.push(json!({ "index": index, "host": host, "directory": directory, "command": words(program) }));
        }
    }
    Ok(json::text(&json!({ "machine_runs": plan.runs, "added_hosts": plan.added, "tasks": tasks })))
}
