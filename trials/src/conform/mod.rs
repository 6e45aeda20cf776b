//! `cargo xtask conform`: runs each case on Debian's PVM 3.4.6 and on hpvm, and compares the normalised outputs.
//!
//! A case is a C or Fortran program (`tests/conform/cases`), a script for the console (`console`) or a shell script
//! (`programs`). Lines that start with `//@` or `#@` are directives; see `case.rs`.

pub mod case;
pub mod compile;
mod coverage;
mod examples;
pub mod execute;
pub mod machine;
pub mod normalise;
pub mod shown;
pub mod verdict;

use crate::counts::Counts;
use crate::{build, common};
use anyhow::{Result, bail};
use case::Case;
use execute::{Runner, Worker};
use lexopt::prelude::*;
use machine::Side;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use verdict::Verdict;

/// The number of cases that run at the same time. They wait most of the time: together they need an eighth of two
/// processors.
const WORKERS: usize = 4;

/// The options of the command line.
#[derive(Default)]
struct Options {
    /// Only cases whose name contains one of these words.
    only: Vec<String>,
    /// The only side to run; its output is printed.
    side: Option<Side>,
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let failed = counted(arguments)?.failed;
    if failed > 0 {
        bail!("{failed} cases differ");
    }
    Ok(())
}

/// Runs the cases.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let options = parse(arguments)?;
    let folder = common::root().join("tests/conform");
    let all = case::find(&folder)?;
    compile::all(&all)?;
    let mut cases: Vec<&Case> = all.iter().collect();
    if !options.only.is_empty() {
        let names: Vec<String> = all.iter().map(|case| case.name.clone()).collect();
        let wanted = |name: &str, part: &String| name == part || !names.contains(part) && name.contains(part.as_str());
        cases.retain(|case| options.only.iter().any(|part| wanted(&case.name, part)));
    }
    if cases.is_empty() {
        bail!("no such case");
    }
    if options.side != Some(Side::Theirs) && std::env::var_os(machine::OURS_VARIABLE).is_none() {
        build::build_unless_told(arguments)?;
    }
    machine::require(options.side)?;
    if options.side != Some(Side::Theirs) {
        compile::own(&all)?;
    }
    machine::sweep();
    if let Some(side) = options.side {
        return show(&cases, side);
    }
    let mut counts = compare(&cases);
    if options.only.is_empty() {
        counts.failed += coverage::report(&all)? + examples::report(&all)?;
    }
    println!("conform: {counts}");
    Ok(counts)
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only.push(parser.value()?.string()?),
            Long("ours") => options.side = Some(Side::Ours),
            Long("theirs") => options.side = Some(Side::Theirs),
            Long("as-it-is") => {}
            other => bail!("{}\nconform [--only NAME]... [--ours|--theirs]", other.unexpected()),
        }
    }
    Ok(options)
}

/// Prints the output of each case on one side.
fn show(cases: &[&Case], side: Side) -> Result<Counts> {
    let mut worker = Worker::new();
    for case in cases {
        println!("==== {} on {side}", case.name);
        print!("{}", worker.run(case, side)?.text);
    }
    Ok(Counts { passed: cases.len(), ..Counts::default() })
}

/// Runs every case on both sides, `WORKERS` at a time, and prints a line for each.
fn compare(cases: &[&Case]) -> Counts {
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut worker = Worker::new();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = verdict::judge(&mut worker, case)
                        .unwrap_or_else(|error| Verdict::Differs(format!("{error:#}\n")));
                    *counts.lock().expect("no worker panics while it counts") += verdict.counts();
                    verdict.print(&case.name);
                }
            });
        }
    });
    counts.into_inner().expect("no worker panics while it counts")
}
