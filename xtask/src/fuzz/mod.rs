//! `cargo xtask fuzz`: bytes from nowhere for every decoder (docs/testing.md).
//!
//! The targets lie in the `fuzz` modules of the crates, the engine (libFuzzer) in `fuzz/engine`. New
//! inputs are kept in the target directory; `--keep` takes into `fuzz/corpus` what covers more.
mod build;
mod coverage;

use crate::common::root;
use crate::counts::Counts;
use anyhow::{Context, Result, bail, ensure};
use build::Engine;
use coverage::{Coverage, Source};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long all targets together are fuzzed unless `--minutes` says otherwise.
const MINUTES: u64 = 10;
/// The longest that one target has its turn.
const SLICE_MAX: Duration = Duration::from_secs(60);
/// Memory that a decoder may take, all in all and in one piece, in MiB.
const MEMORY_MIB_MAX: u32 = 1024;
/// After so long the engine gives an input up, in seconds. What takes more than a second of processor
/// time is found by the targets themselves; this is for what never ends.
const HANG_SECONDS: u32 = 20;
/// Lines of a decoder that its corpus must reach, of a hundred.
const COVERED_PERCENT_MIN: f64 = 90.0;
/// The longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;
/// The longest line of the engine's that is shown of a find, in characters.
const SHOWN_CHARACTERS_MAX: usize = 300;

/// What the command line asks for.
struct Wanted {
    time: Duration,
    only: Option<String>,
    keep: bool,
}

/// A target, and what has come of it.
struct Target {
    name: String,
    decoder: Vec<Source>,
    executions: u64,
    finds: Vec<PathBuf>,
    coverage: Coverage,
}

/// Runs the command: `fuzz [--minutes N] [--only NAME[,NAME]…] [--keep]`.
pub fn run(arguments: &[String]) -> Result<()> {
    let wanted = parse(arguments)?;
    let engine = Engine::build()?;
    let mut targets = engine.targets()?;
    if let Some(only) = &wanted.only {
        targets.retain(|target| only.split(',').any(|part| target.name.contains(part)));
        ensure!(!targets.is_empty(), "there is no target with {only} in its name");
    }
    // An hour later would be late.
    for source in targets.iter().flat_map(|target| &target.decoder) {
        source.ranges()?;
    }
    fuzz(&engine, &mut targets, wanted.time)?;
    for target in &mut targets {
        if wanted.keep {
            keep(&engine, &target.name)?;
        }
        target.coverage = coverage::of(&engine, target)?;
    }
    print(&targets);
    let sound = |target: &&Target| target.finds.is_empty() && target.coverage.percent() >= COVERED_PERCENT_MIN;
    let passed = targets.iter().filter(sound).count();
    Counts { passed, failed: targets.len() - passed, skipped: 0 }.report()
}

fn parse(arguments: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { time: Duration::from_secs(60 * MINUTES), only: None, keep: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--minutes" => wanted.time = minutes(value()?)?,
            "--only" => wanted.only = Some(value()?.clone()),
            "--keep" => wanted.keep = true,
            other => bail!("fuzz knows --minutes N, --only NAME and --keep, not {other}"),
        }
    }
    Ok(wanted)
}

/// A number of minutes, which may be a part of one.
fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().with_context(|| format!("{text} is no number of minutes"))?;
    Duration::try_from_secs_f64(60.0 * minutes).with_context(|| format!("{text} is no number of minutes"))
}

/// Gives each target its turn until the time is over. One in which something was found has none any
/// more: it would be found again and again.
fn fuzz(engine: &Engine, targets: &mut [Target], time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    let share = time / targets.len() as u32;
    let turns = share.as_secs().div_ceil(SLICE_MAX.as_secs()).max(1);
    for turn in 0..turns {
        for target in targets.iter_mut().filter(|target| target.finds.is_empty()) {
            let left = end.saturating_duration_since(Instant::now());
            let slice = (share / turns as u32).min(left).as_secs();
            if slice > 0 || turn == 0 {
                one_turn(engine, target, slice.max(1))?;
            }
        }
    }
    Ok(())
}

