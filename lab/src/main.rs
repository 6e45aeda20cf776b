//! The program of the developer commands that measure: `cargo xtask COMMAND` runs it.
#![forbid(unsafe_code)]

mod bench;
mod fabric;
mod instructions;
mod papers;

use trials::{congestion, ether, hosts};
use xtask::commands::Run;
use xtask::{
    build, common, counts, debian_kernel, debian_pvm, failures, measure, mpi_wheels, processes, python, scratch,
};

/// The commands, as the table of `xtask` names them.
const COMMANDS: &[(&str, Run)] =
    &[("bench", bench::run), ("fabric", fabric::run), ("instructions", instructions::run), ("papers", papers::run)];

fn main() -> std::process::ExitCode {
    xtask::commands::main_of(COMMANDS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_those_of_the_table() {
        let names: Vec<&str> = super::COMMANDS.iter().map(|command| command.0).collect();
        assert_eq!(names, xtask::commands::names_of("lab"));
    }
}
