//! `cargo xtask instructions`: counts the instructions of the calls that take the short paths, and compares them with the
//! limits in the tree. Unlike a time, the count does not depend on what else the machine does.
//!
//! callgrind counts. The program (`tests/instructions/short_paths.c`) repeats each case in several batches, and the
//! smallest count is that of the short path.
use crate::bench::process::{Machine, Program};
use crate::bench::systems::Vm;
use crate::build::build_unless_told;
use crate::common::{Checks, cargo, dist, in_path, output, root, sh};
use crate::counts::Counts;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The calls in a batch: few enough for the first ring of a queue.
const CALLS: u32 = 16;
/// How far above its limit a count may be: with the compiler with which the limits were taken, and with another one.
const TOLERANCE: f64 = 1.03;
const TOLERANCE_OTHER_COMPILER: f64 = 1.2;
/// A count below this share of its limit is worth a new limit.
const IMPROVED: f64 = 0.95;
/// How long the program may take. It takes a second where nothing else runs.
const TIME_MAX: Duration = Duration::from_secs(120);

/// The limits in the tree.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Limits {
    /// The compiler with which they were taken.
    compiler: String,
    /// The instructions of one call, by case.
    instructions: BTreeMap<String, f64>,
}

fn file() -> PathBuf {
    root().join("tests/instructions/limits.toml")
}

/// Runs the command: `instructions [--update]`.
pub fn run(arguments: &[String]) -> Result<()> {
    build_unless_told(arguments)?;
    if arguments.iter().any(|argument| argument == "--update") {
        if let Some(obstacle) = obstacle() {
            bail!("{obstacle}");
        }
        let limits = Limits { compiler: compiler()?, instructions: counts()? };
        std::fs::write(file(), format!("{HEAD}{}", toml::to_string(&limits)?))?;
        println!("{}", file().display());
        return Ok(());
    }
    counted(arguments)?.report()
}

const HEAD: &str =
    "# Instructions of one call by the short path. `cargo xtask instructions --update` writes this file.\n";

/// Returns why nothing can be counted here.
fn obstacle() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("instruction counts: the limits are those of x86-64".into());
    }
    let has_all = in_path("valgrind") && Path::new("/usr/include/valgrind/callgrind.h").exists();
    (!has_all).then(|| "instruction counts: valgrind is not here (`cargo xtask setup test`)".into())
}

/// Compares the counts with the limits. `target/dist` must have been built.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    if let Some(obstacle) = obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    let limits: Limits = toml::from_str(&std::fs::read_to_string(file())?).context("limits.toml")?;
    let is_same = compiler()? == limits.compiler;
    let counts = counts()?;
    let mut checks = Checks::default();
    for (case, limit) in &limits.instructions {
        let count = counts.get(case).copied();
        checks.check(&format!("instructions of {case}"), compare(count, *limit, is_same));
        if let Some(count) = count.filter(|count| is_same && *count < IMPROVED * limit) {
            println!("{case}: {count:.0} instructions, {limit:.0} are allowed: `cargo xtask instructions --update`");
        }
    }
    checks.check(
        "every case has a limit",
        match counts.keys().find(|case| !limits.instructions.contains_key(*case)) {
            Some(case) => Err(anyhow::anyhow!("{case} has none: `cargo xtask instructions --update`")),
            None => Ok(()),
        },
    );
    Ok(checks.counts())
}

fn compare(count: Option<f64>, limit: f64, same_compiler: bool) -> Result<()> {
    let count = count.context("it was not counted")?;
    let tolerance = if same_compiler { TOLERANCE } else { TOLERANCE_OTHER_COMPILER };
    ensure!(count <= tolerance * limit, "{count:.1} a call, {limit:.1} are allowed");
    Ok(())
}

/// Returns the version of the compiler that builds the library; cargo has the same version.
fn compiler() -> Result<String> {
    let text = output(cargo().arg("--version"))?;
    Ok(text.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

/// Runs the program. Returns the instructions of one call in each case.
fn counts() -> Result<BTreeMap<String, f64>> {
    let machine = Machine::start(Vm::Ours)?;
    let program = machine.directory().join("short_paths");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-I"]).arg(dist().join("include")).arg("-o").arg(&program);
    compiler.arg(root().join("tests/instructions/short_paths.c"));
    sh(compiler.arg("-L").arg(dist().join("lib")).arg("-lpvm3"))?;
    let dumps = machine.directory().join("counts");
    let words = [
        "--tool=callgrind".to_owned(),
        "--quiet".into(),
        format!("--callgrind-out-file={}", dumps.display()),
        program.display().to_string(),
        CALLS.to_string(),
    ];
    Program::start(Path::new("valgrind"), &words, &machine.environment(), machine.directory())?.finish(TIME_MAX)?;
    let mut smallest = BTreeMap::new();
    for entry in std::fs::read_dir(machine.directory())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("counts")) {
            let Some((case, count)) = dump(&std::fs::read_to_string(&path)?) else { continue };
            let place = smallest.entry(case).or_insert(f64::INFINITY);
            *place = f64::min(*place, (count as f64 / f64::from(CALLS) * 10.0).round() / 10.0);
        }
    }
    ensure!(!smallest.is_empty(), "callgrind has written no counts");
    Ok(smallest)
}

/// Returns the case of a dump of callgrind, and its instructions; `None` for the dump at the end of the program.
fn dump(text: &str) -> Option<(String, u64)> {
    let line = |prefix| text.lines().find_map(|line| line.strip_prefix(prefix));
    let case = line("desc: Trigger: Client Request: ")?.trim().to_owned();
    Some((case, line("summary: ").or_else(|| line("totals: "))?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_a_dump_is_found() {
        let text = "version: 1\ndesc: Trigger: Client Request: psend 8\nevents: Ir\nfn=(1)\n0 5\ntotals: 2497\n";
        assert_eq!(dump(text), Some(("psend 8".into(), 2497)));
        assert_eq!(dump("desc: Trigger: Program termination\ntotals: 7\n"), None);
    }

    #[test]
    fn more_instructions_than_allowed_fail() {
        assert!(compare(Some(102.0), 100.0, true).is_ok());
        assert!(compare(Some(104.0), 100.0, true).is_err());
        assert!(compare(Some(104.0), 100.0, false).is_ok());
        assert!(compare(Some(130.0), 100.0, false).is_err());
        assert!(compare(None, 100.0, true).is_err());
    }

    #[test]
    fn the_limits_in_the_tree_can_be_read() {
        let limits: Limits = toml::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
        assert!(limits.instructions.contains_key("psend 8") && !limits.compiler.is_empty());
    }
}
