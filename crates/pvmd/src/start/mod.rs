//! Starts daemons on other hosts (contract 5.5): many at a time, each with a time limit, without blocking the daemon's
//! loop. If there are more hosts than the master starts at a time, hosts that already have a link to the master start
//! some of them (`docs/decisions/0021`).
//!
//! `pvm_link::remote_shell` chooses the program that runs commands on other hosts, `remote_command` runs such a command,
//! `job_watch` notices the end of a job of Slurm, `job_keeper` cleans up after it, `reason` explains failures, `manual` asks a person to start a daemon, `tree_spawn` chooses which host starts which,
//! `remote_starts` runs commands for the master.
pub mod job_keeper;
pub mod job_watch;
pub mod manual;
pub(crate) mod reason;
pub(crate) mod remote_command;
pub mod remote_starts;
mod step_guard;
mod tree_spawn;

use crate::background_command::BackgroundCommand;
use pvm_core::codes::Code;
use pvm_core::dialogue::{self, DaemonCommand, Greeting, Line, quoted};
use pvm_core::machine::{HostStart, WELCOME_WAIT};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use pvm_core::wire::{Key, START_OUTPUT_BYTES_MAX, StartFailure, StartNews, StartOrder, Started};
use pvm_link::remote_shell::{RemoteShell, daemon_candidates};
use reason::{FailedStart, Outcome};
use remote_command::{Lines, confirm, is_in_foreground, ready};
use rustix::event::epoll::{self, CreateFlags, EventData};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tree_spawn::TreeSpawn;

/// The number of hosts that the master itself starts at the same time, if it has enough processors
/// ([`STARTS_PER_PROCESSOR`]).
///
/// * Filled by: tasks that add hosts
/// * Default: 64, but at most 16 for each processor
/// * Setting: `HPVM_STARTS_MAX`, of the master's daemon
/// * Reached: the next host is started by another host that has a link already, or waits until a start has ended
/// * Test: `many_hosts_start_at_the_same_time_but_not_more_than_the_limit`
const STARTS_MAX: usize = 64;
/// The number of simultaneous starts for each processor of the master. A start takes about 300 ms, and keeps a
/// processor busy for 20 ms.
const STARTS_PER_PROCESSOR: usize = 16;
/// Time that `ssh` may take to reach a host, in seconds.
const CONNECT_SECONDS: u32 = 20;
/// Time that a host has to start its daemon.
const START_WAIT: Duration = Duration::from_secs(60);
/// Time that a parent in the tree spawn has to start a daemon for the master. After this time the master itself starts
/// the daemon.
const PARENT_WAIT: Duration = Duration::from_secs(10);
/// Time that a person has to start a daemon.
const MANUAL_WAIT: Duration = Duration::from_secs(600);
/// Time for which a stray daemon, one that the master does not know, may exist: a little longer than it waits for the
/// master.
const STRAY_WAIT: Duration = WELCOME_WAIT.saturating_add(Duration::from_secs(10));
/// Returns how many hosts a master with this number of processors itself starts at the same time.
pub fn starts_max(processors: usize) -> usize {
    STARTS_MAX.min(processors * STARTS_PER_PROCESSOR)
}

/// What new daemons learn about the master.
#[derive(Debug, Clone)]
pub struct Master {
    /// The tid of its host.
    pub tid: Tid,
    /// The address at which the master listens.
    pub address: SocketAddr,
    /// Its public key.
    pub key: Key,
    /// The debug mask of new daemons.
    pub debug_mask: i32,
    /// `PVM_VMID`
    pub machine: Option<String>,
}

/// A result of the starter.
#[derive(Debug)]
pub enum StartEvent {
    /// A line for the log.
    Log(String),
    /// A start has succeeded, or has failed and is not tried again.
    Done { request: u32, index: usize, result: Result<Started, StartFailure> },
    /// A parent in the tree spawn is to execute an order for the command with this number.
    Order { parent: Tid, number: u64, order: StartOrder },
    /// The command of a daemon that had answered has ended.
    Ended,
}

