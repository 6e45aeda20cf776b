//! `pvm run`: a program from its start to its end, as one command.
use crate::cli;
use crate::console::send_spawn;
use crate::control::{self, Control, SpawnCall};
use crate::hosts::{self, Wanted};
use crate::machine::{self, MachineError};
use crate::signals::Signals;
use crate::timeline::{self, Timeline};
use crate::variables::Variables;
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::Tid;
use pvm_core::trace::parts;
use pvm_task::{ANY, Filter, OptionNumber, OutputKind, Session, Ticket};
use signal_hook::consts::{SIGINT, SIGKILL};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::Duration;

/// The tag of the output; the context tells it from all else.
const OUTPUT_TAG: i32 = 1;
/// The tag of traces, in the same context.
const TRACE_TAG: i32 = 2;
/// `PvmTraceFull`.
const TRACE_FULL: i32 = 1;
/// The status of a command that could not be found, as shells have it.
const EXIT_NOT_FOUND: u8 = 127;
/// The status of a run that failed for other reasons than its program.
const EXIT_FAILURE: u8 = 1;
/// The status when nobody reads the output any more: that of a death by SIGPIPE.
const EXIT_NO_READER: u8 = 141;
/// The status of a command line that cannot be understood.
const EXIT_USAGE: u8 = 2;
/// Added to the number of the signal that ended a task, as shells do.
const EXIT_SIGNAL_BASE: i32 = 128;
/// Variables that say who a task is: a child must not have those of its caller.
const IDENTITY: [&str; 8] =
    ["PVMSOCK", "PVMEPID", "PVMCTX", "PVMTMASK", "PVMTRCBUF", "PVMTRCOPT", "PVMSPAWNWD", "PVMTASK"];

/// Variables that belong to a host or its daemon: a child has those of the host where it runs.
const OF_HOST: [&str; 6] = ["PVM_TMP", "PVM_VMID", "PVM_ARCH", "PVM_ROOT", "XDG_RUNTIME_DIR", "HOSTNAME"];

