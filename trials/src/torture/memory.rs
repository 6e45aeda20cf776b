//! Memory and descriptors of a machine's processes, as the kernel counts them.
use anyhow::{Context, Result, bail};
use procfs::process::{FDTarget, Process};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How long idle tasks may take to return memory.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(8);
/// The time between the end of a round and its first measurement.
const SETTLE_TIME_MIN: Duration = Duration::from_secs(1);
/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// The resources of a process.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    private_bytes: u64,
    /// The heap in use, as the task itself counts it; 0 for other processes.
    heap_bytes: u64,
    /// The process's share of memory that several processes have mapped.
    shared_bytes: u64,
    descriptors: usize,
    mappings: usize,
}

/// The resources of all processes of a machine.
#[derive(Clone, Default, Debug)]
struct Look {
    /// The daemon, the chief, and the tasks that are never killed.
    survivors: BTreeMap<u32, Use>,
    tasks: u64,
    shared_bytes: u64,
    /// The size of the anonymous files to which open descriptors refer.
    memory_file_bytes: u64,
}

/// How much each resource may have grown since the first measurement. Memory is in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The heap in use of a task that is never killed.
    pub heap: u64,
    /// The private memory of a task that is never killed, including what malloc keeps after a peak.
    pub private: u64,
    /// The private memory of a daemon.
    pub daemon: u64,
    /// The shared memory of all processes together, divided by the number of measured processes. It may grow, since the
    /// memory that an idle task keeps for its next messages varies by some MiB.
    pub shared: u64,
    /// The number of open descriptors of a process.
    pub descriptors: usize,
    /// The number of mappings of a process: segments of dead tasks must not stay mapped.
    pub mappings: usize,
}

impl Default for Limits {
    /// Returns the limits for tasks and daemons that all keep to the rules.
    fn default() -> Limits {
        Limits { heap: 1 << 20, private: 16 << 20, daemon: 1 << 20, shared: 1 << 20, descriptors: 2, mappings: 64 }
    }
}

/// Compares every measurement with the first one.
pub struct Watch {
    daemons: Vec<u32>,
    /// How much each resource may have grown.
    pub limits: Limits,
    settle_time: Duration,
    first: Option<Look>,
    last: Option<Look>,
}

impl Watch {
    /// Makes a watch for the machine of these daemons. Idle tasks may take at most `patience` to return memory.
    pub fn new(daemons: Vec<u32>, patience: Duration) -> Watch {
        let (limits, settle_time) = (Limits::default(), patience.min(SETTLE_TIME_MAX));
        Watch { daemons, limits, settle_time, first: None, last: None }
    }

