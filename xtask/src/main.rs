//! Every developer command: `cargo xtask <name>`.
#![forbid(unsafe_code)]

mod abi;
mod atomics;
mod bench;
mod build;
mod citations;
mod clippy;
mod common;
mod compatibility;
mod conform;
mod contract;
mod counts;
mod debian;
mod debian_pvm;
mod debian_rust;
mod demo;
mod failures;
mod fuzz;
mod hosts;
mod install;
mod limits;
mod lint;
mod machine;
mod man;
mod old_makefiles;
mod processes;
mod sanitize;
mod scratch;
mod second_user;
mod setup;
mod sim;
mod test;
mod torture;
mod unlike;

use std::process::ExitCode;

type Command = (&'static str, &'static str, fn(&[String]) -> anyhow::Result<()>);

/// One line a command; `help` prints this table.
const COMMANDS: &[Command] = &[
    ("setup", "install what a fresh Debian machine lacks: setup [build|test|unlike|sanitize|bench|fuzz]", setup::run),
    ("build", "build the distribution tree target/dist (release)", build::run),
    ("install", "install target/dist: install PREFIX", install::run),
    ("test", "every test; the last line is `N passed, N failed, N skipped`", test::run),
    ("abi", "symbols, kinds, sizes and headers against the contract", abi::run),
    ("lint", "the house rules: lengths, unsafe, paths, format, clippy", lint::run),
    ("compatibility", "write docs/compatibility.md", compatibility::run),
    ("limits", "write docs/limits.md", limits::run),
    ("old-makefiles", "what was written for PVM 3.4 builds and runs below PVM_ROOT", old_makefiles::run),
    ("second-user", "what another user of the machine must not be able to do", second_user::run),
    ("conform", "each case on Debian's PVM and on hpvm: conform [--only NAME] [--ours|--theirs]", conform::run),
    ("hosts", "machines of several hosts, which are network namespaces: hosts [--only NAME]", hosts::run),
    (
        "sim",
        "a simulated machine of many hosts, hurt from a seed: sim [--seed N] [--hosts H] [--tasks T] [--seeds N]",
        sim::run,
    ),
    ("torture", "tasks that are killed while they talk: torture [--seconds N] [--seed N]", torture::run),
    ("unlike", "one machine of hosts that write numbers differently: unlike [--only ROW]", unlike::run),
    ("fuzz", "bytes from nowhere for every decoder: fuzz [--minutes N] [--only NAME] [--keep]", fuzz::run),
    ("sanitize", "tests under a sanitizer: sanitize address|thread [--short]", sanitize::run),
    ("bench", "hpvm against Debian's PVM, Open MPI, MPICH and the limit: bench [--short]", bench::run),
    ("man", "the manual pages of the calls, and whether they are true: man [--only NAME]", man::run),
    ("demo", "the main job: a farm on this host, its speed, a small table", demo::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map(String::as_str).unwrap_or("help");
    match COMMANDS.iter().find(|command| command.0 == name) {
        Some(command) => match (command.2)(&arguments[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("xtask {name}: {error:#}");
                ExitCode::FAILURE
            }
        },
        None => {
            println!("cargo xtask COMMAND");
            for (name, help, _) in COMMANDS {
                println!("  {name:14} {help}");
            }
            if name == "help" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
