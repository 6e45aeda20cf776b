//! Starts programs and daemons for the benchmark, and makes sure that they end.
//!
//! Each program that the benchmark starts has a mark in its environment, and its child processes inherit the mark.
//! Processes that exceed their time limit are found by the mark and killed. When this process ends, the kernel ends the
//! programs (`setpriv --pdeathsig`).
use super::systems::Vm;
use crate::debian_pvm;
use crate::{processes, scratch};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable with the mark.
const MARK: &str = "HPVM_BENCH";
/// The word for the benchmark in the names of its scratch directories.
pub const SCRATCH: &str = "bench";
/// How long a daemon may take to start or to end.
const DAEMON_TIME_MAX: Duration = Duration::from_secs(10);
/// How long programs may take to end after a signal, or after the end of their output.
const GRACE: Duration = Duration::from_secs(3);

static NEXT_MARK: AtomicU32 = AtomicU32::new(0);

fn new_mark() -> String {
    format!("{}-{}", std::process::id(), NEXT_MARK.fetch_add(1, Ordering::Relaxed))
}

/// Returns a command that ends when this process ends, and that has no variables of the user's own virtual machine.
fn command(program: &Path, signal: &str, mark: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--"]).arg(program).env(MARK, mark).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PVM") {
            command.env_remove(name);
        }
    }
    command
}

/// Kills the processes with this mark, and waits until they have ended, but not longer than [`GRACE`].
fn sweep(mark: &str) {
    let deadline = Instant::now() + GRACE;
    loop {
        let left = processes::with_variable(MARK, OsStr::new(mark));
        left.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for the end of a child. Returns false if the child still runs after `time`.
fn wait_for(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// A program that runs in the background. Dropping it ends the program.
pub struct Program {
    child: Child,
    mark: String,
    errors: PathBuf,
}

impl Program {
    /// Starts `program`. Its standard error goes to a file in `scratch`.
    pub fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        scratch: &Path,
    ) -> Result<Program> {
        let mark = new_mark();
        let errors = scratch.join(format!("errors.{mark}"));
        let child = command(program, "TERM", &mark)
            .args(arguments)
            .envs(environment.iter().cloned())
            .current_dir(scratch)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&errors)?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Program { child, mark, errors })
    }

    /// Waits for the end of the program and returns its output. Fails if the program fails or takes longer than `time`.
    pub fn finish(mut self, time: Duration) -> Result<String> {
        let mut output = self.child.stdout.take().context("the output is read once")?;
        let (sender, receiver) = mpsc::channel();
        // A separate thread reads the output, so that this thread can stop waiting after `time`. Neither thread wakes
        // up while the program measures.
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = output.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let text = receiver.recv_timeout(time).ok();
        let ended = text.is_some() && wait_for(&mut self.child, GRACE);
        let status = if ended { self.child.try_wait()? } else { None };
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        match (status, text) {
            (Some(status), Some(text)) if status.success() => Ok(text),
            (Some(status), _) => bail!("{status}: {}", last_lines(&errors)),
            (None, _) => bail!("no end within {} s {}", time.as_secs(), last_lines(&errors)),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            processes::signal(self.child.id(), Signal::TERM);
            if !wait_for(&mut self.child, GRACE) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            sweep(&self.mark);
        }
        let _ = fs::remove_file(&self.errors);
    }
}

/// Returns the last lines of a text as one line, for a message.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

/// Removes the directories of earlier runs that were killed.
pub fn remove_leftovers() {
    scratch::abandoned(SCRATCH).iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
}

/// A virtual machine of one host with a directory of its own. Dropping it ends the machine.
pub struct Machine {
    daemon: Child,
    mark: String,
    directory: TempDir,
    library: PathBuf,
    vm: Vm,
}

impl Machine {
    /// Starts a daemon and waits until it is ready.
    pub fn start(vm: Vm) -> Result<Machine> {
        let library = vm.library_directory().with_context(|| format!("{} is not there", vm.name()))?;
        let mark = new_mark();
        let directory = scratch::directory(SCRATCH)?;
        let mut daemon = command(&vm.pvmd(), "TERM", &mark)
            .envs(environment(vm, directory.path(), &library))
            .args(hostfile(vm, directory.path())?)
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(directory.path().join("errors"))?)
            .spawn()
            .with_context(|| format!("cannot start {}", vm.pvmd().display()))?;
        let output = daemon.stdout.take().context("the output is read once")?;
        let machine = Machine { daemon, mark, directory, library, vm };
        let (sender, receiver) = mpsc::channel();
        // The thread keeps the pipe open until the daemon ends: a closed pipe would kill a daemon that prints more.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        match receiver.recv_timeout(DAEMON_TIME_MAX) {
            Ok(_socket) => Ok(machine),
            Err(_) => {
                let errors = fs::read_to_string(machine.directory().join("errors")).unwrap_or_default();
                bail!("the daemon of {} does not start: {}", vm.name(), last_lines(&errors))
            }
        }
    }

    /// Returns the directory for the files of programs on this machine.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the variables with which a program finds this machine and its library.
    pub fn environment(&self) -> Vec<(String, String)> {
        environment(self.vm, self.directory.path(), &self.library)
    }

    /// Returns the end of the daemon's log.
    pub fn log(&self) -> String {
        let logs = fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let log = logs.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/pvml."));
        last_lines(&log.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default())
    }
}

/// Returns a hostfile with the directory of Debian's group server, where Debian's daemon does not search by default
/// (defect D4).
fn hostfile(vm: Vm, directory: &Path) -> Result<Option<PathBuf>> {
    if vm == Vm::Ours {
        return Ok(None);
    }
    let file = directory.join("hosts");
    fs::write(&file, format!("* ep={}\n", debian_pvm::programs().display()))?;
    Ok(Some(file))
}

fn environment(vm: Vm, directory: &Path, library: &Path) -> Vec<(String, String)> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    // Debian's PVM is unpacked and not installed, so its daemon does not find its own folder.
    let root = if vm == Vm::Debian { debian_pvm::environment().to_vec() } else { vec![] };
    let mut all = vec![
        ("PVM_TMP".into(), text(directory)),
        ("PVM_ALLOW_ROOT".into(), "1".into()),
        ("LD_LIBRARY_PATH".into(), text(library)),
    ];
    all.extend(root.into_iter().filter(|(name, _)| name == "PVM_ROOT"));
    all
}

impl Drop for Machine {
    fn drop(&mut self) {
        processes::signal(self.daemon.id(), Signal::TERM);
        if !wait_for(&mut self.daemon, DAEMON_TIME_MAX) {
            eprintln!("bench: the daemon in {} does not end by SIGTERM", self.directory.path().display());
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
        sweep(&self.mark);
    }
}
