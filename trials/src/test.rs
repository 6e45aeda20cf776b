//! `cargo xtask test`: runs the tests. The last line is `N passed, N failed, N skipped`.
use crate::common::{cargo, output};
use crate::compile_ahead::Background;
use crate::counts::Counts;
use crate::{
    abi, build, conform, demo, ether, failures, guide, hosts, lint, man, monitor, old_makefiles, packages, python,
    sanitize, second_user, sim, slurm, torture, unlike, why,
};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use xtask::commands::program_of;

/// Runs every part.
pub const ALL: &str = "--all";

/// How long the torture runs, in seconds; `cargo xtask torture` runs longer.
const TORTURE_SECONDS: &str = "14";

/// The arguments for a torture beside tasks that break every rule of shared memory; `cargo xtask torture --hostile`
/// runs longer.
const HOSTILE: [&str; 6] = ["--hostile", "2", "--seconds", "8", "--tasks", "16"];

/// The arguments for a torture with a host that holds a valid key and breaks every other rule.
const HOSTILE_HOSTS: [&str; 9] =
    ["--hostile-hosts", "1", "--seconds", "12", "--round", "3", "--tasks", "8", build::AS_IT_IS];

/// The arguments for a torture across hosts with and without a fabric; `cargo xtask torture --fabric NAME` runs longer.
const TORTURE_FABRIC: [&str; 9] =
    ["--fabric", "tcp", "--seconds", "2", "--round", "1", "--tasks", "6", build::AS_IT_IS];

/// The run to which a part belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// `test`: what finds most mistakes, in minutes.
    Usual,
    /// `test --all`: what takes long, or needs further compilers.
    All,
}

