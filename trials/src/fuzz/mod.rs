//! `cargo xtask fuzz`: passes untrusted input to every decoder (docs/testing.md).
//!
//! The targets are in the `fuzz` modules of the crates, the engine (libFuzzer) is in `fuzz/engine`. New inputs stay in
//! the target directory. `--keep` adds those new inputs that cover more code to the archives of `fuzz/corpus`; `--add`
//! adds files to an archive.
mod build;
mod coverage;

use crate::common::{files_under, root};
use crate::counts::Counts;
use crate::machine::name_of;
use anyhow::{Context, Result, bail, ensure};
use build::Engine;
use coverage::{Coverage, Source};
use lexopt::prelude::*;
use pvm_fuzz::corpus::{self, Input};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long all targets together are fuzzed without `--minutes`, in minutes.
const MINUTES: u64 = 10;
/// How long a target is fuzzed at most before it is the turn of the next one.
const SLICE_MAX: Duration = Duration::from_secs(60);
/// The most memory that a decoder may allocate, both in one piece and in total, in MiB.
const MEMORY_MIB_MAX: u32 = 1024;
/// The time after which the engine reports that an input hangs, in seconds. The targets themselves report inputs that
/// take more than a second; this limit is for inputs with which a target never ends.
const HANG_SECONDS: u32 = 20;
/// The share of a decoder's lines that its corpus must reach, in percent.
const COVERED_PERCENT_MIN: f64 = 90.0;
/// The longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;
/// The most characters that are shown of each line of the engine's report.
const SHOWN_CHARACTERS_MAX: usize = 300;

const USAGE: &str = "fuzz [--minutes N] [--only NAME[,NAME]...] [--keep], or fuzz --add TARGET FILE...";

/// The number of hash letters in the name of an input that the fuzzer made.
const HASH_LETTERS: usize = 12;

/// The options of the command line.
#[derive(Debug)]
struct Wanted {
    time: Duration,
    only: Option<String>,
    keep: bool,
    /// The target and the files of `--add`.
    add: Option<(String, Vec<PathBuf>)>,
}

/// A target, and the result of its turns.
struct Target {
    name: String,
    decoder: Vec<Source>,
    executions: u64,
    finds: Vec<PathBuf>,
    coverage: Coverage,
}

/// Runs the command: `fuzz [--minutes N] [--only NAME[,NAME]...] [--keep]`, or `fuzz --add TARGET FILE...`.
pub fn run(arguments: &[String]) -> Result<()> {
    let wanted = parse(arguments)?;
    if let Some((target, files)) = wanted.add {
        return add(&target, &files);
    }
    let engine = Engine::build()?;
    let mut targets = engine.targets()?;
    if let Some(only) = &wanted.only {
        targets.retain(|target| only.split(',').any(|part| target.name.contains(part)));
        ensure!(!targets.is_empty(), "there is no target with {only} in its name");
    }
    // A missing function must be reported now, not after the last turn.
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
    let mut wanted = Wanted { time: Duration::from_secs(60 * MINUTES), only: None, keep: false, add: None };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("minutes") => wanted.time = minutes(&parser.value()?.string()?)?,
            Long("only") => wanted.only = Some(parser.value()?.string()?),
            Long("keep") => wanted.keep = true,
            Long("add") => {
                let target = parser.value()?.string()?;
                wanted.add = Some((target, parser.raw_args()?.map(PathBuf::from).collect()));
            }
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(wanted)
}

/// Reads a number of minutes, which may have a fraction.
fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().with_context(|| format!("{text} is no number of minutes"))?;
    Duration::try_from_secs_f64(60.0 * minutes).with_context(|| format!("{text} is no number of minutes"))
}

/// Runs all targets in turn until the time is over. A target in which the engine has found an error gets no further
/// turn, since the engine would find the same error again.
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
    let before = pvm_fuzz::files_of(&finds);
    let output = engine
        .fuzzer(&target.name)
        .args([&own, &unpacked(engine, &target.name)?])
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
    target.finds.extend(pvm_fuzz::files_of(&finds).into_iter().filter(|file| !before.contains(file)));
    println!("{:18} {seconds:4} s {:>12} executions", target.name, target.executions);
    let is_quiet = target.finds.is_empty();
    ensure!(output.status.success() || !is_quiet, "{}: {}\n{}", target.name, output.status, last_lines(&said));
    if !is_quiet {
        println!("{}", error_lines(&said));
    }
    Ok(())
}

