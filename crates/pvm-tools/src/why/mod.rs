//! `pvm why`: who waits for whom, and why nothing comes. Takes looks at the machine, lets the core judge, and prints the
//! judgement.
mod place;
mod text;
mod value;

use crate::control::Control;
use crate::repeat::{Shown, repeat};
use crate::{cli, json, look, machine, shape};
use place::{Finder, Place};
use pvm_core::codes::Code;
use pvm_core::jobs;
use pvm_core::proto::{Host, TaskInfo};
use pvm_core::tid::Tid;
use pvm_core::waiting::{Obstacle, Outlook, Report, TaskReport, report};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;
pub use value::call;

/// The time between two looks.
pub const PAUSE: Duration = Duration::from_millis(200);
/// How many looks are taken at most.
pub const LOOKS_MAX: usize = 12;
/// The exit status if there is a deadlock, and if nothing could be found out.
pub const DEADLOCK: u8 = 3;
const FAILED: u8 = 1;

/// Why nothing was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The daemon refused.
    Code(Code),
    /// There is no such task or job.
    Unknown(String),
}

impl From<Code> for Error {
    fn from(code: Code) -> Error {
        Error::Code(code)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Code(code) => write!(f, "{code}"),
            Error::Unknown(word) => write!(f, "{word}: no such task or job (pvm ps -a and pvm jobs list them)"),
        }
    }
}

/// What was found.
#[derive(Debug, PartialEq)]
pub struct Found {
    report: Report,
    hosts: Vec<Host>,
    /// The tasks that are shown.
    shown: BTreeSet<Tid>,
    /// The source lines of the waits, for the tasks whose stacks could be read.
    places: BTreeMap<Tid, Place>,
}

/// Runs `pvm why`.
pub fn run(arguments: &cli::Why) -> ExitCode {
    let failed = ExitCode::from(FAILED);
    machine::visit(failed, |session| {
        repeat(session, arguments.watch, failed, |session| {
            let found = examine(session, arguments.of.as_deref()).map_err(|error| error.to_string())?;
            let found = found.locate(session.tid().host());
            let text = match (arguments.json, arguments.watch) {
                (true, None) => json::text(&found.value()),
                (true, Some(_)) => format!("{}\n", found.value()),
                (false, _) => found.text(),
            };
            let status = if found.has_deadlock() { ExitCode::from(DEADLOCK) } else { ExitCode::SUCCESS };
            Ok(Shown { text, status })
        })
    })
}

/// Finds out who waits for whom. `of`: a task or a job, if only that is to be shown.
pub fn examine(control: &mut dyn Control, of: Option<&str>) -> Result<Found, Error> {
    let mut earlier = look::take(control)?.0;
    let mut looks = 1;
    loop {
        control.pause(PAUSE);
        let (later, hosts) = look::take(control)?;
        looks += 1;
        let pair = [earlier, later];
        let report = report(&pair);
        if !report.is_unsure || looks == LOOKS_MAX {
            let shown = match of {
                Some(word) => chosen(&report, word)?,
                None => report.tasks.iter().map(|task| task.info.tid).collect(),
            };
            return Ok(Found::new(report, hosts, shown));
        }
        [_, earlier] = pair;
    }
}

/// Returns the tasks of a job, or a task and those for which it waits.
fn chosen(report: &Report, word: &str) -> Result<BTreeSet<Tid>, Error> {
    let infos: Vec<TaskInfo> = report.tasks.iter().map(|task| task.info.clone()).collect();
    // A tid has at least five digits, since it holds a host.
    if let Some((_, job)) =
        jobs::families(&jobs::started(infos)).into_iter().find(|(number, _)| number.to_string() == word)
    {
        return Ok(job.into_iter().collect());
    }
    let first = shape::parse_tid(word);
    let find = |tid: Tid| report.tasks.iter().find(|task| task.info.tid == tid);
    find(first).ok_or_else(|| Error::Unknown(word.to_owned()))?;
    let (mut shown, mut work) = (BTreeSet::new(), vec![first]);
    while let Some(task) = work.pop().and_then(find) {
        if shown.insert(task.info.tid) {
            work.extend(awaited(task));
        }
    }
    Ok(shown)
}

