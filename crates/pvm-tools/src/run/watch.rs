//! Watches a run from the start of its tasks to their end.
use super::ends::{End, seconds};
use super::guard::Guard;
use super::input::Input;
use super::lookout::Lookout;
use super::placement::Hosts;
use super::printer::{Files, Label, Options, Printer, Stream};
use super::recording::Recording;
use super::report::Report;
use super::start::{self, ERRORS_TAG, OUTPUT_TAG};
use super::{EXIT_FAILURE, EXIT_NO_READER, EXIT_SIGNAL_BASE, RunError, family};
use crate::cli::{self, BindTo, OnDeadlock, OnFailure, Program};
use crate::signals::Signals;
use crate::{control, why};
use pvm_core::codes::Code;
use pvm_core::machine::{InputOf, RunPlan};
use pvm_core::proto::{Reply, Request, RunSettings, TaskEnd};
use pvm_core::tid::Tid;
use pvm_task::{OutputEvent, OutputKind, Session, Ticket};
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// The exit status of a run that took too long, the same as that of `timeout`.
const EXIT_TIMEOUT: u8 = 124;
/// How long tasks that were asked to end may take before they are killed, and the pause before they are killed again.
const END_GRACE: Duration = Duration::from_secs(2);
const KILL_PAUSE: Duration = Duration::from_millis(500);
/// The most tasks that a message names one by one.
const NAMED_MAX: usize = 8;
/// The number of signals after which `pvm run` ends at once and leaves the killing to the guard. The second signal
/// kills the tasks.
const SIGNALS_MAX: u32 = 3;

/// A task of the run.
#[derive(Default)]
struct Member {
    /// Whether its output has ended.
    silent: bool,
    /// The pending request for its exit status; `None` after the answer.
    asked: Option<Ticket>,
}

/// A task that this command started.
#[derive(Debug, Clone)]
struct Root {
    /// The number in the run.
    place: usize,
    /// The name of the program.
    name: String,
}

/// The result of a run.
pub struct Outcome {
    /// The exit status.
    pub status: u8,
    /// Tasks of the run that may not have ended completely.
    pub ending: Vec<Tid>,
    /// Whether the guard has to end the tasks and to clean up.
    pub is_left: bool,
    /// What ran where, and how it ended.
    pub report: Report,
}

/// A run in progress.
pub struct Run<'a> {
    session: &'a mut Session,
    guard: &'a mut Guard,
    arguments: &'a cli::Run,
    recording: Option<Recording>,
    signals: Signals,
    input: Option<Input>,
    /// Looks whether tasks can never go on, if that was asked for.
    lookout: Option<Lookout>,
    printer: Printer,
    /// The names of hosts, including lost ones.
    hosts: BTreeMap<Tid, String>,
    /// The tasks that this command started.
    roots: BTreeMap<Tid, Root>,
    /// The tasks that this command started, and all others whose output it receives.
    tasks: BTreeMap<Tid, Member>,
    /// All known tasks of the run, even those whose output goes elsewhere.
    known: BTreeSet<Tid>,
    report: Report,
    began: Instant,
    /// The time when the run reaches its time limit, and the time when tasks that were asked to end are killed.
    limit: Option<Instant>,
    kill_at: Option<Instant>,
    /// The last signal that was sent to all tasks.
    sent: Option<i32>,
    signals_taken: u32,
    /// How many failures were reported.
    reported: usize,
    /// Whether the end of the machine was explained.
    has_said_why: bool,
    /// The exit status of the first task that failed.
    status: u8,
}