type Part = (&'static str, Run, fn() -> Result<Counts>);

/// The parts of the test. First come those that wait most of the time, while what the others need is compiled; then the
/// cheap ones.
const PARTS: &[Part] = &[
    ("conformance", Run::Usual, || conform::counted(&[])),
    ("several hosts", Run::Usual, several_hosts),
    ("slurm", Run::All, || slurm::counted(&["--short".into(), build::AS_IT_IS.into()])),
    ("unit tests", Run::Usual, unit_tests),
    ("simulator", Run::Usual, || sim::counted(&[])),
    ("binary interface", Run::Usual, || abi::counted(&[])),
    ("instruction counts", Run::Usual, || measurement(&["instructions", build::AS_IT_IS])),
    ("manual", Run::Usual, || man::counted(&[])),
    ("old makefiles", Run::Usual, || old_makefiles::counted(&[])),
    ("packages", Run::Usual, || packages::counted_short(&[])),
    ("python", Run::Usual, || python::counted(&[build::AS_IT_IS.into()])),
    ("guide", Run::Usual, || guide::counted(&[])),
    ("planted faults", Run::Usual, || why::counted(&[build::AS_IT_IS.into()])),
    ("monitor", Run::Usual, || monitor::counted(&[build::AS_IT_IS.into()])),
    ("second user", Run::Usual, || second_user::counted(&[])),
    ("emulated Ethernet", Run::All, || ether::counted(&["--short".into()])),
    ("fabric", Run::Usual, || measurement(&["fabric", "--short"])),
    ("papers", Run::All, || measurement(&["papers", "--short", build::AS_IT_IS])),
    ("unlike hosts", Run::All, || unlike::counted(&["--short".into()])),
    ("torture", Run::All, || torture::counted(&["--seconds".into(), TORTURE_SECONDS.into()])),
    ("torture over a fabric", Run::All, || torture::counted(&TORTURE_FABRIC.map(String::from))),
    ("hostile neighbours", Run::All, || torture::counted(&HOSTILE.map(String::from))),
    ("hostile hosts", Run::All, || torture::counted(&HOSTILE_HOSTS.map(String::from))),
    ("demo", Run::Usual, || demo::counted(&[])),
    ("orders of memory accesses", Run::All, loom),
    ("sanitizers", Run::All, sanitize::counted_short),
    (LAST, Run::Usual, || lint::counted(&[])),
];

/// The last part. The compilation in the background is ended before it, since this part compiles the same.
const LAST: &str = "house rules";

/// The groups of packages whose unit tests are compiled together. Cargo unifies the features of dependencies within one
/// compilation. The groups get the same features as the commands and the programs that tests build, so nothing is compiled
/// twice.
const UNIT_TESTS: [&[&str]; 4] = [
    &["--package=xtask", "--package=trials", "--package=lab"],
    &[
        "--workspace",
        "--exclude=xtask",
        "--exclude=trials",
        "--exclude=lab",
        "--exclude=pvm-core",
        "--exclude=pvm-tools",
    ],
    &["--package=pvm-tools"],
    &["--package=pvm-core"],
];

/// Runs the command: `test [--all] [WORD]...` runs the usual parts, all parts, or those whose names contain one of the words.
pub fn run(arguments: &[String]) -> Result<()> {
    let (flags, words): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|word| word.starts_with("--"));
    let all = match flags.as_slice() {
        [] => false,
        [flag] if *flag == ALL => true,
        _ => bail!("the only option is {ALL}"),
    };
    let chosen = |part: &&Part| match words.as_slice() {
        [] => all || part.1 == Run::Usual,
        words => words.iter().any(|word| part.0.contains(&***word)),
    };
    let parts: Vec<&Part> = PARTS.iter().filter(chosen).collect();
    if parts.is_empty() {
        bail!("the parts are: {}", PARTS.iter().map(|part| part.0).collect::<Vec<_>>().join(", "));
    }
    build::build()?;
    let record = failures::Record::begin().context("cannot write below target")?;
    let mut total = Counts::default();
    // With a part alone, the compilation of others would only be in its way.
    let mut ahead = words.is_empty().then(|| Background::start(all).ok()).flatten();
    for (name, _, part) in parts {
        let began = Instant::now();
        println!("== {name}");
        if *name == LAST {
            drop(ahead.take());
        }
        let counts = part().unwrap_or_else(|error| {
            failures::report(format_args!("FAILED   {name}: {error:#}"));
            Counts::one(false)
        });
        println!("== {name}: {counts} ({} s)", began.elapsed().as_secs());
        total += counts;
    }
    let failed = record.text();
    if !failed.is_empty() {
        // The failures were reported when they happened, perhaps thousands of lines above.
        print!("== what failed\n{failed}");
    }
    total.report()
}

/// Runs a command of `lab`, shows its output, and returns the counts in its last line.
fn measurement(words: &[&str]) -> Result<Counts> {
    let mut command = program_of("lab");
    let mut child = command.args(words).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().context("cargo has an output")?).lines() {
        last = line?;
        if Counts::parse(&last).is_err() {
            println!("{last}");
        }
    }
    child.wait()?;
    Counts::parse(&last)
}

fn unit_tests() -> Result<Counts> {
    UNIT_TESTS.iter().try_fold(Counts::default(), |total, packages| Ok(total + cargo_test(packages, &[])?))
}

/// Compiles what [`unit_tests`] runs.
pub fn compile_unit_tests() -> Result<()> {
    UNIT_TESTS.iter().try_for_each(|packages| compile(packages, &[]))
}

