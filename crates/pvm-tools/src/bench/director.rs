//! The process `pvmbench`, a task of the machine that starts the other tasks and measures (`bench/pvmbench.c`).
//!
//! `pvm bench` itself leaves the machine while the director measures. Otherwise `pvm bench` would count as one more
//! task of this host, and where tasks outnumber the cores, tasks that wait do not spin.
use super::BenchError;
use super::plan::Crew;
use crate::control;
use crate::machine;
use crate::measures::{Encoding, Measure};
use crate::run::ends::End;
use crate::shape;
use crate::signals::Signals;
use crate::variables::IDENTITY;
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the program.
const PROGRAM: &str = "pvmbench";
/// The variable with the daemon's socket: the director joins the machine of `pvm bench`.
const SOCKET: &str = "PVMSOCK";
/// How late an answer must be before the first check whether all tasks still run; also the interval of further checks.
const CHECK_PAUSE: Duration = Duration::from_secs(2);
/// An answer that is later than this is an error.
const LATE_MAX: Duration = Duration::from_secs(180);
/// An answer is late after this many times the estimated duration of a repetition.
const REPETITIONS_LATE: u32 = 3;

/// The director.
pub struct Director {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Output of the director that has been read, but not yet returned as a line.
    rest: Vec<u8>,
    signals: Signals,
    /// The director's tid.
    pub tid: Tid,
    /// The tasks of the crew with their hosts.
    crew: Vec<(Tid, String)>,
    /// What the director does now, for error messages.
    doing: String,
    /// How long an answer may take before it is late.
    expected: Duration,
}

impl Director {
    /// Starts the director, and waits until it is a task of the machine.
    pub fn start() -> Result<Director, BenchError> {
        let program = place().ok_or(BenchError::NoProgram)?;
        let signals = Signals::catch_all(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(BenchError::System)?;
        let mut command = Command::new(program);
        IDENTITY.iter().filter(|name| **name != SOCKET).for_each(|name| {
            command.env_remove(name);
        });
        // In a process group of its own, the director gets no signals from the terminal.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(BenchError::System)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::System(ErrorKind::BrokenPipe.into()));
        };
        let mut director = Director {
            child,
            input: Some(input),
            output,
            rest: Vec::new(),
            signals,
            tid: Tid::NONE,
            crew: Vec::new(),
            doing: "joining the machine".into(),
            expected: Duration::ZERO,
        };
        director.tid = director.tids("tid")?.first().copied().ok_or_else(|| director.nonsense("no tid"))?;
        Ok(director)
    }

    /// Starts a crew. Returns its tasks.
    pub fn start_crew(&mut self, crew: &Crew, route: i32) -> Result<Vec<Tid>, BenchError> {
        let (joins, pins) = (i32::from(crew.joins), i32::from(crew.is_pinned()));
        self.doing = "the start of tasks".into();
        self.say(&format!("crew {joins} {pins} {route} {}", crew.hosts.join(" ")))?;
        let tids = self.tids("crew")?;
        self.crew = tids.iter().copied().zip(crew.hosts.iter().cloned()).collect();
        Ok(tids)
    }

    /// Ends the tasks of the crew.
    pub fn dismiss(&mut self) -> Result<(), BenchError> {
        self.doing = "the end of tasks".into();
        self.say("dismiss")?;
        // The tasks are supposed to end now, so checks no longer expect them to run.
        self.crew.clear();
        self.values().map(|_| ())
    }

    /// Measures. Returns the time of an exchange in microseconds, once for each repetition.
    pub fn measure(
        &mut self,
        measure: Measure,
        encoding: Option<Encoding>,
        size: u32,
        repetition: Duration,
        repetitions: u32,
    ) -> Result<Vec<f64>, BenchError> {
        let encoding = encoding.unwrap_or(Encoding::Raw).name();
        self.doing =
            if measure.has_sizes() { format!("{}, {size} bytes", measure.name()) } else { measure.name().into() };
        self.say(&format!("measure {} {encoding} {size} {} {repetitions}", measure.name(), repetition.as_micros()))?;
        self.expected = repetition * REPETITIONS_LATE;
        let values = self.values();
        self.expected = Duration::ZERO;
        values
    }

    /// Measures the start of tasks on the hosts.
    pub fn measure_spawn(&mut self, tasks: usize, hosts: &[&str], repetitions: u32) -> Result<Vec<f64>, BenchError> {
        self.doing = Measure::Spawn.name().into();
        self.say(&format!("spawn {tasks} {}, {repetitions}", hosts.join(",")))?;
        self.values()
    }

