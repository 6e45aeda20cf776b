//! A share of the processors' time for this process and all that it starts, by a control group of its own.
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time for which the share is counted, in microseconds: the kernel's default.
const PERIOD_US: u32 = 100_000;
/// The time that the processes in the group have to end.
const GRACE: Duration = Duration::from_secs(5);

/// The version of the control groups that limit the processors' time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group with a limit; this process is in it until the value is dropped.
pub struct Quota {
    group: PathBuf,
    parent: PathBuf,
}

impl Quota {
    /// Enters a group whose processes together have the time of `tenths` / 10 processors. Fails without the right to make
    /// one.
    pub fn enter(tenths: u32) -> Result<Quota> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let (version, parent) = place(&mounts, &own).context("no control group limits the processors' time here")?;
        let group = parent.join(format!("hpvm-bench-{}", std::process::id()));
        if version == Version::Two {
            fs::write(parent.join("cgroup.subtree_control"), "+cpu")
                .context("this process may not limit its own control group")?;
        }
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let quota = Quota { group, parent };
        let share = PERIOD_US / 10 * tenths;
        match version {
            Version::One => {
                quota.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                quota.write("cpu.cfs_quota_us", &share.to_string())?;
            }
            Version::Two => quota.write("cpu.max", &format!("{share} {PERIOD_US}"))?,
        }
        quota.write("cgroup.procs", &std::process::id().to_string())?;
        Ok(quota)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.group.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        // The last programs may still be ending.
        let end = Instant::now() + GRACE;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the group of this process that may limit the processors' time. `mounts`, `own`: the contents of
/// `/proc/self/mounts` and `/proc/self/cgroup`.
fn place(mounts: &str, own: &str) -> Option<(Version, PathBuf)> {
    let mut found = None;
    for line in mounts.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, folder, kind, options, ..] = words[..] else { continue };
        let version = match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => Version::One,
            // Where version 1 has the processors, version 2 is there without them.
            "cgroup2" if found.is_none() => Version::Two,
            _ => continue,
        };
        found = Some((version, folder));
    }
    let (version, folder) = found?;
    let is_own = |controllers: &str| match version {
        Version::One => controllers.split(',').any(|one| one == "cpu"),
        Version::Two => controllers.is_empty(),
    };
    let path = own.lines().find_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let controllers = words.next()?;
        words.next().filter(|_| is_own(controllers))
    })?;
    Some((version, Path::new(folder).join(path.trim_start_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        let one =
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n";
        let own = "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/b\n";
        assert_eq!(place(one, own), Some((Version::One, "/sys/fs/cgroup/cpu/a".into())));
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(place(two, "0::/user.slice\n"), Some((Version::Two, "/sys/fs/cgroup/user.slice".into())));
        assert_eq!(place("tmpfs /tmp tmpfs rw 0 0\n", own), None);
    }
}
