//! Core dumps of the daemon hold none of its memory, since that holds the keys of its links. The system keeps this
//! choice for each process, and children inherit it. Processes of others get the choice with which this process began.
use std::sync::OnceLock;

/// The file with the choice, as bits for kinds of memory.
const FILTER: &str = "/proc/self/coredump_filter";
/// No kind of memory.
const NOTHING: &str = "0";

/// The choice with which the process began.
static BEFORE: OnceLock<String> = OnceLock::new();

fn choose(filter: &str) {
    // If there is no such file, the system dumps no memory or offers no choice.
    let _ = std::fs::write(FILTER, filter);
}

/// Excludes all memory from core dumps.
pub fn leave_memory_out() {
    if let Ok(filter) = std::fs::read_to_string(FILTER) {
        BEFORE.get_or_init(|| format!("0x{}", filter.trim()));
        choose(NOTHING);
    }
}

/// Runs a function that starts a process of somebody else, with the choice with which this process began.
pub fn as_before<T>(start: impl FnOnce() -> T) -> T {
    let Some(before) = BEFORE.get() else { return start() };
    choose(before);
    let started = start();
    choose(NOTHING);
    started
}