/// Returns the number of executions that the engine prints at its end.
fn executions(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?.trim().parse().ok()
}

/// Returns the lines of the engine's report that describe an error.
fn error_lines(said: &str) -> String {
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

/// Unpacks the corpus of a target to a folder of its own, since the engine reads folders. Returns the folder.
fn unpacked(engine: &Engine, name: &str) -> Result<PathBuf> {
    let folder = engine.folder().join("unpacked").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for input in corpus::read(name)? {
        fs::write(folder.join(input.name), input.bytes)?;
    }
    Ok(folder)
}

/// Returns the files of a folder as inputs.
fn inputs_of(files: &[PathBuf]) -> Result<Vec<Input>> {
    let input = |file: &PathBuf| {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Input { name: input_name(&name_of(file)), bytes })
    };
    files.iter().map(input).collect()
}

/// Returns the name that an input has in an archive. The engine names a new input by its hash. If the input found an
/// error, a word precedes the hash (`crash-...`).
fn input_name(file: &str) -> String {
    let hash = |name: &str| name.chars().take(HASH_LETTERS).collect::<String>();
    let find = ["crash-", "timeout-", "oom-", "slow-unit-"].iter().find_map(|word| file.strip_prefix(word));
    let is_hash = file.len() == 40 && file.chars().all(|letter| letter.is_ascii_hexdigit());
    match find {
        Some(name) => format!("find-{}", hash(name)),
        None if is_hash => hash(file),
        None => file.to_owned(),
    }
}

/// Adds files to the corpus of a target. A file replaces an input of the same name.
fn add(target: &str, files: &[PathBuf]) -> Result<()> {
    ensure!(!files.is_empty(), "fuzz --add TARGET FILE... needs a file");
    let declaration = format!("name: \"{target}\"");
    let mut sources = files_under(&["crates"], &["rs"])?.into_iter();
    let is_known = sources.any(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&declaration)));
    ensure!(is_known, "there is no target {target}");
    let added = inputs_of(files)?;
    let mut inputs = corpus::read(target)?;
    inputs.retain(|input| added.iter().all(|new| new.name != input.name));
    inputs.extend(added);
    println!("{}: {} inputs", corpus::path(target).display(), inputs.len());
    Ok(corpus::write(target, inputs)?)
}

/// Adds to the corpus of a target those new inputs that reach more code. To keep the corpus small, an input does not
/// count as new if it only reaches code more often, or brings a comparison nearer to success.
fn keep(engine: &Engine, name: &str) -> Result<()> {
    let folder = unpacked(engine, name)?;
    let output = engine
        .fuzzer(name)
        .args(["-merge=1", "-use_counters=0", "-use_value_profile=0", &format!("-max_len={INPUT_BYTES_MAX}")])
        .args([&folder, &engine.corpus(name)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start the fuzzer")?;
    ensure!(output.success(), "{name}: merging failed, {output}");
    Ok(corpus::write(name, inputs_of(&pvm_fuzz::files_of(&folder))?)?)
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

/// Makes a command run in the folder of the engine.
fn in_engine(mut command: Command) -> Command {
    command.current_dir(root().join("fuzz/engine"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_may_have_a_fraction() {
        assert_eq!(minutes("0.5").unwrap(), Duration::from_secs(30));
        assert!(minutes("-1").is_err() && minutes("x").is_err());
    }

    #[test]
    fn names_of_the_engine_are_shortened_and_others_kept() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(input_name(hash), "0123456789ab");
        assert_eq!(input_name(&format!("crash-{hash}")), "find-0123456789ab");
        assert_eq!(input_name("seed-lines"), "seed-lines");
        assert_eq!(input_name("find-0123456789ab"), "find-0123456789ab");
    }

    #[test]
    fn all_words_after_the_target_are_files_to_add() {
        let words = ["--add", "trace", "a", "--b"].map(String::from);
        let (target, files) = parse(&words).unwrap().add.unwrap();
        assert_eq!((target.as_str(), files), ("trace", vec!["a".into(), "--b".into()]));
        assert!(add("no-such-target", &["Cargo.toml".into()]).unwrap_err().to_string().contains("no target"));
    }

    #[test]
    fn the_execution_count_of_the_engine_is_read() {
        let said = "Done 7 runs in 1 second(s)\nstat::number_of_executed_units: 4711\nstat::new_units_added: 1\n";
        assert_eq!(executions(said), Some(4711));
        assert!(error_lines("x\nthread panicked at a.rs:1\nwhy\n").contains("a.rs:1 why"));
    }
}
