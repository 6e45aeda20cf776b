//! `cargo xtask demo`: shows hpvm at work. Starts a virtual machine on this host, runs a real parallel program on it
//! (`examples/farm`) with more and more workers, kills one of the workers, and then measures messages. Only the picture
//! remains.
mod speed;

use crate::common::{Checks, Progress, dist, output, root, sh};
use crate::counts::Counts;
use crate::machine::Machine;
use crate::side::Side;
use crate::{build, measure};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The number of tiles after which a worker is killed: for the demo's picture, and for the small picture of tests.
const KILL_AT_TILES: [u32; 2] = [200, 40];

/// Runs the command.
pub fn run(_arguments: &[String]) -> Result<()> {
    println!("hpvm: the release build (some minutes the first time)");
    build::build_core()?;
    measure::warn_when_busy();
    let began = Instant::now();
    let picture = directory()?.join("farm.png");
    let cores = std::thread::available_parallelism()?.get() as u32;
    println!("\nA virtual machine on this host ({cores} cores), and on it a farm: a master hands tiles of a");
    println!("picture to workers that it started. Tiles differ much in cost; a worker that dies is replaced.\n");
    farm(&[], KILL_AT_TILES[0], cores, &picture)?;
    println!("\nHow fast messages are, beside the limit of the machine:");
    speed::show()?;
    println!(
        "\nThe virtual machine is gone, nothing is left of it. {:.0} s since the build.",
        began.elapsed().as_secs_f64()
    );
    println!("The picture: {}", shown(&picture));
    Ok(())
}

/// Runs the command as a part of `cargo xtask test`. Returns an error only if the checks could not be run at all.
/// `target/dist` must have been built.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    let mut checks = Checks::default();
    let picture = directory()?.join("farm-test.png");
    let small = ["--samples", "1", "--size", "800x600"];
    checks.check(
        "the farm paints the same picture with any workers, one killed",
        farm(&small, KILL_AT_TILES[1], 2, &picture),
    );
    let size = std::fs::metadata(&picture).map(|meta| meta.len()).unwrap_or_default();
    checks.check("the farm's picture is whole", whole(size));
    // Nobody needs the small picture.
    let _ = std::fs::remove_file(&picture);
    Ok(checks.counts())
}

/// Checks that the small picture has all its pixels, of three bytes each.
fn whole(size: u64) -> Result<()> {
    ensure!(size > 800 * 600 * 3, "it has {size} bytes");
    Ok(())
}

/// Returns the directory of the program and its picture.
fn directory() -> Result<PathBuf> {
    let directory = root().join("target/demo");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Returns a path as a reader would type it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Runs the farm on a machine of its own, with 1, `cores` and `2 * cores` workers; in the last run, a worker is killed.
/// All pictures must be equal.
fn farm(options: &[&str], kill_at: u32, cores: u32, picture: &Path) -> Result<()> {
    let program = compile()?;
    let mut machine = Machine::start(Side::Ours, "demo")?;
    let mut runs: Vec<Run> = Vec::new();
    let mut workers = vec![1, cores, 2 * cores];
    workers.dedup();
    println!("  workers   seconds   tiles/s   speed-up");
    for (index, &count) in workers.iter().enumerate() {
        let mut command = machine.command(&program);
        command.arg("--output").arg(picture).args(["--workers", &count.to_string()]);
        if index + 1 == workers.len() {
            command.args(["--kill", &kill_at.to_string()]);
        }
        let progress = Progress::begin(&format!("  {count:7}   painting"));
        let said = output(command.args(options)).with_context(|| format!("the daemon's log: {}", machine.log()));
        progress.end();
        let said = said?;
        let run = Run::parse(&said).with_context(|| format!("the farm said {said}"))?;
        let first = runs.first().map_or(run.seconds, |first| first.seconds);
        println!("{}", run.line(first));
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
    machine.nothing_is_left()
}

/// Builds the example as a user would.
fn compile() -> Result<PathBuf> {
    let program = directory()?.join("farm");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg(root().join("examples/farm/farm.c"));
    cc.arg("-I").arg(dist().join("include")).arg("-L").arg(dist().join("lib")).arg("-lpvm3");
    sh(cc.arg("-o").arg(&program))?;
    Ok(program)
}

/// The last line of the farm's output.
struct Run {
    workers: u32,
    tiles: u32,
    seconds: f64,
    checksum: String,
    lost: u32,
    again: u32,
}

impl Run {
    /// Reads `farm: 4 workers, 475 tiles, 1.570 seconds, checksum e247092f, 1 workers lost, 2 tiles again, ...`.
    fn parse(said: &str) -> Result<Run> {
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
