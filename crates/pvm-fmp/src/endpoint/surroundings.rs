//! What a waiting task sees of the peer that it waits for ([`crate::wait_policy`]).
use super::Endpoint;
use crate::clock::system_clock;
use crate::parker::Parker;
use crate::segment_layout::Header;
use crate::sync::ReadOnlyLoad;
use crate::wait_policy::{Peer, Spinner, Surroundings, Wait, Waits};
use std::io::Read;
use std::time::Duration;

/// The surroundings of a task: `None` for one that is not enrolled.
pub struct Company<'a>(pub Option<&'a Endpoint>);

impl Company<'_> {
    /// Returns the header of the peer that has sent last, unless it is the daemon, which waits for many.
    fn header(&self) -> Option<&Header> {
        let endpoint = self.0.as_ref()?;
        let peer = endpoint.peers[*endpoint.order.first()?].as_ref()?;
        (!crate::is_daemon(peer.tid)).then(|| peer.owner.mapping.header())
    }
}

impl Surroundings for Company<'_> {
    fn now(&self) -> Duration {
        system_clock(libc::CLOCK_MONOTONIC).unwrap_or_default()
    }

    fn core(&self) -> u32 {
        // SAFETY: the call has no preconditions.
        let core = unsafe { libc::sched_getcpu() }.max(0) as u32;
        if let Some(endpoint) = &self.0 {
            endpoint.with_parker(|parker| parker.note_core(core));
        }
        core
    }

    fn peer(&self) -> Peer {
        let Some(parker) = self.header().map(|header| &header.parker.0) else { return Peer::Unknown };
        if parker.is_parked() { Peer::Asleep } else { Peer::Awake { core: parker.core() } }
    }

    fn peer_is_ready(&self) -> bool {
        let Some(header) = self.header() else { return false };
        let mut text = [0; STAT_BYTES];
        let read = std::fs::File::open(format!("/proc/{}/stat", header.pid.load_relaxed()))
            .and_then(|mut file| file.read(&mut text));
        read.is_ok_and(|bytes| is_ready(&text[..bytes]))
    }

    fn peer_ran(&self) -> Option<Duration> {
        let process = self.header()?.pid.load_relaxed();
        let mut clock_id = 0;
        // SAFETY: writes one number.
        let found = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock_id) } == 0;
        found.then(|| system_clock(clock_id)).flatten()
    }
}

impl Company<'_> {
    /// Asks what to do next in a wait, and does it, unless that is a sleep. Returns `false` for a sleep.
    #[inline]
    pub fn pause(&self, spinner: &mut Spinner, waits: &mut Waits) -> bool {
        match spinner.next(waits, self) {
            Wait::Watch => {}
            Wait::Yield => {
                let before = self.now();
                std::thread::yield_now();
                spinner.yielded(self.now() - before);
            }
            Wait::Part => self.part(),
            Wait::Sleep => return false,
        }
        true
    }
}

impl Company<'_> {
    /// Moves this task to another core, if it may run on another one. The peer must not do so at the same time, so it no
    /// longer sees this task on the core from now on.
    #[cold]
    fn part(&self) {
        if let Some(endpoint) = self.0 {
            endpoint.with_parker(Parker::leave_core);
        }
        leave_core();
        self.core();
    }
}

impl Endpoint {
    fn with_parker<T>(&self, of: impl FnOnce(&Parker) -> T) -> T {
        of(&self.heap.borrow().source().mapping.header().parker.0)
    }
}

/// As many bytes of `/proc/PID/stat` as hold the state of the process.
const STAT_BYTES: usize = 64;

/// Returns whether `/proc/PID/stat` names a process that could run: its state stands behind its name in brackets, which may
/// contain brackets.
fn is_ready(stat: &[u8]) -> bool {
    stat.iter().rposition(|byte| *byte == b')').is_some_and(|end| stat[end..].starts_with(b") R"))
}

/// Makes the kernel move the calling thread to another core, and then allows it all cores again on which it might run
/// before. Does nothing if it may run on this core only.
fn leave_core() {
    let Ok(before) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = before;
    // SAFETY: the call has no preconditions.
    others.unset(unsafe { libc::sched_getcpu() }.max(0) as usize);
    if others.count() > 0 && rustix::thread::sched_setaffinity(None, &others).is_ok() {
        let _ = rustix::thread::sched_setaffinity(None, &before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_stands_behind_its_name() {
        assert!(is_ready(b"12 (a task) R 1 12 12 0"));
        assert!(is_ready(b"12 (a) R) R 1 12 12 0"));
        assert!(!is_ready(b"12 (a) R b) S 1 12 12 0"));
        assert!(!is_ready(b""));
    }
}
