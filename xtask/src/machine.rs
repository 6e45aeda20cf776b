//! A virtual machine with a directory of its own, for commands that check what remains after its end.
use crate::common::dist;
use crate::debian_pvm;
use crate::side::Side;
use crate::{processes, scratch};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a daemon may take until it is ready.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How long everything may take to end after a halt.
pub const END_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the exit status of a program may take that has closed its output.
const STATUS_TIME: Duration = Duration::from_secs(1);
/// The most lines of a program's standard error in a message.
const LAST_ERRORS: usize = 10;
/// The interval between two checks of an awaited condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Variables that would make programs use another machine, or change the behaviour of this machine.
const VARIABLES: &[&str] = &["PVMSOCK", "PVM_VMID", "PVM_ROOT", "PVM_DPATH", "PVMEPID", "PVM_PATH", "XDG_RUNTIME_DIR"];

/// A virtual machine of one host. Dropping it kills its remaining processes.
pub struct Machine {
    side: Side,
    /// Where hpvm is installed.
    tree: PathBuf,
    scratch: TempDir,
    daemon: Option<Child>,
    variables: &'static [(&'static str, &'static str)],
}

impl Machine {
    /// Starts a daemon in a new directory and waits until it is ready.
    pub fn start(side: Side, name: &str) -> Result<Machine> {
        Machine::start_with(side, name, &[])
    }

    /// Does the same as [`Machine::start`], and sets variables for all processes of the machine.
    pub fn start_with(side: Side, name: &str, variables: &'static [(&'static str, &'static str)]) -> Result<Machine> {
        let mut machine = Machine { side, tree: dist(), scratch: scratch::directory(name)?, daemon: None, variables };
        machine.start_daemon()?;
        Ok(machine)
    }

    /// Starts the daemon of hpvm that is installed below `prefix`.
    pub fn start_installed(prefix: &Path, name: &str) -> Result<Machine> {
        let (tree, scratch) = (prefix.to_path_buf(), scratch::directory(name)?);
        let mut machine = Machine { side: Side::Ours, tree, scratch, daemon: None, variables: &[] };
        machine.start_daemon()?;
        Ok(machine)
    }

    /// Starts a daemon in the machine's directory, where a previous daemon may have run.
    pub fn start_daemon(&mut self) -> Result<()> {
        let program = match self.side {
            Side::Ours => self.tree.join("bin/pvmd"),
            Side::Theirs => debian_pvm::programs().join("pvmd"),
        };
        // If this command is interrupted, the machine ends, too.
        let mut daemon = self
            .command(Path::new("setpriv"))
            .args(["--pdeathsig", "TERM", "--"])
            .arg(&program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = daemon.stdout.take().context("the output is read once")?;
        self.daemon = Some(daemon);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // This thread keeps the pipe open until the daemon ends: a closed pipe would kill a daemon that prints
            // another line.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        if receiver.recv_timeout(START_TIME_MAX).is_err() {
            bail!("the daemon does not start: {}", self.log());
        }
        Ok(())
    }

