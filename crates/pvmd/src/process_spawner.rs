//! Finding programs and starting processes (contract 2.5).
use crate::core_dumps;
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
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file's owner may execute it.
const OWNER_EXECUTES: u32 = 0o100;
/// Descriptors that the daemon has for each task that has come: output and end of its process, connection, segment and
/// doorbell.
const DESCRIPTORS_A_TASK: u64 = 5;
/// Descriptors that it has for itself. Of all, a quarter is for links between tasks and for those on their way.
const OWN_DESCRIPTORS: u64 = 32;
/// No system has an error of this number.
const ERRNO_END: i32 = 4096;
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
    fn for_output(terminal: bool) -> rustix::io::Result<Ends> {
        let ends = if terminal { pseudo_terminal() } else { Err(Errno::NOTTY) };
        let (own, task) = ends.or_else(|_| pipe_with(PipeFlags::CLOEXEC))?;
        Ends { own, task }.ready()
    }

    /// For what a task reads.
    fn for_input() -> rustix::io::Result<Ends> {
        let (task, own) = pipe_with(PipeFlags::CLOEXEC)?;
        Ends { own, task }.ready()
    }

    fn ready(self) -> rustix::io::Result<Ends> {
        rustix::io::ioctl_fionbio(&self.own, true)?;
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

/// Descriptors that are kept free for the next process: those that it gets, and those by which its start is watched.
const KEPT_FREE: usize = 8;

/// Starts processes.
pub struct ProcessSpawner {
    /// The descriptor limit that tasks get; the daemon has a higher one.
    limit: Rlimit,
    own_limit: Rlimit,
    /// Descriptors with low numbers: while the lower limit holds, a process can be given no others.
    low: Vec<OwnedFd>,
    socket: PathBuf,
}

/// Why a process could not be started.
#[derive(Debug)]
pub struct SpawnError {
    /// For programs.
    pub code: Code,
    /// For people.
    pub why: String,
}

impl ProcessSpawner {
    /// Raises the daemon's own descriptor limit (D12).
    pub fn new(socket: &Path) -> io::Result<ProcessSpawner> {
        let limit = getrlimit(Resource::Nofile);
        let own_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where that is forbidden, fewer tasks fit.
        let raised = setrlimit(Resource::Nofile, own_limit).is_ok();
        let own_limit = if raised { own_limit } else { limit };
        let mut process_spawner = ProcessSpawner { limit, own_limit, low: Vec::new(), socket: socket.to_owned() };
        process_spawner.occupy_low();
        Ok(process_spawner)
    }

    /// Takes the lowest descriptors that are free, so that they are free again for the next process. Where the daemon
    /// has no more than its tasks, all are as good.
    fn occupy_low(&mut self) {
        if self.limit.current != self.own_limit.current {
            let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
            self.low.extend((0..KEPT_FREE).map_while(|_| null()));
        }
    }

    /// How many tasks fit: the descriptors that the daemon has for each of them, beside its own, are there.
    pub fn tasks_max(&self) -> usize {
        let Some(limit) = self.own_limit.current else { return usize::MAX };
        let for_tasks = (limit / 4 * 3).saturating_sub(OWN_DESCRIPTORS);
        usize::try_from(for_tasks / DESCRIPTORS_A_TASK).unwrap_or(usize::MAX).max(1)
    }

    /// The limit of the daemon's descriptors, and how to set another.
    pub fn descriptor_limit(&self) -> String {
        let limit = self.own_limit.current.map_or("unlimited".into(), |limit| limit.to_string());
        format!(
            "the limit of open files of pvmd is {limit}; to have more, raise it (ulimit -Hn) before pvmd is started"
        )
    }

    /// Starts a process. SpawnError to execute the program is noticed here.
    pub fn start(&mut self, settings: &Settings, start: &Start) -> Result<Process, SpawnError> {
        let ends = Ends::for_output(start.run.terminal);
        let output = ends.map_err(|errno| self.spawn_error(errno.into()))?;
        let ends = (start.run.errors_tag != 0).then(|| Ends::for_output(false)).transpose();
        let errors = ends.map_err(|errno| self.spawn_error(errno.into()))?;
        let ends = start.input.then(Ends::for_input).transpose();
        let input = ends.map_err(|errno| self.spawn_error(errno.into()))?;
        let mut child = self
            .spawn(settings, start, &output, errors.as_ref(), input.as_ref())
            .map_err(|error| self.spawn_error(error))?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process {
                child,
                pidfd,
                output: output.own,
                errors: errors.map(|ends| ends.own),
                input: input.map(|ends| ends.own),
                leads: start.run.group,
            }),
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(self.spawn_error(errno.into()))
            }
        }
    }

    /// Starts a process with the limit that the daemon itself was started with. A process gets no descriptor above
    /// that, and the daemon no new one, so low ones are free meanwhile.
    fn spawn(
        &mut self,
        settings: &Settings,
        start: &Start,
        output: &Ends,
        errors: Option<&Ends>,
        input: Option<&Ends>,
    ) -> io::Result<Child> {
        self.low.clear();
        let _ = setrlimit(Resource::Nofile, self.limit);
        let result = self.command(settings, start).and_then(|mut command| {
            if let Some(input) = input {
                command.stdin(input.task.try_clone()?);
            }
            command.stdout(output.task.try_clone()?).stderr(errors.unwrap_or(output).task.try_clone()?);
            if start.run.group {
                command.process_group(0);
            }
            core_dumps::as_before(|| command.spawn())
        });
        let _ = setrlimit(Resource::Nofile, self.own_limit);
        self.occupy_low();
        result
    }

    /// What an error of the system means, and which limit has been met.
    fn spawn_error(&self, error: io::Error) -> SpawnError {
        let code = code_of(&error);
        let limit = match errno_of(&error) {
            Some(Errno::MFILE) => self.descriptor_limit(),
            Some(Errno::NFILE) => "the system's limit of open files is met (sysctl fs.file-max)".into(),
            Some(Errno::AGAIN) => {
                let limit = getrlimit(Resource::Nproc).current.map_or("unlimited".into(), |limit| limit.to_string());
                format!("the limit of the user's processes is {limit} (ulimit -u); a cgroup has its own (pids.max)")
            }
            Some(Errno::TOOBIG) => {
                "the arguments and the environment together are longer than the system allows".into()
            }
            _ => String::new(),
        };
        let separator = if limit.is_empty() { "" } else { ": " };
        SpawnError { code, why: format!("{error}{separator}{limit}") }
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
        command
            .env("PVM_ARCH", ARCHITECTURE)
            .env("PVM_ROOT", &settings.program_search.root)
            .env("PVMSOCK", &self.socket);
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
        command.stdin(Stdio::null());
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
    let arguments = ["-c", "kill -$0 $1", &signal.to_string(), to].map(str::to_owned);
    let _ = Command::new("/bin/sh").args(arguments).stderr(Stdio::null()).status();
}