/// A host whose daemon is to be started.
struct StartJob {
    request: u32,
    host: HostStart,
    shell: RemoteShell,
    /// The places on the host at which the daemon was looked for, and the places that are left.
    tried: Vec<String>,
    untried: VecDeque<String>,
    deadline: Instant,
    words: Vec<OsString>,
    last_error: String,
    /// Whether the host shows another ssh key than the known one.
    key_changed: bool,
    /// The daemon of PVM 3.4.6 that was found on the host.
    older: Option<String>,
    /// Whether another host may start the daemon. If the start by the other host fails, the master starts the daemon.
    may_be_remote: bool,
    /// The host that starts the daemon in place of the master: its parent in the tree spawn.
    parent: Option<Tid>,
    /// The time until which a stray daemon that a parent has started may run on the host.
    stray_until: Option<Instant>,
}

/// Where a command runs.
enum Runner {
    Local(BackgroundCommand),
    /// The command runs at a parent, which may still report `bytes_left` bytes of output.
    Remote {
        parent: Tid,
        bytes_left: usize,
    },
}

struct RunningStart {
    job: StartJob,
    runner: Runner,
    output: Lines,
    errors: Lines,
    /// Whether the daemon has answered, so that only the end of the command is awaited.
    answered: bool,
    /// Whether the daemon is one of PVM 3.4.6, so that the next place is tried.
    skipped: bool,
}

/// Starts daemons.
pub struct Starter {
    master: Master,
    starts_max: usize,
    shell: RemoteShell,
    /// The remote shell that parents use. On a parent, nobody can be asked for a password.
    parent_shell: RemoteShell,
    /// Whether the daemon has a terminal.
    terminal: bool,
    own_program: Option<std::path::PathBuf>,
    tree_spawn: TreeSpawn,
    waiting: VecDeque<StartJob>,
    running: BTreeMap<u64, RunningStart>,
    last: u64,
    epoll: OwnedFd,
    events: Vec<StartEvent>,
}

impl Starter {
    /// Makes a starter for a master that itself starts at most `starts_max` hosts at a time.
    pub fn new(master: Master, starts_max: usize) -> std::io::Result<Starter> {
        let terminal = std::fs::File::open("/dev/tty").is_ok();
        Ok(Starter {
            // A parent may still run commands of former masters: those have other numbers.
            last: u64::from(master.tid.0) << 20,
            master,
            starts_max,
            shell: RemoteShell::find(variable, terminal, CONNECT_SECONDS),
            parent_shell: RemoteShell::find(variable, false, CONNECT_SECONDS),
            terminal,
            own_program: std::env::current_exe().ok(),
            tree_spawn: TreeSpawn::default(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::new(),
        })
    }

    /// Returns a descriptor that is readable when [`Starter::step`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the next deadline, at which [`Starter::step`] is to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.running.values().filter(|running| !running.answered).map(|running| running.job.deadline).min()
    }

    /// Sets the debug mask of new daemons.
    pub fn set_debug_mask(&mut self, mask: i32) {
        self.master.debug_mask = mask;
    }

    /// Begins to start a daemon.
    pub fn start(&mut self, request: u32, host: HostStart) {
        let job = self.job(request, host);
        self.waiting.push_back(job);
        self.start_waiting();
    }

    fn job(&self, request: u32, host: HostStart) -> StartJob {
        let shell = match host.line.start_option() {
            Some("ms") => RemoteShell::Program(vec!["/proc/self/exe".into(), "--start-by-hand".into()]),
            _ if self.terminal && !self.can_ask() => self.parent_shell.clone(),
            _ => self.shell.clone(),
        };
        // On a parent the same name may mean another host; a loopback address always means the parent itself.
        let elsewhere = |host: &HostStart| {
            !host.addresses.is_empty() && host.addresses.iter().all(|ip| !ip.is_loopback() && !ip.is_unspecified())
        };
        let may_be_remote =
            matches!(shell, RemoteShell::Program(_)) && host.line.start_option().is_none() && elsewhere(&host);
        StartJob {
            request,
            shell,
            tried: Vec::new(),
            untried: daemon_candidates(&host.line, variable, self.own_program.as_deref()).into(),
            deadline: Instant::now(),
            words: Vec::new(),
            last_error: String::new(),
            key_changed: false,
            older: None,
            may_be_remote,
            parent: None,
            stray_until: None,
            host,
        }
    }

