//! The way back from a direct link to the default route, when the link breaks or the task leaves.
//!
//! Who goes back says so on the default route, with the number of messages that the other side has acknowledged, and
//! sends all that was kept behind that. The other side knows how many it has taken in from the link; so many of
//! those that follow are *repeats*, which it drops. It reads the link no more then, and goes back too. So nobody
//! waits for an answer, nothing is lost, nothing comes twice, and the order stays (`docs/decisions/0023`).
use super::send_queue::QueuedBody;
use super::{DirectLinks, PATIENCE, RouteEvent};
use crate::control::Member;
use crate::message::OWN_DSIG;
use crate::receive::QueueSink;
use crate::system::TC_FALLBACK;
use crate::task::{State, Task};
use pvm_core::codes::{ENC_XDR, SYSCTX_TC};
use pvm_core::encoding::{Reader, Writer};
use pvm_core::tid::Tid;
use pvm_fmp::{FAR, Meta};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The first pause before a link that has broken is asked for again; each one is twice as long as the one before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// How often links are looked at that carry nothing although they should.
const STALL_LOOKS: Duration = Duration::from_secs(1);
/// A task that leaves sends so much again by the default route without asking whether it has come, in bytes.
const REPEATED_BYTES: usize = 64 << 10;
/// How long it waits at most while receivers take more than that.
const TAKING_MAX: Duration = Duration::from_secs(1);
/// How long a task that leaves waits for memory to send what it has kept.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it sleeps at a time.
const LEAVE_PAUSE: Duration = Duration::from_millis(5);

/// When a link may be asked for.
#[derive(Default)]
pub(crate) struct Backoff {
    /// `None`: no more.
    at: Option<Instant>,
    /// How long the last pause was; zero where no link has broken.
    pause: Duration,
}

impl Backoff {
    pub fn may_request(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// It has been asked for.
    pub fn requested(&mut self) {
        self.at = None;
    }

    /// The link has broken; or it did not come to be, after one that had.
    fn on_break(&mut self, was_used: bool) {
        if was_used || !self.pause.is_zero() {
            self.pause = (2 * self.pause).clamp(PAUSE_FIRST, PAUSE_MAX);
            self.at = Some(Instant::now() + self.pause);
        }
    }
}

/// What a task knows of a link until the other side has gone back from it.
pub(crate) struct ReceivedOnLink {
    pub count: Rc<Cell<u32>>,
    /// The other side's task has ended.
    pub ended: bool,
}

/// What other tasks have said on the default route about the links to them.
pub(crate) enum RouteSwitch {
    /// What follows comes on the link.
    ToLink(Tid),
    /// What follows comes on the default route backoff. Whether the other side is known to hear the same from here.
    ToDefault(Tid, bool),
}

/// The links of a task, as what comes on the default route needs to know them.
#[derive(Default)]
pub(crate) struct RouteSwitches {
    /// By peer.
    pub received: BTreeMap<i32, ReceivedOnLink>,
    pub pending: Vec<RouteSwitch>,
}

impl RouteSwitches {
    /// A task has gone back from a link. Returns how many of the messages that follow are repeats.
    pub fn on_fallback(&mut self, peer: i32, reader: &mut Reader<'_>) -> u32 {
        let (Some(acknowledged), Some(answers)) = (reader.int(), reader.int()) else { return 0 };
        let link = self.received.remove(&peer);
        let is_known = link.is_some() || answers != 0;
        self.pending.push(RouteSwitch::ToDefault(Tid(peer as u32), is_known));
        // Who answers had no link any more, and has sent nothing on one.
        let repeats =
            link.filter(|_| answers == 0).map_or(0, |link| link.count.get().wrapping_sub(acknowledged as u32));
        // What cannot be: more acknowledged than was taken.
        if repeats > i32::MAX as u32 { 0 } else { repeats }
    }
}

impl DirectLinks {
    /// A link has broken, or did not come to be.
    pub(super) fn on_break(&mut self, peer: Tid, was_used: bool) {
        if let Some(backoff) = self.backoffs.get_mut(&peer) {
            backoff.on_break(was_used);
        }
    }

    /// The link that was asked for is not made.
    pub(crate) fn on_refused(&mut self, peer: Tid) {
        self.on_break(peer, false);
    }

    /// Gives up links that stall, and links that have ended while this side did not read them. Looks once a second.
    pub(super) fn close_stalled(&mut self) {
        let now = Instant::now();
        if self.stalls_checked.is_some_and(|seen| now.duration_since(seen) < STALL_LOOKS) {
            return;
        }
        self.stalls_checked = Some(now);
        for at in (0..self.links.len()).rev() {
            let link = &mut self.links[at];
            link.falling_back |= link.has_ended_before_switch();
            let waits = self.draining == Some(link.peer);
            if link.has_stalled(waits, now) {
                match waits {
                    // Its task is dead: what has not come by now does not come.
                    true => self.remove(at),
                    false => link.falling_back = true,
                }
            }
        }
    }

