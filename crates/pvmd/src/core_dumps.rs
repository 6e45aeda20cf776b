//! Core dumps of the daemon contain none of its memory, because this memory holds the keys of the daemon's links. The
//! system keeps this setting for each process, and children inherit it. Programs that the daemon starts get the setting
//! with which the daemon began.
use std::sync::OnceLock;

/// The file with the setting: a bit for each kind of memory.
const FILTER: &str = "/proc/self/coredump_filter";
/// No kind of memory.
const NOTHING: &str = "0";

/// The setting with which the process began.
static BEFORE: OnceLock<String> = OnceLock::new();

fn choose(filter: &str) {
    // If this fails because there is no such file, the system dumps no memory or has no such setting.
    let _ = std::fs::write(FILTER, filter);
}

/// Excludes all memory from core dumps.
pub fn leave_memory_out() {
    if let Ok(filter) = std::fs::read_to_string(FILTER) {
        BEFORE.get_or_init(|| format!("0x{}", filter.trim()));
        choose(NOTHING);
    }
}

/// Runs a function that starts another program. Meanwhile the setting with which this process began applies.
pub fn as_before<T>(start: impl FnOnce() -> T) -> T {
    let Some(before) = BEFORE.get() else { return start() };
    choose(before);
    let started = start();
    choose(NOTHING);
    started
}
