//! Processes of this machine, as `/proc` lists them.
use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;

/// Returns all processes.
pub fn all() -> impl Iterator<Item = Process> {
    // A process that ends while its entry is read is left out.
    all_processes().into_iter().flatten().flatten()
}

/// Returns the processes that were started with this value of an environment variable.
pub fn with_variable(name: &str, value: &OsStr) -> Vec<u32> {
    let has = |process: &Process| {
        process.environ().is_ok_and(|variables| variables.get(OsStr::new(name)).is_some_and(|found| found == value))
    };
    all().filter(has).map(|process| process.pid as u32).collect()
}

/// Returns a process, unless it has ended.
pub fn find(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Sends a signal to a process, which may have ended meanwhile.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::wait_until;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_is_found_by_a_variable_and_ended_by_a_signal() {
        let value = format!("processes {}", std::process::id());
        let mut child = Command::new("sleep").arg("60").env("HPVM_XTASK_TEST", &value).spawn().unwrap();
        // The system shows the variables of a process a moment after its program was started.
        let is_found = || with_variable("HPVM_XTASK_TEST", OsStr::new(&value)) == [child.id()];
        assert!(wait_until(Duration::from_secs(10), is_found));
        signal(child.id(), Signal::KILL);
        assert!(!child.wait().unwrap().success());
        assert!(with_variable("HPVM_XTASK_TEST", OsStr::new(&value)).is_empty() && find(child.id()).is_none());
    }
}