/// Returns what is said of a task, if it waits.
pub fn sentence(task: &TaskReport) -> Option<String> {
    task.state.wait().map(|wait| text::sentence(task, wait, None))
}

/// Returns the tasks for which a task waits by name.
pub fn awaited(task: &TaskReport) -> Vec<Tid> {
    let tids = task.obstacles.iter().flat_map(|obstacle| match obstacle {
        Obstacle::Peer(tid, _) => vec![*tid],
        Obstacle::Members { missing, .. } => missing.iter().map(|(tid, _)| *tid).collect(),
        Obstacle::OtherMessages(_) | Obstacle::Anybody { .. } | Obstacle::Group(_) => Vec::new(),
    });
    tids.collect()
}

impl Found {
    fn new(report: Report, hosts: Vec<Host>, shown: BTreeSet<Tid>) -> Found {
        Found { report, hosts, shown, places: BTreeMap::new() }
    }

    /// Looks in which lines of their programs the tasks of this host wait.
    pub fn locate(mut self, here: Tid) -> Found {
        let waiting = self.tasks().filter(|task| task.info.host == here && task.state.wait().is_some());
        let mut finder = Finder::default();
        let place = |task: &TaskReport| Some((task.info.tid, finder.place(task.info.pid)?));
        let places = waiting.filter_map(place).collect();
        self.places = places;
        self
    }

    /// Returns what is known of those of these tasks that can never go on; `None` if there are none.
    pub fn stuck(report: Report, hosts: Vec<Host>, of: &BTreeSet<Tid>) -> Option<Found> {
        let is_stuck = |task: &&TaskReport| matches!(task.outlook, Outlook::Stuck { .. });
        let stuck = report.tasks.iter().filter(is_stuck).map(|task| task.info.tid);
        let shown: BTreeSet<Tid> = stuck.filter(|tid| of.contains(tid)).collect();
        (!shown.is_empty()).then(|| Found::new(report, hosts, shown))
    }

    /// Returns the tasks that are shown.
    pub fn shown(&self) -> &BTreeSet<Tid> {
        &self.shown
    }

    /// Returns whether one of the shown tasks can never go on.
    pub fn has_deadlock(&self) -> bool {
        self.tasks().any(|task| matches!(task.outlook, Outlook::Stuck { .. }))
    }

    /// Returns the shown tasks.
    fn tasks(&self) -> impl Iterator<Item = &TaskReport> {
        self.report.tasks.iter().filter(|task| self.shown.contains(&task.info.tid))
    }

    /// Returns the deadlocks that concern the shown tasks.
    fn deadlocks(&self) -> impl Iterator<Item = Deadlock<'_>> {
        deadlocks(&self.report, |tid| self.shown.contains(&tid))
    }
}

/// Tasks that hold each other up, or a task that waits for nobody who is there.
pub struct Deadlock<'a> {
    report: &'a Report,
    pub cause: &'a [Tid],
    /// The tasks that wait for those of the cause.
    pub victims: Vec<Tid>,
}

/// Returns the deadlocks of a report that concern the shown tasks, and of the tasks that wait for them those that are shown.
pub fn deadlocks(report: &Report, is_shown: impl Fn(Tid) -> bool + Copy) -> impl Iterator<Item = Deadlock<'_>> {
    report.causes.iter().enumerate().filter_map(move |(number, cause)| {
        let shown = report.tasks.iter().filter(|task| is_shown(task.info.tid));
        let stuck = shown.filter_map(|task| match task.outlook {
            Outlook::Stuck { cause, is_part } if cause == number => Some((task.info.tid, is_part)),
            _ => None,
        });
        let stuck: Vec<(Tid, bool)> = stuck.collect();
        let victims = stuck.iter().filter(|(_, is_part)| !is_part).map(|(tid, _)| *tid).collect();
        (!stuck.is_empty()).then_some(Deadlock { report, cause, victims })
    })
}

#[cfg(test)]
mod tests;
