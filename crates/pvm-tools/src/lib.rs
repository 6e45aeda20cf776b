//! `pvm`: the console of the virtual machine, and its commands.
#![forbid(unsafe_code)]

pub mod architecture;
mod batch;
mod bench;
mod cli;
mod clock;
mod completions;
mod console;
mod control;
mod doctor;
mod drain;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hosts;
mod info;
mod jobs;
mod json;
mod list;
mod look;
mod machine;
mod measures;
mod monitor;
mod repeat;
mod run;
mod shape;
mod signals;
mod stat;
mod suggest;
mod timeline;
mod top;
mod trace_text;
mod variables;
mod wanted;
mod why;
mod words;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

/// Runs the program `pvm`.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(words) = cli::console_words(&words) {
        return console::once::run(&words);
    }
    let cli = Cli::parse_from(cli::words(std::env::args_os()));
    match &cli.command {
        None => match cli.check_hostfile() {
            Ok(()) => console::driver::run(&cli.daemon_arguments(), cli.hostfile()),
            Err(error) => {
                eprintln!("pvm: {error}");
                ExitCode::FAILURE
            }
        },
        Some(Command::Run(arguments)) => run::run(arguments),
        Some(Command::Bench(arguments)) => bench::run(arguments),
        Some(Command::Up(arguments)) => hosts::up(arguments),
        Some(Command::Down(arguments)) => hosts::down(arguments),
        Some(Command::Drain(arguments)) => drain::run(arguments),
        Some(Command::Conf(arguments)) => list::conf(arguments),
        Some(Command::Ps(arguments)) => list::ps(arguments),
        Some(Command::Jobs(arguments)) => list::jobs(arguments),
        Some(Command::Info(arguments)) => info::run(arguments),
        Some(Command::Doctor(arguments)) => doctor::run(arguments),
        Some(Command::Why(arguments)) => why::run(arguments),
        Some(Command::Stat(arguments)) => stat::run(arguments),
        Some(Command::Top(arguments)) => top::run(arguments),
        Some(Command::Monitor(arguments)) => monitor::run(arguments),
        Some(Command::Completions(arguments)) => completions::run(arguments),
        Some(Command::Guard(arguments)) => run::guard::run(arguments),
    }
}
