//! A step of Slurm beside the first daemon of a job's machine, which removes the daemon's files if the daemon is killed.
//!
//! Slurm kills what a batch script has left behind as soon as the script ends, without a warning. The first daemon is
//! part of the batch script's step, so it cannot clean up. The other daemons have steps of their own, which Slurm asks
//! to end.
//!
//! The keeper lives until Slurm sends it SIGTERM, since the daemon ends the guard of its step (see [`step_guard`]). If the
//! guard was not found, the keeper may be killed some milliseconds after the daemon. So the keeper is a program that waits
//! for the daemon's end, not a shell script that looks from time to time.
use super::step_guard;
use crate::core_dumps::AsBefore;
use crate::{log, socket_directory};
use pvm_core::hostfile::parse_host;
use pvm_link::remote_shell::RemoteShell;
use pvm_link::rendezvous;
use pvm_net::polling::poll_one;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The switch that makes this program a keeper.
pub const SWITCH: &str = "keep-files";
/// How long the daemon waits for its keeper. A step begins within 0.2 s, unless the controller is very busy.
const READY_WAIT: Duration = Duration::from_secs(3);
/// The pause between two looks at the daemon's process on a system without descriptors of processes (before Linux 5.3).
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The name of the node in the processes of a step.
const NODE: &str = "SLURMD_NODENAME";

/// The files of a daemon.
pub struct Files<'a> {
    pub directory: &'a Path,
    pub rendezvous: &'a Path,
    pub log: &'a Path,
}

/// Starts a keeper of this daemon's files, if this process runs in a step of Slurm and daemons are started by `srun`.
/// Waits until the keeper runs: a batch script may end as soon as this daemon is ready. Without a keeper, the files of a
/// daemon that is killed stay until the next daemon of the same machine.
pub fn start(variable: impl Fn(&str) -> Option<OsString>, files: &Files<'_>) {
    let Some(mut command) = command(variable, files) else { return };
    let before = AsBefore::begin();
    let Ok(mut keeper) = command.spawn() else { return };
    drop(before);
    if let Some(output) = keeper.stdout.take() {
        // Without an answer, or after a failure, the daemon goes on without a keeper.
        let end = Instant::now() + READY_WAIT;
        let is_interrupted = || {
            let left = end.saturating_duration_since(Instant::now());
            poll_one(&output, PollFlags::IN, left) == Err(Errno::INTR)
        };
        while is_interrupted() {}
    }
    step_guard::end(keeper.id());
}

