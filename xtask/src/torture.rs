//! (being written)
use anyhow::{Result, bail};

/// Runs the command.
pub fn run(_arguments: &[String]) -> Result<()> {
    bail!("not there yet")
}

/// Runs the command as a part of `cargo xtask test`: how many checks passed, how many failed.
/// `Err` only when the checks could not be run at all. `target/dist` is built before.
pub fn counted(_arguments: &[String]) -> Result<(usize, usize)> {
    bail!("not there yet")
}