/// The system's number of an error, if it can be one: other hosts tell of theirs, too.
fn errno_of(error: &io::Error) -> Option<Errno> {
    let number = error.raw_os_error().filter(|number| (1..ERRNO_END).contains(number));
    number.map(Errno::from_raw_os_error)
}

/// The code for a program that could not be started: it is no program that can be executed, or else the system has
/// not enough of something.
pub(crate) fn code_of(error: &io::Error) -> Code {
    match errno_of(error) {
        Some(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NOEXEC
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::TXTBSY
            | Errno::LIBBAD
            | Errno::INVAL,
        ) => Code::NoFile,
        // What Rust itself says has no number.
        None if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => Code::NoFile,
        _ => Code::OutOfRes,
    }
}

/// Where a task runs.
fn directory(settings: &Settings, wanted: Option<&ByteBuf>) -> PathBuf {
    match wanted {
        Some(path) => settings.program_search.directory.join(OsStr::from_bytes(path)),
        None => settings.program_search.directory.clone(),
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
            .program_search
            .search
            .iter()
            .cloned()
            .chain(beside.into_iter().flat_map(|places| std::env::split_paths(OsStr::from_bytes(places))))
            .map(|place| place.join(name))
            .find(|path| executable(&directory.join(path))),
    };
    let path = path.ok_or(Code::NoFile)?;
    if debug && !executable(&settings.program_search.debugger) {
        return Err(Code::NoFile);
    }
    let bytes = |path: &Path| ByteBuf::from(path.as_os_str().as_bytes().to_vec());
    Ok(Found { path: bytes(&path), debugger: debug.then(|| bytes(&settings.program_search.debugger)) })
}

/// A regular file that its owner may execute.
fn executable(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_mode & OWNER_EXECUTES != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_has_not_enough_of_is_no_missing_file() {
        let code = |errno: Errno| code_of(&errno.into());
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR, Errno::LOOP, Errno::LIBBAD] {
            assert_eq!(code(errno), Code::NoFile, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::BADF, Errno::TOOBIG, Errno::IO] {
            assert_eq!(code(errno), Code::OutOfRes, "{errno}");
        }
    }
}
