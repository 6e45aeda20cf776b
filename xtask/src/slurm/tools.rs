//! Debian's Slurm and munge, which are unpacked and not installed: installed, they would add users and start services.

use crate::common::{output, root};
use crate::debian;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// The packages, and the libraries that a small Debian system lacks.
const PACKAGES: [&str; 13] = [
    "libdbus-1-3",
    "libhwloc15",
    "libjson-c5",
    "liblua5.1-0",
    "libmunge2",
    "libnuma1",
    "libreadline8",
    "libyaml-0-2",
    "munge",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
];
/// Programs that behave as their own names demand. Debian's packages make these links when they are installed.
const LINKS: [&str; 3] = ["slurmctld", "slurmd", "slurmstepd"];

/// Returns the folder that corresponds to `/usr`.
pub fn usr() -> PathBuf {
    folder().join("usr")
}

fn folder() -> PathBuf {
    root().join("target/slurm")
}

/// Returns the folder with the plugins, and with the library of all programs.
pub fn plugins() -> PathBuf {
    usr().join("lib/x86_64-linux-gnu/slurm-wlm")
}

/// Returns the value of `LD_LIBRARY_PATH` with which the programs run.
pub fn library_path() -> String {
    let folders = [plugins(), usr().join("lib/x86_64-linux-gnu"), folder().join("lib/x86_64-linux-gnu")];
    folders.map(|folder| folder.display().to_string()).join(":")
}

/// Returns a program for administrators.
pub fn daemon(name: &str) -> PathBuf {
    usr().join("sbin").join(name)
}

/// Returns why Slurm cannot be run here; `None` if it can.
pub fn obstacle() -> Option<String> {
    (!is_there()).then(|| "Debian's Slurm is missing (see `cargo xtask setup test`)".to_owned())
}

fn is_there() -> bool {
    fs::read_to_string(mark()).is_ok_and(|there| there == PACKAGES.join(" "))
}

fn mark() -> PathBuf {
    folder().join("is-there")
}

/// Downloads and unpacks the packages, unless that has been done.
pub fn fetch() -> Result<()> {
    if is_there() {
        return Ok(());
    }
    anyhow::ensure!(std::env::consts::ARCH == "x86_64", "only for x86-64");
    println!("fetching Debian's Slurm, for tests; it is not installed");
    let _ = fs::remove_dir_all(folder());
    fs::create_dir_all(folder())?;
    debian::unpack(&PACKAGES, &folder(), &["./usr/share"])?;
    for name in LINKS {
        symlink(format!("{name}-wlm"), daemon(name))?;
    }
    output(Command::new(daemon("slurmd")).arg("-V").env("LD_LIBRARY_PATH", library_path()))
        .context("Debian's Slurm does not run here")?;
    fs::write(mark(), PACKAGES.join(" "))?;
    Ok(())
}
