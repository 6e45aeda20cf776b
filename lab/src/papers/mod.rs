//! `cargo xtask papers`: repeats the experiments of the papers behind hpvm (`docs/papers.md`), and writes a report with
//! tables and figures to `target/papers`.
//!
//! Each experiment is a module of [`experiments`]: it lists its tables, and measures the cells. It runs in a sandbox
//! ([`sandbox`]), where this command starts itself a second time. What an experiment has measured is kept ([`store`]),
//! so that an interrupted run can continue; the report is always written from what is kept.

mod experiments;
mod figure;
mod report;
mod sheet;
mod stage;
mod store;

use crate::bench::{self, runner, systems::System};
use crate::build;
use crate::common::root;
use crate::counts::Counts;
use crate::hosts::{sandbox, tap};
use crate::{ether, failures, measure};
use anyhow::{Context, Result, bail};
use experiments::{ALL, Experiment};
use lexopt::prelude::*;
use report::Part;
use sheet::Cells;
use stage::Stage;
use std::collections::BTreeSet;
use std::time::Instant;
use store::{Record, Store};

const USAGE: &str = "papers [--short] [--only NAME]... [--resume] [--as-it-is]
  --short      about 1 min instead of about 30: every cell gets a value, but no value that is worth reading
  --only NAME  measure this experiment again, and keep what is there of the others
  --resume     keep all experiments that are there, also those of a run that was finished
  --as-it-is   take target/dist as it is, without building it first";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Short,
    Full,
}

impl Form {
    /// Returns one of two.
    pub fn either<T>(self, short: T, full: T) -> T {
        if self == Form::Short { short } else { full }
    }
}

struct Options {
    form: Form,
    only: Vec<&'static Experiment>,
    resumes: bool,
    /// The experiment to run, inside the sandbox.
    inside: Option<&'static Experiment>,
}

fn experiment(name: &str) -> Result<&'static Experiment> {
    ALL.iter().find(|one| one.name == name).with_context(|| {
        let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        format!("there is no experiment {name}; there are {}\n{USAGE}", names.join(", "))
    })
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { form: Form::Full, only: Vec::new(), resumes: false, inside: None };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => options.form = Form::Short,
            Long("only") => options.only.push(experiment(&parser.value()?.string()?)?),
            Long("resume") => options.resumes = true,
            Long("inside") => options.inside = Some(experiment(&parser.value()?.string()?)?),
            Long("as-it-is") => {}
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(options)
}

/// Runs the command. Inside the sandbox this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    match (options.inside, sandbox::folder()) {
        (Some(experiment), Some(folder)) => (experiment.measure)(&Stage { folder, form: options.form }),
        _ => counted(arguments)?.report(),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let options = parse(arguments)?;
    if let Some(obstacle) = sandbox::obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    build::build_unless_told(arguments)?;
    compile()?;
    let form = options.form;
    if form == Form::Full {
        measure::warn_when_busy();
    }
    let store = Store::open(form)?;
    let is_whole = options.only.is_empty();
    if is_whole {
        // A test must not pass because of what an earlier version has measured, so a short run does not continue.
        store.begin(options.resumes || (form == Form::Full && store.is_unfinished()))?;
    }
    let mut counts = Counts::default();
    for experiment in ALL {
        let is_wanted = is_whole || options.only.iter().any(|one| one.name == experiment.name);
        let is_there = is_whole && store.get(experiment.name).is_some_and(|record| is_full(experiment, &record, form));
        if is_wanted && !is_there {
            let record = measure(experiment, form);
            println!("{:12} {:5.0} s", experiment.name, record.seconds);
            store.put(&record)?;
        }
    }
    let records = ALL.iter().filter_map(|experiment| Some(Part { experiment, record: store.get(experiment.name)? }));
    let parts: Vec<Part> = records.collect();
    let files = report::write(&store, form, &parts)?;
    for part in &parts {
        counts += verify(part, form);
    }
    if is_whole {
        store.end()?;
    }
    let directory = store.directory.strip_prefix(root()).unwrap_or(&store.directory).to_path_buf();
    println!("{} and {} further files", directory.join(report::FILE).display(), files.len() - 1);
    Ok(counts)
}

/// Compiles all programs of the experiments.
fn compile() -> Result<()> {
    let systems: BTreeSet<System> = bench::systems::ALL.into_iter().filter(|system| system.is_there()).collect();
    runner::compile(&systems)?;
    bench::hosts::compile_tcp()?;
    if tap::obstacle().is_none() {
        ether::device::compile()?;
    }
    Ok(())
}

/// Runs an experiment in a sandbox. If the experiment itself fails, the cells that it has not reached have no value.
fn measure(experiment: &Experiment, form: Form) -> Record {
    let start = Instant::now();
    let mut words = vec!["papers", "--inside", experiment.name];
    if form == Form::Short {
        words.push("--short");
    }
    let mut cells = Cells::default();
    let ended = sandbox::run_with(&words, |line| {
        if !stage::take(&mut cells, line) {
            println!("{line}");
        }
    });
    if let Err(error) = ended {
        println!("{}: {error:#}", experiment.name);
    }
    let seconds = start.elapsed().as_secs_f64();
    Record { experiment: experiment.name.to_owned(), seconds, about: bench::about_here(), cells }
}

/// Returns whether nothing is missing in what was measured.
fn is_full(experiment: &Experiment, record: &Record, form: Form) -> bool {
    (experiment.sheets)(form).iter().all(|sheet| record.cells.verify(sheet).1.is_empty())
}

/// Checks that every cell of an experiment has a value or a good reason to have none.
fn verify(part: &Part, form: Form) -> Counts {
    let mut counts = Counts::default();
    for sheet in (part.experiment.sheets)(form) {
        let (full, wrong) = part.record.cells.verify(&sheet);
        for text in &wrong {
            failures::report(format_args!("FAILED   papers: {text}"));
        }
        if full == 0 && wrong.is_empty() {
            counts += Counts::skip(format_args!("{}: nothing could be measured here", sheet.id));
        } else {
            counts += Counts::one(wrong.is_empty());
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_name_of_its_own_and_cells() {
        for form in [Form::Short, Form::Full] {
            let mut names = BTreeSet::new();
            for experiment in ALL {
                for sheet in (experiment.sheets)(form) {
                    assert!(!sheet.rows.is_empty() && !sheet.columns.is_empty(), "{}", sheet.id);
                    assert!(names.insert(sheet.id.clone()), "{} twice", sheet.id);
                }
            }
        }
        assert!(experiment("no such").is_err());
    }
}
