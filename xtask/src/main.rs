//! All developer commands: `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

mod abi;
mod atomics;
mod bench;
mod build;
mod circles;
mod citations;
mod clippy;
mod common;
mod compatibility;
mod compile_ahead;
mod conform;
mod congestion;
mod contract;
mod counts;
mod debian;
mod debian_pvm;
mod debian_rust;
mod demo;
mod elf;
mod ether;
mod fabric;
mod failures;
mod fuzz;
mod guide;
mod hosts;
mod install;
mod instructions;
mod layers;
mod limits;
mod lint;
mod machine;
mod man;
mod modules;
mod mpi_wheels;
mod old_makefiles;
mod packages;
mod papers;
mod portable;
mod processes;
mod python;
mod sanitize;
mod scratch;
mod second_user;
mod setup;
mod sim;
mod slurm;
mod test;
mod torture;
mod unlike;

use std::process::ExitCode;

/// A command: its name, what it does, how long it takes, and the function that runs it with the further arguments.
struct Command {
    name: &'static str,
    help: &'static str,
    /// The time on two cores, once everything is compiled.
    time: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

const fn command(
    name: &'static str,
    help: &'static str,
    time: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
) -> Command {
    Command { name, help, time, run }
}

/// All commands by purpose. Without arguments, `cargo xtask` prints this table.
const COMMANDS: &[(&str, &[Command])] = &[
    (
        "Build and install",
        &[
            command("setup", "install what a fresh Debian machine lacks: setup [WORD]...", "minutes, once", setup::run),
            command("build", "build the distribution tree target/dist (release)", "5 min, then seconds", build::run),
            command("install", "install target/dist: install PREFIX [--libdir DIRECTORY]", "1 s", install::run),
            command("uninstall", "remove an installation: uninstall PREFIX", "1 s", install::run_uninstall),
            command(
                "install-python",
                "install the Python package with target/dist: install-python DIRECTORY [--rpath DIRECTORY]",
                "40 s",
                python::run_install,
            ),
            command(
                "wheel",
                "build the Python package target/python/wheels/hpvm-*.whl: wheel [--portable] [--test]",
                "1 min, then 5 s",
                python::run,
            ),
            command(
                "demo",
                "run a parallel program, one worker of which is killed; measure messages",
                "20 s",
                demo::run,
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
                packages::run_dist_tarball,
            ),
            command(
                "binary-tarball",
                "make the tarball of binaries, in target/packages",
                "3 s",
                packages::run_binary_tarball,
            ),
            command(
                "packages",
                "make the Debian packages and tarballs offline, try them in a fresh system: packages [--only PART]",
                "20 min",
                packages::run,
            ),
            command(
                "release",
                "check that everything is ready, make the files, tag: release [--dry-run]",
                "30 s",
                packages::release::run,
            ),
        ],
    ),
    (
        "Check a change",
        &[
            command("lint", "check the house rules, formatting and clippy", "10 s to 3 min", lint::run),
            command(
                "sim",
                "simulate machines of many hosts with faults: sim [--seeds N] [--seed N]",
                "1 s for 8 seeds",
                sim::run,
            ),
            command(
                "conform",
                "run each case on Debian's PVM and on hpvm: conform [--only NAME]",
                "2 min",
                conform::run,
            ),
            command("abi", "compare symbols, sizes and headers with PVM 3.4.6", "5 s", abi::run),
            command(
                "man",
                "check the manual pages of the calls and run their examples: man [--only NAME]",
                "10 s",
                man::run,
            ),
            command(
                "guide",
                "run the programs and commands of the guide, check its links, messages and spelling: guide [--only PAGE]",
                "20 s",
                guide::run,
            ),
            command(
                "instructions",
                "count the instructions of short calls, compare with the limits: instructions [--update]",
                "5 s",
                instructions::run,
            ),
            command("test", "run every test: test [PART]...", "20 min", test::run),
            command(
                "compile-ahead",
                "compile what the last parts of `test` need, as it does in the background",
                "4 min, then 10 s",
                compile_ahead::run,
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
                hosts::run,
            ),
            command(
                "ether",
                "check the emulated Ethernet: its model against theory, and TCP over devices: ether [--model]",
                "20 s",
                ether::run,
            ),
            command(
                "fabric",
                "try links on libfabric between hosts, with each provider: fabric [--short] [--provider NAME] [--rdma | --speed]",
                "3 min",
                fabric::run,
            ),
            command(
                "torture",
                "kill tasks while they send and receive: torture [--seconds N] [--seed N]",
                "90 s",
                torture::run,
            ),
            command("fuzz", "pass untrusted input to all decoders: fuzz [--minutes N]", "10 min", fuzz::run),
            command(
                "sanitize",
                "run tests with a sanitizer: sanitize address|thread [--short]",
                "8 min",
                sanitize::run,
            ),
            command(
                "unlike",
                "run x86-64, i386, s390x and arm64 hosts together: unlike [--only ROW]",
                "3 min",
                unlike::run,
            ),
            command(
                "slurm",
                "run jobs of a real Slurm with three nodes: slurm [--short] [--only NAME]",
                "2 min",
                slurm::run,
            ),
            command("second-user", "try what another user of the host must not be able to do", "1 s", second_user::run),
            command("old-makefiles", "build and run programs with makefiles for PVM 3.4", "10 s", old_makefiles::run),
        ],
    ),
    (
        "Measure",
        &[
            command(
                "bench",
                "compare with PVM 3.4.6, MPIs, mpi4py and the hardware's limit: bench [--short] [--against FILE]",
                "20 min",
                bench::run,
            ),
            command(
                "papers",
                "repeat the experiments of the papers, and write a report: papers [--short] [--only NAME]",
                "30 min",
                papers::run,
            ),
        ],
    ),
    (
        "Write documents from the sources",
        &[
            command("limits", "write docs/limits.md", "1 s", limits::run),
            command("compatibility", "write docs/compatibility.md", "5 s", compatibility::run),
        ],
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("help", String::as_str);
    match commands().find(|command| command.name == name) {
        Some(command) => match (command.run)(&arguments[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("xtask {name}: {error:#}");
                ExitCode::FAILURE
            }
        },
        None => {
            print!("{}", help());
            if name == "help" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
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
