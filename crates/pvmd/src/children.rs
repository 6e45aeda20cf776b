//! Finding programs and starting processes (contract 2.5).
use crate::settings::{ARCHITECTURE, Settings};
use pvm_core::codes::Code;
use pvm_core::machine::{Found, Start};
use pvm_core::proto::ByteBuf;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, setrlimit};
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
/// Descriptors that the daemon has for each task that has come: output and end of its process, connection, segment and
/// doorbell.
const DESCRIPTORS_A_TASK: u64 = 5;
/// Descriptors that it has for itself. Of all, a quarter is for links between tasks and for those on their way.
const OWN_DESCRIPTORS: u64 = 32;
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

/// Descriptors that are kept free for the next process: those that it gets, and those by which its start is watched.
const KEPT_FREE: usize = 8;

/// Starts processes.
pub struct Nursery {
    /// `/dev/null`.
    null: File,
    /// The descriptor limit that tasks get; the daemon has a higher one.
    limit: Rlimit,
    own_limit: Rlimit,
    /// Descriptors with low numbers: while the lower limit holds, a process can be given no others.
    low: Vec<OwnedFd>,
    socket: PathBuf,
}

/// Why a process could not be started.
#[derive(Debug)]
pub struct Failure {
    /// For programs.
    pub code: Code,
    /// For people.
    pub why: String,
}

impl Nursery {
    /// Raises the daemon's own descriptor limit (D12).
    pub fn new(socket: &Path) -> io::Result<Nursery> {
        let null: File = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into();
        let limit = getrlimit(Resource::Nofile);
        let own_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where that is forbidden, fewer tasks fit.
        let raised = setrlimit(Resource::Nofile, own_limit).is_ok();
        let own_limit = if raised { own_limit } else { limit };
        let mut nursery = Nursery { null, limit, own_limit, low: Vec::new(), socket: socket.to_owned() };
        nursery.occupy_low();
        Ok(nursery)
    }

    /// Takes the lowest descriptors that are free, so that they are free again for the next process. Where the daemon
    /// has no more than its tasks, all are as good.
    fn occupy_low(&mut self) {
        if self.limit.current != self.own_limit.current {
            self.low.extend((0..KEPT_FREE).map_while(|_| self.null.try_clone().ok().map(OwnedFd::from)));
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

    /// Starts a process. Failure to execute the program is noticed here.
    pub fn start(&mut self, settings: &Settings, start: &Start) -> Result<Process, Failure> {
        let (output, write_end) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| self.why(errno.into()))?;
        // What is kept of the output is read without waiting; the task's end stays as usual.
        rustix::io::ioctl_fionbio(&output, true).map_err(|errno| self.why(errno.into()))?;
        let mut child = self.spawn(settings, start, &write_end).map_err(|error| self.why(error))?;
        let process = Pid::from_child(&child);
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Process { child, pidfd, output }),
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(self.why(errno.into()))
            }
        }
    }

    /// Starts a process with the limit that the daemon itself was started with. A process gets no descriptor above
    /// that, and the daemon no new one, so low ones are free meanwhile.
    fn spawn(&mut self, settings: &Settings, start: &Start, output: &OwnedFd) -> io::Result<Child> {
        self.low.clear();
        let _ = setrlimit(Resource::Nofile, self.limit);
        let result = self.command(settings, start, output).and_then(|mut command| command.spawn());
        let _ = setrlimit(Resource::Nofile, self.own_limit);
        self.occupy_low();
        result
    }

    /// What an error of the system means, and which limit has been met.
    fn why(&self, error: io::Error) -> Failure {
        let code = code_of(&error);
        let limit = match error.raw_os_error().map(Errno::from_raw_os_error) {
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
        Failure { code, why: format!("{error}{separator}{limit}") }
    }

    fn command(&self, settings: &Settings, start: &Start, output: &OwnedFd) -> io::Result<Command> {
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
        command.stdin(self.null.try_clone()?).stdout(output.try_clone()?).stderr(output.try_clone()?);
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

/// The code for a program that could not be started: it is no program that can be executed, or else the system has
/// not enough of something.
pub(crate) fn code_of(error: &io::Error) -> Code {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
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