    /// Returns the command with which a hoster is to start the daemon of a host.
    pub fn command_for_hoster(&self, host: &HostStart) -> String {
        let daemons = daemon_candidates(&host.line, variable, self.own_program.as_deref());
        self.call(host, Some(self.master.key), false).command(daemons.first().map_or("pvmd", String::as_str))
    }

    fn call(&self, host: &HostStart, key: Option<Key>, by_hand: bool) -> DaemonCommand {
        DaemonCommand {
            name: host.line.name().to_owned(),
            master: self.master.tid,
            address: self.master.address,
            own: host.tid,
            debug_mask: self.master.debug_mask,
            key,
            by_hand,
            in_foreground: false,
        }
    }

    /// Returns whether a person can be asked for a password.
    fn can_ask(&self) -> bool {
        self.terminal && is_in_foreground()
    }

    /// Returns whether no start is in progress.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.values().all(|running| running.answered)
    }

    /// Returns how many hosts the master itself is starting.
    fn active(&self) -> usize {
        self.running.values().filter(|running| !running.answered && running.job.parent.is_none()).count()
    }

    /// Starts waiting hosts: the master starts as many as it may, and parents start further ones.
    fn start_waiting(&mut self) {
        // A command for which the daemon lacks a resource fails at once and leaves room for the next command.
        while self.active() < self.starts_max {
            let Some(mut job) = self.waiting.pop_front() else { return };
            job.deadline = Instant::now() + wait_for(&job);
            self.try_next(job);
        }
        while let Some(parent) = self.tree_spawn.choose_parent() {
            let Some(place) = self.waiting.iter().position(|job| job.may_be_remote) else { return };
            let Some(mut job) = self.waiting.remove(place) else { return };
            job.parent = Some(parent);
            job.deadline = Instant::now() + wait_for(&job);
            self.tree_spawn.begin(parent);
            self.try_next(job);
        }
    }

    /// Tries the next place where the daemon may be installed.
    fn try_next(&mut self, mut job: StartJob) {
        let daemon = job.untried.pop_front().unwrap_or_else(|| "pvmd".into());
        let by_hand = is_by_hand(&job);
        let mut call = self.call(&job.host, by_hand.then_some(self.master.key), by_hand);
        call.in_foreground = job.shell.needs_foreground();
        let shell = if job.parent.is_some() { &self.parent_shell } else { &job.shell };
        let machine = job.host.line.machine().map(str::to_owned).or_else(|| self.master.machine.clone());
        // A daemon that a person starts gets no greeting.
        let variable = machine.as_ref().filter(|_| by_hand).map(|id| format!("env PVM_VMID={} ", quoted(id)));
        let command = variable.unwrap_or_default() + &call.command(&daemon);
        job.words = shell.words_for_daemon(&job.host.line, &command);
        job.tried.push(daemon);
        let greeting = Greeting { machine, key: Some(self.master.key), confirms: !by_hand };
        let input = greeting.text().into_bytes();
        if let Some(parent) = job.parent {
            let words = job.words.iter().map(|word| ByteBuf::from(word.as_bytes().to_vec())).collect();
            let number = self.run(job, Runner::Remote { parent, bytes_left: START_OUTPUT_BYTES_MAX });
            return self.order(parent, number, StartOrder::Run { words, input: input.into() });
        }
        // Only a command in the foreground may use a person's terminal. A step of Slurm never does: an interrupt from the
        // terminal would end it.
        let alone = job.shell.needs_foreground() || !by_hand && !self.can_ask();
        let started = remote_command::start(&job.words, &input, alone, |command| job.shell.prepare(command));
        match started.and_then(|command| command.watched(&self.epoll, EventData::new_u64(self.last + 1))) {
            Ok(command) => drop(self.run(job, Runner::Local(command))),
            Err(error) => self.fail(&job, Outcome::NoProgram(error)),
        }
    }

    fn run(&mut self, job: StartJob, runner: Runner) -> u64 {
        self.last += 1;
        let (output, errors) = Default::default();
        self.running.insert(self.last, RunningStart { job, runner, output, errors, answered: false, skipped: false });
        self.last
    }

    fn order(&mut self, parent: Tid, number: u64, order: StartOrder) {
        self.events.push(StartEvent::Order { parent, number, order });
    }

    /// Handles output, ends and deadlines of the commands. Returns what has happened.
    pub fn step(&mut self) -> Vec<StartEvent> {
        for id in ready(&self.epoll) {
            self.handle_ready(id);
        }
        let now = Instant::now();
        let late: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, one)| !one.answered && one.job.deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let Some(mut running) = self.running.remove(&id) else { continue };
            self.kill(id, &mut running);
            self.fail(&running.job, Outcome::NoAnswer(wait_for(&running.job).as_secs()));
        }
        self.start_waiting();
        std::mem::take(&mut self.events)
    }

    fn kill(&mut self, id: u64, running: &mut RunningStart) {
        match &mut running.runner {
            Runner::Local(command) => command.kill(),
            Runner::Remote { parent, .. } => self.order(*parent, id, StartOrder::Kill),
        }
    }

    fn handle_ready(&mut self, id: u64) {
        let Some(mut running) = self.running.remove(&id) else { return };
        let Runner::Local(command) = &mut running.runner else { unreachable!("it has descriptors") };
        // The status is read before the output: if the process has ended, all of its output is read below.
        let status = match command.status() {
            Ok(status) => status,
            Err(_) if running.skipped => return self.try_next(running.job),
            Err(error) => return self.fail(&running.job, Outcome::NoProgram(error)),
        };
        let errors = running.errors.read(&mut command.errors);
        let output = running.output.read(&mut command.output);
        self.handle_errors(&mut running, errors);
        self.handle_output(id, &mut running, output);
        self.continue_with(id, running, status);
    }

    /// Continues with a command after its output has been handled. `status` is present if the command has ended.
    fn continue_with(&mut self, id: u64, running: RunningStart, status: Option<ExitStatus>) {
        match status {
            _ if running.skipped => self.try_next(running.job),
            // The end of the command need not be awaited here: the parent waits for it.
            _ if running.answered && running.job.parent.is_some() => {}
            None => drop(self.running.insert(id, running)),
            Some(_) if running.answered => self.events.push(StartEvent::Ended),
            // A background process may still hold the output open.
            Some(status) if status.success() && !running.output.ended() => drop(self.running.insert(id, running)),
            Some(status) if Self::may_be_elsewhere(&running.job, status) => {
                self.try_next(running.job);
            }
            Some(status) => self.fail(&running.job, Outcome::Exited(status)),
        }
    }

    fn may_be_elsewhere(job: &StartJob, status: ExitStatus) -> bool {
        reason::is_not_found(status, &job.last_error) && !job.untried.is_empty()
    }

    fn handle_errors(&mut self, running: &mut RunningStart, lines: Vec<String>) {
        let is_said = |line: &String| !line.trim().is_empty() && !step_guard::is_complaint(line);
        for line in lines.iter().map(|line| dialogue::plain(line)).filter(is_said) {
            running.job.key_changed |= reason::says_key_changed(&line);
            self.events.push(StartEvent::Log(format!("stderr@{}: {line}", running.job.host.line.name())));
            running.job.last_error = line;
        }
    }

    fn handle_output(&mut self, id: u64, running: &mut RunningStart, lines: Vec<String>) {
        lines.iter().for_each(|line| self.handle_line(id, running, line));
    }

    /// Skips a daemon of PVM 3.4.6: another place may have a daemon of hpvm.
    fn skip_pvm3_daemon(&mut self, id: u64, running: &mut RunningStart) {
        let job = &mut running.job;
        let (name, older) = (job.host.line.name(), job.tried.last().cloned().unwrap_or_default());
        let next = job.untried.front().map_or("", String::as_str);
        self.events.push(StartEvent::Log(format!("host {name}: {older} there is of PVM 3.4.6; trying {next}")));
        job.older = Some(older);
        running.skipped = true;
        self.kill(id, running);
    }

    fn handle_line(&mut self, id: u64, running: &mut RunningStart, line: &str) {
        if running.answered || running.skipped {
            return;
        }
        let taken = match dialogue::read(line) {
            Line::Noise if line.trim().is_empty() => return,
            Line::Noise => {
                let (name, line) = (running.job.host.line.name(), dialogue::plain(line));
                return self.events.push(StartEvent::Log(format!("stdout@{name}: {line}")));
            }
            Line::Started(started) => self.started(&running.job, started),
            Line::Failed(code) => self.refused(&running.job, Outcome::Refused(code)),
            Line::OtherProtocol if !running.job.untried.is_empty() => return self.skip_pvm3_daemon(id, running),
            Line::OtherProtocol => self.refused(&running.job, Outcome::OtherProtocol),
            Line::OtherVersion(version) => self.refused(&running.job, Outcome::OtherVersion(version)),
        };
        running.answered = true;
        match (&mut running.runner, taken) {
            (Runner::Local(command), true) => confirm(command),
            (Runner::Local(command), false) => command.close_input(),
            (Runner::Remote { parent, .. }, true) => self.order(*parent, id, StartOrder::CloseInput),
            (Runner::Remote { parent, .. }, false) => self.order(*parent, id, StartOrder::Kill),
        }
    }

    fn refused(&mut self, job: &StartJob, end: Outcome) -> bool {
        self.fail(job, end);
        false
    }

    /// Handles the answer of a daemon. Returns whether the daemon is accepted.
    fn started(&mut self, job: &StartJob, started: Started) -> bool {
        let is_there = || started.addresses.iter().any(|address| job.host.addresses.contains(&address.ip()));
        match job.parent {
            Some(parent) if !is_there() => {
                self.return_to_master(parent, job, "the name led to another host from there", true);
                return false;
            }
            Some(parent) => self.tree_spawn.end(parent, true),
            None => {}
        }
        self.done(job, Ok(reachable(started, &job.host)));
        true
    }

    fn fail(&mut self, job: &StartJob, end: Outcome) {
        let host = job.host.line.name();
        let is_stray = matches!(end, Outcome::NoAnswer(_));
        let StartJob { words, tried, last_error, key_changed, older, .. } = job;
        let (older, key_changed) = (older.as_deref(), *key_changed);
        let failure = FailedStart { host, words, tried, end, last_error, key_changed, older }.explain();
        if let Some(parent) = job.parent {
            let why = failure.reason.lines().next().unwrap_or_default();
            return self.return_to_master(parent, job, why, is_stray);
        }
        if failure.code == Code::DupHost && job.stray_until.is_some_and(|until| Instant::now() < until) {
            return self.requeue(job, job.stray_until);
        }
        self.done(job, Err(failure));
    }

    fn done(&mut self, job: &StartJob, result: Result<Started, StartFailure>) {
        if let Err(failure) = &result {
            let text = failure.reason.replace('\n', "; ");
            self.events.push(StartEvent::Log(format!("host {}: {}: {text}", job.host.line.name(), failure.code)));
        }
        self.events.push(StartEvent::Done { request: job.request, index: job.host.index, result });
    }

    // ----- starts by others

    /// Adds a parent to the tree spawn: a host that has a link now.
    pub fn add_parent(&mut self, host: Tid) {
        self.tree_spawn.add_parent(host);
    }

    /// Removes a parent that has no link any more. The master starts the hosts that the parent was starting.
    pub fn remove_parent(&mut self, host: Tid) {
        self.tree_spawn.remove_parent(host);
        let its = |running: &RunningStart| running.job.parent == Some(host);
        let ids: Vec<u64> = self.running.iter().filter(|(_, running)| its(running)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(running) = self.running.remove(&id) else { continue };
            self.return_to_master(host, &running.job, "it is gone", true);
        }
    }

    /// Handles news from `host` of a start command that it runs for the master.
    pub fn handle_news(&mut self, host: Tid, number: u64, news: StartNews) {
        // Ignores news of a command whose daemon has answered or that has ended, and news from a host that does not run
        // the command.
        if self.running.get(&number).is_none_or(|running| running.job.parent != Some(host)) {
            return;
        }
        let Some(mut running) = self.running.remove(&number) else { return };
        let Runner::Remote { bytes_left, .. } = &mut running.runner else { unreachable!("it has a parent") };
        let mut status = None;
        match news {
            StartNews::Output(bytes) | StartNews::Errors(bytes) if bytes.len() > *bytes_left => {
                self.order(host, number, StartOrder::Kill);
                return self.return_to_master(host, &running.job, "it reports too much", true);
            }
            StartNews::Output(bytes) => {
                *bytes_left -= bytes.len();
                let lines = running.output.take(&bytes);
                self.handle_output(number, &mut running, lines);
            }
            StartNews::Errors(bytes) => {
                *bytes_left -= bytes.len();
                let lines = running.errors.take(&bytes);
                self.handle_errors(&mut running, lines);
            }
            StartNews::Ended(raw) => {
                status = Some(ExitStatus::from_raw(raw));
                let (errors, output) = (running.errors.end(), running.output.end());
                self.handle_errors(&mut running, errors);
                self.handle_output(number, &mut running, output);
            }
            StartNews::NotRun(errno) => {
                return self.fail(&running.job, Outcome::NoProgram(std::io::Error::from_raw_os_error(errno)));
            }
            StartNews::TooMuch => return self.return_to_master(host, &running.job, "it prints too much", true),
        }
        self.continue_with(number, running, status);
    }

    /// Hands a start that a parent was to make back to the master, and logs why.
    fn return_to_master(&mut self, parent: Tid, job: &StartJob, why: &str, is_stray: bool) {
        self.tree_spawn.end(parent, false);
        self.events.push(StartEvent::Log(format!("host {}: not by {parent}: {why}", job.host.line.name())));
        self.requeue(job, is_stray.then(|| Instant::now() + STRAY_WAIT));
    }

    /// Queues a start, which the master then makes itself, from the beginning.
    fn requeue(&mut self, job: &StartJob, stray_until: Option<Instant>) {
        let job = self.job(job.request, job.host.clone());
        self.waiting.push_front(StartJob { may_be_remote: false, stray_until, ..job });
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // If the daemon of a command has answered, the daemon ends by itself. Commands that parents run end when the
        // links to the parents end.
        for running in self.running.values_mut().filter(|running| !running.answered) {
            if let Runner::Local(command) = &mut running.runner {
                command.kill();
            }
        }
    }
}

fn is_by_hand(job: &StartJob) -> bool {
    job.host.line.start_option() == Some("ms")
}

fn wait_for(job: &StartJob) -> Duration {
    match job.parent {
        Some(_) => PARENT_WAIT,
        None if is_by_hand(job) => MANUAL_WAIT,
        None => START_WAIT,
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Adds the addresses to which the command was sent, with the daemon's port, to the addresses that the daemon reports:
/// the daemon may not know every address at which others can reach it.
fn reachable(mut started: Started, host: &HostStart) -> Started {
    let ports: Vec<u16> = started.addresses.first().map(SocketAddr::port).into_iter().collect();
    for port in ports {
        for address in host.addresses.iter().map(|address| SocketAddr::new(*address, port)) {
            if !started.addresses.contains(&address) {
                started.addresses.push(address);
            }
        }
    }
    started
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tree_tests;
