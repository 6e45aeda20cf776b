//! The control groups in which Slurm keeps the processes of a step. They are not in any namespace, so they
//! are removed after a cluster has ended, also after one that was killed.

use crate::hosts::network;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where the hierarchies of version 1 are. (Slurm 22.05 needs systemd for version 2.)
const PLACE: &str = "/sys/fs/cgroup";
/// The hierarchy for the processes of steps, and that for their memory.
const USED: [&str; 2] = ["freezer", "memory"];
/// Slurm's configuration. Memory is limited; the processors of this machine are fewer than those of the nodes.
pub const CONFIGURATION: &str = "CgroupMountpoint=/sys/fs/cgroup\nCgroupPlugin=cgroup/v1\nCgroupAutomount=no\n\
                                 ConstrainCores=no\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n";
/// Only one cluster runs at a time, since its nodes have fixed names.
const LOCK: &str = "hpvm-slurm.lock";

/// Returns why Slurm cannot use control groups here; `None` if it can.
pub fn obstacle() -> Option<String> {
    let is_usable = |name: &&str| {
        let probe = Path::new(PLACE).join(name).join(format!("hpvm-probe-{}", std::process::id()));
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
    };
    let lacking = USED.iter().find(|name| !is_usable(name))?;
    Some(format!("no control groups of version 1 can be made ({PLACE}/{lacking})"))
}

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
    let left: Vec<PathBuf> = (1..=hosts).flat_map(groups).filter(|path| path.is_dir()).collect();
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
