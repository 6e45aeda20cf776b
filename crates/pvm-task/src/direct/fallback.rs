//! The fallback from direct links that break, stall or are left by a task that ends ([`pvm_core::channel`] has the rules,
//! `crate::member` does what they say).
use super::{DirectLinks, RouteEvent, SEND_WAIT_MAX};
use pvm_core::channel::GivenUp;
use pvm_core::tid::Tid;
use std::time::{Duration, Instant};

/// The time between two checks for stalled links.
const STALL_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// If at most this many bytes are unacknowledged on a link, a leaving task does not wait for acknowledgements, but
/// sends the unacknowledged messages again by the default route.
const REPEATED_BYTES_MAX: usize = 64 << 10;
/// The longest time that a leaving task waits for peers that have to acknowledge more than `REPEATED_BYTES_MAX` bytes.
const ACKNOWLEDGEMENT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The length of one sleep of a leaving task that waits.
const LEAVE_PAUSE: Duration = Duration::from_millis(5);

impl DirectLinks {
    /// Begins the fallback from links whose connections have failed.
    pub(crate) fn note_broken(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.is_broken()) {
            link.lane.handle_break();
        }
    }

    /// Handles the fallback message of a peer. Returns whether there is a link to it whose fallback is still to be announced.
    pub(crate) fn on_peer_fallback(&mut self, peer: Tid, is_given_up: bool) -> bool {
        self.arrived.retain(|arrived| arrived.peer != peer);
        let Ok(at) = self.position(peer) else { return false };
        let link = &mut self.links[at];
        let answers = link.lane.handle_fallback(is_given_up);
        link.read_ahead.clear();
        self.pacing.remove(peer);
        if self.draining == Some(peer) {
            self.draining = None;
        }
        answers
    }

    /// Lets the program learn that a link that it could use is used no more.
    pub(crate) fn denounce(&mut self, at: usize) {
        if self.links[at].lane.is_established() {
            self.events.push(RouteEvent::Ended(self.links[at].peer));
        }
    }

    /// Handles the end of the fallback from a link.
    pub(crate) fn on_fallen_back(&mut self, at: usize) {
        self.update_interest(at);
        if self.links[at].lane.is_read_closed() {
            self.close_link(at);
        }
    }

    /// Starts the fallback from stalled links. Checks once a second.
    pub(super) fn close_stalled(&mut self) {
        let now = Instant::now();
        if self.stalls_checked.is_some_and(|seen| now.duration_since(seen) < STALL_CHECK_PAUSE) {
            return;
        }
        self.stalls_checked = Some(now);
        for at in (0..self.links.len()).rev() {
            let link = &mut self.links[at];
            let waits = self.draining == Some(link.peer);
            if link.has_stalled(waits, now) {
                match waits {
                    // The peer has exited: messages that have not arrived by now do not arrive any more.
                    true => self.remove_drained(at),
                    false => link.lane.handle_break(),
                }
            }
        }
    }

    /// Begins the fallback from the link to a peer, if messages take that link. Returns whether they do.
    pub(crate) fn leave_for_fabric(&mut self, peer: Tid) -> bool {
        let link = self.find(peer).filter(|link| link.lane.carries() && !link.is_send_closed());
        link.map(|link| link.lane.give_up(GivenUp::ForFabric)).is_some()
    }

    /// Waits while peers go on acknowledging, but for at most `ACKNOWLEDGEMENT_WAIT_MAX`. Does not wait for links with
    /// at most `REPEATED_BYTES_MAX` unacknowledged bytes.
    pub(crate) fn wait_for_acknowledgements(&mut self) {
        let begin = Instant::now();
        let (mut since, mut before) = (begin, 0);
        while begin.elapsed() < ACKNOWLEDGEMENT_WAIT_MAX && since.elapsed() < SEND_WAIT_MAX {
            self.links.iter_mut().for_each(|link| link.flush());
            let waiting =
                self.links.iter().filter(|link| !link.is_send_closed() && link.queue.bytes() > REPEATED_BYTES_MAX);
            let (mut count, mut progress) = (0, 0_u64);
            for link in waiting {
                count += 1;
                progress = progress
                    .wrapping_add(link.progress())
                    .wrapping_add(link.carried().acknowledged)
                    .wrapping_add(u64::from(link.queue.acknowledged()));
            }
            if count == 0 {
                return;
            }
            if progress != before {
                (since, before) = (Instant::now(), progress);
            }
            self.wait_for_room(None, LEAVE_PAUSE);
            // The program is ending and receives no more messages.
            self.arrived.clear();
        }
    }
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
