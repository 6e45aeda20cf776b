//! Debian's Slurm and munge, which are unpacked and not installed: installed, they would add users and start services.

use crate::common::{output, root};
use crate::debian;
use anyhow::{Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// The packages, and the libraries that a small Debian system lacks ([`lacking`] checks that they suffice).
const PACKAGES: [&str; 15] = [
    "libdbus-1-3",
    "libgcrypt20",
    "libgpg-error0",
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

/// The Slurm plugins that the test clusters load. Some need libraries that no Slurm program needs.
const PLUGINS: [&str; 6] =
    ["auth_munge", "cgroup_v1", "cgroup_v2", "jobacct_gather_linux", "select_cons_tres", "task_affinity"];

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
    if !is_there() {
        return Some("Debian's Slurm is missing (see `cargo xtask setup test`)".to_owned());
    }
    lacking().err().map(|error| format!("{error:#}"))
}

fn is_there() -> bool {
    fs::read_to_string(mark()).is_ok_and(|there| there == PACKAGES.join(" "))
}

fn mark() -> PathBuf {
    folder().join("is-there")
}

/// Returns the programs of both packages, and the plugins whose libraries must be found.
fn loaded() -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = PLUGINS.iter().map(|name| plugins().join(name).with_extension("so")).collect();
    for part in ["bin", "sbin"] {
        for entry in fs::read_dir(usr().join(part))? {
            all.push(entry?.path());
        }
    }
    Ok(all)
}

/// Returns an error that names the libraries that are neither unpacked nor installed.
fn lacking() -> Result<()> {
    let text = output(Command::new("ldd").args(loaded()?).env("LD_LIBRARY_PATH", library_path()))?;
    let missing = not_found(&text);
    ensure!(
        missing.is_empty(),
        "Debian's Slurm lacks {}; install what has it (`apt-file search` names the package)",
        missing.join(", ")
    );
    Ok(())
}

/// Returns the libraries that `ldd` has not found, each once.
fn not_found(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| Some(line.trim().strip_suffix("=> not found")?.trim())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Downloads and unpacks the packages, unless that has been done.
pub fn fetch() -> Result<()> {
    if is_there() {
        return lacking();
    }
    ensure!(std::env::consts::ARCH == "x86_64", "only for x86-64");
    println!("fetching Debian's Slurm, for tests; it is not installed");
    let _ = fs::remove_dir_all(folder());
    fs::create_dir_all(folder())?;
    debian::unpack(&PACKAGES, &folder(), &["./usr/share"])?;
    for name in LINKS {
        symlink(format!("{name}-wlm"), daemon(name))?;
    }
    lacking()?;
    fs::write(mark(), PACKAGES.join(" "))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_not_found_are_named_once() {
        let text = "/x/munged:\n\tlibgcrypt.so.20 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00)\n\
                    /x/remunge:\n\tlibgcrypt.so.20 => not found\n\tlibdbus-1.so.3 => not found\n";
        assert_eq!(not_found(text), ["libdbus-1.so.3", "libgcrypt.so.20"]);
    }
}
