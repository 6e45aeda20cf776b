//! How much memory the host has left: a task that asks for too much must get an error, and neither that task nor a
//! neighbour may be killed for it.
use crate::control_group::{self, Room};
use std::cell::Cell;
use std::fs;
use std::path::Path;

/// Memory that stays free on the host, whatever tasks send.
///
/// * Filled by: each task that sends, and each other host: the daemon keeps the messages that arrive from there
/// * Setting: `HPVM_HEAP_MAX` also bounds what one task takes
/// * Reached: a send returns `PvmNoMem`; a long message from another host waits on that host until there is memory, and
///   so do the messages behind it
/// * Test: `too_much_is_an_error_and_harms_nothing`
const RESERVE_BYTES: u64 = 128 << 20;
/// The number of bytes that a segment takes between two checks of /proc.
const UNCHECKED_BYTES: u64 = 4 << 20;

/// Counts the memory that one segment takes.
pub struct Allowance {
    limit_bytes: Cell<u64>,
    taken_bytes: Cell<u64>,
    unchecked_bytes: Cell<u64>,
}

impl Allowance {
    /// Makes an allowance. Its limit is the value of the environment variable `HPVM_HEAP_MAX` (bytes), if that is set,
    /// for tests and cautious sites.
    pub fn new() -> Allowance {
        let limit = std::env::var("HPVM_HEAP_MAX").ok().and_then(|text| text.parse().ok());
        let limit_bytes = Cell::new(limit.unwrap_or(u64::MAX));
        Allowance { limit_bytes, taken_bytes: Cell::new(0), unchecked_bytes: Cell::new(0) }
    }

    /// Returns the limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.get()
    }

    /// Sets the limit.
    #[cfg(test)]
    pub fn limit(&self, bytes: u64) {
        self.limit_bytes.set(bytes);
    }

    /// Takes `bytes` more, if that much memory is available. Returns whether it was.
    pub fn take(&self, bytes: u64) -> bool {
        if self.taken_bytes.get().saturating_add(bytes) > self.limit_bytes.get() {
            return false;
        }
        let unchecked = self.unchecked_bytes.get() + bytes;
        if unchecked >= UNCHECKED_BYTES {
            if !can_have(bytes) {
                return false;
            }
            self.unchecked_bytes.set(0);
        } else {
            self.unchecked_bytes.set(unchecked);
        }
        self.taken_bytes.set(self.taken_bytes.get() + bytes);
        true
    }

    /// Notes that `bytes` have been given back.
    pub fn give_back(&self, bytes: u64) {
        self.taken_bytes.set(self.taken_bytes.get() - bytes);
    }
}

/// Returns whether `bytes` are available now without harm to other processes.
pub fn can_have(bytes: u64) -> bool {
    spare_bytes(Path::new("/")).is_none_or(|spare| bytes <= spare)
}

/// Returns to the system the free memory that `malloc` keeps for later. For 64 MiB of small pieces this takes 15 ms.
pub fn release_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory alone.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns how much memory is available without harm to other processes, on the host and in the control groups. In a
/// small control group, an eighth of its limit stays free instead of the usual reserve.
fn spare_bytes(root: &Path) -> Option<u64> {
    let host = field(&root.join("proc/meminfo"), "MemAvailable:").map(|bytes| bytes.saturating_sub(RESERVE_BYTES));
    let spare = |room: Room| room.available_bytes.saturating_sub(RESERVE_BYTES.min(room.limit_bytes / 8));
    control_group::rooms(root).into_iter().map(spare).chain(host).min()
}

/// Returns, in bytes, the number from a line `Name:   123 kB` of a file in /proc.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use std::process::Command;

    /// The environment variable that tells the test below that it runs in the process inside the control group.
    const INSIDE: &str = "TEST_INSIDE_GROUP";

    /// Takes memory until there is none, as a sender does while its receiver sleeps.
    fn flood() {
        let mut endpoint = Endpoint::new().unwrap();
        let mut blocks = Vec::new();
        while let Ok(block) = endpoint.allocate(1 << 20) {
            blocks.push(block);
            assert!(blocks.len() < 200, "beyond the limit of the group");
        }
        assert!(blocks.len() > 100, "{} MiB", blocks.len());
    }

    #[test]
    fn a_flood_in_a_small_control_group_is_an_error_and_ends_nobody() {
        if std::env::var_os(INSIDE).is_some() {
            return flood();
        }
        // Where no control group can be made (no permission, or none mounted), this test ends here, and only the tests
        // of `control_group` check limits of groups.
        let name = format!("hpvm-test-{}", std::process::id());
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let places = [(first.join(&name), "memory.limit_in_bytes"), (second.join(&name), "memory.max")];
        let made = |(folder, limit): &&(std::path::PathBuf, &str)| {
            fs::create_dir(folder).is_ok() && fs::write(folder.join(limit), (200u64 << 20).to_string()).is_ok()
        };
        let Some((group, _)) = places.iter().find(made) else {
            places.iter().for_each(|(folder, _)| drop(fs::remove_dir(folder)));
            return eprintln!("no control group can be made here");
        };
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(group).arg(std::env::current_exe().unwrap());
        let test = "memory::tests::a_flood_in_a_small_control_group_is_an_error_and_ends_nobody";
        let output = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output().unwrap();
        fs::remove_dir(group).unwrap();
        places.iter().for_each(|(folder, _)| drop(fs::remove_dir(folder)));
        assert!(output.status.success(), "{output:?}");
    }
}
