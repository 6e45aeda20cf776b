//! What the system says about this process.
use crate::Result;
use std::time::Duration;

/// The bits of the signals 32 and 33.
const OF_THREADS: u64 = 3 << 31;

/// What a provider may change in a process.
pub struct State {
    pub threads: u64,
    /// The signals that have handlers, without the two that the C library uses for its threads: one bit for each.
    pub signals: u64,
    pub kilobytes: u64,
}

impl State {
    pub fn now() -> Result<State> {
        let text = std::fs::read_to_string("/proc/self/status")?;
        let word = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().unwrap_or_default().to_owned()
        };
        Ok(State {
            threads: word("Threads:").parse()?,
            signals: u64::from_str_radix(&word("SigCgt:"), 16)? & !OF_THREADS,
            kilobytes: word("VmRSS:").parse()?,
        })
    }
}

/// Returns how much processor time this process has used.
#[allow(clippy::disallowed_methods)] // only in tests
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
