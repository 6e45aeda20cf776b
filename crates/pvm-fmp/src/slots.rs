//! The slots of a host.

/// Returns whether the peer of that tid is the daemon of the host. No task has the daemon's slot.
#[inline(always)]
pub fn is_daemon(tid: u32) -> bool {
    tid as usize % SLOTS == 0
}

/// The number of slots of a host: one for each task, and slot 0 for the daemon.
pub const SLOTS: usize = 65_536;
