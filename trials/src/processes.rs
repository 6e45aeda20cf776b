//! Processes of this machine, as `/proc` lists them.
use procfs::process::{Process, all_processes};
pub use xtask::processes::{command_line, signal, with_variable};

/// Returns all processes.
pub fn all() -> impl Iterator<Item = Process> {
    // A process that ends while its entry is read is left out.
    all_processes().into_iter().flatten().flatten()
}

/// Returns a process, unless it has ended.
pub fn find(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}
