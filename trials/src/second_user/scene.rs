//! Two users, a directory in which both may write temporary files, and the programs that they start.
use crate::common::{dist, output, root};
use crate::scratch;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The id of the ordinary user; no system has a user with this id.
pub const ORDINARY_USER: u32 = 61_234;
/// The id of the other user.
pub const STRANGER: u32 = 61_235;
/// How long a daemon may take to be ready.
const START_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a process may take to end on request.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The user who owns the machine.
    Us,
    /// The other user.
    Stranger,
}

/// Copies the programs to a directory where both users can read them.
pub fn programs() -> Result<TempDir> {
    let programs = scratch::directory("second-user-programs")?;
    fs::set_permissions(programs.path(), Permissions::from_mode(0o755))?;
    for program in ["pvm", "pvmd"] {
        fs::copy(dist().join("bin").join(program), programs.path().join(program))?;
    }
    for program in ["task", "stranger"] {
        output(
            Command::new("cc")
                .arg(format!("-I{}", dist().join("include").display()))
                .arg(root().join("tests/second_user").join(program).with_extension("c"))
                .arg(dist().join("lib/libpvm3.a"))
                .arg("-o")
                .arg(programs.path().join(program)),
        )?;
    }
    Ok(programs)
}

/// The directories of both users. Dropping it removes them.
pub struct Scene {
    directory: TempDir,
    programs: PathBuf,
    user: u32,
    made: String,
}

impl Scene {
    /// Makes the directories; the machine will belong to `user`.
    pub fn new(user: u32, programs: &TempDir) -> Result<Scene> {
        let directory = scratch::directory("second-user")?;
        let path = directory.path();
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
        for (name, owner, mode) in [("tmp", 0, 0o1777), ("us", user, 0o700), ("stranger", STRANGER, 0o700)] {
            let inner = path.join(name);
            fs::create_dir(&inner)?;
            chown(&inner, Some(owner), Some(owner))?;
            fs::set_permissions(&inner, Permissions::from_mode(mode))?;
        }
        let made = path.join("made").display().to_string();
        fs::write(&made, "")?;
        Ok(Scene { directory, programs: programs.path().to_path_buf(), user, made })
    }
    /// Returns the user who owns the machine.
    pub fn user(&self) -> u32 {
        self.user
    }
    /// Returns the path of a file that was made together with the directories. Files made during a check are newer.
    pub fn made(&self) -> &str {
        &self.made
    }
    /// Returns the directory for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }
    /// Returns our home directory.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("us")
    }
    /// Returns the path of one of the copied programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Returns a command that a user runs: one of the copied programs, or one of the system.
    pub fn command(&self, who: Who, program: &str) -> Command {
        let own = self.program(program);
        let mut command = if own.exists() { Command::new(own) } else { Command::new(program) };
        let (user, home) = match who {
            Who::Us => (self.user, "us"),
            Who::Stranger => (STRANGER, "stranger"),
        };
        let home = self.directory.path().join(home);
        command.uid(user).gid(user).current_dir(&home).stdin(Stdio::null());
        command.env("HOME", home).env("PVM_TMP", self.temporary());
        for name in ["PVMSOCK", "PVM_VMID", "PVM_ROOT", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command
    }
    /// Runs a program to its end. Fails if the program fails.
    pub fn output(&self, who: Who, program: &str, arguments: &[&str]) -> Result<String> {
        output(self.command(who, program).args(arguments))
    }

    /// Starts a daemon and waits until it is ready.
    pub fn daemon(&self, who: Who) -> Result<Daemon> {
        let mut process = Process::start(self.command(who, "pvmd").stderr(Stdio::null()))?;
        let socket = process.line().context("the daemon does not start")?;
        Ok(Daemon { process, socket: PathBuf::from(socket) })
    }
    /// Starts a task of ours that waits.
    pub fn waiting_task(&self) -> Result<Process> {
        let mut process = Process::start(self.command(Who::Us, "task").arg("stay").stdin(Stdio::piped()))?;
        let tid: i32 = process.line()?.parse()?;
        if tid < 0 {
            bail!("our task has tid {tid}");
        }
        Ok(process)
    }
    /// Starts `pvm monitor`.
    pub fn monitor(&self, options: &[&str]) -> Result<Process> {
        Process::start(self.command(Who::Us, "pvm").arg("monitor").args(options).stderr(Stdio::null()))
    }
    /// Starts a program of the other user that listens on that socket like a daemon.
    pub fn listen(&self, socket: &Path) -> Result<Process> {
        let mut process = Process::start(self.command(Who::Stranger, "stranger").arg("listen").arg(socket))?;
        process.line()?;
        Ok(process)
    }
}

/// A process. Dropping it ends the process.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Process> {
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
        let output = BufReader::new(child.stdout.take().context("the process has an output")?);
        Ok(Process { child, output })
    }
    /// Returns the process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
    /// Returns the next line of the output.
    pub fn line(&mut self) -> Result<String> {
        // A process that neither prints nor ends is killed after a time limit.
        let watch = Watch::start(self.child.id(), START_WAIT_MAX)?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        drop(watch);
        if line.is_empty() {
            bail!("the process printed nothing");
        }
        Ok(line.trim_end().to_owned())
    }
    /// Ends the process. Returns the remaining lines of its output.
    pub fn stop(mut self) -> Result<Vec<String>> {
        self.end();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        Ok(rest.lines().map(str::to_owned).collect())
    }
    fn end(&mut self) {
        drop(self.child.stdin.take());
        let began = Instant::now();
        if matches!(self.child.try_wait(), Ok(None)) {
            // The process may have ended just now; then there is nothing to do.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > END_WAIT_MAX {
                println!("process {} does not end when asked to", self.child.id());
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills a process after a time.
struct Watch(Child);

impl Watch {
    fn start(process: u32, time: Duration) -> Result<Watch> {
        let order = format!("exec >/dev/null; sleep {}; kill -KILL {process}", time.as_secs());
        // The shell is in a process group of its own, so that it and its `sleep` end together.
        Ok(Watch(Command::new("sh").args(["-c", &order]).process_group(0).spawn()?))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The time may have run out just now; then there is no process left to end.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A daemon. Dropping it ends the daemon.
pub struct Daemon {
    process: Process,
    socket: PathBuf,
}

impl Daemon {
    /// Returns the path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
    /// Returns its process id.
    pub fn process(&self) -> u32 {
        self.process.process()
    }
}
