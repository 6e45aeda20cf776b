//! Finds, starts and ends the virtual machine.
use crate::control;
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Reply, Request, TaskKind};
use pvm_core::tid::Tid;
use pvm_task::{EnrollError, Environment, Session};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The mailbox class that marks a machine as one that `pvm run` or `pvm bench` has started.
const TRANSIENT_CLASS: &str = "###_HPVM_RUN_###";
/// How long the end of a machine may take before a person is told what is waited for, and how long the daemon's process
/// may then need to end.
const HALT_WAIT: Duration = Duration::from_secs(10);
/// The pause between two checks whether the machine has ended.
const HALT_PAUSE: Duration = Duration::from_millis(5);
/// The most that is shown of what a daemon complains of when it starts, in bytes.
const COMPLAINTS_BYTES_MAX: u64 = 64 << 10;

/// The reason why no machine can be used.
#[derive(Debug)]
pub enum MachineError {
    /// No machine runs.
    None,
    /// A machine runs, but cannot be joined.
    Join(EnrollError),
    /// The machine refused a request.
    Code(Code),
    /// No `pvmd` was found; these places were searched.
    NoProgram(Vec<PathBuf>),
    /// The daemon did not start.
    Start(PathBuf, io::Error),
    /// The daemon was started, printed these messages, and ended before it was ready.
    Ended(String),
}

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MachineError::None => f.write_str("no virtual machine runs (start one with \"pvm\")"),
            MachineError::Join(EnrollError::Unreachable(error)) => write!(f, "{}: {error}", Code::SysErr),
            MachineError::Join(EnrollError::System(error)) => write!(f, "cannot join the machine: {error}"),
            MachineError::Join(error) => write!(f, "{}", error.code()),
            MachineError::Code(code) => write!(f, "{code}"),
            MachineError::NoProgram(places) => {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                write!(f, "{}: no pvmd in {}, nor in PATH", Code::CantStart, places.join(", "))
            }
            MachineError::Start(path, error) => write!(f, "{}: {}: {error}", Code::CantStart, path.display()),
            MachineError::Ended(complaints) => write!(f, "{}\n{}", Code::CantStart, complaints.trim_end()),
        }
    }
}
impl std::error::Error for MachineError {}

impl From<Code> for MachineError {
    fn from(code: Code) -> MachineError {
        MachineError::Code(code)
    }
}

/// Joins the running machine.
pub fn join() -> Result<Session, MachineError> {
    join_as(b"")
}

/// Joins the running machine, does something there, and leaves. If this cannot join, it prints the reason and returns `failed`.
pub fn visit(failed: ExitCode, command: impl FnOnce(&mut Session) -> ExitCode) -> ExitCode {
    let mut session = match join() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("pvm: {error}");
            return failed;
        }
    };
    let code = command(&mut session);
    // The command is done; it does not matter whether leaving the machine succeeds.
    let _ = session.leave();
    code
}

/// Joins the running machine as a task with this name.
fn join_as(name: &[u8]) -> Result<Session, MachineError> {
    match Session::enroll(&Environment { name: name.to_vec(), kind: TaskKind::Tool, ..Environment::from_process() }) {
        Ok(mut session) => {
            session.never_compete();
            Ok(session)
        }
        Err(error) if error.means_no_daemon() => Err(MachineError::None),
        Err(error) => Err(MachineError::Join(error)),
    }
}

/// Joins the running machine. If none runs, starts one whose daemon gets `arguments`, and also returns the daemon's
/// process.
pub fn join_or_start(arguments: &[OsString]) -> Result<(Session, Option<Child>), MachineError> {
    join_or_start_as(b"", arguments)
}

/// Does what [`join_or_start`] does, and gives the task this name.
pub fn join_or_start_as(name: &[u8], arguments: &[OsString]) -> Result<(Session, Option<Child>), MachineError> {
    match join_as(name) {
        Ok(session) => Ok((session, None)),
        Err(MachineError::None) => match start(arguments) {
            Ok(daemon) => {
                let mut session = join_as(name)?;
                await_hosts(&mut session)?;
                Ok((session, Some(daemon)))
            }
            // Another process may have started a machine at the same moment.
            Err(ended @ MachineError::Ended(_)) => join_as(name).map(|session| (session, None)).map_err(|_| ended),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Waits until the hosts of the daemon's hostfile have been added or have failed.
fn await_hosts(session: &mut Session) -> Result<(), Code> {
    if let Reply::Failures(failures) = session.request(Request::AwaitHosts)? {
        for failure in failures {
            eprintln!("{}", failure.replace('\n', "\n    "));
        }
    }
    Ok(())
}

/// Returns the paths where `pvmd` is looked for before `PATH`.
pub fn daemon_places() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("pvmd")));
    let root = std::env::var_os("PVM_ROOT").map(|root| PathBuf::from(root).join("lib/pvmd"));
    beside.into_iter().chain(root).collect()
}

