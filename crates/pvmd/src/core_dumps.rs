//! Core dumps of the daemon contain none of its memory, because this memory holds the keys of the daemon's links. The
//! system keeps this setting for each process, and children inherit it. Programs that the daemon starts get the setting
//! with which the daemon began.
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

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

/// While such a value lives, the setting with which this process began applies, and programs that are started get it.
pub struct AsBefore(());

impl AsBefore {
    /// Begins to apply it.
    pub fn begin() -> AsBefore {
        let mut values = values();
        *values += 1;
        if let (1, Some(before)) = (*values, BEFORE.get()) {
            choose(before);
        }
        AsBefore(())
    }
}

impl Drop for AsBefore {
    fn drop(&mut self) {
        let mut values = values();
        *values -= 1;
        if *values == 0 && BEFORE.get().is_some() {
            choose(NOTHING);
        }
    }
}

/// Returns the number of such values.
fn values() -> MutexGuard<'static, usize> {
    static VALUES: Mutex<usize> = Mutex::new(0);
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}
