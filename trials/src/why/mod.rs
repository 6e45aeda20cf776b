//! `cargo xtask why`: programs with planted faults (`tests/why/cases`), of which `pvm why` must name the cause, and programs that
//! are well (`tests/why/healthy`), which it must never accuse.
//!
//! A case is a C, Fortran or Python program, which is started as often as it has tasks. Lines at its top that begin with `//@`,
//! `C@` or `#@` say what is expected: see `case.rs`. To add a case, add a file. No verdict depends on time: a fault is looked at until
//! its state is reached.
mod case;
mod programs;
mod trial;

use crate::common::{Checks, root};
use crate::conform::machine::{self, Machine};
use crate::counts::Counts;
use crate::side::Side;
use crate::{build, scratch};
use anyhow::{Result, bail};
use case::Case;
use lexopt::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of cases that run at the same time. They wait most of the time.
const WORKERS: usize = 3;

/// Runs the command: `why [--only NAME]... [--as-it-is]`.
pub fn run(arguments: &[String]) -> Result<()> {
    counted(arguments)?.report()
}

/// Runs the cases.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let mut only = Vec::new();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => only.push(parser.value()?.string()?),
            Long("as-it-is") => {}
            other => bail!("{}\nwhy [--only NAME]... [--as-it-is]", other.unexpected()),
        }
    }
    build::build_unless_told(arguments)?;
    machine::sweep();
    let folder = root().join("tests/why");
    let mut cases = case::find(&folder)?;
    cases.retain(|case| only.is_empty() || only.iter().any(|word| case.name.contains(word.as_str())));
    if cases.is_empty() {
        bail!("no such case");
    }
    let place = scratch::directory("why")?;
    let (next, checks) = (AtomicUsize::new(0), Mutex::new(Checks::default()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = try_case(case, place.path());
                    checks.lock().expect("no worker panics while it counts").check(&case.name, result);
                }
            });
        }
    });
    Ok(checks.into_inner().expect("no worker panics while it counts").counts())
}

fn try_case(case: &Case, place: &std::path::Path) -> Result<()> {
    let program = programs::make(case, place)?;
    let mut machine = Machine::new(Side::Ours, &[])?;
    machine.start(&[])?;
    let result = trial::judge(case, &program, &machine);
    machine.tidy();
    result
}
