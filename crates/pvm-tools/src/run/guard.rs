//! A process beside `pvm run` that ends what it has started when it cannot do that any more: it was killed.
//!
//! The two hold a pipe. What the guard has to know comes as lines; an end of the pipe without [`DONE`] is the news.
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

/// The run has ended as it should.
const DONE: &str = "done";
/// In front of the name of a host that is to be given back, and of a task that has come of the run.
const HOST: &str = "host ";
const TASK: &str = "task ";
/// How long killed tasks may take to end, and how often it is looked whether they have.
const KILL_WAIT: Duration = Duration::from_secs(5);
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// The status of a run that was killed; nobody reads it.
const EXIT_KILLED: u8 = 137;

/// The guard of a run.
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts one for the run of that tid. Where there can be none the run goes on without.
    pub fn start(runner: Tid) -> Guard {
        let started = std::env::current_exe().and_then(|program| {
            let mut command = Command::new(program);
            command.args(["guard", &runner.0.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
            // What a terminal sends is not for it.
            command.process_group(0).spawn()
        });
        Guard(started.ok())
    }

    /// A host that is to be given back.
    pub fn borrows(&mut self, host: &str) {
        self.say(&format!("{HOST}{host}"));
    }

    /// A task of the run.
    pub fn knows(&mut self, task: Tid) {
        self.say(&format!("{TASK}{}", task.0));
    }

    /// All has ended.
    pub fn done(mut self) {
        self.say(DONE);
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // It ends at once; how makes no difference.
            let _ = child.wait();
        }
    }

    fn say(&mut self, line: &str) {
        let pipe = self.0.as_mut().and_then(|child| child.stdin.as_mut());
        // Somebody may have killed the guard.
        let _ = pipe.map(|pipe| pipe.write_all(format!("{line}\n").as_bytes()));
    }
}

/// `pvm guard`: waits for the end of the run.
pub fn run(arguments: &cli::Guard) -> ExitCode {
    // It is to outlive what ends its run.
    let _signals = Signals::catch_all(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
    let (mut hosts, mut known) = (Vec::new(), BTreeSet::new());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == DONE {
            return ExitCode::SUCCESS;
        }
        hosts.extend(line.strip_prefix(HOST).map(str::to_owned));
        known.extend(line.strip_prefix(TASK).and_then(|tid| tid.parse().ok()).map(Tid));
    }
    match end_all(Tid(arguments.runner), &mut known, &hosts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pvm run: was killed, and what it had started could not be ended: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Kills what the run has left, and does what the run would have done at its end.
fn end_all(runner: Tid, known: &mut BTreeSet<Tid>, hosts: &[String]) -> Result<(), machine::MachineError> {
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
    finish(session, None, EXIT_KILLED, &left, hosts)
}
