//! Starting daemons on other hosts (contract 5.5): many at a time, each with its limit, none of them
//! able to hold the daemon's loop up.
//!
//! `way` knows by which program, `attempt` is a command under way, `reason` tells what went wrong,
//! `manual` has a person type the command.
pub(crate) mod attempt;
pub mod manual;
pub(crate) mod reason;
pub(crate) mod way;

use attempt::Attempt;
use pvm_core::codes::Code;
use pvm_core::dialogue::{self, Call, Greeting, Line};
use pvm_core::machine::HostStart;
use pvm_core::tid::Tid;
use pvm_core::wire::{Key, StartFailure, Started};
use reason::{End, Failure};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use way::Way;

/// Hosts that are started at the same time.
///
/// * Filled by: tasks that add hosts
/// * Setting: none, it bounds processes, and all hosts are started
/// * Reached: the next one waits until another has been started, or has failed
/// * Test: `many_hosts_start_at_the_same_time_but_not_more_than_the_limit`
const PARALLEL_MAX: usize = 64;
/// How long a host may take to start its daemon.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a person may take to do it.
const MANUAL_WAIT: Duration = Duration::from_secs(600);
/// Events taken in one go.
const EVENTS_MAX: usize = 64;
/// Lower bits of an event's number: which of the descriptors of a command.
const STREAM_BITS: u32 = 2;

/// What the master says of itself.
#[derive(Debug, Clone)]
pub struct Master {
    /// Its tid.
    pub tid: Tid,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its key.
    pub key: Key,
    /// What new daemons are to log.
    pub debug_mask: i32,
    /// `PVM_VMID`
    pub machine: Option<String>,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// For the log.
    Remark(String),
    /// What became of a host.
    Done { request: u32, index: usize, result: Result<Started, StartFailure> },
}

/// A host whose daemon is to be started.
struct Job {
    request: u32,
    host: HostStart,
    way: Way,
    /// Daemons that were tried, and those that can be tried yet.
    tried: Vec<String>,
    untried: VecDeque<String>,
    deadline: Instant,
    words: Vec<OsString>,
    last_error: String,
}

struct Running {
    job: Job,
    attempt: Attempt,
    /// Nothing more is expected of it but its end.
    answered: bool,
}

