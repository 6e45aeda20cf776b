//! Prepares the starts of tasks' processes (contract 2.5): their streams, their limits, their cores.
use super::cores::{Claim, Cores};
use super::launch::Launch;
use super::starters::{Job, Streams};
use crate::children::{code_of, errno_of};
use crate::settings::Settings;
use pvm_core::codes::Code;
use pvm_core::machine::{BIND_VARIABLE, Start};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Descriptors that the daemon needs for each task: the output and the pidfd of its process, its connection, segment
/// and doorbell.
pub(crate) const DESCRIPTORS_PER_TASK: u64 = 5;
/// Descriptors that the daemon needs for itself. In addition, a quarter of all descriptors is reserved for direct links
/// and for tasks that are being started.
pub(crate) const OWN_DESCRIPTORS: u64 = 32;
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

/// Prepares processes.
pub struct ProcessSpawner {
    /// The descriptor limit of tasks. The daemon's own limit is usually higher.
    limit: Rlimit,
    own_limit: Rlimit,
    cores: Cores,
    socket: PathBuf,
}

/// The daemon's part of a process that is being started.
pub struct Kept {
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
        Ok(ProcessSpawner { limit, own_limit, cores: Cores::default(), socket: socket.to_owned() })
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

    /// Makes everything that a process needs, and that the daemon keeps. `number`: that of the job.
    pub fn prepare(&mut self, number: u64, settings: &Settings, start: &Start) -> io::Result<(Job, Kept)> {
        let output = Ends::for_output(start.run.terminal)?;
        let errors = (start.run.errors_tag != 0).then(|| Ends::for_output(false)).transpose()?;
        let input = start.input.then(Ends::for_input).transpose()?;
        let mut launch = Launch::new(settings, start, &self.socket, self.limit);
        let is_bound = start.environment.iter().any(|variable| variable == BIND_VARIABLE);
        let (processors, core) = is_bound.then(|| self.cores.claim()).transpose()?.unzip();
        processors.into_iter().for_each(|processors| launch.bind(processors));
        let (output, task_output) = (output.own, output.task);
        let (errors, task_errors) = errors.map(|ends| (ends.own, ends.task)).unzip();
        let (input, task_input) = input.map(|ends| (ends.own, ends.task)).unzip();
        let streams = Streams { output: task_output, errors: task_errors, input: task_input };
        Ok((Job { number, launch, streams }, Kept { output, errors, input, leads: start.run.group, core }))
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
}