fn one_turn(engine: &Engine, target: &mut Target, seconds: u64) -> Result<()> {
    let (own, finds) = (engine.corpus(&target.name), engine.finds(&target.name));
    for folder in [&own, &finds] {
        fs::create_dir_all(folder)?;
    }
    let before = files_of(&finds);
    let output = engine
        .fuzzer(&target.name)
        .args([&own, &in_tree(&target.name)])
        .args([
            format!("-artifact_prefix={}/", finds.display()),
            format!("-max_total_time={seconds}"),
            format!("-timeout={HANG_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
            format!("-malloc_limit_mb={MEMORY_MIB_MAX}"),
            format!("-max_len={INPUT_BYTES_MAX}"),
            "-print_final_stats=1".into(),
        ])
        .stdout(Stdio::null())
        .output()
        .context("cannot start the fuzzer")?;
    let said = String::from_utf8_lossy(&output.stderr);
    target.executions += executions(&said).unwrap_or(0);
    target.finds.extend(files_of(&finds).into_iter().filter(|file| !before.contains(file)));
    println!("{:18} {seconds:4} s {:>12} executions", target.name, target.executions);
    let is_quiet = target.finds.is_empty();
    ensure!(output.status.success() || !is_quiet, "{}: {}\n{}", target.name, output.status, last_lines(&said));
    if !is_quiet {
        println!("{}", telling(&said));
    }
    Ok(())
}

/// The number that the engine prints at its end.
fn executions(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?.trim().parse().ok()
}

/// The lines that tell what was found.
fn telling(said: &str) -> String {
    let tells = |line: &&str| line.contains("panicked at") || line.starts_with("==") || line.starts_with("SUMMARY");
    let lines = said.lines().collect::<Vec<_>>();
    let mut told = String::new();
    for (place, line) in lines.iter().enumerate().filter(|(_, line)| tells(line)) {
        let next = lines.get(place + 1).filter(|_| line.contains("panicked at")).copied().unwrap_or_default();
        let both = format!("    {line} {next}");
        told.extend(both.chars().take(SHOWN_CHARACTERS_MAX).chain(['\n']));
    }
    told
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// The corpus of a target that belongs to the sources.
fn in_tree(name: &str) -> PathBuf {
    let folder = root().join("fuzz/corpus").join(name);
    // Where there is none yet, the first `--keep` fills it.
    let _ = fs::create_dir_all(&folder);
    folder
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Takes into the tree's corpus what reaches more than that does. How often something was reached, or
/// how near a comparison was, does not count: so it stays small.
fn keep(engine: &Engine, name: &str) -> Result<()> {
    let output = engine
        .fuzzer(name)
        .args(["-merge=1", "-use_counters=0", "-use_value_profile=0", &format!("-max_len={INPUT_BYTES_MAX}")])
        .args([in_tree(name), engine.corpus(name)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start the fuzzer")?;
    ensure!(output.success(), "{name}: merging failed, {output}");
    Ok(())
}

fn print(targets: &[Target]) {
    println!("\n{:18} {:>12} {:>14} {:>8}  finds", "target", "executions", "lines reached", "percent");
    for target in targets {
        let Coverage { reached, lines, .. } = target.coverage;
        let percent = target.coverage.percent();
        let reached = format!("{reached} of {lines}");
        println!("{:18} {:>12} {reached:>14} {percent:>8.1}  {}", target.name, target.executions, target.finds.len());
    }
    for target in targets {
        if target.coverage.percent() < COVERED_PERCENT_MIN {
            println!("{}: not reached: {}", target.name, target.coverage.missed.join(" "));
        }
        for find in &target.finds {
            println!("{}: find: {}", target.name, find.display());
        }
    }
}

/// Debian's packages with the programs that read the compiler's counts, and a compiler of C that makes
/// the same.
pub fn llvm_packages() -> Result<[String; 2]> {
    let version = build::llvm_version()?;
    Ok([format!("llvm-{version}"), format!("clang-{version}")])
}

/// A command in the folder of the engine.
fn in_engine(mut command: Command) -> Command {
    command.current_dir(root().join("fuzz/engine"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_can_be_parts_of_one() {
        assert_eq!(minutes("0.5").unwrap(), Duration::from_secs(30));
        assert!(minutes("-1").is_err() && minutes("x").is_err());
    }

    #[test]
    fn the_engines_count_is_found() {
        let said = "Done 7 runs in 1 second(s)\nstat::number_of_executed_units: 4711\nstat::new_units_added: 1\n";
        assert_eq!(executions(said), Some(4711));
        assert!(telling("x\nthread panicked at a.rs:1\nwhy\n").contains("a.rs:1 why"));
    }
}
