//! `cargo xtask unlike`: runs one machine of hosts with different data formats: x86-64, arm64, i386 and s390x, each in
//! namespaces of its own. The programs of arm64 and s390x run under qemu.
//!
//! `tests/unlike` runs on these hosts. This program checks each type, and each operation of several tasks, for each
//! pair of kinds of hosts.

mod build;
mod kinds;
mod machine;
mod matrix;
pub mod tools;

use crate::counts::Counts;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use anyhow::{Result, bail};
use kinds::{Extent, SHORT, WHOLE};
use lexopt::prelude::*;
use machine::Machine;
use matrix::Matrix;
use std::path::Path;

const USAGE: &str = "unlike [--short] [--only ROW] [--as-it-is]
  --short        without arm64, which writes numbers as x86-64 does, and with one console only
  --only ROW     rows that begin so
  --as-it-is     take what was built as it is";

/// The options of the command line.
struct Options {
    extent: Extent,
    /// The text with which the names of the rows to run begin.
    only: Option<String>,
    as_it_is: bool,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { extent: WHOLE, only: None, as_it_is: false };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => options.extent = SHORT,
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("as-it-is") => options.as_it_is = true,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(options)
}

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    if let Some(folder) = sandbox::folder() {
        return inside(&folder, &options);
    }
    match tests(arguments, &options)? {
        Ok(counts) => counts.report(),
        Err(obstacle) => bail!("{obstacle}"),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    Ok(tests(arguments, &parse(arguments)?)?.unwrap_or_else(Counts::skip))
}

/// Returns the counts, or why the tests cannot run here.
fn tests(arguments: &[String], options: &Options) -> Result<Result<Counts, String>> {
    if let Some(obstacle) = tools::obstacle(options.extent).or_else(sandbox::obstacle) {
        return Ok(Err(obstacle));
    }
    let left_out: Vec<&str> = WHOLE.kinds[options.extent.kinds.len()..].iter().map(|kind| kind.name).collect();
    if !left_out.is_empty() {
        println!("the short form, without {} (`cargo xtask unlike` is the whole)", left_out.join(", "));
    }
    crate::build::build_unless_told(arguments)?;
    if !options.as_it_is {
        build::all(options.extent)?;
    }
    build::test_programs(options.extent)?;
    let mut matrix = Matrix::new(options.extent.kinds);
    let mut words = vec!["unlike"];
    words.extend(arguments.iter().map(String::as_str));
    let last = sandbox::run_as_user(&words, |line| matrix.handle_line(line))?;
    if let Some(obstacle) = last.strip_prefix(SKIPPED) {
        return Ok(Err(obstacle.into()));
    }
    matrix.show();
    Ok(Ok(matrix.counts(options.only.is_none())))
}

/// The beginning of the line by which the inner command reports that the tests cannot run.
const SKIPPED: &str = "skipped: ";

fn inside(folder: &Path, options: &Options) -> Result<()> {
    if let Err(obstacle) = tools::let_foreign_programs_run(options.extent) {
        println!("{SKIPPED}{obstacle:#}");
        return Ok(());
    }
    let network = Network::new(folder, options.extent.kinds.len(), Wiring::Bridge)?;
    let mut machine = Machine::start(&network, options.extent, folder)?;
    machine.check_console();
    machine.run_tests(options.only.as_deref())
}