impl<'a> Run<'a> {
    /// Starts the tasks.
    pub fn start(
        session: &'a mut Session,
        guard: &'a mut Guard,
        (arguments, programs): (&'a cli::Run, &[Program]),
        hosts: &Hosts,
    ) -> Result<Run<'a>, RunError> {
        let signals = Signals::catch_all(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
        let signals = signals.map_err(|error| RunError::System("signals".into(), error))?;
        let context = match session.request(Request::NewContext)? {
            Reply::Int(context) => context,
            _ => return Err(Code::BadMsg.into()),
        };
        for tag in [OUTPUT_TAG, ERRORS_TAG] {
            session.task().collect_raw_output(context, tag);
        }
        let printer = printer(arguments)?;
        let recording = Recording::start(session, arguments, context)?;
        let names = control::hosts(session)?.0.into_iter().map(|host| (host.tid, host.name)).collect();
        let terminal = arguments.wants_terminal().unwrap_or_else(|| io::stdout().is_terminal());
        let run = RunSettings { group: true, errors_tag: ERRORS_TAG, terminal };
        let began = Instant::now();
        let roots = start_all(session, arguments, programs, hosts, start::Output { context, run })?;
        let tids: Vec<Tid> = roots.iter().map(|(tid, _)| *tid).collect();
        let readers = match arguments.stdin_to() {
            InputOf::None => &[],
            InputOf::All => &tids[..],
            InputOf::Task(number) => &tids[number as usize..=number as usize],
        };
        let mut run = Run {
            recording,
            signals,
            input: Input::new(readers),
            lookout: arguments.deadlock.map(|_| Lookout::new(began)),
            printer,
            hosts: names,
            tasks: BTreeMap::new(),
            known: BTreeSet::new(),
            report: Report::new(began),
            began,
            limit: arguments.timeout.map(|time| began + time),
            kill_at: None,
            sent: None,
            signals_taken: 0,
            reported: 0,
            has_said_why: false,
            status: 0,
            roots: roots.into_iter().collect(),
            session,
            guard,
            arguments,
        };
        tids.into_iter().for_each(|tid| run.add_task(tid));
        Ok(run)
    }

    /// Prints output until every task has ended.
    pub fn watch(mut self) -> Outcome {
        let status = self.watch_to_the_end();
        if self.sent.is_some() && status != EXIT_NO_READER && self.session.is_connected() {
            // This kills even tasks whose output goes elsewhere. It fails only without a daemon, and then there are no
            // tasks.
            let _ = self.signal_all(SIGKILL);
        }
        self.record(Recording::take);
        if let Some(recording) = self.recording {
            let path = recording.path.display().to_string();
            if let Err(error) = recording.finish() {
                eprintln!("pvm run: {path}: {error}");
            }
        }
        self.known.extend(self.tasks.into_keys());
        let is_left = self.signals_taken >= SIGNALS_MAX;
        Outcome { status, ending: self.known.into_iter().collect(), is_left, report: self.report }
    }

    /// Writes into the timeline. If the file cannot be written, the timeline ends, but not the run.
    fn record(&mut self, what: impl FnOnce(&mut Recording, &mut Session) -> io::Result<()>) {
        let Some(recording) = &mut self.recording else { return };
        if let Err(error) = what(recording, self.session) {
            eprintln!("pvm run: {}: {error}", recording.path.display());
            self.recording = None;
        }
    }

    fn watch_to_the_end(&mut self) -> u8 {
        loop {
            if self.show_output().is_err() {
                // Nobody reads the output any more, so the tasks are killed. If they printed to that reader directly,
                // SIGPIPE would end them.
                let _ = self.signal_all(SIGKILL);
                return EXIT_NO_READER;
            }
            self.take_answers();
            self.record(Recording::take);
            self.say_why_the_machine_ends();
            if self.tasks.values().all(|task| task.silent && task.asked.is_none()) {
                return self.status;
            }
            if !self.session.is_connected() {
                if !self.has_said_why {
                    eprintln!("pvm run: {} (the machine has ended)", Code::SysErr);
                }
                return EXIT_FAILURE;
            }
            self.look_at_the_time();
            self.look_for_deadlocks();
            self.wait();
            for signal in self.signals.take() {
                self.pass_on(signal);
                if self.signals_taken >= SIGNALS_MAX {
                    return EXIT_SIGNAL_BASE + signal as u8;
                }
            }
        }
    }

    /// Says, once, why the machine ends though nobody has asked for it.
    fn say_why_the_machine_ends(&mut self) {
        if let Some(why) = self.session.why_halting().filter(|_| !self.has_said_why) {
            eprintln!("pvm run: this host leaves the machine, and all tasks here end: {why}");
            self.has_said_why = true;
        }
    }

    /// Sleeps until a message, a signal or input arrives, or a time limit is reached.
    fn wait(&mut self) {
        let look = self.lookout.as_ref().and_then(Lookout::deadline);
        let record = self.recording.as_ref().and_then(Recording::deadline);
        let next = self.limit.into_iter().chain(self.kill_at).chain(look).chain(record).min();
        let timeout = next.map(|when| when.saturating_duration_since(Instant::now()));
        let stdin = io::stdin();
        let mut descriptors: Vec<_> = self.signals.descriptors().collect();
        let wants_input = self.input.as_ref().is_some_and(Input::can_read);
        if wants_input {
            descriptors.push(std::os::fd::AsFd::as_fd(&stdin));
        }
        let ready = self.session.wait(&descriptors, timeout);
        if let Some(input) = self.input.as_mut().filter(|_| wants_input && ready.last() == Some(&true)) {
            input.pass_on(self.session);
        }
    }

    /// Adds a task, if it is not known yet, and requests its exit status.
    fn add_task(&mut self, tid: Tid) {
        if self.tasks.contains_key(&tid) {
            return;
        }
        self.guard.note_task(tid);
        // This fails only without a daemon, and then the main loop ends.
        let asked = self.session.task().begin(Request::ExitStatus(tid)).ok();
        self.tasks.insert(tid, Member { silent: false, asked });
        let host = self.hosts.get(&tid.host()).cloned().unwrap_or_else(|| tid.host().to_string());
        self.report.begins(tid, host, self.roots.get(&tid).map(|root| (root.place, root.name.clone())));
        if let Some(signal) = self.sent.filter(|_| self.kill_at.is_some()) {
            self.signal(tid, signal);
        }
    }

    /// Prints the output that has arrived.
    fn show_output(&mut self) -> io::Result<()> {
        while let Some(OutputEvent { task, tag, kind, .. }) = self.session.next_output() {
            if tag == OUTPUT_TAG {
                self.add_task(task);
            }
            match kind {
                OutputKind::Raw(bytes) => {
                    let stream = if tag == ERRORS_TAG { Stream::Err } else { Stream::Out };
                    let alone = self.tasks.len() == 1;
                    self.record(|recording, _| recording.output(task, stream, &bytes));
                    self.printer.take(task, stream, &bytes, &self.label_of(task), alone);
                }
                OutputKind::End if tag == OUTPUT_TAG => {
                    self.printer.end(task, &self.label_of(task));
                    self.tasks.entry(task).or_default().silent = true;
                }
                OutputKind::Begin | OutputKind::End | OutputKind::Line(_) => {}
            }
        }
        self.printer.flush()
    }

    /// Returns the names under which the output of a task is shown.
    fn label_of(&self, task: Tid) -> Label {
        let file = match self.roots.get(&task) {
            Some(Root { place, name }) => format!("{name}.{place}"),
            None => task.to_string(),
        };
        Label { tag: if self.arguments.tag { format!("[{file}] ") } else { String::new() }, file }
    }

    /// Takes the exit statuses of tasks whose output has ended.
    fn take_answers(&mut self) {
        if let Some(input) = &mut self.input {
            input.take_answers(self.session);
        }
        let mut ended = Vec::new();
        for (tid, task) in self.tasks.iter_mut().filter(|(_, task)| task.silent) {
            let Some(ticket) = &task.asked else { continue };
            let end = match self.session.task().poll_reply(ticket) {
                None => continue,
                Some(Ok(Reply::Ended(TaskEnd { status, usage }))) => (End::of(status), Some(usage)),
                Some(Err(Code::HostFail)) => (End::Host, None),
                Some(_) => (End::Unknown, None),
            };
            task.asked = None;
            ended.push((*tid, end));
        }
        for (tid, (end, usage)) in ended {
            self.report.ends(tid, end.clone(), usage);
            self.has_ended(tid, &end);
        }
    }

    /// Handles the end of a task: reports a failure, and ends the other tasks if `--on-failure` demands it.
    fn has_ended(&mut self, tid: Tid, end: &End) {
        let is_root = self.roots.contains_key(&tid);
        // The end of a task that this command did not start may be intended: its parent may have killed it.
        let has_failed = if is_root { end.is_failure() } else { end.is_sudden() && !end.is_by_request() };
        if is_root && self.status == 0 {
            self.status = end.exit_status();
        }
        if !has_failed || self.sent.is_some() {
            return;
        }
        self.report_failure(tid, end);
        let aborts = match self.arguments.on_failure {
            Some(OnFailure::Wait) => false,
            Some(OnFailure::Abort) => true,
            None => is_root && end.is_sudden(),
        };
        let others = self.running().len();
        if aborts && others > 0 {
            if self.status == 0 {
                self.status = end.exit_status();
            }
            let what = if others == 1 { "the other task".into() } else { format!("the other {others} tasks") };
            eprintln!("pvm run: ending {what} (--on-failure wait lets them go on)");
            self.end_all();
        }
    }

    /// Reports how a task has failed.
    fn report_failure(&mut self, tid: Tid, end: &End) {
        self.reported += 1;
        if self.reported > NAMED_MAX {
            if self.reported == NAMED_MAX + 1 {
                eprintln!("pvm run: more tasks have failed");
            }
            return;
        }
        eprintln!("pvm run: {} {}, {} after the start", self.describe(tid), end.text(), seconds(self.began.elapsed()));
        if *end == End::Host {
            self.report_loss(tid);
        }
        let lines = self.printer.last_lines(tid);
        if self.tasks.len() > 1 && !lines.is_empty() {
            eprintln!("pvm run: the last that it has printed:");
            lines.iter().for_each(|line| eprintln!("    {line}"));
        }
    }

    /// Reports why the host of a task was lost, if that is known.
    fn report_loss(&mut self, tid: Tid) {
        let Some(name) = self.hosts.get(&tid.host()) else { return };
        let start = format!("host {name} ");
        let Ok(Reply::Failures(reasons)) = self.session.request(Request::LostHosts) else { return };
        if let Some(reason) = reasons.iter().find(|reason| reason.starts_with(&start)) {
            eprintln!("pvm run: {reason}");
        }
    }

    /// Returns a description of the task.
    fn describe(&self, tid: Tid) -> String {
        let host = self.hosts.get(&tid.host()).cloned().unwrap_or_else(|| tid.host().to_string());
        match self.roots.get(&tid) {
            Some(Root { place, name }) => format!("task {place} ({name}, {tid} on {host})"),
            None => format!("task {tid} on {host}"),
        }
    }

    /// Returns the tasks that have not ended.
    fn running(&self) -> Vec<Tid> {
        self.tasks.iter().filter(|(_, task)| !task.silent).map(|(tid, _)| *tid).collect()
    }

    /// Checks the time limits.
    fn look_at_the_time(&mut self) {
        let now = Instant::now();
        if self.limit.is_some_and(|limit| limit <= now) {
            self.limit = None;
            self.report_timeout();
            self.status = EXIT_TIMEOUT;
            self.end_all();
        }
        if self.kill_at.is_some_and(|when| when <= now) {
            self.kill_all();
        }
    }

    fn report_timeout(&self) {
        let running = self.running();
        eprintln!("pvm run: not ended after {} (--timeout); still running:", seconds(self.began.elapsed()));
        running.iter().take(NAMED_MAX).for_each(|tid| eprintln!("    {}", self.describe(*tid)));
        if running.len() > NAMED_MAX {
            eprintln!("    and {} more", running.len() - NAMED_MAX);
        }
    }

    /// Says which tasks can never go on, and ends the run if `--deadlock` demands it.
    fn look_for_deadlocks(&mut self) {
        let Some(lookout) = &mut self.lookout else { return };
        let tasks = self.known.iter().chain(self.tasks.keys()).copied().collect();
        let Some(found) = lookout.proceed(self.session, &tasks, Instant::now()) else { return };
        let found = found.locate(self.session.tid().host());
        let count = found.shown().len();
        let what = if count == 1 { "a task" } else { &format!("{count} tasks") };
        eprintln!("pvm run: {what} can never go on, seen {} after the start:", seconds(self.began.elapsed()));
        found.text().lines().for_each(|line| eprintln!("    {line}"));
        if self.arguments.deadlock == Some(OnDeadlock::Abort) && self.sent.is_none() {
            eprintln!("pvm run: ending the run (--deadlock abort)");
            self.lookout = None;
            if self.status == 0 {
                self.status = why::DEADLOCK;
            }
            self.end_all();
        }
    }

    /// Asks all tasks to end; those that have not ended after [`END_GRACE`] are killed.
    fn end_all(&mut self) {
        self.kill_at = Some(Instant::now() + END_GRACE);
        let _ = self.signal_all(SIGTERM);
    }

    fn kill_all(&mut self) {
        self.kill_at = Some(Instant::now() + KILL_PAUSE);
        let _ = self.signal_all(SIGKILL);
    }

    /// Passes the first signal on to the tasks; a second signal kills them. After a SIGQUIT or a SIGHUP (which spawned tasks
    /// ignore), tasks that have not ended after [`END_GRACE`] are killed too.
    fn pass_on(&mut self, signal: i32) {
        self.signals_taken += 1;
        if self.signals_taken > 1 {
            return self.kill_all();
        }
        if matches!(signal, SIGQUIT | SIGHUP) {
            self.kill_at = Some(Instant::now() + END_GRACE);
        }
        let _ = self.signal_all(signal);
    }

    /// Sends a signal to all tasks of the run. Fails only without a daemon, which the main loop notices.
    fn signal_all(&mut self, signal: i32) -> Result<(), Code> {
        self.sent = Some(signal);
        self.known.extend(self.tasks.keys());
        let own = self.session.tid();
        family::signal(self.session, own, &mut self.known, signal).map(|_| ())
    }

    fn signal(&mut self, tid: Tid, signal: i32) {
        if let Ok(ticket) = self.session.task().begin(Request::SignalGroup { tid, signal }) {
            self.session.task().forget(ticket);
        }
    }
}

/// Makes the printer that the options demand.
fn printer(arguments: &cli::Run) -> Result<Printer, RunError> {
    let files = arguments.output_dir.as_ref().map(|directory| {
        Files::new(directory).map_err(|error| RunError::System(directory.display().to_string(), error))
    });
    let options = Options { timestamp: arguments.timestamp, to_errors: arguments.json };
    Ok(Printer::new(options, files.transpose()?))
}

/// Starts the tasks of all programs. If a task cannot be started, kills all others.
fn start_all(
    session: &mut Session,
    arguments: &cli::Run,
    programs: &[Program],
    hosts: &Hosts,
    output: start::Output,
) -> Result<Vec<(Tid, Root)>, RunError> {
    let mut plan = RunPlan {
        total: Some(programs.iter().map(|program| program.count).sum()),
        input: arguments.stdin_to(),
        mpi_names: arguments.mpi_names,
        bind: arguments.bind_to == BindTo::Core,
        ..RunPlan::default()
    };
    let mut roots: Vec<(Tid, Root)> = Vec::new();
    for program in programs {
        let tids = start::spawn(session, program, plan, hosts, output);
        let failed = match &tids {
            Ok(tids) => tids.iter().find(|tid| **tid <= 0).map(|code| RunError::of_spawn(program.file(), *code)),
            Err(_) => None,
        };
        let (tids, error) = match (tids, failed) {
            (Ok(tids), failed) => (tids, failed),
            (Err(error), _) => (Vec::new(), Some(error)),
        };
        let started = tids.into_iter().filter(|tid| *tid > 0).map(|tid| Tid(tid as u32));
        let places = roots.len()..;
        roots.extend(places.zip(started).map(|(place, tid)| (tid, Root { place, name: program.name() })));
        if let Some(error) = error {
            for (tid, _) in roots {
                session.request(Request::SignalGroup { tid, signal: SIGKILL })?;
                session.request(Request::ExitStatus(tid))?;
            }
            return Err(error);
        }
        plan.first += program.count;
    }
    Ok(roots)
}
