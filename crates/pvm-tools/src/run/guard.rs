//! A process beside `pvm run` or `pvm bench` that ends the tasks of the run if that command is killed.
//!
//! A pipe leads from `pvm run` to the guard. `pvm run` writes the names of added hosts and the tids of its tasks into
//! the pipe, one per line. If the pipe ends without the line [`DONE`], `pvm run` was killed.
use super::{family, finish};
use crate::cli;
use crate::machine;
use crate::signals::Signals;
use pvm_core::tid::Tid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The run has ended normally.
const DONE: &str = "done";
/// The beginning of a line with the name of a host to remove, and of a line with a task of the run.
const HOST: &str = "host ";
const TASK: &str = "task ";
/// How long killed tasks may take to end, and the pause between two checks.
const KILL_WAIT: Duration = Duration::from_secs(5);
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// The exit status of a run that was killed; nobody reads it.
const EXIT_KILLED: u8 = 137;

/// The guard of a run.
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts a guard for the run with this tid. If no guard can be started, the run continues without one.
    pub fn start(runner: Tid) -> Guard {
        let started = std::env::current_exe().and_then(|program| {
            let mut command = Command::new(program);
            command.args(["guard", &runner.0.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
            // In a process group of its own, the guard gets no signals from the terminal.
            command.process_group(0).spawn()
        });
        Guard(started.ok())
    }

    /// Reports to the guard a host that must be removed after the run.
    pub fn note_host(&mut self, host: &str) {
        self.say(&format!("{HOST}{host}"));
    }

    /// Reports to the guard a task of the run.
    pub fn note_task(&mut self, task: Tid) {
        self.say(&format!("{TASK}{}", task.0));
    }

    /// Reports to the guard that the run has ended, and waits for the guard's end.
    pub fn done(mut self) {
        self.say(DONE);
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // The guard ends at once; its exit status does not matter.
            let _ = child.wait();
        }
    }

    fn say(&mut self, line: &str) {
        let pipe = self.0.as_mut().and_then(|child| child.stdin.as_mut());
        // The guard may have been killed.
        let _ = pipe.map(|pipe| pipe.write_all(format!("{line}\n").as_bytes()));
    }
}

/// Runs `pvm guard`: waits for the end of the run.
pub fn run(arguments: &cli::Guard) -> ExitCode {
    // The guard must outlive the signals that end its run.
    let _signals = Signals::catch_all(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
    let (mut hosts, mut known) = (Vec::new(), BTreeSet::new());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == DONE {
            return ExitCode::SUCCESS;
        }
        hosts.extend(line.strip_prefix(HOST).map(str::to_owned));
        known.extend(line.strip_prefix(TASK).and_then(|tid| tid.parse().ok()).map(Tid));
    }
    match end_all(Tid(arguments.runner), &mut known, &hosts, None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pvm: the command was killed, and what it had started could not be ended: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Kills the tasks that the run has left behind, and cleans up as the run would have done. `daemon` is the daemon's
/// process, if this program started it.
pub fn end_all(
    runner: Tid,
    known: &mut BTreeSet<Tid>,
    hosts: &[String],
    daemon: Option<Child>,
) -> Result<(), machine::MachineError> {
    let mut session = match machine::join() {
        Err(machine::MachineError::None) => return Ok(()),
        joined => joined?,
    };
    let end = Instant::now() + KILL_WAIT;
    let mut left = family::signal(&mut session, runner, known, SIGKILL)?;
    while !left.is_empty() && Instant::now() < end {
        session.wait(&[], Some(KILL_PAUSE));
        left = family::signal(&mut session, runner, known, SIGKILL)?;
    }
    left.push(runner);
    finish(session, daemon, EXIT_KILLED, &left, hosts)
}
