//! Finding programs and starting processes (contract 2.5).
use crate::settings::{ARCHITECTURE, Settings};
use pvm_core::codes::Code;
use pvm_core::machine::{Found, Start};
use pvm_core::proto::ByteBuf;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, setrlimit};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file's owner may execute it.
const OWNER_EXECUTES: u32 = 0o100;
/// Variables that a daemon started by a task has inherited and must not pass on.
const NOT_INHERITED: [&str; 4] = ["PVMCTX", "PVMLINES", "PVMSPAWNPATH", "PVMSPAWNWD"];

/// A process that was started.
pub struct Process {
    /// To learn its status.
    pub child: Child,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    /// What it prints.
    pub output: OwnedFd,
    /// What it writes to its standard error, where that is wanted apart.
    pub errors: Option<OwnedFd>,
    /// Its standard input, if that is not empty.
    pub input: Option<OwnedFd>,
    /// Whether it leads a process group.
    pub leads: bool,
}

/// Two ends of a pipe, or of a pseudo-terminal: the daemon's, which it uses without waiting, and the task's, which
/// stays as usual.
struct Ends {
    own: OwnedFd,
    task: OwnedFd,
}

impl Ends {
    /// For what a task prints. Where there are no terminals it is a pipe.
    fn for_output(terminal: bool) -> Result<Ends, Code> {
        let ends = if terminal { pseudo_terminal() } else { Err(Errno::NOTTY) };
        let (own, task) = ends.or_else(|_| pipe_with(PipeFlags::CLOEXEC)).map_err(|_| Code::OutOfRes)?;
        Ends { own, task }.ready()
    }

    /// For what a task reads.
    fn for_input() -> Result<Ends, Code> {
        let (task, own) = pipe_with(PipeFlags::CLOEXEC).map_err(|_| Code::OutOfRes)?;
        Ends { own, task }.ready()
    }

    fn ready(self) -> Result<Ends, Code> {
        rustix::io::ioctl_fionbio(&self.own, true).map_err(|_| Code::OutOfRes)?;
        Ok(self)
    }
}

/// Both ends of a terminal that changes no byte, and that controls nobody.
fn pseudo_terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let own = openpt(flags)?;
    unlockpt(&own)?;
    let task = ioctl_tiocgptpeer(&own, flags)?;
    let mut modes = tcgetattr(&task)?;
    modes.make_raw();
    tcsetattr(&task, OptionalActions::Now, &modes)?;
    Ok((own, task))
}

/// Starts processes.
pub struct Nursery {
    /// `/dev/null`.
    null: File,
    /// The descriptor limit that tasks get; the daemon has a higher one.
    limit: Rlimit,
    own_limit: Rlimit,
    socket: PathBuf,
}

impl Nursery {
    /// Raises the daemon's own descriptor limit (D12).
    pub fn new(socket: &Path) -> io::Result<Nursery> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let limit = getrlimit(Resource::Nofile);
        let own_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where that is forbidden, fewer tasks fit.
        let _ = setrlimit(Resource::Nofile, own_limit);
        Ok(Nursery { null: null.into(), limit, own_limit, socket: socket.to_owned() })
    }

    /// Starts a process. Failure to execute the program is noticed here.
    pub fn start(&self, settings: &Settings, start: &Start) -> Result<Process, Code> {
        let leads = start.run.group;
        let output = Ends::for_output(start.run.terminal)?;
        let errors = (start.run.errors_tag != 0).then(|| Ends::for_output(false)).transpose()?;
        let input = start.input.then(Ends::for_input).transpose()?;
        let mut command = self.command(settings, start).map_err(|_| Code::OutOfRes)?;
        let (errors, stderr) = match errors {
            Some(Ends { own, task }) => (Some(own), task),
            None => (None, output.task.try_clone().map_err(|_| Code::OutOfRes)?),
        };
        let (output, stdout) = (output.own, output.task);
        command.stdout(stdout).stderr(stderr);
        let input = input.map(|Ends { own, task }| {
            command.stdin(task);
            own
        });
        if leads {
            command.process_group(0);
        }
        let _ = setrlimit(Resource::Nofile, self.limit);
        let result = command.spawn();
        let _ = setrlimit(Resource::Nofile, self.own_limit);
        let mut child = result.map_err(|error| why(&error))?;
        let process = rustix::process::Pid::from_raw(child.id() as i32).ok_or(Code::OutOfRes)?;
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process { child, pidfd, output, errors, input, leads }),
            Err(_) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(Code::OutOfRes)
            }
        }
    }

    fn command(&self, settings: &Settings, start: &Start) -> io::Result<Command> {
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
        if start.run.errors_tag != 0 && !start.run.terminal {
            // The library has the C library write line by line.
            command.env("PVMLINES", "1");
        }
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
        command.stdin(self.null.try_clone()?);
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
        (None, _) => shell_kill(signal, &process.to_string()),
    }
}

/// Sends a signal to a process group.
pub fn signal_group(group: Pid, signal: i32) {
    match Signal::from_named_raw(signal) {
        // Without anybody in it, it needs none.
        Some(signal) => drop(rustix::process::kill_process_group(group, signal)),
        None if signal == 0 => {}
        None => shell_kill(signal, &format!("-{}", group.as_raw_nonzero())),
    }
}

/// Real-time signals have no names here; every shell can send them.
fn shell_kill(signal: i32, to: &str) {
    let arguments = ["-c", "kill -$0 -- $1", &signal.to_string(), to].map(str::to_owned);
    let _ = Command::new("/bin/sh").args(arguments).stderr(Stdio::null()).status();
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

/// Looks for a program: as it is when its name has a slash, else in each directory of `ep=`, and then in those
/// `beside` the first program of a `pvm run`. `places` are where the task is to run, and those.
pub fn find(
    settings: &Settings,
    file: &ByteBuf,
    (wanted, beside): (Option<&ByteBuf>, Option<&ByteBuf>),
    debug: bool,
) -> Result<Found, Code> {
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
            .cloned()
            .chain(beside.into_iter().flat_map(|places| std::env::split_paths(OsStr::from_bytes(places))))
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
