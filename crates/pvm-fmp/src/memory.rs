//! How much memory the host has left: a task that asks for too much must get an error, and
//! neither it nor a neighbour may be killed for it.
use std::cell::Cell;
use std::fs;

/// Memory that stays free on the host, whatever tasks send.
///
/// * Filled by: each task that sends, and each host, in the memory of the daemon that receives for it
/// * Setting: `HPVM_HEAP_MAX` bounds what one task takes besides
/// * Reached: a send says `PvmNoMem`; a long message from another host waits there, and what that host sends behind it, until there is memory
/// * Test: `too_much_is_an_error_and_harms_nothing`
const RESERVE_BYTES: u64 = 128 << 20;
/// How much is taken between two looks at /proc, in bytes.
const UNCHECKED_BYTES: u64 = 4 << 20;

/// Keeps account of what one segment takes.
pub struct Allowance {
    limit_bytes: Cell<u64>,
    taken_bytes: Cell<u64>,
    unchecked_bytes: Cell<u64>,
}

impl Allowance {
    /// The limit is the environment's `HPVM_HEAP_MAX` (bytes), if it is set: for tests and
    /// cautious sites.
    pub fn new() -> Allowance {
        let limit = std::env::var("HPVM_HEAP_MAX").ok().and_then(|text| text.parse().ok());
        let limit_bytes = Cell::new(limit.unwrap_or(u64::MAX));
        Allowance { limit_bytes, taken_bytes: Cell::new(0), unchecked_bytes: Cell::new(0) }
    }

    /// No more than that from now on.
    #[cfg(test)]
    pub fn limit(&self, bytes: u64) {
        self.limit_bytes.set(bytes);
    }

    /// Whether `bytes` more can be taken; if so they count as taken.
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

    /// `bytes` have been given back.
    pub fn give_back(&self, bytes: u64) {
        self.taken_bytes.set(self.taken_bytes.get() - bytes);
    }
}

/// Whether so much can be had now without hurting others.
pub fn can_have(bytes: u64) -> bool {
    available_bytes().is_none_or(|available| bytes.saturating_add(RESERVE_BYTES) <= available)
}

/// Gives the system back what `malloc` keeps in case that it is asked for again: 64 MiB of small pieces take 15 ms.
pub fn release_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory alone.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What can be had without hurting others: of the host, and of the control group.
fn available_bytes() -> Option<u64> {
    let host = field("/proc/meminfo", "MemAvailable:");
    match (host, group_available_bytes()) {
        (Some(host), Some(group)) => Some(host.min(group)),
        (host, group) => host.or(group),
    }
}

/// A line `Name:   123 kB` of a file of /proc, in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Limit less use of the control group (version 2) that this process is in.
fn group_available_bytes() -> Option<u64> {
    let group = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok()?.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}
