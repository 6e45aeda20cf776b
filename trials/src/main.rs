//! The program of the developer commands that test: `cargo xtask COMMAND` runs it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    xtask::commands::main_of(trials::COMMANDS)
}