    /// Ends the director: at once if something has failed, otherwise as a task that leaves the machine.
    pub fn end(mut self, failed: bool) {
        drop(self.input.take());
        if failed {
            // It may have ended already.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    fn say(&mut self, line: &str) -> Result<(), BenchError> {
        let input = self.input.as_mut().ok_or_else(|| BenchError::System(ErrorKind::BrokenPipe.into()))?;
        // If the director has ended, the next answer shows why.
        let _ = input.write_all(format!("{line}\n").as_bytes());
        Ok(())
    }

    /// Returns the values of an answer, up to its end.
    fn values(&mut self) -> Result<Vec<f64>, BenchError> {
        let mut values = Vec::new();
        loop {
            let line = self.line()?;
            match line.strip_prefix("value ").map(str::parse) {
                Some(Ok(value)) => values.push(value),
                None if line == "done" => return Ok(values),
                _ => return Err(self.nonsense(&line)),
            }
        }
    }

    /// Returns the tids in an answer that begins with this word.
    fn tids(&mut self, word: &str) -> Result<Vec<Tid>, BenchError> {
        let line = self.line()?;
        let mut words = line.split(' ');
        let tids: Option<Vec<Tid>> = match words.next() {
            Some(first) if first == word => words.map(|tid| tid.parse().ok().map(Tid)).collect(),
            _ => None,
        };
        tids.ok_or_else(|| self.nonsense(&line))
    }

    fn nonsense(&self, line: &str) -> BenchError {
        BenchError::Director(format!("{PROGRAM} answered {line:?}; is it of this version of hpvm?"))
    }

    /// Returns the next line of the director. Fails if the director or a task of the crew has ended.
    fn line(&mut self) -> Result<String, BenchError> {
        let due = Instant::now() + self.expected;
        let mut check_at = due + CHECK_PAUSE;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line[..end]).into_owned();
                let Some(text) = line.strip_prefix("error ") else { return Ok(line) };
                // A call may have failed because a task has ended; then the check returns this more helpful error.
                self.check()?;
                return Err(BenchError::Director(text.to_owned()));
            }
            let is_readable = self.wait(check_at)?;
            if let Some(signal) = self.signals.take().first() {
                return Err(BenchError::Signal(*signal));
            }
            if is_readable {
                self.read()?;
                continue;
            }
            if check_at <= Instant::now() {
                self.check()?;
                check_at = Instant::now() + CHECK_PAUSE;
            }
            if due.elapsed() >= LATE_MAX {
                let seconds = LATE_MAX.as_secs();
                return Err(BenchError::Director(format!("{}: no result for {seconds} s", self.doing)));
            }
        }
    }

    /// Waits for output of the director, a signal, or the given time. Returns whether there is output, or the output
    /// has ended.
    fn wait(&mut self, until: Instant) -> Result<bool, BenchError> {
        let mut list = vec![PollFd::new(&self.output, PollFlags::IN)];
        let signals: Vec<_> = self.signals.descriptors().collect();
        list.extend(signals.iter().map(|signal| PollFd::from_borrowed_fd(signal.as_fd(), PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        match rustix::event::poll(&mut list, Some(&left)) {
            Ok(_) => Ok(!list[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(BenchError::System(error.into())),
        }
    }

    fn read(&mut self) -> Result<(), BenchError> {
        let mut bytes = [0; 4096];
        match self.output.read(&mut bytes) {
            Ok(0) => {
                let status = self.child.wait().map_err(BenchError::System)?;
                let end = End::of(status.into_raw()).text();
                Err(BenchError::Director(format!("{}: {PROGRAM}, task {} of this host, {end}", self.doing, self.tid)))
            }
            Ok(count) => {
                self.rest.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(BenchError::System(error)),
        }
    }

    /// Fails if the machine, a host, or a task of the crew is gone. Joins the machine for a moment.
    fn check(&mut self) -> Result<(), BenchError> {
        let mut session = match machine::join() {
            Err(machine::MachineError::None) => {
                return Err(BenchError::Director(format!("{}: the machine has ended", self.doing)));
            }
            joined => joined?,
        };
        let tasks = control::tasks(&mut session, Tid::NONE)?;
        let (hosts, _) = control::hosts(&mut session)?;
        session.leave()?;
        // The end of the director itself shows in its output.
        let is_there = |tid: &Tid| *tid == self.tid || tasks.iter().any(|task| task.tid == *tid);
        let Some((tid, host)) = self.crew.iter().find(|(tid, _)| !is_there(tid)) else { return Ok(()) };
        let doing = &self.doing;
        Err(BenchError::Director(match hosts.iter().any(|known| known.tid == tid.host()) {
            true => format!(
                "{doing}: task {tid} on host {} has ended; the log of that host's daemon (/tmp/pvml.UID) may say why",
                shape::host_name(&hosts, tid.host())
            ),
            false => format!("{doing}: host {host} is no longer in the machine (pvm conf lists its hosts)"),
        }))
    }
}

/// Returns the path of the program, which is installed beside `pvm`.
fn place() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.parent()?.join(PROGRAM)).filter(|path| path.is_file())
}

impl From<Code> for BenchError {
    fn from(code: Code) -> BenchError {
        BenchError::Machine(machine::MachineError::Code(code))
    }
}

impl From<machine::MachineError> for BenchError {
    fn from(error: machine::MachineError) -> BenchError {
        BenchError::Machine(error)
    }
}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> BenchError {
        BenchError::System(error)
    }
}
