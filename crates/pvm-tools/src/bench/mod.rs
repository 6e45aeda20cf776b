//! `pvm bench`: measures how fast messages, collective calls and spawns are on this machine.
//!
//! The tasks that exchange messages are the C program `pvmbench`, so that users see what their programs would see.
mod director;
pub mod plan;
mod progress;
mod samples;

use crate::machine::{self, MachineError};
use crate::measures::Measure;
use crate::run::guard::{self, Guard};
use crate::run::{self, EXIT_FAILURE, EXIT_NO_READER, EXIT_SIGNAL_BASE, EXIT_USAGE};
use crate::{cli, control, json, wanted};
use director::Director;
use plan::{Crew, Table, Wish};
use progress::Progress;
use pvm_core::proto::Host;
use pvm_task::Session;
use samples::Samples;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

/// The name under which lists of tasks show `pvm bench` itself, before and after the measures.
const NAME: &[u8] = b"pvm bench";
/// The least number of repetitions for a row, and the longest duration of one repetition. If more time is left, there
/// are more repetitions.
const REPETITIONS: u32 = 5;
const REPETITION_MAX: Duration = Duration::from_secs(1);
/// The time that a row needs in addition, to check the data and to estimate its duration; counted in repetitions.
const PREPARATION: u32 = 2;
/// The most tasks of collective calls by default, unless there are more hosts.
const TASKS_USUAL_MAX: usize = 32;

/// The reason why nothing more can be measured.
pub enum BenchError {
    /// The machine cannot be used, or has ended.
    Machine(MachineError),
    /// A host could not be added.
    Hosts(String),
    /// `pvmbench` is not beside `pvm`.
    NoProgram,
    /// What the director reported, or what happened to it or its tasks.
    Director(String),
    /// A system call failed.
    System(io::Error),
    /// The user or the system ends this command.
    Signal(i32),
}

impl BenchError {
    fn status(&self) -> u8 {
        match self {
            BenchError::Signal(signal) => EXIT_SIGNAL_BASE + *signal as u8,
            BenchError::System(error) if error.kind() == ErrorKind::BrokenPipe => EXIT_NO_READER,
            _ => EXIT_FAILURE,
        }
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Machine(error) => write!(f, "{error}"),
            BenchError::Hosts(text) | BenchError::Director(text) => f.write_str(text),
            BenchError::NoProgram => {
                f.write_str("there is no pvmbench in the directory of pvm; install hpvm completely (make install)")
            }
            BenchError::System(error) => write!(f, "{error}"),
            BenchError::Signal(_) => f.write_str("interrupted"),
        }
    }
}

/// Runs `pvm bench`.
pub fn run(arguments: &cli::Bench) -> ExitCode {
    let wanted = match arguments.hosts.as_slice() {
        [] => Ok(None),
        lists => wanted::of_words(lists).map(Some),
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("pvm bench: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let (session, daemon) = match machine::join_or_start_as(NAME, &[]) {
        Ok(joined) => joined,
        Err(error) => {
            eprintln!("pvm bench: {error}");
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    let status = match bench(session, daemon, wanted, arguments) {
        Ok(()) => 0,
        Err(error) => {
            let status = error.status();
            if status != EXIT_NO_READER {
                eprintln!("pvm bench: {error}");
            }
            status
        }
    };
    ExitCode::from(status)
}

/// Adds the hosts, measures, and leaves the machine as it was.
fn bench(
    mut session: Session,
    daemon: Option<Child>,
    wanted: Option<Vec<wanted::Wanted>>,
    arguments: &cli::Bench,
) -> Result<(), BenchError> {
    let mut borrowed = Vec::new();
    let are_named = wanted.is_some();
    let prepared = prepare(&mut session, wanted, daemon.is_some(), &mut borrowed);
    let (place, hosts, director) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            run::finish(session, daemon, EXIT_FAILURE, &[], &borrowed)?;
            return Err(error);
        }
    };
    let own = hosts.iter().find(|host| host.tid == session.tid().host()).map_or("", |host| &host.name).to_owned();
    let mut guard = Guard::start(director.tid);
    borrowed.iter().for_each(|host| guard.note_host(host));
    // From now on the director is in the machine, which therefore does not end.
    let left = session.leave();
    let named: Vec<String> = place.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let named = are_named.then_some(named.as_slice());
    let runner = director.tid;
    let mut bench = Bench { director, guard: &mut guard, arguments, known: BTreeSet::new(), results: Vec::new() };
    let measured = left.map_err(BenchError::from).and_then(|()| bench.measure(named, &own, &hosts));
    let Bench { director, mut known, .. } = bench;
    director.end(measured.is_err());
    let cleaned = guard::end_all(runner, &mut known, &borrowed, daemon);
    guard.done();
    measured.and(cleaned.map_err(BenchError::from))
}

/// Adds the hosts and starts the director. Returns the list of named hosts, and the hosts of the machine.
fn prepare(
    session: &mut Session,
    wanted: Option<Vec<wanted::Wanted>>,
    fresh: bool,
    borrowed: &mut Vec<String>,
) -> Result<(String, Vec<Host>, Director), BenchError> {
    if fresh {
        machine::mark_transient(session)?;
    }
    let place = run::with_hosts(session, wanted, fresh, borrowed);
    let place = place.map_err(|error| BenchError::Hosts(error.to_string()))?;
    let (hosts, _) = control::hosts(session)?;
    Ok((place, hosts, Director::start()?))
}

/// The measures in progress.
struct Bench<'a> {
    director: Director,
    guard: &'a mut Guard,
    arguments: &'a cli::Bench,
    /// All tasks that were started.
    known: BTreeSet<pvm_core::tid::Tid>,
    /// The rows, as JSON.
    results: Vec<Value>,
}

