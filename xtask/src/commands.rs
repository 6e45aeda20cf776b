//! The table of all commands, and how they are run: those of this crate here, those of `trials` and `lab` by programs of
//! their own, which cargo compiles when they are first needed.
use crate::common::{cargo_here, root};
use crate::{build, install, packages, python, setup};
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::{Command as Process, ExitCode};

/// The function of a command; it gets the further arguments.
pub type Run = fn(&[String]) -> Result<()>;

/// Where a command is.
enum Home {
    /// In this crate.
    Here(Run),
    /// In the program of another package.
    In(&'static str),
}

use Home::Here;

/// The commands that test.
const TRIALS: Home = Home::In("trials");
/// The commands that measure.
const LAB: Home = Home::In("lab");

/// A command: its name, what it does, how long it takes, and where it is.
struct Command {
    name: &'static str,
    help: &'static str,
    /// The time on two cores, once everything is compiled.
    time: &'static str,
    home: Home,
}

const fn command(name: &'static str, help: &'static str, time: &'static str, home: Home) -> Command {
    Command { name, help, time, home }
}

/// All commands by purpose. Without arguments, `cargo xtask` prints this table.
const COMMANDS: &[(&str, &[Command])] = &[
    (
        "Build and install",
        &[
            command(
                "setup",
                "install what a fresh Debian machine lacks: setup [WORD]...",
                "minutes, once",
                Here(setup::run),
            ),
            command(
                "build",
                "build the distribution tree target/dist (release)",
                "5 min, then seconds",
                Here(build::run),
            ),
            command("install", "install target/dist: install PREFIX [--libdir DIRECTORY]", "1 s", Here(install::run)),
            command("uninstall", "remove an installation: uninstall PREFIX", "1 s", Here(install::run_uninstall)),
            command(
                "install-python",
                "install the Python package with target/dist: install-python DIRECTORY [--rpath DIRECTORY]",
                "40 s",
                Here(python::run_install),
            ),
            command(
                "wheel",
                "build the Python package target/python/wheels/hpvm-*.whl: wheel [--portable] [--test]",
                "1 min, then 5 s",
                Here(python::run),
            ),
            command(
                "demo",
                "run a parallel program while workers and hosts are lost; measure messages",
                "40 s",
                TRIALS,
            ),
        ],
    ),
    (
        "Make packages",
        &[
            command(
                "dist-tarball",
                "make the source tarball with all crates, in target/packages",
                "20 s",
                Here(packages::run_dist_tarball),
            ),
            command(
                "binary-tarball",
                "make the tarball of binaries, in target/packages",
                "3 s",
                Here(packages::run_binary_tarball),
            ),
            command(
                "packages",
                "make the Debian packages and tarballs offline, try them in a fresh system: packages [--only PART]",
                "20 min",
                Here(packages::run),
            ),
            command(
                "release",
                "check that everything is ready, make the files, tag: release [--dry-run]",
                "30 s",
                Here(packages::release::run),
            ),
        ],
    ),
    (
        "Check a change",
        &[
            command("lint", "check the house rules, formatting and clippy", "10 s to 3 min", TRIALS),
            command(
                "sim",
                "simulate machines of many hosts with faults: sim [--seeds N] [--seed N]",
                "1 s for 8 seeds",
                TRIALS,
            ),
            command("conform", "run each case on Debian's PVM and on hpvm: conform [--only NAME]", "2 min", TRIALS),
            command("abi", "compare symbols, sizes and headers with PVM 3.4.6", "5 s", TRIALS),
            command(
                "man",
                "check the manual pages of the calls and run their examples: man [--only NAME]",
                "10 s",
                TRIALS,
            ),
            command(
                "guide",
                "run the programs and commands of the guide, check its links, messages and spelling: guide [--only PAGE]",
                "20 s",
                TRIALS,
            ),
            command(
                "instructions",
                "count the instructions of short calls, compare with the limits: instructions [--update]",
                "5 s",
                LAB,
            ),
            command("test", "run the tests: test [--all] [PART]...", "10 to 17 min; all 17 to 25 min", TRIALS),
            command(
                "compile-ahead",
                "compile what the parts of `test` need, as it does in the background",
                "8 min, then 20 s",
                TRIALS,
            ),
        ],
    ),
    (
        "Search for faults",
        &[
            command(
                "hosts",
                "run scenarios and faults on hosts in network namespaces: hosts [--only NAME]",
                "2 min",
                TRIALS,
            ),
            command("ether", "check the emulated Ethernet by TCP over devices: ether [--short]", "20 s", TRIALS),
            command(
                "fabric",
                "try links on libfabric between hosts, with each provider: fabric [--short] [--provider NAME] [--rdma | --speed]",
                "3 min",
                LAB,
            ),
            command(
                "torture",
                "kill tasks while they send and receive: torture [--seconds N] [--seed N]",
                "90 s",
                TRIALS,
            ),
            command("fuzz", "pass untrusted input to all decoders: fuzz [--minutes N]", "10 min", TRIALS),
            command("sanitize", "run tests with a sanitizer: sanitize address|thread [--short]", "8 min", TRIALS),
            command("unlike", "run x86-64, i386, s390x and arm64 hosts together: unlike [--only ROW]", "3 min", TRIALS),
            command(
                "slurm",
                "run jobs of a real Slurm with three nodes: slurm [--short] [--only NAME]",
                "2 min",
                TRIALS,
            ),
            command(
                "why",
                "let pvm why explain programs with planted faults, and look at programs that are well: why [--only NAME]",
                "1 min",
                TRIALS,
            ),
            command(
                "monitor",
                "open the page of pvm monitor in a browser, and compare it with what programs do: monitor [--screenshots FOLDER]",
                "1 min",
                TRIALS,
            ),
            command("second-user", "try what another user of the host must not be able to do", "1 s", TRIALS),
            command("old-makefiles", "build and run programs with makefiles for PVM 3.4", "10 s", TRIALS),
        ],
    ),
    (
        "Measure",
        &[
            command(
                "bench",
                "compare with PVM 3.4.6, MPIs, mpi4py and the hardware's limit: bench [--short] [--against FILE]",
                "20 min",
                LAB,
            ),
            command(
                "papers",
                "repeat the experiments of the papers, and write a report: papers [--short] [--only NAME]",
                "30 min",
                LAB,
            ),
        ],
    ),
    (
        "Write documents from the sources",
        &[
            command("limits", "write docs/limits.md", "1 s", TRIALS),
            command("compatibility", "write docs/compatibility.md", "5 s", TRIALS),
        ],
    ),
];

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("help", String::as_str);
    match commands().find(|command| command.name == name).map(|command| &command.home) {
        Some(Home::Here(run)) => finish(name, run(&arguments[1..])),
        Some(Home::In(package)) => {
            let error = program_of(package).args(&arguments).exec();
            finish(name, Err(error).context("cannot start cargo"))
        }
        None => {
            print!("{}", help());
            if name == "help" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the command of the command line, which is one of these, in a program of another package.
pub fn main_of(commands: &[(&str, Run)]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    match commands.iter().find(|command| command.0 == name) {
        Some((_, run)) => finish(name, run(&arguments[1..])),
        None => {
            eprintln!("`cargo xtask` lists all commands");
            ExitCode::FAILURE
        }
    }
}

fn finish(name: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command that runs the program of another package, which cargo compiles if necessary. The name of a command
/// and its arguments have to follow.
pub fn program_of(package: &str) -> Process {
    let is_there = std::env::current_exe().is_ok_and(|own| own.with_file_name(package).exists());
    if !is_there {
        // A minute without a word looks like a fault.
        eprintln!("building `{package}`, which has this command (about a minute, once)");
    }
    let mut cargo = cargo_here();
    cargo.args(["run", "--quiet", "--manifest-path"]).arg(root().join("Cargo.toml")).args(["--package", package, "--"]);
    cargo
}

/// Returns the names of the commands of another package, sorted.
pub fn names_of(package: &str) -> Vec<&'static str> {
    let is_there = |command: &&Command| matches!(command.home, Home::In(home) if home == package);
    let mut names: Vec<&str> = commands().filter(is_there).map(|command| command.name).collect();
    names.sort_unstable();
    names
}

fn commands() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().flat_map(|(_, commands)| *commands)
}

/// Returns the text that lists all commands.
fn help() -> String {
    let mut text = "cargo xtask COMMAND    (times on two cores, once everything is compiled)\n".to_owned();
    for (purpose, commands) in COMMANDS {
        text += &format!("\n{purpose}\n");
        for Command { name, help, time, .. } in *commands {
            text += &format!("  {name:14} {help} ({time})\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_has_every_command_once_with_its_time() {
        let names: BTreeSet<&str> = commands().map(|command| command.name).collect();
        assert_eq!(names.len(), commands().count());
        let text = help();
        for command in commands() {
            let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{} ", command.name)));
            assert!(line.is_some_and(|line| line.ends_with(&format!("({})", command.time))), "{}", command.name);
        }
    }
}
