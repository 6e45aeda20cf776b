//! `pvm run`: runs a program from its start to its end, as one command.
mod dry;
pub mod ends;
mod family;
pub mod guard;
mod input;
mod lookout;
mod placement;
mod printer;
mod recording;
mod report;
pub mod start;
mod watch;

use crate::cli::{self, MapBy};
use crate::hosts::{self, AddResults};
use crate::machine::{self, MachineError};
use crate::signals::Signals;
use crate::wanted::{self, Wanted};
use crate::{batch, json, shape};
use guard::Guard;
use placement::Hosts;
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_task::Session;
use report::Report;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ExitCode};
use watch::{Outcome, Run};

/// The name under which lists of tasks show `pvm run` itself, which is a task too.
const NAME: &[u8] = b"pvm run";
/// The exit status if the program was not found, the same as in shells.
const EXIT_NOT_FOUND: u8 = 127;
/// The exit status of a run that failed for a reason other than its program.
pub const EXIT_FAILURE: u8 = 1;
/// The exit status if nobody reads the output any more: 128 + SIGPIPE.
pub const EXIT_NO_READER: u8 = 141;
/// The number that shells add to the number of the signal that ended a process.
pub const EXIT_SIGNAL_BASE: u8 = 128;
/// The exit status of an invalid command line.
pub const EXIT_USAGE: u8 = 2;

