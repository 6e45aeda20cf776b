//! A run of the farm that is recorded, as a page that opens in any browser.
use super::farm::{self, Run, directory};
use crate::common::output;
use crate::machine::Machine;
use crate::side::Side;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;

/// Runs the farm, and returns the page, which has a message to a worker and one back for each tile.
pub fn farm(workers: u32, options: &[&str]) -> Result<PathBuf> {
    let (record, page) = (directory()?.join("farm.json"), directory()?.join("farm.html"));
    let picture = directory()?.join("farm-recorded.png");
    let mut machine = Machine::start(Side::Ours, "recorded")?;
    let pvm = || machine.command(&Side::Ours.programs().join("pvm"));
    let mut run = pvm();
    run.arg("run").arg("--trace").arg(&record).arg(farm::program()?);
    run.args(["--workers", &workers.to_string()]).args(options).arg("--output").arg(&picture);
    let said = output(&mut run)?;
    output(pvm().arg("monitor").arg(&record).arg("--save").arg(&page))?;
    machine.end()?;
    machine.nothing_is_left()?;
    let run = Run::parse(&said).with_context(|| format!("the farm said {said}"))?;
    let text = std::fs::read_to_string(&page)?;
    let messages =
        text.lines().filter(|line| line.contains("\"cat\":\"message\"") && line.contains("\"ph\":\"f\"")).count();
    ensure!(messages >= 2 * run.tiles as usize, "{messages} messages for {} tiles", run.tiles);
    [record, picture].iter().for_each(|path| drop(std::fs::remove_file(path)));
    Ok(page)
}
