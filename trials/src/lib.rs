//! The developer commands that test hpvm, and the networks of hosts, which measurements use too.
#![forbid(unsafe_code)]

mod abi;
mod atomics;
mod circles;
mod citations;
mod clippy;
mod compatibility;
mod compile_ahead;
mod conform;
pub mod congestion;
mod demo;
mod elf;
pub mod ether;
mod fuzz;
mod guide;
pub mod hosts;
mod layers;
mod limits;
mod lint;
mod man;
mod modules;
mod monitor;
mod old_makefiles;
mod processes;
mod sanitize;
mod second_user;
mod sim;
mod slurm;
mod test;
mod torture;
mod unlike;
mod why;

use xtask::commands::Run;
use xtask::{
    build, common, contract, counts, debian_pvm, debian_rust, debian_slurm, failures, install, machine, measure,
    packages, python, scratch, side,
};

/// The commands, as the table of `xtask` names them.
pub const COMMANDS: &[(&str, Run)] = &[
    ("abi", abi::run),
    ("compatibility", compatibility::run),
    ("compile-ahead", compile_ahead::run),
    ("conform", conform::run),
    ("demo", demo::run),
    ("ether", ether::run),
    ("fuzz", fuzz::run),
    ("guide", guide::run),
    ("hosts", hosts::run),
    ("limits", limits::run),
    ("lint", lint::run),
    ("man", man::run),
    ("monitor", monitor::run),
    ("old-makefiles", old_makefiles::run),
    ("sanitize", sanitize::run),
    ("second-user", second_user::run),
    ("sim", sim::run),
    ("slurm", slurm::run),
    ("test", test::run),
    ("torture", torture::run),
    ("unlike", unlike::run),
    ("why", why::run),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_those_of_the_table() {
        let names: Vec<&str> = super::COMMANDS.iter().map(|command| command.0).collect();
        assert_eq!(names, xtask::commands::names_of("trials"));
    }
}
