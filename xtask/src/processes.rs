//! Processes of this machine, as `/proc` lists them.
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Returns the processes that were started with this value of an environment variable.
pub fn with_variable(name: &str, value: &OsStr) -> Vec<u32> {
    let wanted = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let has = |pid: &u32| words(*pid, "environ").contains(&wanted);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has).collect()
}

/// Returns the command line of a process; nothing if it has ended.
pub fn command_line(pid: u32) -> Vec<String> {
    words(pid, "cmdline").iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns the words of a file of a process. A process that has ended, or belongs to another user, has none.
fn words(pid: u32, file: &str) -> Vec<Vec<u8>> {
    let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    text.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Returns whether a process is there.
pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
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
        assert!(with_variable("HPVM_XTASK_TEST", OsStr::new(&value)).is_empty() && !exists(child.id()));
    }
}
