//! The port table (papers F2, H3): one a host, written by the daemon, read by every task.
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The daemon's side.
pub struct PortTable(());
impl PortTable {
    /// Makes the table; `cores` is how many processors tasks may use.
    pub fn new(_cores: u32) -> io::Result<PortTable> { todo!() }
    /// A descriptor that can only be read, for `ToTask::Welcome`.
    pub fn descriptor(&self) -> BorrowedFd<'_> { todo!() }
    /// The task lives (connected or about to).
    pub fn set(&self, _tid: u32) { todo!() }
    /// The task is dead.
    pub fn clear(&self, _tid: u32) { todo!() }
    /// Says that one more frame lies in the task's control socket. Call after each write.
    pub fn frame_sent(&self, _tid: u32) { todo!() }
    /// How many connected tasks live here.
    pub fn set_tasks(&self, _tasks: u32) { todo!() }
}

/// A task's side.
pub struct PortView(());
impl PortView {
    /// Maps the table that came with `ToTask::Welcome`.
    pub fn new(_table: OwnedFd) -> io::Result<PortView> { todo!() }
    /// Whether the task lives.
    pub fn alive(&self, _tid: u32) -> bool { todo!() }
    /// How many frames the daemon has sent to that task since it was set (wraps).
    pub fn frames(&self, _tid: u32) -> u32 { todo!() }
    /// Whether tasks outnumber cores.
    pub fn crowded(&self) -> bool { todo!() }
}
