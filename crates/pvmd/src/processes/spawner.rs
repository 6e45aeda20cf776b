//! Starts processes of tasks (contract 2.5).
use super::cores::{Claim, Cores};
use super::starters::{Job, Starters, Streams};
use crate::core_dumps;
use crate::settings::{ARCHITECTURE, Settings};
use pvm_core::codes::Code;
use pvm_core::machine::{BIND_VARIABLE, Start};
use pvm_core::proto::ByteBuf;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Descriptors that the daemon needs for each task: the output and the pidfd of its process, its connection, segment
/// and doorbell.
pub(crate) const DESCRIPTORS_PER_TASK: u64 = 5;
/// Descriptors that the daemon needs for itself. In addition, a quarter of all descriptors is reserved for direct links
/// and for tasks that are being started.
pub(crate) const OWN_DESCRIPTORS: u64 = 32;
/// One more than the highest error number of any system.
const ERRNO_END: i32 = 4096;
/// Variables that a daemon inherits if a task has started it, and must not pass on.
const NOT_INHERITED: [&str; 6] = ["PVMCTX", "PVMLINES", "PVMSPAWNPATH", "PVMSPAWNWD", "HPVM_RUN", "HPVM_BIND"];

/// A process that was started.
pub struct Process {
    /// The process itself, whose status is to be read.
    pub child: Child,
    /// Readable when the process has ended.
    pub pidfd: OwnedFd,
    /// The standard output of the process.
    pub output: OwnedFd,
    /// The standard error of the process, if standard error is read separately.
    pub errors: Option<OwnedFd>,
    /// The standard input of the process, if that is a pipe from the daemon.
    pub input: Option<OwnedFd>,
    /// Whether the process leads a process group.
    pub leads: bool,
    /// The core to which the process is bound, if it is.
    pub core: Option<Claim>,
}

/// The two ends of a pipe or of a pseudo-terminal: the daemon's end does not block, the task's end does.
struct Ends {
    own: OwnedFd,
    task: OwnedFd,
}

impl Ends {
    /// Makes the pipe or pseudo-terminal that a task prints to; a pipe if the system has no pseudo-terminals.
    fn for_output(terminal: bool) -> rustix::io::Result<Ends> {
        let ends = if terminal { pseudo_terminal() } else { Err(Errno::NOTTY) };
        let (own, task) = ends.or_else(|_| pipe_with(PipeFlags::CLOEXEC))?;
        Ends { own, task }.ready()
    }

    /// Makes the pipe from which a task reads.
    fn for_input() -> rustix::io::Result<Ends> {
        let (task, own) = pipe_with(PipeFlags::CLOEXEC)?;
        Ends { own, task }.ready()
    }

    fn ready(self) -> rustix::io::Result<Ends> {
        rustix::io::ioctl_fionbio(&self.own, true)?;
        Ok(self)
    }
}

/// Makes both ends of a pseudo-terminal that changes no byte and is nobody's controlling terminal.
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

/// The number of low descriptors that are kept for the next process: those that the process inherits, and those that
/// are needed to watch its start.
const RESERVED_DESCRIPTORS: usize = 8;
/// The most processes that are being started at the same time. The tasks that have been started need cores, too.
const STARTERS_MAX: usize = 4;

/// Starts processes.
pub struct ProcessSpawner {
    /// The descriptor limit of tasks. The daemon's own limit is usually higher.
    limit: Rlimit,
    own_limit: Rlimit,
    /// Descriptors that occupy low numbers. A process that is started under the lower limit can inherit only
    /// descriptors with low numbers.
    low: Vec<OwnedFd>,
    starters: Starters,
    cores: Cores,
    socket: PathBuf,
}

/// The daemon's part of a process that is being started.
struct Kept {
    output: OwnedFd,
    errors: Option<OwnedFd>,
    input: Option<OwnedFd>,
    leads: bool,
    core: Option<Claim>,
}

/// Why a process could not be started.
#[derive(Debug, Clone)]
pub struct SpawnError {
    /// For programs.
    pub code: Code,
    /// For people.
    pub why: String,
}

impl ProcessSpawner {
    /// Makes a spawner, and raises the daemon's own descriptor limit (D12).
    pub fn new(socket: &Path) -> io::Result<ProcessSpawner> {
        let limit = getrlimit(Resource::Nofile);
        let own_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If raising the limit is forbidden, the host can only have fewer tasks.
        let raised = setrlimit(Resource::Nofile, own_limit).is_ok();
        let own_limit = if raised { own_limit } else { limit };
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut spawner = ProcessSpawner {
            limit,
            own_limit,
            low: Vec::new(),
            starters: Starters::new(processors.min(STARTERS_MAX)),
            cores: Cores::default(),
            socket: socket.to_owned(),
        };
        spawner.occupy_low();
        Ok(spawner)
    }

    /// Occupies the lowest free descriptors, which are freed again when the next processes are started. This is not
    /// needed if the daemon has the same limit as its tasks.
    fn occupy_low(&mut self) {
        if self.limit.current == self.own_limit.current {
            return;
        }
        let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { return };
        self.low.extend((1..RESERVED_DESCRIPTORS).map_while(|_| null.try_clone().ok()));
        self.low.push(null);
    }

