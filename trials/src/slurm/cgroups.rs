//! The control groups in which Slurm keeps the processes of a step. They are not in any namespace, so they
//! are removed after a cluster has ended, also after one that was killed.

use crate::common::sh;
use crate::hosts::network;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the hierarchies of version 1 are, or that of version 2.
const PLACE: &str = "/sys/fs/cgroup";
/// The hierarchies of version 1 for the processes of steps, and for their memory.
const USED: [&str; 2] = ["freezer", "memory"];
/// The group of version 2 in which the whole sandbox runs, as if it were the only one.
const WHOLE: &str = "hpvm-slurm";
/// Only one cluster runs at a time, since its nodes have fixed names.
const LOCK: &str = "hpvm-slurm.lock";

/// The control groups that Slurm can use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// Those of version 1 hold steps together and limit their memory.
    One,
    /// Those of version 2 hold steps together. Slurm's limits of memory would need systemd.
    Two,
}

impl Groups {
    /// Returns Slurm's configuration. Memory is limited where that is possible; the processors of this machine are fewer
    /// than those of the nodes.
    pub fn configuration(self) -> &'static str {
        match self {
            Groups::One => {
                "CgroupMountpoint=/sys/fs/cgroup\nCgroupPlugin=cgroup/v1\nCgroupAutomount=no\n\
                 ConstrainCores=no\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
            }
            Groups::Two => {
                "CgroupMountpoint=/sys/fs/cgroup\nCgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n\
                 ConstrainCores=no\nConstrainRAMSpace=no\nConstrainSwapSpace=no\n"
            }
        }
    }

    /// Returns what is in the path of the group of each step of a job on a node.
    pub fn step(self, node: &str, job: &str) -> String {
        match self {
            Groups::One => format!("/slurm_{node}/uid_0/job_{job}/step_"),
            Groups::Two => format!("/{node}_slurmstepd.scope/job_{job}/step_"),
        }
    }
}

/// Returns the groups that Slurm can use here, or why it can use none.
pub fn usable() -> std::result::Result<Groups, String> {
    let is_usable = |path: &Path| {
        let probe = path.join(format!("hpvm-probe-{}", std::process::id()));
        let made = fs::create_dir(&probe);
        let is_made = made.is_ok() && probe.join("cgroup.procs").exists();
        made.and_then(|()| fs::remove_dir(&probe)).is_ok() && is_made
    };
    let Some(lacking) = USED.iter().find(|name| !is_usable(&Path::new(PLACE).join(name))) else {
        return Ok(Groups::One);
    };
    // Slurm refuses to use version 2 if there are hierarchies of version 1, too.
    let is_alone = fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.starts_with("0::"));
    match is_alone && Path::new(PLACE).join("cgroup.controllers").exists() && is_usable(Path::new(PLACE)) {
        true => Ok(Groups::Two),
        false => Err(format!("no control groups can be made, neither {PLACE}/{lacking} nor of version 2 alone")),
    }
}

/// Moves the sandbox into a group of version 2, which all of its processes see as the first one. Slurm's daemons take it
/// for the root of the hierarchy ([`ENTER`]), as they would without systemd.
pub fn enter_whole() -> Result<()> {
    let group = Path::new(PLACE).join(WHOLE);
    // Elsewhere, systemd has made the inner group.
    fs::create_dir_all(group.join("system.slice"))?;
    // The first process of the sandbox, and this one.
    for process in [1, std::process::id()] {
        fs::write(group.join("cgroup.procs"), process.to_string())?;
    }
    sh(Command::new("mount").arg("--bind").arg(&group).arg(PLACE))
}

/// The beginning of a command for a daemon that takes its group for the root of the hierarchy.
pub const ENTER: [&str; 3] = ["unshare", "--cgroup", "--"];

/// Waits until no other cluster runs. The next one may start when the value is dropped.
pub fn lock() -> Result<File> {
    let path = std::env::temp_dir().join(LOCK);
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Removes the groups of a cluster that has ended. Fails if one has a process, such as one of a real cluster.
pub fn remove(hosts: usize) -> Result<()> {
    let groups = |number: usize| USED.map(|name| Path::new(PLACE).join(name).join(group(number)));
    let whole = Path::new(PLACE).join(WHOLE);
    let left: Vec<PathBuf> = (1..=hosts).flat_map(groups).chain([whole]).filter(|path| path.is_dir()).collect();
    for path in left {
        remove_tree(&path);
        ensure!(!path.exists(), "{} is in use", path.display());
    }
    Ok(())
}

/// Returns the group of a node, as Debian's Slurm names it.
fn group(number: usize) -> String {
    format!("slurm_{}", network::name(number))
}

fn remove_tree(path: &Path) {
    let inner = fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    inner.for_each(|entry| remove_tree(&entry.path()));
    // What remains is reported by the caller.
    let _ = fs::remove_dir(path);
}