    /// Measures the processes that a line of the chief names (`ROUND PID:KIND:HEAP ...`). Repeats this until no value
    /// exceeds the first measurement by more than its limit; fails if that takes too long. Returns a description.
    pub fn measure(&mut self, line: &str) -> Result<String> {
        let began = Instant::now();
        std::thread::sleep(SETTLE_TIME_MIN);
        loop {
            let look = self.take(line)?;
            let verdict = self.first.as_ref().map_or(Ok(()), |first| self.compare(first, &look));
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

    /// Returns a description of the last measurement. [`Watch::measure`] has already compared each measurement.
    pub fn verdict(&self) -> Result<String> {
        match &self.last {
            Some(look) => Ok(format!("at the end: {}", self.describe(look))),
            None => bail!("memory was never measured"),
        }
    }

    fn take(&self, line: &str) -> Result<Look> {
        let mut look = Look::default();
        let mut files = BTreeMap::new();
        let daemons: Vec<String> = self.daemons.iter().map(|daemon| format!("{daemon}:daemon:0")).collect();
        for word in line.split_whitespace().skip(1).chain(daemons.iter().map(String::as_str)) {
            let [pid, kind, heap] = word.split(':').collect::<Vec<_>>()[..] else { bail!("not PID:KIND:HEAP: {word}") };
            let process = Process::new(pid.parse()?).with_context(|| format!("process {pid}, a {kind}"))?;
            let mut used = used_by(&process, &mut files).with_context(|| format!("process {pid}, a {kind}"))?;
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
        let daemons = self.daemons.iter().map(|daemon| look.survivors.get(daemon).copied().unwrap_or_default());
        let daemons: Vec<String> = daemons
            .map(|daemon| {
                format!("daemon {:.1} MiB and {} descriptors", mebibytes(daemon.private_bytes), daemon.descriptors)
            })
            .collect();
        let tasks = look.survivors.iter().filter(|(pid, _)| !self.daemons.contains(pid));
        format!(
            "shared {:.1} MiB, {}, largest survivor {:.1} MiB",
            mebibytes(look.shared_bytes.max(look.memory_file_bytes)),
            daemons.join(", "),
            mebibytes(tasks.map(|(_, used)| used.private_bytes).max().unwrap_or_default()),
        )
    }

    fn compare(&self, first: &Look, now: &Look) -> Result<()> {
        let limits = self.limits;
        for (pid, used) in &now.survivors {
            let Some(before) = first.survivors.get(pid) else { bail!("process {pid} is new") };
            if used.heap_bytes > before.heap_bytes + limits.heap {
                bail!("memory of process {pid}: {} bytes of heap, it had {}", used.heap_bytes, before.heap_bytes);
            }
            let growth_max = if self.daemons.contains(pid) { limits.daemon } else { limits.private };
            if used.private_bytes > before.private_bytes + growth_max {
                bail!(
                    "memory of process {pid}: {:.1} MiB, it was {:.1} MiB",
                    mebibytes(used.private_bytes),
                    mebibytes(before.private_bytes)
                );
            }
            if used.descriptors > before.descriptors + limits.descriptors {
                bail!("descriptors of process {pid}: {}, it had {}", used.descriptors, before.descriptors);
            }
            if used.mappings > before.mappings + limits.mappings {
                let kinds = kinds_of_mappings(*pid);
                bail!("mappings of process {pid}: {}, it had {}; now {kinds}", used.mappings, before.mappings);
            }
        }
        let shared = [
            ("shared memory", first.shared_bytes, now.shared_bytes),
            ("anonymous files", first.memory_file_bytes, now.memory_file_bytes),
        ];
        for (what, before, after) in shared {
            if after > before + now.tasks * limits.shared {
                bail!("{what}: {:.1} MiB, it was {:.1} MiB", mebibytes(after), mebibytes(before));
            }
        }
        Ok(())
    }
}

/// Returns how many mappings a process has of each kind of file, for a message.
fn kinds_of_mappings(pid: u32) -> String {
    let maps = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.maps().ok());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for map in maps.into_iter().flatten() {
        *kinds.entry(format!("{:?} {:?}", map.pathname, map.perms)).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn used_by(process: &Process, files: &mut BTreeMap<u64, u64>) -> Result<Use> {
    let rollup = process.smaps_rollup()?.memory_map_rollup;
    let shared = rollup.iter().find_map(|map| map.extension.map.get("Pss_Shmem"));
    let mut used = Use {
        private_bytes: process.status()?.rssanon.context("no RssAnon")? << 10,
        shared_bytes: *shared.context("no Pss_Shmem")?,
        mappings: process.maps()?.len(),
        ..Use::default()
    };
    for descriptor in process.fd()? {
        let descriptor = descriptor?;
        used.descriptors += 1;
        if matches!(descriptor.target, FDTarget::MemFD(_)) {
            if let Ok(meta) = fs::metadata(format!("/proc/{}/fd/{}", process.pid, descriptor.fd)) {
                files.insert(meta.ino(), meta.blocks() * BLOCK_BYTES);
            }
        }
    }
    Ok(used)
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

    fn watch(daemon: u32) -> Watch {
        Watch::new(vec![daemon], Duration::ZERO)
    }

    #[test]
    fn growth_beyond_the_limits_is_noticed() {
        let first = look(1 << 20, 10);
        assert!(watch(0).compare(&first, &look(2 << 20, 12)).is_ok());
        assert!(watch(0).compare(&first, &look(18 << 20, 10)).is_err());
        assert!(watch(1).compare(&look(1 << 20, 10), &look(5 << 20, 10)).is_err());
        assert!(watch(0).compare(&first, &look(1 << 20, 13)).is_err());
        let shared = Look { memory_file_bytes: 2 << 20, ..look(1 << 20, 10) };
        assert!(watch(0).compare(&first, &shared).is_err());
    }

    #[test]
    fn a_process_can_be_looked_at() {
        let used = used_by(&Process::myself().unwrap(), &mut BTreeMap::new()).unwrap();
        assert!(used.private_bytes > 0 && used.descriptors >= 3);
    }
}
