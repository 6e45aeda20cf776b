//! What a core dump of the daemon holds: nothing of its memory, where the keys of its links are. The system keeps the
//! choice for each process, and hands it on to children and to programs that they become; those have what this
//! process began with.
use std::sync::OnceLock;

/// Where the choice stands, as bits for kinds of memory.
const FILTER: &str = "/proc/self/coredump_filter";
/// No kind.
const NOTHING: &str = "0";

/// What the process began with.
static BEFORE: OnceLock<String> = OnceLock::new();

fn choose(filter: &str) {
    // Where there is no such file, the system makes no dump of memory or has no choice to offer.
    let _ = std::fs::write(FILTER, filter);
}

/// From here on a core dump holds no memory.
pub fn leave_memory_out() {
    if let Ok(filter) = std::fs::read_to_string(FILTER) {
        BEFORE.get_or_init(|| format!("0x{}", filter.trim()));
        choose(NOTHING);
    }
}

/// Starts something else's process, of which a core dump is its own affair.
pub fn as_before<T>(start: impl FnOnce() -> T) -> T {
    let Some(before) = BEFORE.get() else { return start() };
    choose(before);
    let started = start();
    choose(NOTHING);
    started
}