/// Returns the command that starts a keeper.
fn command(variable: impl Fn(&str) -> Option<OsString>, files: &Files<'_>) -> Option<Command> {
    let shell = RemoteShell::find(&variable, false, super::CONNECT_SECONDS);
    let node = parse_host(&variable(NODE)?.to_string_lossy()).ok().filter(|_| shell == RemoteShell::Srun)?;
    let program = std::env::current_exe().ok()?;
    let words = shell.words(&node, r#"exec "$0" "$@""#);
    let mut command = Command::new(&words[0]);
    shell.prepare(&mut command);
    command.args(&words[1..]).arg(program).args([format!("--{SWITCH}"), std::process::id().to_string()]);
    command.args([files.directory, files.rendezvous, files.log]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    Some(command)
}

/// What the keeper is told about the daemon.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    process: Pid,
    directory: PathBuf,
    rendezvous: PathBuf,
    log: PathBuf,
}

impl Kept {
    /// Reads the words after [`SWITCH`]: the daemon's process, its directory, its rendezvous file, its log.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Option<Kept> {
        let [process, directory, rendezvous, log] = <[OsString; 4]>::try_from(words.collect::<Vec<_>>()).ok()?;
        let process = process.to_str()?.parse().ok().filter(|process| *process > 0).and_then(Pid::from_raw)?;
        Some(Kept { process, directory: directory.into(), rendezvous: rendezvous.into(), log: log.into() })
    }

    /// Waits until the daemon has ended, or Slurm asks this process to end because all of the job ends. Then removes the
    /// daemon's files.
    pub fn keep(&self) -> io::Result<()> {
        let (mut signals, sender) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        for signal in [SIGUSR1, SIGUSR2] {
            // A job may ask its programs by these signals to save their state. They are not for the keeper.
            signal_hook::flag::register(signal, Default::default())?;
        }
        let process = self.process;
        std::thread::Builder::new().spawn(move || {
            await_end(process);
            // The other end is there until this process ends.
            let _ = (&sender).write(&[0]);
        })?;
        // Nobody reads this if the daemon has been killed already.
        let _ = writeln!(io::stdout(), "ready");
        let _ = signals.read(&mut [0]);
        self.remove();
        Ok(())
    }

    /// Removes the files, unless the daemon has done that itself: then its directory is gone. The files of the machine's
    /// next daemon, which has the same rendezvous file and the same log, stay.
    fn remove(&self) {
        if !socket_directory::is_own(&self.directory) {
            return;
        }
        if let Some(_held) = rendezvous::hold(&self.rendezvous, &self.directory, is_running(self.process)) {
            if !socket_directory::keeps_log(&self.directory) {
                log::remove(&self.log);
            }
            let _ = fs::remove_file(&self.rendezvous);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Waits until a process has ended, also if it remains as a zombie.
fn await_end(process: Pid) {
    if let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty()) {
        while let Ok(false) | Err(Errno::INTR) = poll_one(&descriptor, PollFlags::IN, Duration::MAX) {}
    }
    while is_running(process) {
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Returns whether a process exists and is no zombie.
fn is_running(process: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    // The name before the state may contain anything.
    text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of a process that has ended.
    fn ended() -> String {
        let mut process = Command::new("true").spawn().unwrap();
        process.wait().unwrap();
        process.id().to_string()
    }

    /// Makes the files of a daemon, lets them change, and returns what a keeper leaves of them.
    fn left(change: impl FnOnce(&Path)) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("directory/s"), "").unwrap();
        fs::write(path("rendezvous"), path("directory/s").as_os_str().as_encoded_bytes()).unwrap();
        fs::write(path("log"), "ready").unwrap();
        fs::write(path("log.old"), "ready").unwrap();
        change(folder.path());
        let words = [ended().into(), path("directory").into(), path("rendezvous").into(), path("log").into()];
        Kept::parse(words.into_iter()).unwrap().remove();
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }

    #[test]
    fn the_files_of_a_killed_daemon_are_removed_and_a_log_that_somebody_may_read_stays() {
        assert!(left(|_| {}).is_empty());
        assert_eq!(left(|folder| socket_directory::keep_log(&folder.join("directory"))), ["log", "log.old"]);
        let as_after_its_end = |folder: &Path| {
            fs::remove_dir_all(folder.join("directory")).unwrap();
            fs::remove_file(folder.join("rendezvous")).unwrap();
        };
        assert_eq!(left(as_after_its_end), ["log", "log.old"]);
    }

    fn folder_of_next(folder: &Path) -> Vec<u8> {
        folder.join("next/s").into_os_string().into_encoded_bytes()
    }

    #[test]
    fn the_files_of_the_next_daemon_stay() {
        let all = ["log", "log.old", "rendezvous"];
        let next = folder_of_next;
        assert_eq!(left(|folder| fs::write(folder.join("rendezvous"), next(folder)).unwrap()), all);
        // The next daemon holds the lock, but has not written the file yet.
        let mut lock = None;
        let hold = |folder: &Path| {
            let file = fs::File::open(folder.join("rendezvous")).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
            lock = Some(file);
        };
        assert_eq!(left(hold), all);
    }

    #[test]
    fn a_process_has_ended_when_it_is_a_zombie() {
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let number = Pid::from_child(&process);
        assert!(is_running(number));
        process.kill().unwrap();
        await_end(number);
        assert!(!is_running(number));
        process.wait().unwrap();
        await_end(number);
        assert!(!is_running(number));
    }

    #[test]
    fn only_a_daemon_in_a_step_has_a_keeper() {
        let path = Path::new("/nowhere");
        let files = Files { directory: path, rendezvous: path, log: path };
        assert!(command(|_| None, &files).is_none());
        let outside = |name: &str| (name == "SLURM_JOB_NODELIST").then(|| OsString::from("n1"));
        assert!(command(outside, &files).is_none());
    }
}
