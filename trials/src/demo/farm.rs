//! The program `examples/farm`: how it is built and run, and what it says.

use crate::common::{Progress, dist, output, root, sh};
use crate::machine::Machine;
use crate::side::Side;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the program and its pictures.
pub fn directory() -> Result<PathBuf> {
    let directory = root().join("target/demo");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Returns the path of the program, which [`compile`] makes.
pub fn program() -> Result<PathBuf> {
    Ok(directory()?.join("farm"))
}

/// Builds the example as a user would.
pub fn compile() -> Result<()> {
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg(root().join("examples/farm/farm.c"));
    cc.arg("-I").arg(dist().join("include")).arg("-L").arg(dist().join("lib")).arg("-lpvm3");
    sh(cc.arg("-o").arg(program()?))
}

/// Runs the farm on a machine of its own.
pub fn alone(options: &[&str], picture: &Path) -> Result<Run> {
    let mut machine = Machine::start(Side::Ours, "demo")?;
    let run = paint(&machine, options, picture)?;
    machine.end()?;
    machine.nothing_is_left()?;
    Ok(run)
}

/// Runs the farm on a machine.
fn paint(machine: &Machine, options: &[&str], picture: &Path) -> Result<Run> {
    let mut command = machine.command(&program()?);
    let said = output(command.args(options).arg("--output").arg(picture));
    let said = said.with_context(|| format!("the daemon's log: {}", machine.log()))?;
    Run::parse(&said).with_context(|| format!("the farm said {said}"))
}

/// Runs the farm on a machine of its own, with 1, `cores` and `2 * cores` workers; in the last run, a worker is killed.
/// All pictures must be equal. Returns the time that one worker needs, in seconds.
pub fn speed_up(options: &[&str], kill_at: u32, cores: u32, picture: &Path) -> Result<f64> {
    let mut machine = Machine::start(Side::Ours, "demo")?;
    let mut runs: Vec<Run> = Vec::new();
    let mut workers = vec![1, cores, 2 * cores];
    workers.dedup();
    println!("  workers   seconds   tiles/s   speed-up");
    for (index, &count) in workers.iter().enumerate() {
        let (count, kill_at) = (count.to_string(), kill_at.to_string());
        let mut words = [options, &["--workers", &count]].concat();
        if index + 1 == workers.len() {
            words.extend(["--kill", &kill_at]);
        }
        let progress = Progress::begin(&format!("  {count:>7}   painting"));
        let run = paint(&machine, &words, picture);
        progress.end();
        let run = run?;
        println!("{}", run.line(runs.first().map_or(run.seconds, |first| first.seconds)));
        runs.push(run);
    }
    let (first, last) = (&runs[0], &runs[runs.len() - 1]);
    ensure!(last.lost == 1, "{} workers were lost instead of the one that was killed", last.lost);
    ensure!(last.again > 0, "the killed worker had no tile");
    for run in &runs {
        ensure!(run.checksum == first.checksum, "the pictures differ: {} and {}", first.checksum, run.checksum);
    }
    println!("  All pictures are the same (checksum {}).", first.checksum);
    machine.end()?;
    machine.nothing_is_left()?;
    Ok(first.seconds)
}

/// The last line of the farm's output.
pub struct Run {
    pub workers: u32,
    pub tiles: u32,
    pub seconds: f64,
    checksum: String,
    pub lost: u32,
    pub again: u32,
}

impl Run {
    /// Reads `farm: 4 workers, 475 tiles, 1.570 seconds, checksum e247092f, 1 workers lost, 2 tiles again, ...`.
    pub fn parse(said: &str) -> Result<Run> {
        let line = said.lines().last().and_then(|line| line.strip_prefix("farm: ")).context("no last line")?;
        let parts: Vec<&str> = line.split(", ").collect();
        let number = |place: usize| parts.get(place).and_then(|part| part.split(' ').next()).context("too short");
        Ok(Run {
            workers: number(0)?.parse()?,
            tiles: number(1)?.parse()?,
            seconds: number(2)?.parse()?,
            checksum: parts.get(3).and_then(|part| part.strip_prefix("checksum ")).context("no checksum")?.to_string(),
            lost: number(4)?.parse()?,
            again: number(5)?.parse()?,
        })
    }

    fn line(&self, first: f64) -> String {
        let tiles = f64::from(self.tiles) / self.seconds;
        let line = format!("  {:7}   {:7.2}   {tiles:7.1}   {:8.2}", self.workers, self.seconds, first / self.seconds);
        match self.lost {
            0 => line,
            lost => format!("{line}   {lost} worker killed, its {} tiles done again", self.again),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_farm_is_understood() {
        let said = "farm: worker t40002 died\nfarm: 4 workers, 475 tiles, 1.570 seconds, checksum e247092f, \
                    1 workers lost, 2 tiles again, farm.png\n";
        let run = Run::parse(said).unwrap();
        assert_eq!((run.workers, run.tiles, run.lost, run.again), (4, 475, 1, 2));
        assert_eq!(run.checksum, "e247092f");
        assert!(Run::parse("farm: nothing\n").is_err());
    }
}
