//! Finding programs and starting processes (contract 2.5).
use crate::core_dumps;
use crate::settings::{ARCHITECTURE, Settings};
use pvm_core::codes::Code;
use pvm_core::machine::{Found, Start};
use pvm_core::proto::ByteBuf;
use rustix::fs::FileType;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, setrlimit};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file's owner may execute it.
const OWNER_EXECUTES: u32 = 0o100;
/// Variables that a daemon started by a task has inherited and must not pass on.
const NOT_INHERITED: [&str; 2] = ["PVMCTX", "PVMSPAWNWD"];

/// A process that was started.
pub struct Process {
    /// To learn its status.
    pub child: Child,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    /// What it prints.
    pub output: OwnedFd,
}

/// Starts processes.
pub struct Nursery {
    /// The descriptor limit that tasks get; the daemon has a higher one.
    limit: Rlimit,
    own_limit: Rlimit,
    socket: PathBuf,
}

impl Nursery {
    /// Raises the daemon's own descriptor limit (D12).
    pub fn new(socket: &Path) -> io::Result<Nursery> {
        let limit = getrlimit(Resource::Nofile);
        let own_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where that is forbidden, fewer tasks fit.
        let _ = setrlimit(Resource::Nofile, own_limit);
        Ok(Nursery { limit, own_limit, socket: socket.to_owned() })
    }

    /// Starts a process. Failure to execute the program is noticed here.
    pub fn start(&self, settings: &Settings, start: &Start) -> Result<Process, Code> {
        let (output, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|_| Code::OutOfRes)?;
        // What is kept of the output is read without waiting; the task's end stays as usual.
        rustix::io::ioctl_fionbio(&output, true).map_err(|_| Code::OutOfRes)?;
        let mut command = self.command(settings, start, write_end).map_err(|_| Code::OutOfRes)?;
        let _ = setrlimit(Resource::Nofile, self.limit);
        let result = core_dumps::as_before(|| command.spawn());
        let _ = setrlimit(Resource::Nofile, self.own_limit);
        let mut child = result.map_err(|error| why(&error))?;
        let process = rustix::process::Pid::from_raw(child.id() as i32).ok_or(Code::OutOfRes)?;
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process { child, pidfd, output }),
            Err(_) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(Code::OutOfRes)
            }
        }
    }

    fn command(&self, settings: &Settings, start: &Start, output: OwnedFd) -> io::Result<Command> {
        let text = |bytes: &ByteBuf| OsStr::from_bytes(bytes).to_owned();
        let mut command = Command::new(text(&start.path));
        let mut arguments = start.arguments.iter().map(text);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments);
        NOT_INHERITED.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("PVM_ARCH", ARCHITECTURE).env("PVM_ROOT", &settings.workplace.root).env("PVMSOCK", &self.socket);
        command.env("PVMEPID", start.cookie.to_string());
        if let Some(id) = &settings.machine_id {
            command.env("PVM_VMID", id);
        }
        for variable in &start.environment {
            let at = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
            if at > 0 && !variable.contains(&0) {
                let value = variable.get(at + 1..).unwrap_or_default();
                command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(value));
            }
        }
        command.current_dir(directory(settings, start.directory.as_ref()));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

/// Sends a signal to a process; `own` stands for one that this daemon has started.
pub fn signal(process: i32, signal: i32, own: Option<BorrowedFd<'_>>) {
    let Some(pid) = Pid::from_raw(process) else { return };
    match (Signal::from_named_raw(signal), own) {
        // A process that has ended meanwhile needs no signal; others of that number get none.
        (Some(signal), Some(pidfd)) => drop(rustix::process::pidfd_send_signal(pidfd, signal)),
        (Some(signal), None) => drop(rustix::process::kill_process(pid, signal)),
        (None, _) if signal == 0 => {}
        // Real-time signals have no names here; every shell can send them.
        (None, _) => {
            let arguments = ["-c".into(), "kill -$0 $1".into(), signal.to_string(), process.to_string()];
            let _ = Command::new("/bin/sh").args(arguments).stderr(Stdio::null()).status();
        }
    }
}

/// The code for a program that could not be started.
fn why(error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => Code::OutOfRes,
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => Code::OutOfRes,
        _ => Code::NoFile,
    }
}

/// Where a task runs.
fn directory(settings: &Settings, wanted: Option<&ByteBuf>) -> PathBuf {
    match wanted {
        Some(path) => settings.workplace.directory.join(OsStr::from_bytes(path)),
        None => settings.workplace.directory.clone(),
    }
}

/// Looks for a program: as it is when its name has a slash, else in each directory of `ep=`.
pub fn find(settings: &Settings, file: &ByteBuf, wanted: Option<&ByteBuf>, debug: bool) -> Result<Found, Code> {
    let directory = directory(settings, wanted);
    if file.is_empty() || !directory.is_dir() {
        return Err(Code::NoFile);
    }
    let name = Path::new(OsStr::from_bytes(file));
    let path = match file.contains(&b'/') {
        true => Some(name.to_owned()).filter(|path| executable(&directory.join(path))),
        false => settings
            .workplace
            .search
            .iter()
            .map(|place| place.join(name))
            .find(|path| executable(&directory.join(path))),
    };
    let path = path.ok_or(Code::NoFile)?;
    if debug && !executable(&settings.workplace.debugger) {
        return Err(Code::NoFile);
    }
    let bytes = |path: &Path| ByteBuf::from(path.as_os_str().as_bytes().to_vec());
    Ok(Found { path: bytes(&path), debugger: debug.then(|| bytes(&settings.workplace.debugger)) })
}

/// A regular file that its owner may execute.
fn executable(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_mode & OWNER_EXECUTES != 0
    })
}
