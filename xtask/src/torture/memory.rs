//! Memory and descriptors of a machine's processes, as the kernel counts them.
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How much the heap of a task that lives through it all may have gained, in bytes in use.
const HEAP_GROWTH_MAX: u64 = 1 << 20;
/// How much its private memory may have gained, in bytes: what malloc keeps after a peak included.
const PRIVATE_GROWTH_MAX: u64 = 16 << 20;
/// How much the daemon's private memory may have gained, in bytes.
const DAEMON_GROWTH_MAX: u64 = 1 << 20;
/// How much the shared memory of all processes together may have gained, in bytes a task. An idle
/// task keeps some MiB for its next messages, sometimes more of them, sometimes fewer.
const SHARED_GROWTH_MAX: u64 = 1 << 20;
/// How many descriptors a process may have gained.
const DESCRIPTOR_GROWTH_MAX: usize = 2;
/// How many mappings a process may have gained: segments of the dead must not stay mapped.
const MAPPING_GROWTH_MAX: usize = 64;
/// How long idle tasks may take to give memory back.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(8);
/// Until the first look, which the later ones are compared with.
const SETTLE_TIME_MIN: Duration = Duration::from_secs(1);
/// Unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// One process.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    private_bytes: u64,
    /// As the task counts it itself; 0 for others.
    heap_bytes: u64,
    /// This process's share of memory that several have mapped.
    shared_bytes: u64,
    descriptors: usize,
    mappings: usize,
}

/// All processes of a machine.
#[derive(Clone, Default, Debug)]
struct Look {
    /// The daemon, the chief, and the tasks that are never killed.
    survivors: BTreeMap<u32, Use>,
    tasks: u64,
    shared_bytes: u64,
    /// What the anonymous files hold, which open descriptors lead to.
    memory_file_bytes: u64,
}

/// Compares every look with the first one.
pub struct Watch {
    daemon: u32,
    settle_time: Duration,
    first: Option<Look>,
    last: Option<Look>,
}

impl Watch {
    /// For the machine of this daemon. Idle tasks may take at most `patience` to give memory back.
    pub fn new(daemon: u32, patience: Duration) -> Watch {
        Watch { daemon, settle_time: patience.min(SETTLE_TIME_MAX), first: None, last: None }
    }

