//! A daemon of hpvm or of PVM 3.4.6, in a folder of its own.

use super::compile;
use crate::{common, debian_pvm, processes, scratch};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
pub use xtask::side::{OURS_VARIABLE, Side, ours, path};

/// How long a daemon may take to print its socket's path.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a daemon may take to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The word for this test in the names of the machines' folders.
const PURPOSE: &str = "conform";
/// The interval between two checks of an awaited condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(4);

/// Fails if a side that is needed is missing.
pub fn require(only: Option<Side>) -> Result<()> {
    for side in [Side::Theirs, Side::Ours] {
        let daemon = side.programs().join("pvmd");
        if only.is_none_or(|only| only == side) && !daemon.exists() {
            bail!("{} is missing: run `cargo xtask setup test` and `cargo xtask build`", daemon.display());
        }
    }
    Ok(())
}

/// A folder, an environment with paths in this folder, and perhaps a daemon.
pub struct Machine {
    pub side: Side,
    /// `PVM_TMP` and the parent of `HOME`.
    folder: TempDir,
    daemon: Option<Child>,
    daemon_env: Vec<(String, String)>,
}

impl Machine {
    /// Makes the folder, and starts nothing.
    pub fn new(side: Side, daemon_env: &[(String, String)]) -> Result<Machine> {
        // The path is short, since the path of Debian's socket must fit into 108 bytes.
        let folder = scratch::directory(PURPOSE)?;
        std::fs::create_dir(folder.path().join("home"))?;
        Ok(Machine { side, folder, daemon: None, daemon_env: daemon_env.to_vec() })
    }

    /// Returns the folder: `PVM_TMP` and the parent of `HOME`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the home directory of all processes of this machine.
    pub fn home(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// Returns whether the daemon still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.daemon.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Starts the daemon and waits for the line that says it is ready.
    pub fn start(&mut self, hostfile: &[String]) -> Result<()> {
        let mut command = self.command(&self.side.programs().join("pvmd"));
        if !hostfile.is_empty() {
            let path = self.folder().join("hostfile");
            std::fs::write(&path, hostfile.join("\n") + "\n")?;
            command.arg(path);
        }
        let ready = self.folder().join("ready");
        command.stdin(Stdio::null()).stdout(File::create(&ready)?).stderr(File::create(self.folder().join("stderr"))?);
        self.daemon = Some(command.spawn().with_context(|| format!("cannot start the daemon of {}", self.side))?);
        let end = Instant::now() + START_TIMEOUT;
        while !std::fs::read(&ready)?.contains(&b'\n') {
            if Instant::now() > end || !self.alive() {
                let said = std::fs::read_to_string(self.folder().join("stderr"))?;
                bail!("the daemon of {} does not start: {said}", self.side);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns a command in a process group of its own, with the environment of this machine and no other.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().process_group(0).current_dir(self.home());
        let theirs = debian_pvm::programs();
        command.env("PATH", path(self.side));
        let search = format!("{}:{}:/usr/bin:{}", compile::folder().display(), theirs.display(), self.home().display());
        command.env("PVM_PATH", search).env(debian_pvm::VARIABLE, debian_pvm::usr());
        command.env("HOME", self.home()).env("PVM_TMP", self.folder()).env("PVM_ALLOW_ROOT", "1").env("LC_ALL", "C");
        command.env("CONFORM_BIN", compile::folder()).env("CONFORM", common::root().join("tests/conform"));
        command.env("CONFORM_INCLUDE", self.side.headers());
        command.envs(self.side.environment());
        command.envs(self.daemon_env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the daemon's log.
    pub fn log(&self) -> String {
        let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("pvml.");
        let mut entries = std::fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let log = entries.find(name).and_then(|entry| std::fs::read(entry.path()).ok());
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }

    /// Kills the processes that a case left behind, but not the daemon.
    pub fn tidy(&self) {
        let _ = std::fs::remove_file(self.folder().join("errors"));
        let daemon = self.daemon.as_ref().map(Child::id);
        for id in self.processes() {
            if Some(id) != daemon {
                processes::signal(id, Signal::KILL);
            }
        }
    }

    fn processes(&self) -> Vec<u32> {
        processes_of(self.folder())
    }
}

/// Returns the processes whose `PVM_TMP` is the folder: all processes of the machine in this folder.
fn processes_of(folder: &Path) -> Vec<u32> {
    processes::with_variable("PVM_TMP", folder.as_os_str())
}

/// Kills the processes and removes the folders of earlier runs that were killed.
pub fn sweep() {
    for folder in scratch::abandoned(PURPOSE) {
        processes_of(&folder).into_iter().for_each(|id| processes::signal(id, Signal::KILL));
        let _ = std::fs::remove_dir_all(&folder);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.as_mut() {
            processes::signal(daemon.id(), Signal::TERM);
            let end = Instant::now() + END_TIMEOUT;
            while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        for id in self.processes() {
            processes::signal(id, Signal::KILL);
        }
        if let Some(daemon) = self.daemon.as_mut() {
            let _ = daemon.wait();
        }
    }
}