/// Runs the scenarios, some conformance programs, and fault tests that take little time, all on several hosts.
fn several_hosts() -> Result<Counts> {
    let scenarios = hosts::counted(&[build::AS_IT_IS.into(), "--short".into()])?;
    let programs = hosts::counted(&[build::AS_IT_IS.into(), "--short".into(), "--conform".into()])?;
    let faults = ["--faults", "--seeds", "1", "--jobs", "2", "--fault", "task-killed", "--fault", "daemon-killed"];
    let mut arguments: Vec<String> = faults.iter().map(|word| word.to_string()).collect();
    arguments.push(build::AS_IT_IS.into());
    let faults = hosts::counted(&arguments)?;
    // One run for each share of lost datagrams.
    let multicasts = ["--multicasts", "1000", "--seeds", "3", build::AS_IT_IS].map(str::to_owned);
    let attacked = ["--multicasts", "2000", "--attacked", "--seeds", "1", build::AS_IT_IS].map(str::to_owned);
    Ok(scenarios + programs + faults + hosts::counted(&multicasts)? + hosts::counted(&attacked)?)
}

/// Runs the lock-free algorithms with every order of memory accesses that a processor may choose.
fn loom() -> Result<Counts> {
    cargo_test(LOOM, &loom_environment()?)
}

/// Compiles what [`loom`] runs.
pub fn compile_loom() -> Result<()> {
    compile(LOOM, &loom_environment()?)
}

fn compile(arguments: &[&str], environment: &[(&str, PathBuf)]) -> Result<()> {
    output(cargo_test_command(arguments, environment).arg("--no-run")).map(drop)
}

const LOOM: &[&str] = &["--release", "--package", "pvm-fmp", "--lib", "loom"];

fn loom_environment() -> Result<[(&'static str, PathBuf); 3]> {
    // The target directory is separate, since builds with different flags would remove each other's files.
    let target = build::target_directory()?.join("loom");
    Ok([("RUSTFLAGS", "--cfg loom".into()), ("CARGO_TARGET_DIR", target), ("CARGO_PROFILE_RELEASE_LTO", "off".into())])
}

/// Returns the command of [`cargo_test`].
pub fn cargo_test_command(arguments: &[&str], environment: &[(&str, PathBuf)]) -> Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--no-fail-fast"]).args(arguments).env(failures::UNRECORDED, "1");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Runs `cargo test` and counts the results. Does not show the lines that only report success.
pub fn cargo_test(arguments: &[&str], environment: &[(&str, PathBuf)]) -> Result<Counts> {
    let mut child =
        cargo_test_command(arguments, environment).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut total = Counts::default();
    let mut is_about_failures = false;
    for line in BufReader::new(child.stdout.take().context("cargo has an output")?).lines() {
        let line = line?;
        is_about_failures |= line == "failures:";
        match result_of(&line) {
            Some(counts) => {
                total += counts;
                is_about_failures = false;
            }
            None if is_about_failures && !line.is_empty() => failures::report(&line),
            None if is_of_interest(&line) => println!("{line}"),
            None => {}
        }
    }
    // If cargo fails and no line reports a failure, a test does not compile, or a test has ended the test program.
    if !child.wait()?.success() && total.failed == 0 {
        total.failed = 1;
    }
    Ok(total)
}

/// Returns the counts in `test result: ok. 3 passed; 0 failed; ...`.
fn result_of(line: &str) -> Option<Counts> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| counts.split(word).next()?.split_whitespace().next_back()?.parse().ok();
    Some(Counts { passed: before(" passed")?, failed: before(" failed")?, skipped: 0 })
}

/// Returns whether a line of a quiet `cargo test` reports more than success.
fn is_of_interest(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty()
        && !line.starts_with("running ")
        && !line.chars().next().is_some_and(|first| first == '.' || first == 'i')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_in_one_group_of_unit_tests() {
        let words = |start: &str| -> Vec<String> {
            let all = UNIT_TESTS.iter().copied().flatten();
            let mut words: Vec<String> = all.filter_map(|word| word.strip_prefix(start)).map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(words("--package="), words("--exclude="));
        assert_eq!(PARTS.last().map(|part| part.0), Some(LAST));
    }

    #[test]
    fn the_counts_of_a_result_line_are_found() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(result_of(line), Some(Counts { passed: 12, failed: 3, skipped: 0 }));
        assert_eq!(result_of("test tid::a_tid ... ok"), None);
    }
}