/// Returns the daemon that would be started; `None` if there is none.
pub fn daemon_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|place| place.join("pvmd")).collect::<Vec<_>>();
    daemon_places().into_iter().chain(in_path).find(|place| place.is_file())
}

/// Returns the name of the machine, from `PVM_VMID` or the job of a batch system; `None` for the machine without a
/// name.
pub fn name() -> Option<String> {
    let id = pvm_link::rendezvous::machine_id(|name| std::env::var_os(name));
    id.map(|id| id.to_string_lossy().into_owned())
}

/// Starts a daemon and waits until it is ready.
fn start(arguments: &[OsString]) -> Result<Child, MachineError> {
    let places = daemon_places();
    let program = places.iter().find(|place| place.is_file()).cloned().unwrap_or_else(|| "pvmd".into());
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = match command.spawn() {
        Ok(daemon) => daemon,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MachineError::NoProgram(places)),
        Err(error) => return Err(MachineError::Start(program, error)),
    };
    // When the daemon is ready, it prints the path of its socket in one line, and closes its ends of both pipes. Both are
    // read at the same time: it may complain more than a pipe holds.
    let complaints = daemon.stderr.take().map(|stderr| std::thread::spawn(move || read_complaints(stderr)));
    let mut line = String::new();
    let read = daemon.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line));
    // If the daemon's messages cannot be read, they are not shown.
    let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    match read {
        Ok(count) if count > 0 => {
            eprint!("{complaints}");
            Ok(daemon)
        }
        Ok(_) => {
            let _ = daemon.wait();
            Err(MachineError::Ended(complaints))
        }
        Err(error) => Err(MachineError::Start(program, error)),
    }
}

/// Reads what a daemon complains of, up to a limit.
fn read_complaints(stderr: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = stderr.take(COMPLAINTS_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Marks the machine as one that ends with the last `pvm run`.
pub fn mark_transient(session: &mut Session) -> Result<(), Code> {
    let request = Request::PutInfo {
        name: ByteBuf::from(TRANSIENT_CLASS),
        flags: codes::MBOX_PERSISTENT | codes::MBOX_OVER_WRITABLE,
        message: control::own_message(session.tid(), Vec::new()),
    };
    session.request(request).map(|_| ())
}

/// Removes the mark of [`mark_transient`]: the machine stays, since a person uses it.
pub fn keep(session: &mut Session) {
    let name = ByteBuf::from(TRANSIENT_CLASS);
    // If the machine has no mark, this request fails, but then the machine stays anyway.
    let _ = session.request(Request::DeleteInfo { name, index: 0, flags: 0 });
}

/// Returns whether the machine is to end with this run: it is marked, and its only tasks are this process and those in
/// `ending`.
pub fn is_to_end(session: &mut Session, ending: &[Tid]) -> Result<bool, Code> {
    let own = session.tid();
    let tasks = control::tasks(session, Tid::NONE)?;
    let alone = tasks.iter().all(|task| task.tid == own || ending.contains(&task.tid));
    let classes = session.request(Request::MailboxInfo { pattern: ByteBuf::from(TRANSIENT_CLASS) })?;
    Ok(alone && matches!(classes, Reply::Mailboxes(classes) if !classes.is_empty()))
}

/// Halts the machine and waits until it has ended, however long its tasks may take (`HPVM_HALT_GRACE`). `daemon` is the
/// daemon's process, if this program started it.
pub fn halt(mut session: Session, daemon: Option<Child>) -> Result<(), Code> {
    let mut patience = Some(Instant::now() + HALT_WAIT);
    // The answer may arrive late or never, so the end of the connection shows that the machine has ended.
    let ticket = session.task().begin(Request::Halt)?;
    session.task().forget(ticket);
    while session.is_connected() {
        session.wait(&[], Some(HALT_PAUSE));
        if patience.take_if(|end| *end < Instant::now()).is_some() {
            eprintln!("pvm: waiting for tasks that have not ended; HPVM_HALT_GRACE says how long they may take");
        }
    }
    if let Some(mut daemon) = daemon {
        let end = Instant::now() + HALT_WAIT;
        while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(HALT_PAUSE);
        }
    }
    Ok(())
}
