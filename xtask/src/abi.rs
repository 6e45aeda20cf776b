//! (being written)
use anyhow::{Result, bail};

/// Runs the command.
pub fn run(_arguments: &[String]) -> Result<()> {
    bail!("not there yet")
}