/// Runs a program.
pub fn run(arguments: &cli::Run) -> ExitCode {
    if arguments.program().starts_with('-') {
        eprintln!("pvm run: unknown option {} (see pvm run --help)", arguments.program());
        return ExitCode::from(EXIT_USAGE);
    }
    let wanted = match wanted_hosts(arguments) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("pvm run: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let (mut session, daemon) = match machine::join_or_start(&[]) {
        Ok(joined) => joined,
        Err(error) => {
            eprintln!("pvm run: {error}");
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    let marked = if daemon.is_some() { machine::mark_transient(&mut session) } else { Ok(()) };
    let mut borrowed = Vec::new();
    let started = marked.map_err(RunError::Code).and_then(|()| {
        let place = with_hosts(&mut session, wanted, daemon.is_some(), &mut borrowed)?;
        Run::start(&mut session, arguments, &place)
    });
    let (status, ending) = match started {
        Ok(run) => run.watch(),
        Err(error) => {
            eprintln!("pvm run: {error}");
            (error.status(), Vec::new())
        }
    };
    if let Err(error) = finish(session, daemon, status, &ending, &borrowed) {
        eprintln!("pvm run: {error}");
    }
    ExitCode::from(status)
}

/// The hosts that the command line names; `None` when it names none.
fn wanted_hosts(arguments: &cli::Run) -> Result<Option<Vec<Wanted>>, String> {
    match (arguments.hosts.as_slice(), &arguments.hostfile) {
        ([], Some(path)) => hosts::of_file(path).map(Some),
        ([], None) => Ok(None),
        (lists, _) => hosts::of_words(lists).map(Some),
    }
}

/// Adds the hosts, and says where the tasks are to run. A machine that was started for this inside
/// of a Slurm job has the hosts of the job. `borrowed` are those to be given back.
fn with_hosts(
    session: &mut Session,
    wanted: Option<Vec<Wanted>>,
    fresh: bool,
    borrowed: &mut Vec<String>,
) -> Result<String, RunError> {
    let of_job = |()| if fresh { hosts::of_slurm().map_err(RunError::Hosts) } else { Ok(None) };
    let Some(wanted) = wanted.map_or_else(|| of_job(()), |wanted| Ok(Some(wanted)))? else {
        return Ok(String::new());
    };
    let added = hosts::add(session, wanted)?;
    *borrowed = added.new_names();
    match added.is_complete() {
        true => Ok(added.place()),
        false => Err(RunError::Hosts(added.complaints().trim_end().to_owned())),
    }
}

/// Leaves the machine, and ends it if it was made for this and nobody else is in it.
/// `ending` are its own tasks that may not have ended quite, `borrowed` hosts that go with them.
fn finish(
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
        // Much output may wait for this task: another one gets its answers at once.
        session.leave()?;
        session = machine::join()?;
    }
    match machine::is_to_end(&mut session, ending)? {
        true => {
            // The machine ends its tasks by a signal, and this is one.
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

/// Why a program did not come to run.
#[derive(Debug)]
enum RunError {
    /// There is none of that name.
    NotFound(String),
    /// Some task could not be started.
    Start(String, Code),
    /// The machine refused.
    Code(Code),
    /// Some host could not be had.
    Hosts(String),
    /// The system refused.
    System(String, io::Error),
}

impl RunError {
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
            RunError::NotFound(program) if program.contains('/') => {
                write!(f, "{program}: {} that can be executed", Code::NoFile)
            }
            RunError::NotFound(program) => {
                write!(f, "{program}: {} in the machine's search path (ep=) or in PATH", Code::NoFile)?;
                match Path::new(program).is_file() {
                    true => write!(f, "; for the one here say ./{program}"),
                    false => Ok(()),
                }
            }
            RunError::Start(program, code) => write!(f, "{program}: {code}"),
            RunError::Code(code) => write!(f, "{code}"),
            RunError::Hosts(text) => f.write_str(text),
            RunError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

/// What comes of the traces of the tasks.
struct Tracing {
    path: PathBuf,
    context: i32,
    timeline: Timeline<BufWriter<File>>,
}

impl Tracing {
    /// Begins a timeline, if one is wanted; all later children trace to this task.
    fn start(session: &mut Session, path: Option<&PathBuf>, context: i32) -> Result<Option<Tracing>, RunError> {
        let Some(path) = path else { return Ok(None) };
        let failed = |error| RunError::System(path.display().to_string(), error);
        let file = File::create(path).map_err(failed)?;
        let mut timeline = Timeline::new(BufWriter::new(file), pvm_task::trace::stamp()).map_err(failed)?;
        for host in control::hosts(session)?.0 {
            timeline.host(host.tid, &host.name).map_err(failed)?;
        }
        let own = session.tid().0 as i32;
        let task = session.task();
        task.set_trace_mask(true, &timeline::mask())?;
        for (option, value) in [
            (OptionNumber::TraceContext, context),
            (OptionNumber::TraceTid, own),
            (OptionNumber::TraceCode, TRACE_TAG),
            (OptionNumber::TraceOptions, TRACE_FULL),
        ] {
            task.set_option(option as i32, value)?;
        }
        Ok(Some(Tracing { path: path.clone(), context, timeline }))
    }

    /// Takes what has come.
    fn take(&mut self, session: &mut Session) -> io::Result<()> {
        let filter = Filter { src: ANY, tag: TRACE_TAG, ctx: self.context };
        // Without a daemon nothing more comes; the run notices that by itself.
        while let Ok(Some(message)) = session.recv(filter, Some(Duration::ZERO)) {
            for part in parts(message.reader()) {
                self.timeline.take(message.src, part)?;
            }
        }
        Ok(())
    }
}

struct Run<'a> {
    session: &'a mut Session,
    tracing: Option<Tracing>,
    /// The name in front of lines, if wanted.
    tag: Option<String>,
    /// The tasks that were asked for, in order.
    roots: Vec<Tid>,
    /// All tasks whose output comes here, and whether it has ended.
    tasks: BTreeMap<Tid, bool>,
    /// What was asked about how the tasks end, and is not answered yet.
    open: Vec<Ticket>,
    /// The status of the first task that failed.
    status: u8,
    interrupts: u32,
    signals: Signals,
}

impl<'a> Run<'a> {
    fn start(session: &'a mut Session, arguments: &cli::Run, hosts: &str) -> Result<Run<'a>, RunError> {
        let signals = Signals::catch().map_err(|error| RunError::System("signals".into(), error))?;
        let context = match session.request(Request::NewContext)? {
            Reply::Int(context) => context,
            _ => return Err(Code::BadMsg.into()),
        };
        session.task().collect_output(context, OUTPUT_TAG);
        let tracing = Tracing::start(session, arguments.trace.as_ref(), context)?;
        let tids = spawn(session, arguments, hosts, context)?;
        let roots: Vec<Tid> = tids.iter().filter(|tid| **tid > 0).map(|tid| Tid(*tid as u32)).collect();
        if let Some(code) = tids.iter().find(|tid| **tid <= 0) {
            for tid in roots {
                session.request(Request::Signal { tid, signal: SIGKILL })?;
                session.request(Request::ExitStatus(tid))?;
            }
            return Err(match *code == Code::NoFile.number() {
                true => RunError::NotFound(arguments.program().to_owned()),
                false => RunError::Start(arguments.program().to_owned(), code_of(*code)),
            });
        }
        let tag = arguments.tag.then(|| base_name(arguments.program()));
        let mut open = Vec::new();
        for tid in &roots {
            open.push(session.task().begin(Request::ExitStatus(*tid))?);
        }
        let tasks = roots.iter().map(|tid| (*tid, false)).collect();
        Ok(Run { session, tracing, tag, roots, tasks, open, status: 0, interrupts: 0, signals })
    }

    /// Shows output until every task has ended; answers the exit status, and the tasks.
    fn watch(mut self) -> (u8, Vec<Tid>) {
        let status = self.watch_to_the_end();
        self.take_traces();
        if let Some(Tracing { path, timeline, .. }) = self.tracing {
            if let Err(error) = timeline.finish() {
                eprintln!("pvm run: {}: {error}", path.display());
            }
        }
        (status, self.tasks.into_keys().collect())
    }

    /// Writes what the tasks have told. A file that cannot be written ends the timeline, not the run.
    fn take_traces(&mut self) {
        let Some(tracing) = &mut self.tracing else { return };
        if let Err(error) = tracing.take(self.session) {
            eprintln!("pvm run: {}: {error}", tracing.path.display());
            self.tracing = None;
        }
    }

    fn watch_to_the_end(&mut self) -> u8 {
        loop {
            if self.show_output().is_err() {
                // Nobody reads any more: the tasks get what they would have got without us.
                self.signal_all(SIGKILL);
                return EXIT_NO_READER;
            }
            self.take_answers();
            self.take_traces();
            if self.open.is_empty() && self.tasks.values().all(|ended| *ended) {
                return self.status;
            }
            if !self.session.is_connected() {
                eprintln!("pvm run: {} (the machine has ended)", Code::SysErr);
                return EXIT_FAILURE;
            }
            let descriptors: Vec<_> = self.signals.descriptors().collect();
            self.session.wait(&descriptors, None);
            drop(descriptors);
            for signal in self.signals.take() {
                self.pass_on(signal);
            }
        }
    }

    /// Shows the output that has come, whole lines at a time.
    fn show_output(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        while let Some(event) = self.session.next_output() {
            let ended = self.tasks.entry(event.task).or_insert(false);
            match event.kind {
                OutputKind::Begin => {}
                OutputKind::End => *ended = true,
                OutputKind::Line(line) => {
                    text.extend_from_slice(self.tag_of(event.task).as_bytes());
                    text.extend_from_slice(&line);
                    text.push(b'\n');
                }
            }
        }
        let mut out = io::stdout().lock();
        out.write_all(&text).and_then(|()| out.flush())
    }

    /// What stands before the lines of a task.
    fn tag_of(&self, task: Tid) -> String {
        let Some(name) = &self.tag else { return String::new() };
        match self.roots.iter().position(|root| *root == task) {
            Some(place) => format!("[{name}.{place}] "),
            None => format!("[{task}] "),
        }
    }

    /// Looks which tasks have ended, and how.
    fn take_answers(&mut self) {
        for ticket in std::mem::take(&mut self.open) {
            let status = match self.session.task().poll_reply(&ticket) {
                None => {
                    self.open.push(ticket);
                    continue;
                }
                Some(Ok(Reply::Int(status))) => exit_status(status),
                Some(_) => EXIT_FAILURE,
            };
            if self.status == 0 {
                self.status = status;
            }
        }
    }

    /// The first Ctrl-C interrupts, the next one kills; other signals go on as they are.
    fn pass_on(&mut self, signal: i32) {
        if signal == SIGINT {
            self.interrupts += 1;
        }
        let signal = if signal == SIGINT && self.interrupts > 1 { SIGKILL } else { signal };
        self.signal_all(signal);
    }

    fn signal_all(&mut self, signal: i32) {
        let running: Vec<Tid> = self.tasks.iter().filter(|(_, ended)| !**ended).map(|(tid, _)| *tid).collect();
        for tid in running {
            // Without a daemon there are no tasks either; the loop notices. The answer says nothing
            // and may come after much output.
            if let Ok(ticket) = self.session.task().begin(Request::Signal { tid, signal }) {
                self.session.task().forget(ticket);
            }
        }
    }
}

/// The exit status that a shell would give for a wait status.
fn exit_status(wait_status: i32) -> u8 {
    let signal = wait_status & 0x7f;
    let status = if signal == 0 { wait_status >> 8 & 0xff } else { EXIT_SIGNAL_BASE + signal };
    status as u8
}

/// The code of that number, as far as a spawn can give it.
fn code_of(number: i32) -> Code {
    [Code::NoHost, Code::HostFail, Code::NoMem, Code::Denied, Code::BadParam, Code::DSysErr]
        .into_iter()
        .find(|code| code.number() == number)
        .unwrap_or(Code::OutOfRes)
}

fn base_name(program: &str) -> String {
    Path::new(program).file_name().map_or_else(|| program.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Starts the tasks; answers tids and codes.
fn spawn(session: &mut Session, arguments: &cli::Run, hosts: &str, context: i32) -> Result<Vec<i32>, RunError> {
    let here = std::env::current_dir().map_err(|error| RunError::System("current directory".into(), error))?;
    let directory = match &arguments.directory {
        Some(directory) => {
            let directory = here.join(directory);
            match directory.is_dir() {
                true => directory,
                false => return Err(RunError::System(directory.display().to_string(), no_directory())),
            }
        }
        None => here.clone(),
    };
    let mut variables = Variables::of_this_process();
    variables.set("PWD", &directory.to_string_lossy());
    let environment = variables.pairs(|name| !IDENTITY.contains(&name) && !OF_HOST.contains(&name));
    let place = format!("{hosts}:{}", directory.display());
    let placed = if hosts.is_empty() { 0 } else { codes::TASK_HOST };
    let mut start = |file: &str| -> Result<Vec<i32>, Code> {
        let request = session.spawn_request(&SpawnCall {
            file,
            arguments: arguments.arguments(),
            flags: codes::NO_SPAWN_PARENT | placed,
            place: &place,
            count: arguments.count,
            environment: &environment,
        })?;
        send_spawn(session, request, Some((context, OUTPUT_TAG)))
    };
    if arguments.program().contains('/') {
        return Ok(start(&here.join(arguments.program()).to_string_lossy())?);
    }
    let tids = start(arguments.program())?;
    let not_found = tids.iter().all(|tid| *tid == Code::NoFile.number());
    match in_path(arguments.program()).filter(|_| not_found) {
        Some(file) => Ok(start(&file.to_string_lossy())?),
        None => Ok(tids),
    }
}

fn no_directory() -> io::Error {
    io::Error::from(io::ErrorKind::NotADirectory)
}

/// The first file of that name in `PATH` that can be executed.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| {
        file.is_absolute() && file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_what_a_shell_would_say() {
        assert_eq!(exit_status(0), 0);
        assert_eq!(exit_status(3 << 8), 3);
        assert_eq!(exit_status(9), 137);
        assert_eq!(exit_status(0x80 | 11), 139);
    }

    #[test]
    fn names_in_front_of_lines_are_short() {
        assert_eq!(base_name("/usr/bin/prog"), "prog");
        assert_eq!(base_name("prog"), "prog");
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert!(in_path("sh").is_some_and(|file| file.ends_with("sh") && file.is_absolute()));
        assert_eq!(in_path("no such program"), None);
    }

    #[test]
    fn a_program_that_is_not_found_is_told_where_it_was_looked_for() {
        let text = RunError::NotFound("nosuch".into()).to_string();
        assert!(text.contains("nosuch: No such file in the machine's search path"), "{text}");
    }
}