    /// Waits as long as other sides take what was sent to them, up to a limit. Small rests are not waited for.
    fn wait_for_acknowledgements(&mut self) {
        let begin = Instant::now();
        let (mut since, mut before) = (begin, 0);
        while begin.elapsed() < TAKING_MAX && since.elapsed() < PATIENCE {
            self.links.iter_mut().for_each(|link| link.flush());
            let waiting =
                self.links.iter().filter(|link| !link.is_send_closed() && link.queue.bytes() > REPEATED_BYTES);
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
            // Nobody receives it any more.
            self.arrived.clear();
        }
    }
}

impl Member {
    /// Sends on by the default route what was kept for links that are of no use any more, as far as there is memory.
    pub(super) fn fall_back(&mut self) {
        for at in (0..self.direct.links.len()).rev() {
            let link = &mut self.direct.links[at];
            if link.is_broken() {
                link.falling_back = true;
            }
            if !link.falling_back {
                continue;
            }
            if link.owes_fallback() || !link.queue.is_empty() {
                self.fall_back_from(at);
            }
            let link = &self.direct.links[at];
            if link.fallback_sent && link.queue.is_empty() {
                self.direct.links[at].carries = false;
                self.direct.update_interest(at);
                if self.direct.links[at].read_closed {
                    self.direct.close_link(at);
                }
            }
        }
    }

    /// Goes on with the way back from one link.
    fn fall_back_from(&mut self, at: usize) {
        let (peer, daemon) = (self.direct.links[at].peer, self.tid.host());
        if !self.endpoint.is_connected(daemon.0) {
            return self.introduce(daemon);
        }
        if !self.direct.links[at].fallback_sent {
            let acknowledged = self.direct.links[at].queue.acknowledged();
            if !self.send_fallback(peer, acknowledged, false) {
                return;
            }
            self.direct.links[at].fallback_sent = true;
            self.direct.events.push(RouteEvent::Ended(peer));
            self.direct.on_break(peer, true);
        }
        while let Some(message) = self.direct.links[at].queue.first() {
            let mut meta = message.meta;
            meta[FAR] = peer.0;
            let sent = match &message.body {
                QueuedBody::Bytes(bytes) => self.endpoint.send_bytes(daemon.0, meta, bytes),
                QueuedBody::Blocks(blocks) => self.endpoint.send_blocks(daemon.0, meta, blocks),
            };
            if self.finish_send(daemon, sent).is_err() {
                return;
            }
            self.direct.links[at].queue.pop_front();
        }
    }

    /// Says on the default route that what follows comes there. Says whether there was memory for it.
    fn send_fallback(&mut self, peer: Tid, acknowledged: u32, answers: bool) -> bool {
        let daemon = self.tid.host();
        let mut meta: Meta = [SYSCTX_TC, TC_FALLBACK, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let body = Writer::new().int(acknowledged as i32).int(i32::from(answers)).finish();
        let sent = self.endpoint.send_bytes(daemon.0, meta, &body);
        self.finish_send(daemon, sent).is_ok()
    }

    /// The other side has gone back from a link.
    pub(super) fn on_peer_fallback(&mut self, peer: Tid, answered: bool) {
        self.direct.arrived.retain(|arrived| arrived.peer != peer);
        match self.direct.position(peer) {
            Ok(at) => {
                let link = &mut self.direct.links[at];
                (link.falling_back, link.read_closed) = (true, true);
                if self.direct.draining == Some(peer) {
                    self.direct.draining = None;
                }
            }
            // It still waits to hear that nothing comes from here.
            Err(_) if !answered => drop(self.send_fallback(peer, 0, true)),
            Err(_) => {}
        }
    }

    /// Before the task or its process links: what other sides have not acknowledged goes to them by the default route,
    /// where the daemon takes it over.
    pub(crate) fn hand_over_links(&mut self, state: &mut State) {
        self.direct.wait_for_acknowledgements();
        let deadline = Instant::now() + LEAVE_WAIT_MAX;
        loop {
            for link in &mut self.direct.links {
                link.falling_back |= !link.queue.is_empty();
            }
            self.fall_back();
            if self.daemon.is_none()
                || self.direct.links.iter().all(|link| link.queue.is_empty())
                || Instant::now() >= deadline
            {
                return;
            }
            std::thread::sleep(LEAVE_PAUSE);
            // What the daemon has carried makes room, and it may be introduced only now.
            self.poll(state);
            self.read_control(state);
        }
    }
}

impl Task {
    /// Whether something that was sent is still in this process ([`Task::hand_over`]).
    pub fn holds_back(&self) -> bool {
        let holds = |member: &Member| {
            member.daemon.as_ref().is_some_and(|link| link.wants_write())
                || member.direct.links.iter().any(|link| !link.queue.is_empty())
        };
        self.member.as_ref().is_some_and(holds)
    }

    /// The process links and may not have left: what it has sent goes out all the same.
    pub fn hand_over(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.hand_over_links(&mut self.state);
        member.send_last_frames();
    }
}

impl Member {
    /// Takes in what has come on the default route, and what is said there of links.
    pub(super) fn poll_default_route(&mut self, state: &mut State) {
        self.endpoint.poll_through(self.tid.host().0, &mut QueueSink { state, own: self.tid.0 as i32 });
        self.handle_route_switches(state);
        self.fall_back();
    }
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