    /// Returns how many tasks fit into the descriptor limit.
    pub fn tasks_max(&self) -> usize {
        let Some(limit) = self.own_limit.current else { return usize::MAX };
        let for_tasks = (limit / 4 * 3).saturating_sub(OWN_DESCRIPTORS);
        usize::try_from(for_tasks / DESCRIPTORS_PER_TASK).unwrap_or(usize::MAX).max(1)
    }

    /// Describes the daemon's descriptor limit, and how to raise it.
    pub fn descriptor_limit(&self) -> String {
        let limit = self.own_limit.current.map_or("unlimited".into(), |limit| limit.to_string());
        format!(
            "the limit of open files of pvmd is {limit}; to have more, raise it (ulimit -Hn) before pvmd is started"
        )
    }

    /// Starts processes. Returns the results in the same order: an error also if the program cannot be executed. After
    /// an error, processes that were not tried get the same error.
    pub fn start_all(&mut self, settings: &Settings, starts: &[Start]) -> Vec<Result<Process, SpawnError>> {
        let (mut jobs, mut kept) = (Vec::with_capacity(starts.len()), Vec::with_capacity(starts.len()));
        let mut failure = None;
        for start in starts {
            match self.prepare(settings, start) {
                Ok((job, ours)) => {
                    jobs.push(job);
                    kept.push(ours);
                }
                Err(error) => {
                    failure = Some(self.spawn_error(error));
                    break;
                }
            }
        }
        let children = self.start_jobs(jobs);
        let mut results = Vec::with_capacity(starts.len());
        for (child, ours) in children.into_iter().zip(kept) {
            let result = match child {
                Some(Ok(child)) => self.watched(child, ours),
                Some(Err(error)) => Err(self.spawn_error(error)),
                None => Err(failure.clone().unwrap_or_else(not_tried)),
            };
            if let Err(error) = &result {
                failure.get_or_insert_with(|| error.clone());
            }
            results.push(result);
        }
        results.resize_with(starts.len(), || Err(failure.clone().unwrap_or_else(not_tried)));
        results
    }

    /// Makes everything that a process needs.
    fn prepare(&mut self, settings: &Settings, start: &Start) -> io::Result<(Job, Kept)> {
        let output = Ends::for_output(start.run.terminal)?;
        let errors = (start.run.errors_tag != 0).then(|| Ends::for_output(false)).transpose()?;
        let input = start.input.then(Ends::for_input).transpose()?;
        let is_bound = start.environment.iter().any(|variable| variable == BIND_VARIABLE);
        let (processors, core) = is_bound.then(|| self.cores.claim()).transpose()?.unzip();
        let mut command = self.command(settings, start);
        if start.run.group {
            command.process_group(0);
        }
        let (output, task_output) = (output.own, output.task);
        let (errors, task_errors) = errors.map(|ends| (ends.own, ends.task)).unzip();
        let (input, task_input) = input.map(|ends| (ends.own, ends.task)).unzip();
        let streams = Streams { output: task_output, errors: task_errors, input: task_input };
        Ok((Job { command, processors, streams }, Kept { output, errors, input, leads: start.run.group, core }))
    }

    /// Starts processes under the descriptor limit with which the daemon was started. They can inherit no descriptor
    /// above that limit, so the occupied low descriptors are freed during the start.
    fn start_jobs(&mut self, jobs: Vec<Job>) -> Vec<Option<io::Result<Child>>> {
        self.low.clear();
        let _ = setrlimit(Resource::Nofile, self.limit);
        let children = core_dumps::as_before(|| self.starters.start_all(jobs));
        let _ = setrlimit(Resource::Nofile, self.own_limit);
        self.occupy_low();
        children
    }

    /// Returns a process that was started, with the descriptor that shows its end.
    fn watched(&self, mut child: Child, ours: Kept) -> Result<Process, SpawnError> {
        let Kept { output, errors, input, leads, core } = ours;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process { child, pidfd, output, errors, input, leads, core }),
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(self.spawn_error(errno.into()))
            }
        }
    }

    /// Explains an error of the system, and names the limit that was reached.
    pub fn spawn_error(&self, error: io::Error) -> SpawnError {
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

    fn command(&self, settings: &Settings, start: &Start) -> Command {
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
            // With this variable, hpvm's library makes the C library flush each line.
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
        command.current_dir(settings.program_search.task_directory(start.directory.as_ref()));
        command.stdin(Stdio::null());
        command
    }
}

/// Returns the error of a process that was not tried, which another error precedes.
fn not_tried() -> SpawnError {
    SpawnError { code: Code::OutOfRes, why: "another process could not be started".into() }
}

/// Starts a process that may use these processors only. A process inherits them from the thread that starts it.
pub(super) fn start_with_processors(
    processors: Option<CpuSet>,
    start: impl FnOnce() -> io::Result<Child>,
) -> io::Result<Child> {
    let Some(processors) = processors else { return start() };
    let own = sched_getaffinity(None)?;
    sched_setaffinity(None, &processors)?;
    let child = start();
    // This gives the thread back what it had, so it cannot fail.
    let _ = sched_setaffinity(None, &own);
    child
}

/// Returns the error number if it is valid. The number may come from another host.
fn errno_of(error: &io::Error) -> Option<Errno> {
    let number = error.raw_os_error().filter(|number| (1..ERRNO_END).contains(number));
    number.map(Errno::from_raw_os_error)
}

/// Returns the code for a program that could not be started: either it is not an executable program, or the system
/// lacks a resource.
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
        // Errors of the Rust library have no number.
        None if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => Code::NoFile,
        _ => Code::OutOfRes,
    }
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