impl Bench<'_> {
    /// Measures everything, and prints the results.
    fn measure(&mut self, named: Option<&[String]>, own: &str, hosts: &[Host]) -> Result<(), BenchError> {
        let began = Instant::now();
        let known: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let usual = cores.min(TASKS_USUAL_MAX).max(named.unwrap_or(&known).len()).max(2);
        let wish = Wish {
            measures: &self.arguments.measures,
            encodings: &self.arguments.encodings,
            sizes: self.arguments.sizes.as_ref(),
            hosts: named,
            tasks: self.arguments.tasks.unwrap_or(usual),
        };
        let crews = plan::plan(&wish, own, &known);
        let rows = crews.iter().flat_map(|crew| &crew.tables).map(|table| table.sizes.len()).sum();
        let mut progress = Progress::new(rows, self.arguments.time);
        let measured = crews.iter().try_for_each(|crew| self.measure_crew(crew, &mut progress));
        progress.clear();
        measured?;
        if self.arguments.json {
            let results = std::mem::take(&mut self.results);
            print(&json::text(&samples::document(hosts, self.arguments, results, began.elapsed())))?;
        }
        Ok(())
    }

    fn measure_crew(&mut self, crew: &Crew, progress: &mut Progress) -> Result<(), BenchError> {
        // Spawns are measured without other tasks.
        let has_tasks = crew.tables.iter().any(|table| table.measure != Measure::Spawn);
        if has_tasks {
            progress.show("starting tasks");
            for task in self.director.start_crew(crew, self.arguments.route.number())? {
                self.guard.note_task(task);
                self.known.insert(task);
            }
        }
        for table in &crew.tables {
            self.measure_table(crew, table, progress)?;
        }
        if has_tasks { self.director.dismiss() } else { Ok(()) }
    }

    fn measure_table(&mut self, crew: &Crew, table: &Table, progress: &mut Progress) -> Result<(), BenchError> {
        let measure = table.measure;
        for (place, size) in table.sizes.iter().copied().enumerate() {
            progress.show(&if measure.has_sizes() {
                format!("{}, {size} bytes", measure.name())
            } else {
                measure.name().to_owned()
            });
            let (repetition, repetitions) = effort(progress.share());
            let values = match measure {
                Measure::Spawn => self.director.measure_spawn(crew.hosts.len(), &crew.distinct_hosts(), REPETITIONS)?,
                _ => self.director.measure(measure, table.encoding, size, repetition, repetitions)?,
            };
            let values = values.into_iter().map(|exchange_us| measure.value(exchange_us, size)).collect();
            let Some(samples) = Samples::of(values) else { continue };
            progress.step();
            if self.arguments.json {
                self.results.push(samples::result(crew, table, size, &samples));
                continue;
            }
            if place == 0 {
                print(&samples::head(crew, table, self.arguments))?;
            }
            print(&samples::row(crew, measure, size, &samples))?;
        }
        if self.arguments.json { Ok(()) } else { print("\n") }
    }
}

/// Returns how long a repetition is, and how many repetitions there are, for a row that may take this time.
fn effort(share: Duration) -> (Duration, u32) {
    let repetition = (share / (REPETITIONS + PREPARATION)).min(REPETITION_MAX);
    let fitting = (share.as_secs_f64() / repetition.as_secs_f64().max(f64::MIN_POSITIVE)) as u32;
    (repetition, fitting.saturating_sub(PREPARATION).max(REPETITIONS))
}

/// Prints to standard output at once.
fn print(text: &str) -> Result<(), BenchError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(BenchError::System)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_more_time_there_are_more_repetitions_and_none_is_long() {
        assert_eq!(effort(Duration::ZERO), (Duration::ZERO, REPETITIONS));
        assert_eq!(effort(Duration::from_millis(700)).0, Duration::from_millis(100));
        assert_eq!(effort(Duration::from_secs(22)), (REPETITION_MAX, 20));
    }
}