    /// Returns a command that finds this machine's daemon and library, and no others.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PVM_TMP", self.directory()).env("HOME", self.directory()).env("PVM_ALLOW_ROOT", "1");
        VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        match self.side {
            Side::Ours => command.env("LD_LIBRARY_PATH", self.tree.join("lib")),
            Side::Theirs => command.envs(debian_pvm::environment()),
        };
        command.envs(self.variables.iter().copied()).current_dir(self.directory());
        command
    }

    /// Returns the directory: `PVM_TMP` and `HOME` of all processes of the machine.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the process id of the daemon.
    pub fn daemon(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// Returns the last lines of the daemon's log.
    pub fn log(&self) -> String {
        let logs = self.files().into_iter().filter(|path| name_of(path).starts_with("pvml."));
        let text: String = logs.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Returns the files in the directory.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files
    }

    /// Returns all processes of this machine, including the daemon.
    pub fn processes(&self) -> Vec<u32> {
        processes::with_variable("PVM_TMP", self.directory().as_os_str())
    }

    /// Kills the daemon without warning.
    pub fn kill_daemon(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("there is a daemon")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// Runs `halt` on the console, and waits until the daemon has ended.
    pub fn halt(&mut self) -> Result<()> {
        let program = match self.side {
            Side::Ours => self.tree.join("bin/pvm"),
            Side::Theirs => debian_pvm::programs().join("pvm"),
        };
        let mut console = self
            .command(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        // `halt` ends the console, too, perhaps before this write is complete: so errors do not matter.
        let _ = console.stdin.take().context("piped")?.write_all(b"halt\n");
        let ended = self.daemon_has_ended();
        let _ = console.kill();
        let _ = console.wait();
        ended.context("after `halt`")
    }

    /// Ends the machine by a signal to the daemon, and waits until it has ended.
    pub fn end(&mut self) -> Result<()> {
        processes::signal(self.daemon(), Signal::TERM);
        self.daemon_has_ended().context("after SIGTERM")
    }

    fn daemon_has_ended(&mut self) -> Result<()> {
        let Some(daemon) = self.daemon.as_mut() else { bail!("there is a daemon") };
        if !wait_until(END_TIME_MAX, || matches!(daemon.try_wait(), Ok(Some(_)))) {
            bail!("the daemon does not end");
        }
        self.daemon = None;
        Ok(())
    }

    /// Checks that after a halt no process is left, and no file but the log.
    pub fn nothing_is_left(&self) -> Result<()> {
        if !wait_until(END_TIME_MAX, || self.processes().is_empty()) {
            bail!("left running: {}", self.processes().iter().map(|pid| describe(*pid)).collect::<Vec<_>>().join(", "));
        }
        let left: Vec<String> =
            self.files().iter().map(|path| name_of(path)).filter(|name| !name.starts_with("pvml.")).collect();
        if !left.is_empty() {
            bail!("left in PVM_TMP: {}", left.join(", "));
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for pid in self.processes() {
            processes::signal(pid, Signal::KILL);
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A program that reads and writes lines. Dropping it kills the program.
pub struct LineProcess {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Its standard error.
    errors: fs::File,
}

impl LineProcess {
    /// Starts the program. Its standard error is kept for [`LineProcess::ending`].
    pub fn start(command: &mut Command) -> Result<LineProcess> {
        let errors = tempfile::tempfile()?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("the output is read once")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(LineProcess { child, lines, errors })
    }
    /// Returns the next line; `None` if the program has ended. Fails after `time`.
    pub fn next_line(&self, time: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("hang: no output for {} s", time.as_secs()),
        }
    }
    /// Sends a line to the program.
    pub fn send(&mut self, line: &str) {
        if let Some(input) = self.child.stdin.as_mut() {
            // If the program has ended, this error does not matter: the end of its output shows that it has ended.
            let _ = writeln!(input, "{line}");
        }
    }
    /// Waits for the end of the program. Returns whether it succeeded.
    pub fn end(&mut self, time: Duration) -> Result<bool> {
        let mut status = None;
        wait_until(time, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        Ok(status.context("it does not end")?.success())
    }

    /// Returns how the program ended, and the end of its standard error, for a message.
    pub fn ending(&mut self) -> String {
        let ended = wait_until(STATUS_TIME, || !matches!(self.child.try_wait(), Ok(None)));
        let status = match self.child.try_wait() {
            Ok(Some(status)) if ended => status.to_string(),
            _ => "no exit status".to_owned(),
        };
        let mut text = String::new();
        // What cannot be read is missing in the message, which is about another error.
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_ERRORS)..].join("\n");
        if last.is_empty() { status } else { format!("{status}; its standard error ends with\n{last}") }
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `is_so` returns true. Returns whether that happened within `time`.
pub fn wait_until(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Returns the last part of a path.
pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn describe(pid: u32) -> String {
    format!("{pid} ({})", processes::command_line(pid).join(" "))
}
