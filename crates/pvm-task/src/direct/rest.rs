//! What a task that leaves has kept of what it sent on direct links: the daemon sends it on.
//!
//! So a task never waits for a receiver at its end, and what it had sent comes all the same.
use super::End;
use crate::control::Member;
use crate::task::Task;
use pvm_core::proto::ToDaemon;
use rustix::fs::SealFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a task that leaves waits for other sides to take what it cannot hand over, for want of memory.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it sleeps at a time.
const LEAVE_PAUSE: Duration = Duration::from_millis(100);

impl Member {
    /// Before the task or its process ends: what the other sides have not taken goes over to the daemon.
    pub(crate) fn hand_over_directs(&mut self) {
        self.direct.ends.iter_mut().for_each(End::flush);
        let Some(link) = &mut self.link else { return };
        for end in self.direct.ends.iter_mut().filter(|end| !end.is_flushed()) {
            let Ok(memory) = memory_with(end.rest()) else { continue };
            let frame = ToDaemon::Rest { number: end.number, bytes: end.rest().len() as u64 };
            if link.send_to_daemon(&frame, &[memory.as_fd()]).is_ok() {
                end.leave_rest();
            }
        }
        self.wait_for_takers(LEAVE_WAIT_MAX);
    }

    /// Waits until the other sides have taken what was sent to them.
    fn wait_for_takers(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            self.direct.ends.iter_mut().for_each(End::flush);
            let Some(peer) = self.direct.ends.iter().find(|end| !end.is_flushed()).map(|end| end.peer) else { return };
            if Instant::now() >= end {
                return;
            }
            self.direct.wait_for_room(peer, LEAVE_PAUSE);
            // Nobody receives it any more.
            self.direct.arrived.clear();
        }
    }
}

impl Task {
    /// The process ends and may not have left: what it has sent goes out all the same.
    pub fn hand_over(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.hand_over_directs();
        member.send_last_frames();
    }
}

/// Memory of nobody's with those bytes.
fn memory_with(bytes: &[u8]) -> io::Result<OwnedFd> {
    if !pvm_fmp::can_have(bytes.len() as u64) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let memory = pvm_fmp::make_file("hpvm-rest", bytes.len() as u64)?;
    let mut at = 0;
    while at < bytes.len() {
        at += rustix::io::retry_on_intr(|| rustix::io::write(&memory, &bytes[at..]))?;
    }
    pvm_fmp::seal_file(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(memory)
}
