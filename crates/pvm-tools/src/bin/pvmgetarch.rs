//! `pvmgetarch`: prints PVM's name of this kind of machine (contract 5.8).
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match pvm_tools::architecture::name() {
        Some(name) => {
            println!("{name}");
            ExitCode::SUCCESS
        }
        None => {
            println!("UNKNOWN");
            ExitCode::FAILURE
        }
    }
}