    /// Looks at the processes in a line of the chief (`ROUND PID:KIND:HEAP …`), again and again until
    /// all is back to the first look's values. Gives a text of what there is.
    pub fn look(&mut self, line: &str) -> Result<String> {
        let began = Instant::now();
        std::thread::sleep(SETTLE_TIME_MIN);
        loop {
            let look = self.take(line)?;
            let verdict = self.first.as_ref().map_or(Ok(()), |first| compare(first, &look, self.daemon));
            let text = self.describe(&look);
            self.first.get_or_insert_with(|| look.clone());
            match verdict {
                Ok(()) => {
                    self.last = Some(look);
                    return Ok(text);
                }
                Err(error) if began.elapsed() > self.settle_time => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(300)),
            }
        }
    }

    /// A text about the last look. Each was compared when it was taken.
    pub fn verdict(&self) -> Result<String> {
        match &self.last {
            Some(look) => Ok(format!("at the end: {}", self.describe(look))),
            None => bail!("memory was never looked at"),
        }
    }

    fn take(&self, line: &str) -> Result<Look> {
        let mut look = Look::default();
        let mut files = BTreeMap::new();
        let daemon = format!("{}:daemon:0", self.daemon);
        for word in line.split_whitespace().skip(1).chain([daemon.as_str()]) {
            let [pid, kind, heap] = word.split(':').collect::<Vec<_>>()[..] else { bail!("not PID:KIND:HEAP: {word}") };
            let mut used = used_by(pid, &mut files).with_context(|| format!("process {pid}, a {kind}"))?;
            used.heap_bytes = heap.parse()?;
            look.shared_bytes += used.shared_bytes;
            look.tasks += 1;
            if kind != "mortal" {
                look.survivors.insert(pid.parse()?, used);
            }
        }
        look.memory_file_bytes = files.values().sum();
        Ok(look)
    }

    fn describe(&self, look: &Look) -> String {
        let daemon = look.survivors.get(&self.daemon).copied().unwrap_or_default();
        let most = look.survivors.iter().filter(|(pid, _)| **pid != self.daemon).map(|(_, used)| used.private_bytes);
        format!(
            "shared {:.1} MiB, daemon {:.1} MiB and {} descriptors, largest survivor {:.1} MiB",
            mebibytes(look.shared_bytes.max(look.memory_file_bytes)),
            mebibytes(daemon.private_bytes),
            daemon.descriptors,
            mebibytes(most.max().unwrap_or_default()),
        )
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn compare(first: &Look, now: &Look, daemon: u32) -> Result<()> {
    for (pid, used) in &now.survivors {
        let Some(before) = first.survivors.get(pid) else { bail!("process {pid} is new") };
        if used.heap_bytes > before.heap_bytes + HEAP_GROWTH_MAX {
            bail!("memory of process {pid}: {} bytes of heap, it had {}", used.heap_bytes, before.heap_bytes);
        }
        let growth_max = if *pid == daemon { DAEMON_GROWTH_MAX } else { PRIVATE_GROWTH_MAX };
        if used.private_bytes > before.private_bytes + growth_max {
            bail!(
                "memory of process {pid}: {:.1} MiB, it was {:.1} MiB",
                mebibytes(used.private_bytes),
                mebibytes(before.private_bytes)
            );
        }
        if used.descriptors > before.descriptors + DESCRIPTOR_GROWTH_MAX {
            bail!("descriptors of process {pid}: {}, it had {}", used.descriptors, before.descriptors);
        }
        if used.mappings > before.mappings + MAPPING_GROWTH_MAX {
            bail!("mappings of process {pid}: {}, it had {}", used.mappings, before.mappings);
        }
    }
    let shared = [
        ("shared memory", first.shared_bytes, now.shared_bytes),
        ("anonymous files", first.memory_file_bytes, now.memory_file_bytes),
    ];
    for (what, before, after) in shared {
        if after > before + now.tasks * SHARED_GROWTH_MAX {
            bail!("{what}: {:.1} MiB, it was {:.1} MiB", mebibytes(after), mebibytes(before));
        }
    }
    Ok(())
}

fn used_by(pid: &str, files: &mut BTreeMap<u64, u64>) -> Result<Use> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let mut used = Use {
        private_bytes: kibibytes_after(&status, "RssAnon:")? << 10,
        shared_bytes: kibibytes_after(&rollup, "Pss_Shmem:")? << 10,
        mappings: fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().count(),
        ..Use::default()
    };
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        used.descriptors += 1;
        let target = fs::read_link(&path).unwrap_or_default();
        if target.to_string_lossy().starts_with("/memfd:") {
            if let Ok(meta) = fs::metadata(&path) {
                files.insert(meta.ino(), meta.blocks() * BLOCK_BYTES);
            }
        }
    }
    Ok(used)
}

fn kibibytes_after(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(private_bytes: u64, descriptors: usize) -> Look {
        Look {
            survivors: [(1, Use { private_bytes, descriptors, ..Use::default() })].into(),
            tasks: 1,
            ..Look::default()
        }
    }

    #[test]
    fn growth_beyond_the_limits_is_noticed() {
        let first = look(1 << 20, 10);
        assert!(compare(&first, &look(2 << 20, 12), 0).is_ok());
        assert!(compare(&first, &look(18 << 20, 10), 0).is_err());
        assert!(compare(&look(1 << 20, 10), &look(5 << 20, 10), 1).is_err());
        assert!(compare(&first, &look(1 << 20, 13), 0).is_err());
        let shared = Look { memory_file_bytes: 2 << 20, ..look(1 << 20, 10) };
        assert!(compare(&first, &shared, 0).is_err());
    }

    #[test]
    fn a_process_can_be_looked_at() {
        let used = used_by("self", &mut BTreeMap::new()).unwrap();
        assert!(used.private_bytes > 0 && used.descriptors >= 3);
    }
}
