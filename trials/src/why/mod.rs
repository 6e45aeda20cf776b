//! `cargo xtask why`: programs with planted faults (`tests/why/cases`), of which `pvm why` must name the cause, and programs that
//! are well (`tests/why/healthy`), which it must never accuse. Others have a fault because of which `pvm run --deadlock abort` must end
//! them (`tests/why/aborted`).
//!
//! A case is a C, Fortran or Python program, which is started as often as it has tasks. Lines at its top that begin with `//@`,
//! `C@` or `#@` say what is expected: see `case.rs`. To add a case, add a file. No verdict depends on time: a fault is looked at until
//! its state is reached.
mod case;
pub mod programs;
mod trial;

use crate::build;
use crate::common::{Checks, root};
use crate::conform::machine::{self, Machine};
use crate::counts::Counts;
use crate::hosts::machine::Machine as Hosts;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use crate::side::Side;
use anyhow::{Result, bail};
use case::Case;
use lexopt::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use trial::Stage;

/// The exit status of `pvm why`, and of `pvm run --deadlock abort`, if there is a deadlock.
pub const DEADLOCK: i32 = 3;
/// The number of cases that run at the same time. They wait most of the time.
const WORKERS: usize = 3;

/// Runs the command: `why [--only NAME]... [--as-it-is]`. Inside the namespaces of several hosts this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => on_several_hosts(&folder, &chosen(arguments)?),
        None => counted(arguments)?.report(),
    }
}

/// Returns the cases that the arguments name.
fn chosen(arguments: &[String]) -> Result<Vec<Case>> {
    let mut only = Vec::new();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => only.push(parser.value()?.string()?),
            Long("as-it-is") => {}
            other => bail!("{}\nwhy [--only NAME]... [--as-it-is]", other.unexpected()),
        }
    }
    let mut cases = case::find(&root().join("tests/why"))?;
    cases.retain(|case| only.is_empty() || only.iter().any(|word| case.name.contains(word.as_str())));
    if cases.is_empty() {
        bail!("no such case");
    }
    Ok(cases)
}

/// Runs the cases.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let cases = chosen(arguments)?;
    build::build_unless_told(arguments)?;
    machine::sweep();
    let checks = Mutex::new(Checks::default());
    let mut ready = Vec::new();
    for case in &cases {
        match programs::make(case) {
            Ok(Some(lacking)) => checks.lock().expect(NO_PANIC).skip(&case.name, &lacking),
            Ok(None) => ready.push(case),
            Err(error) => checks.lock().expect(NO_PANIC).check(&case.name, Err(error)),
        }
    }
    let (far, near): (Vec<&Case>, Vec<&Case>) = ready.into_iter().partition(|case| case.hosts > 1);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(near.len()) {
            scope.spawn(|| {
                while let Some(case) = near.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = on_one_host(case);
                    checks.lock().expect(NO_PANIC).check(&case.name, result);
                }
            });
        }
    });
    let mut counts = checks.into_inner().expect(NO_PANIC).counts();
    if !far.is_empty() {
        counts += match sandbox::obstacle() {
            Some(obstacle) => Counts::skip(obstacle),
            None => {
                let words = far.iter().flat_map(|case| ["--only", case.name.as_str()]);
                Counts::parse(&sandbox::run(&["why"].into_iter().chain(words).collect::<Vec<_>>())?)?
            }
        };
    }
    Ok(counts)
}

const NO_PANIC: &str = "no worker panics while it counts";

fn on_one_host(case: &Case) -> Result<()> {
    let mut machine = Machine::new(Side::Ours, &[])?;
    machine.start(&[])?;
    let result = trial::judge(case, &machine);
    machine.tidy();
    result
}

impl Stage for Machine {
    fn pvm(&self) -> Command {
        self.command(&Side::Ours.programs().join("pvm"))
    }
}

/// Runs the cases that need several hosts, inside the namespaces.
fn on_several_hosts(folder: &Path, cases: &[Case]) -> Result<()> {
    let mut checks = Checks::default();
    let count = cases.iter().map(|case| case.hosts).max().unwrap_or(1);
    let network = Network::new(folder, count, Wiring::Bridge)?;
    for case in cases.iter().filter(|case| case.hosts > 1) {
        let result = Hosts::new(Side::Ours, &network, &[]).and_then(|mut machine| {
            machine.start(case.hosts, &[])?;
            let result = trial::judge(case, &machine);
            machine.tidy();
            result
        });
        checks.check(&case.name, result);
    }
    println!("why: {}", checks.counts());
    Ok(())
}

impl Stage for Hosts<'_> {
    fn pvm(&self) -> Command {
        self.command(self.first(), &Side::Ours.programs().join("pvm"))
    }
}