/// Runs a program, or several.
pub fn run(arguments: &cli::Run) -> ExitCode {
    if let Some(remark) = batch::superfluous() {
        if !remark.is_empty() {
            eprintln!("pvm run: {remark}");
        }
        return ExitCode::SUCCESS;
    }
    let ready = count_of_job(arguments)
        .and_then(|count| arguments.programs(count))
        .and_then(|programs| Ok((programs, wanted_hosts(arguments)?)));
    let (programs, wanted) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            eprintln!("pvm run: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if arguments.dry_run {
        return dry::run(arguments, &programs, wanted);
    }
    let (mut session, daemon) = match machine::join_or_start_as(NAME, &[]) {
        Ok(joined) => joined,
        Err(error) => {
            eprintln!("pvm run: {error}");
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    let marked = if daemon.is_some() { machine::mark_transient(&mut session) } else { Ok(()) };
    let mut guard = Guard::start(session.tid());
    let mut borrowed = Vec::new();
    let started = marked.map_err(RunError::Code).and_then(|()| {
        let added = add_hosts(&mut session, wanted, daemon.is_some(), &mut borrowed)?;
        borrowed.iter().for_each(|host| guard.note_host(host));
        let hosts = placed(&mut session, arguments, added)?;
        Run::start(&mut session, &mut guard, (arguments, &programs), &hosts)
    });
    let mut failure = None;
    let outcome = match started {
        Ok(run) => run.watch(),
        Err(error) => {
            eprintln!("pvm run: {error}");
            failure = Some(error.to_string());
            let report = Report::new(std::time::Instant::now());
            Outcome { status: error.status(), ending: Vec::new(), is_left: false, report }
        }
    };
    if !outcome.is_left {
        if let Err(error) = finish(session, daemon, outcome.status, &outcome.ending, &borrowed) {
            eprintln!("pvm run: {error}");
        }
        guard.done();
    }
    if arguments.json {
        // A reader that has gone needs no report.
        let text = json::text(&outcome.report.json(outcome.status, failure.as_deref()));
        let _ = io::stdout().write_all(text.as_bytes());
    } else if arguments.report && failure.is_none() {
        eprint!("pvm run: {}", outcome.report.table(outcome.status));
    }
    ExitCode::from(outcome.status)
}

/// Returns which hosts get which tasks. `added`: the hosts that were named; `None` if none were.
fn placed(session: &mut Session, arguments: &cli::Run, added: Option<AddResults>) -> Result<Hosts, RunError> {
    Ok(match (arguments.map_by, added) {
        (MapBy::Slot, None) => Hosts::default(),
        (MapBy::Slot, Some(added)) => Hosts::in_blocks(added.place()),
        (MapBy::Node, None) => Hosts::in_turns(report::host_names(session)?),
        (MapBy::Node, Some(added)) => Hosts::in_turns(added.names()),
    })
}

/// Returns the number of tasks if the command line has none: 1, or the number of slots of the job. Says so in a job: a
/// program that spawns its own workers is meant to run once.
fn count_of_job(arguments: &cli::Run) -> Result<i32, String> {
    let slots = if arguments.leaves_count_open() { batch::slots()? } else { None };
    if let Some(slots) = slots.filter(|slots| *slots > 1) {
        eprintln!("pvm run: {slots} tasks, one for each slot of the job (-n N: another number)");
    }
    Ok(slots.unwrap_or(1))
}

/// Returns the hosts that the command line names; `None` if it names none.
fn wanted_hosts(arguments: &cli::Run) -> Result<Option<Vec<Wanted>>, String> {
    match (arguments.hosts.as_slice(), &arguments.hostfile) {
        ([], Some(path)) => wanted::of_file(path).map(Some),
        ([], None) => Ok(None),
        (lists, _) => wanted::of_words(lists).map(Some),
    }
}

/// Adds the hosts. If no hosts are named, and this run started the machine (`fresh`) inside a job of a batch system,
/// adds the hosts of the job. `borrowed` receives the names of the added hosts, which are removed after the run.
fn add_hosts(
    session: &mut Session,
    wanted: Option<Vec<Wanted>>,
    fresh: bool,
    borrowed: &mut Vec<String>,
) -> Result<Option<AddResults>, RunError> {
    let of_job = |()| if fresh { batch::hosts().map_err(RunError::Hosts) } else { Ok(None) };
    let Some(wanted) = wanted.map_or_else(|| of_job(()), |wanted| Ok(Some(wanted)))? else { return Ok(None) };
    let added = hosts::add(session, wanted)?;
    *borrowed = added.new_names();
    match added.is_complete() {
        true => Ok(Some(added)),
        false => Err(RunError::Hosts(added.complaints().trim_end().to_owned())),
    }
}

/// Does what [`add_hosts`] does, and returns the place argument for a spawn.
pub fn with_hosts(
    session: &mut Session,
    wanted: Option<Vec<Wanted>>,
    fresh: bool,
    borrowed: &mut Vec<String>,
) -> Result<String, RunError> {
    Ok(add_hosts(session, wanted, fresh, borrowed)?.map_or_else(String::new, |added| added.place()))
}

/// Leaves the machine, and halts it if a `pvm run` or `pvm bench` started it and no other task is in it. `ending` are
/// the tasks of the run that may not have ended completely, `borrowed` the hosts to remove.
pub fn finish(
    mut session: Session,
    daemon: Option<Child>,
    status: u8,
    ending: &[Tid],
    borrowed: &[String],
) -> Result<(), MachineError> {
    if !session.is_connected() {
        return Ok(());
    }
    if status == EXIT_NO_READER {
        // Much unread output may be queued before an answer to this task. So the process leaves and joins again as a
        // new task, which gets its answers at once.
        session.leave()?;
        session = machine::join()?;
    }
    match machine::is_to_end(&mut session, ending)? {
        true => {
            // The machine ends its tasks by a signal, and this process is a task too.
            let _signals = Signals::catch();
            machine::halt(session, daemon)?;
        }
        false => {
            if !borrowed.is_empty() {
                hosts::delete(&mut session, borrowed)?;
            }
            session.leave()?;
        }
    }
    Ok(())
}

/// The reason why a program did not run.
#[derive(Debug)]
pub enum RunError {
    /// There is no program with that name.
    NotFound(String),
    /// A task could not be started.
    Start(String, Code),
    /// The machine refused a request.
    Code(Code),
    /// A host could not be added.
    Hosts(String),
    /// A variable of `-x` has no value.
    NotSet(String),
    /// A system call failed.
    System(String, io::Error),
}

impl RunError {
    /// Returns the error for a code that a spawn has returned in place of a tid.
    fn of_spawn(program: &OsStr, number: i32) -> RunError {
        let program = program.to_string_lossy().into_owned();
        match number == Code::NoFile.number() {
            true => RunError::NotFound(program),
            false => RunError::Start(program, code_of(number)),
        }
    }

    fn status(&self) -> u8 {
        match self {
            RunError::NotFound(_) => EXIT_NOT_FOUND,
            _ => EXIT_FAILURE,
        }
    }
}

impl From<Code> for RunError {
    fn from(code: Code) -> RunError {
        RunError::Code(code)
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::NotFound(program) if start::is_path(Path::new(program)) => {
                write!(f, "{program}: {} that can be executed", Code::NoFile)
            }
            RunError::NotFound(program) => {
                let places = "the machine's search path (ep=), PATH, beside pvm or here";
                write!(f, "{program}: {} that can be executed in {places}", Code::NoFile)
            }
            RunError::Start(program, code) => {
                let advice = shape::spawn_advice(&[code.number()]).trim_end();
                let separator = if advice.is_empty() { "" } else { "; " };
                write!(f, "{program}: {code}{separator}{advice}")
            }
            RunError::Code(code) => write!(f, "{code}"),
            RunError::Hosts(text) => f.write_str(text),
            RunError::NotSet(name) => {
                write!(f, "-x {name}: the variable is not set here; give it a value: -x {name}=VALUE")
            }
            RunError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

/// Returns the code with this number; `OutOfRes` if it is not one of the codes that need a message of their own.
fn code_of(number: i32) -> Code {
    [Code::NoHost, Code::HostFail, Code::NoMem, Code::Denied, Code::BadParam, Code::DSysErr]
        .into_iter()
        .find(|code| code.number() == number)
        .unwrap_or(Code::OutOfRes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_found_is_told_where_it_was_looked_for() {
        let text = RunError::NotFound("nosuch".into()).to_string();
        assert!(text.contains("nosuch: No such file") && text.contains("search path"), "{text}");
    }
}
