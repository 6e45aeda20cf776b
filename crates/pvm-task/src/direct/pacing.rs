//! Pacing of the long messages that arrive on direct links (`pvm_core::flows::pacing`).
//!
//! The task decides when it is in the library. Senders meanwhile send what they were granted.
use super::DirectLinks;
use super::link::incoming::LongNews;
use pvm_core::flows::pacing::{Pacer, Pacing};
use pvm_core::proto::Direct;
use pvm_core::tid::Tid;
use std::time::{Duration, Instant};

/// The pacer of a task's links.
pub(crate) struct LinkPacer {
    pacer: Pacer,
    /// The zero of the pacer's time.
    made: Instant,
    /// Whether pacing has begun because packets of several senders were lost, and the daemon has not been told yet.
    owes_report: bool,
}

impl Default for LinkPacer {
    fn default() -> LinkPacer {
        let mut pacer = Pacer::new();
        // The first link brings the setting of the machine.
        pacer.set_pacing(Pacing::Off);
        LinkPacer { pacer, made: Instant::now(), owes_report: false }
    }
}

impl LinkPacer {
    /// Adds the sender at the other end of a new link. Returns how many bytes of long messages it may send before its
    /// first grant. `is_first`: whether there is no other link.
    pub fn add(&mut self, direct: &Direct, is_first: bool) -> u64 {
        if self.pacer.pacing() != direct.pacing {
            self.pacer.set_pacing(direct.pacing);
        }
        if is_first && direct.overflows {
            self.pacer.begin(self.made.elapsed());
        }
        self.pacer.add_sender(direct.peer)
    }

    /// Forgets a sender from which nothing arrives any more.
    pub fn remove(&mut self, peer: Tid) {
        self.pacer.host_gone(peer);
    }

    /// Takes what has arrived from a peer.
    pub fn count(&mut self, peer: Tid, news: impl Iterator<Item = LongNews>) {
        for one in news {
            match one {
                LongNews::Begun(number, bytes) => self.pacer.handle_start(peer, number, bytes),
                LongNews::Arrived(number, bytes) => self.pacer.handle_bytes(peer, number, bytes),
            }
        }
    }

    /// Handles the loss of packets of a peer.
    fn handle_loss(&mut self, now: Duration, peer: Tid) {
        let before = self.pacer.is_pacing();
        self.pacer.handle_loss(now, peer);
        self.owes_report |= self.pacer.is_pacing() && !before;
    }

    /// Returns how long the task may sleep before [`DirectLinks::pace`] is due even if nothing arrives.
    pub fn pause(&self) -> Option<Duration> {
        self.pacer.next_wakeup().map(|when| when.saturating_sub(self.made.elapsed()))
    }

    /// Returns whether the daemon has to be told that pacing has begun. After that, it counts as told.
    pub fn take_report(&mut self) -> bool {
        std::mem::take(&mut self.owes_report)
    }
}

impl DirectLinks {
    /// Decides which peers may send how much of their long messages, after all that has arrived was counted, and sends
    /// the grants.
    pub(super) fn pace(&mut self) {
        if !self.pacing.pacer.is_waiting() {
            return;
        }
        let now = self.pacing.made.elapsed();
        for peer in self.pacing.pacer.hosts_to_check(now) {
            if self.find(peer).is_some_and(|link| link.has_new_losses()) {
                self.pacing.handle_loss(now, peer);
            }
        }
        self.pacing.pacer.handle_time(now);
        while let Some(grant) = self.pacing.pacer.poll_grant() {
            if let Ok(at) = self.position(grant.host) {
                self.links[at].grant(grant.up_to);
                self.update_interest(at);
            }
        }
    }
}

#[cfg(test)]
#[path = "pacing_tests.rs"]
mod tests;
