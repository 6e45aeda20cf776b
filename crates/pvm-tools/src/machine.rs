//! Finding the virtual machine, starting and ending it.
use pvm_core::codes::Code;
use pvm_core::proto::Request;
use pvm_task::{EnrollError, Environment, Session};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a machine may take to end.
const HALT_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const HALT_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no machine to talk to.
#[derive(Debug)]
pub enum MachineError {
    /// None runs.
    None,
    /// One runs, but cannot be joined.
    Join(EnrollError),
    /// There is no `pvmd` to start.
    NoProgram(Vec<PathBuf>),
    /// It did not start.
    Start(PathBuf, io::Error),
    /// It started and ended at once; it has said why.
    Ended,
}

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MachineError::None => f.write_str("no virtual machine runs (start one with \"pvm\")"),
            MachineError::Join(EnrollError::Unreachable(error)) => write!(f, "{} ({error})", Code::SysErr),
            MachineError::Join(EnrollError::System(error)) => write!(f, "cannot join the machine: {error}"),
            MachineError::Join(error) => write!(f, "{}", error.code()),
            MachineError::NoProgram(places) => {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                write!(f, "{}: no pvmd in {}, nor in PATH", Code::CantStart, places.join(", "))
            }
            MachineError::Start(path, error) => write!(f, "{}: {}: {error}", Code::CantStart, path.display()),
            MachineError::Ended => write!(f, "{}", Code::CantStart),
        }
    }
}
impl std::error::Error for MachineError {}

/// Joins the machine that runs.
pub fn join() -> Result<Session, MachineError> {
    match Session::enroll(&Environment::from_process()) {
        Ok(session) => Ok(session),
        Err(error) if error.means_no_daemon() => Err(MachineError::None),
        Err(error) => Err(MachineError::Join(error)),
    }
}

/// Joins the machine that runs, or one that is started with `arguments`, whose process then comes
/// with it.
pub fn join_or_start(arguments: &[OsString]) -> Result<(Session, Option<Child>), MachineError> {
    match join() {
        Ok(session) => Ok((session, None)),
        Err(MachineError::None) => {
            let daemon = start(arguments)?;
            Ok((join()?, Some(daemon)))
        }
        Err(error) => Err(error),
    }
}

/// Where `pvmd` is looked for before `PATH`.
fn daemon_places() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("pvmd")));
    let root = std::env::var_os("PVM_ROOT").map(|root| PathBuf::from(root).join("lib/pvmd"));
    beside.into_iter().chain(root).collect()
}

/// Starts a daemon and waits until it is ready.
fn start(arguments: &[OsString]) -> Result<Child, MachineError> {
    let places = daemon_places();
    let program = places.iter().find(|place| place.is_file()).cloned().unwrap_or_else(|| "pvmd".into());
    let command = Command::new(&program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut daemon = match command {
        Ok(daemon) => daemon,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MachineError::NoProgram(places)),
        Err(error) => return Err(MachineError::Start(program, error)),
    };
    // Its first line is the path of its socket: it is ready.
    let mut line = String::new();
    let read = daemon.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    match read {
        Some(Ok(count)) if count > 0 => Ok(daemon),
        Some(Err(error)) => Err(MachineError::Start(program, error)),
        _ => {
            let _ = daemon.wait();
            Err(MachineError::Ended)
        }
    }
}

/// Ends the machine and waits until it is gone. `daemon` is its process where this one started it.
pub fn halt(mut session: Session, daemon: Option<Child>) -> Result<(), Code> {
    let end = Instant::now() + HALT_WAIT;
    match session.request(Request::Halt) {
        // The connection may break before the answer comes.
        Ok(_) | Err(Code::SysErr) => {}
        Err(code) => return Err(code),
    }
    while session.is_connected() && Instant::now() < end {
        session.wait(&[], Some(HALT_PAUSE));
    }
    if let Some(mut daemon) = daemon {
        while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(HALT_PAUSE);
        }
    }
    Ok(())
}
