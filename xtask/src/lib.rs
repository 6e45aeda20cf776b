//! The developer commands that build, install, show and pack hpvm, and what the commands of `trials` and `lab` share.
#![forbid(unsafe_code)]

pub mod build;
pub mod commands;
pub mod common;
pub mod contract;
pub mod counts;
pub mod debian;
pub mod debian_kernel;
pub mod debian_pvm;
pub mod debian_rust;
pub mod debian_slurm;
pub mod ending;
pub mod failures;
pub mod install;
pub mod machine;
pub mod man;
pub mod measure;
pub mod mpi_wheels;
pub mod packages;
mod portable;
pub mod processes;
pub mod python;
pub mod scratch;
pub mod setup;
pub mod side;
