//! `cargo xtask sim`: runs the simulator, built with all assertions.
use crate::build::target_directory;
use crate::common::{cargo, sh};
use crate::counts::Counts;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The seeds that `cargo xtask test` runs.
const SEEDS: usize = 100;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    sh(Command::new(simulator()?).args(arguments))
}

/// The number of hosts of the machine in which `cargo xtask test` measures the cost of an event.
const COST_HOSTS: usize = 100;

/// Runs some seeds as a part of `cargo xtask test`, and checks how the cost of an event grows with the number of hosts.
/// Each seed counts as one check.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    let output = Command::new(simulator()?).args(["--seeds", &SEEDS.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |line: &str| line.split_once(" of ").and_then(|(passed, _)| passed.parse().ok());
    let passed: usize = text.lines().find_map(count).unwrap_or(0);
    if !output.status.success() {
        print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let cheap = costs_grow_slowly()?;
    Ok(Counts { passed, failed: SEEDS - passed, skipped: 0 } + Counts::one(cheap))
}

fn costs_grow_slowly() -> Result<bool> {
    let output = Command::new(simulator()?).args(["--costs", "--hosts", &COST_HOSTS.to_string()]).output()?;
    if !output.status.success() {
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}

/// Builds the simulator if necessary, and returns its path.
pub fn simulator() -> Result<PathBuf> {
    sh(cargo().args(["build", "--quiet", "--profile", "sim", "--package", "pvm-sim"]))?;
    let program = target_directory()?.join("sim/pvm-sim");
    if !program.exists() {
        bail!("{} was not built", program.display());
    }
    program.canonicalize().context("the simulator has a path")
}
