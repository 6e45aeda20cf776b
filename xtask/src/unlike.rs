//! `cargo xtask unlike`: one machine of hosts that write numbers differently: x86-64, arm64, i386 and s390x,
//! each in namespaces of its own. The programs of the last two but i386 run under qemu.
//!
//! `tests/unlike` is run on them and says of each type, and of each thing that tasks do together, whether it
//! works from each kind of host to each other one.

mod build;
mod kinds;
mod machine;
mod matrix;
pub mod tools;

use crate::common::report;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use anyhow::{Context, Result, bail};
use kinds::KINDS;
use machine::Machine;
use matrix::Matrix;
use std::path::Path;

const USAGE: &str = "unlike [--only ROW] [--as-it-is]
  --only ROW     rows that begin so
  --as-it-is     take what was built as it is";

/// The row's beginning that is asked for.
fn parse(arguments: &[String]) -> Result<Option<String>> {
    let mut only = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--only" => only = Some(rest.next().context(USAGE)?.clone()),
            crate::build::AS_IT_IS => {}
            _ => bail!("{USAGE}"),
        }
    }
    Ok(only)
}

/// Runs the command; it comes here twice, the second time inside the namespaces.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => inside(&folder, parse(arguments)?.as_deref()),
        None => report(counted(arguments)?),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<(usize, usize)> {
    let only = parse(arguments)?;
    if let Some(obstacle) = tools::obstacle().or_else(sandbox::obstacle) {
        println!("skipped: {obstacle}");
        return Ok((0, 0));
    }
    crate::build::build_unless_told(arguments)?;
    if !arguments.iter().any(|argument| argument == crate::build::AS_IT_IS) {
        build::all()?;
    }
    build::test_programs()?;
    let mut matrix = Matrix::new();
    let mut words = vec!["unlike"];
    words.extend(arguments.iter().map(String::as_str));
    let last = sandbox::run_as_user(&words, |line| matrix.hear(line))?;
    if let Some(obstacle) = last.strip_prefix("skipped: ") {
        println!("skipped: {obstacle}");
        return Ok((0, 0));
    }
    matrix.show();
    Ok(matrix.counts(only.is_none()))
}

fn inside(folder: &Path, only: Option<&str>) -> Result<()> {
    if let Err(obstacle) = tools::let_foreign_programs_run() {
        println!("skipped: {obstacle:#}");
        return Ok(());
    }
    let network = Network::new(folder, KINDS.len(), Wiring::Bridge)?;
    let mut machine = Machine::start(&network, folder)?;
    machine.check_console();
    machine.run_tests(only)
}