/// Starts daemons.
pub struct Starter {
    master: Master,
    way: Way,
    own_program: Option<std::path::PathBuf>,
    waiting: VecDeque<Job>,
    running: BTreeMap<u64, Running>,
    last: u64,
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Starter {
    /// For the hosts of that master.
    pub fn new(master: Master) -> std::io::Result<Starter> {
        let terminal = std::fs::File::open("/dev/tty").is_ok();
        Ok(Starter {
            master,
            way: Way::find(variable, terminal),
            own_program: std::env::current_exe().ok(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            last: 0,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::new(),
        })
    }

    /// Readable when [`Starter::step`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When [`Starter::step`] has to look at the limits.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.running.values().filter(|running| !running.answered).map(|running| running.job.deadline).min()
    }

    /// The master's debug mask has changed.
    pub fn set_debug_mask(&mut self, mask: i32) {
        self.master.debug_mask = mask;
    }

    /// Has a daemon started.
    pub fn start(&mut self, request: u32, host: HostStart) {
        let way = match host.line.start_option() {
            Some("ms") => Way::Shell(vec!["/proc/self/exe".into(), "--start-by-hand".into()]),
            _ => self.way.clone(),
        };
        let untried = way::daemons(&host.line, variable, self.own_program.as_deref()).into();
        let (deadline, tried, words) = (Instant::now(), Vec::new(), Vec::new());
        let job = Job { request, host, way, tried, untried, deadline, words, last_error: String::new() };
        self.waiting.push_back(job);
        self.fill();
    }

    /// The command by which a hoster is to start the daemon of that host.
    pub fn command_for_hoster(&self, host: &HostStart) -> String {
        let daemons = way::daemons(&host.line, variable, self.own_program.as_deref());
        self.call(host, Some(self.master.key), false).command(daemons.first().map_or("pvmd", String::as_str))
    }

    fn call(&self, host: &HostStart, key: Option<Key>, by_hand: bool) -> Call {
        Call {
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

    /// Whether no start is under way.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active() == 0
    }

    fn active(&self) -> usize {
        self.running.values().filter(|running| !running.answered).count()
    }

    fn fill(&mut self) {
        while self.active() < PARALLEL_MAX {
            let Some(mut job) = self.waiting.pop_front() else { return };
            job.deadline = Instant::now() + if is_by_hand(&job) { MANUAL_WAIT } else { START_WAIT };
            self.attempt(job);
        }
    }

    /// Tries the next place in which the daemon may be.
    fn attempt(&mut self, mut job: Job) {
        let daemon = job.untried.pop_front().unwrap_or_else(|| "pvmd".into());
        let by_hand = is_by_hand(&job);
        let mut call = self.call(&job.host, by_hand.then_some(self.master.key), by_hand);
        call.in_foreground = job.way.holds_on();
        job.words = job.way.words(&job.host.line, &call.command(&daemon));
        job.tried.push(daemon);
        let machine = job.host.line.machine().map(str::to_owned).or_else(|| self.master.machine.clone());
        let greeting = Greeting { machine, key: Some(self.master.key) };
        // A person's terminal is for those in the foreground.
        match Attempt::start(&job.words, &greeting.text(), !by_hand) {
            Ok(attempt) => self.watch(job, attempt),
            Err(error) => self.fail(&job, End::NoProgram(error)),
        }
    }

    fn watch(&mut self, job: Job, mut attempt: Attempt) {
        self.last += 1;
        let id = self.last;
        let add = |(stream, descriptor): (u64, Option<BorrowedFd<'_>>)| {
            let data = EventData::new_u64(id << STREAM_BITS | stream);
            descriptor.is_none_or(|descriptor| epoll::add(&self.epoll, descriptor, data, EventFlags::IN).is_ok())
        };
        if (0..).zip(attempt.descriptors()).all(add) {
            self.running.insert(id, Running { job, attempt, answered: false });
        } else {
            attempt.kill();
            self.done(&job, Err(Code::OutOfRes.into()));
        }
    }

    /// Looks what has come and who has taken too long; tells what has happened.
    pub fn step(&mut self) -> Vec<Event> {
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        // What cannot be asked for now comes with the next call.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&Timespec::default()));
        let mut ids: Vec<u64> = ready.iter().map(|event| event.data.u64() >> STREAM_BITS).collect();
        ids.dedup();
        for id in ids {
            self.look_at(id);
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
            running.attempt.kill();
            let wait = if is_by_hand(&running.job) { MANUAL_WAIT } else { START_WAIT };
            self.fail(&running.job, End::NoAnswer(wait.as_secs()));
        }
        self.fill();
        std::mem::take(&mut self.events)
    }

    fn look_at(&mut self, id: u64) {
        let Some(mut running) = self.running.remove(&id) else { return };
        // First, so that what the process has printed before its end is read after it.
        let status = running.attempt.status();
        let name = running.job.host.line.name().to_owned();
        for line in running.attempt.errors.read().into_iter().filter(|line| !line.trim().is_empty()) {
            self.events.push(Event::Remark(format!("stderr@{name}: {line}")));
            running.job.last_error = line;
        }
        for line in running.attempt.output.read() {
            self.take_line(&mut running, &line);
        }
        match status {
            None => drop(self.running.insert(id, running)),
            Some(_) if running.answered => {}
            // Something may have gone to the background there with the output in its hands.
            Some(status) if status.success() && !running.attempt.output.ended() => {
                drop(self.running.insert(id, running));
            }
            Some(status) if Self::may_be_elsewhere(&running.job, status) => {
                self.attempt(running.job);
            }
            Some(status) => self.fail(&running.job, End::Exited(status)),
        }
    }

    fn may_be_elsewhere(job: &Job, status: ExitStatus) -> bool {
        reason::is_not_found(status, &job.last_error) && !job.untried.is_empty()
    }

    fn take_line(&mut self, running: &mut Running, line: &str) {
        if running.answered {
            return;
        }
        match dialogue::read(line) {
            Line::Noise if line.trim().is_empty() => return,
            Line::Noise => {
                let name = running.job.host.line.name();
                return self.events.push(Event::Remark(format!("stdout@{name}: {line}")));
            }
            Line::Started(started) => self.done(&running.job, Ok(reachable(started, &running.job.host))),
            Line::Failed(code) => self.fail(&running.job, End::Said(code)),
            Line::OtherProtocol => self.fail(&running.job, End::OtherProtocol),
        }
        running.answered = true;
        running.attempt.close_input();
    }

    fn fail(&mut self, job: &Job, end: End) {
        let host = job.host.line.name();
        let failure = Failure { host, words: &job.words, tried: &job.tried, end, last_error: &job.last_error };
        self.done(job, Err(failure.explain()));
    }

    fn done(&mut self, job: &Job, result: Result<Started, StartFailure>) {
        if let Err(failure) = &result {
            let text = failure.reason.replace('\n', "; ");
            self.events.push(Event::Remark(format!("host {}: {}: {text}", job.host.line.name(), failure.code)));
        }
        self.events.push(Event::Done { request: job.request, index: job.host.index, result });
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // Those that have answered belong to a daemon that ends by itself.
        self.running.values_mut().filter(|running| !running.answered).for_each(|running| running.attempt.kill());
    }
}

fn is_by_hand(job: &Job) -> bool {
    job.host.line.start_option() == Some("ms")
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// What a daemon says of itself, and where it must be reachable, too: where the command went, by the
/// port that it names, for an address that others do not see.
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

/// What became of a daemon that a hoster has started, by the line that it gave.
pub fn read_answer(line: &[u8]) -> Result<Started, StartFailure> {
    let text = String::from_utf8_lossy(line);
    match dialogue::read(&text) {
        Line::Started(started) => Ok(started),
        Line::Failed(code) => Err(StartFailure { code, reason: format!("the hoster says: {code}") }),
        Line::OtherProtocol => {
            let reason = "the hoster started a pvmd of PVM 3.4.6 or of another version".into();
            Err(StartFailure { code: Code::BadVersion, reason })
        }
        Line::Noise => {
            let reason = format!("the hoster says: {}", text.trim());
            Err(StartFailure { code: Code::CantStart, reason })
        }
    }
}

#[cfg(test)]
#[path = "start/tests.rs"]
mod tests;
