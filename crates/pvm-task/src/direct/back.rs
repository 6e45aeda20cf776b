//! The way back from a direct link to the default route, when the link breaks or the task leaves.
//!
//! Who goes back says so on the default route, with the number of messages that the other side has acknowledged, and
//! sends all that was kept behind that. The other side knows how many it has taken in from the link; so many of
//! those that follow are *repeats*, which it drops. It reads the link no more then, and goes back too. So nobody
//! waits for an answer, nothing is lost, nothing comes twice, and the order stays (`docs/decisions/0023`).
use super::kept::Copy;
use super::{Directs, Happened, PATIENCE};
use crate::control::Member;
use crate::message::OWN_DSIG;
use crate::receive::Arriving;
use crate::system::TC_BACK;
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
pub(crate) struct Again {
    /// `None`: no more.
    at: Option<Instant>,
    /// How long the last pause was; zero where no link has broken.
    pause: Duration,
}

impl Again {
    pub fn may_ask(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// It has been asked for.
    pub fn asked(&mut self) {
        self.at = None;
    }

    /// The link has broken; or it did not come to be, after one that had.
    fn broke(&mut self, was_used: bool) {
        if was_used || !self.pause.is_zero() {
            self.pause = (2 * self.pause).clamp(PAUSE_FIRST, PAUSE_MAX);
            self.at = Some(Instant::now() + self.pause);
        }
    }
}

/// What a task knows of a link until the other side has gone back from it.
pub(crate) struct Taken {
    pub count: Rc<Cell<u32>>,
    /// The other side's task has ended.
    pub ended: bool,
}

/// What other tasks have said on the default route about the links to them.
pub(crate) enum Turn {
    /// What follows comes on the link.
    Onto(Tid),
    /// What follows comes on the default route again. Whether the other side is known to hear the same from here.
    Back(Tid, bool),
}

/// The links of a task, as what comes on the default route needs to know them.
#[derive(Default)]
pub(crate) struct Turns {
    /// By peer.
    pub links: BTreeMap<i32, Taken>,
    pub said: Vec<Turn>,
}

impl Turns {
    /// A task has gone back from a link. Returns how many of the messages that follow are repeats.
    pub fn back(&mut self, peer: i32, reader: &mut Reader<'_>) -> u32 {
        let (Some(acknowledged), Some(answers)) = (reader.int(), reader.int()) else { return 0 };
        let link = self.links.remove(&peer);
        let is_known = link.is_some() || answers != 0;
        self.said.push(Turn::Back(Tid(peer as u32), is_known));
        // Who answers had no link any more, and has sent nothing on one.
        let repeats =
            link.filter(|_| answers == 0).map_or(0, |link| link.count.get().wrapping_sub(acknowledged as u32));
        // What cannot be: more acknowledged than was taken.
        if repeats > i32::MAX as u32 { 0 } else { repeats }
    }
}

impl Directs {
    /// A link has broken, or did not come to be.
    pub(super) fn note_break(&mut self, peer: Tid, was_used: bool) {
        if let Some(again) = self.asked.get_mut(&peer) {
            again.broke(was_used);
        }
    }

    /// The link that was asked for is not made.
    pub(crate) fn refused(&mut self, peer: Tid) {
        self.note_break(peer, false);
    }

    /// Gives up links that stall, and links that have ended while this side did not read them. Looks once a second.
    pub(super) fn look_for_stalls(&mut self) {
        let now = Instant::now();
        if self.stalls_seen.is_some_and(|seen| now.duration_since(seen) < STALL_LOOKS) {
            return;
        }
        self.stalls_seen = Some(now);
        for place in (0..self.ends.len()).rev() {
            let end = &mut self.ends[place];
            end.returns |= end.has_ended_unread();
            let waits = self.waits_for == Some(end.peer);
            if end.has_stalled(waits, now) {
                match waits {
                    // Its task is dead: what has not come by now does not come.
                    true => self.remove(place),
                    false => end.returns = true,
                }
            }
        }
    }

    /// Waits as long as other sides take what was sent to them, up to a limit. Small rests are not waited for.
    fn wait_for_takers(&mut self) {
        let begin = Instant::now();
        let (mut since, mut before) = (begin, 0);
        while begin.elapsed() < TAKING_MAX && since.elapsed() < PATIENCE {
            self.ends.iter_mut().for_each(|end| end.flush());
            let waiting = self.ends.iter().filter(|end| !end.is_silent() && end.kept.bytes() > REPEATED_BYTES);
            let (mut count, mut progress) = (0, 0_u64);
            for end in waiting {
                count += 1;
                progress = progress
                    .wrapping_add(end.progress())
                    .wrapping_add(end.carried().acknowledged)
                    .wrapping_add(u64::from(end.kept.acknowledged()));
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
    pub(super) fn go_back(&mut self) {
        for place in (0..self.direct.ends.len()).rev() {
            let end = &mut self.direct.ends[place];
            if end.is_broken() {
                end.returns = true;
            }
            if !end.returns {
                continue;
            }
            if end.is_unsaid() || !end.kept.is_empty() {
                self.go_back_from(place);
            }
            let end = &self.direct.ends[place];
            if end.said_back && end.kept.is_empty() {
                self.direct.ends[place].carries = false;
                self.direct.watch(place);
                if self.direct.ends[place].closed {
                    self.direct.drop_end(place);
                }
            }
        }
    }

    /// Goes on with the way back from one link.
    fn go_back_from(&mut self, place: usize) {
        let (peer, daemon) = (self.direct.ends[place].peer, self.tid.host());
        if !self.endpoint.is_connected(daemon.0) {
            return self.introduce(daemon);
        }
        if !self.direct.ends[place].said_back {
            let acknowledged = self.direct.ends[place].kept.acknowledged();
            if !self.say_back(peer, acknowledged, false) {
                return;
            }
            self.direct.ends[place].said_back = true;
            self.direct.events.push(Happened::Ended(peer));
            self.direct.note_break(peer, true);
        }
        while let Some(message) = self.direct.ends[place].kept.first() {
            let mut meta = message.meta;
            meta[FAR] = peer.0;
            let sent = match &message.body {
                Copy::Bytes(bytes) => self.endpoint.send_bytes(daemon.0, meta, bytes),
                Copy::Blocks(blocks) => self.endpoint.send_blocks(daemon.0, meta, blocks),
            };
            if self.conclude(daemon, sent).is_err() {
                return;
            }
            self.direct.ends[place].kept.drop_first();
        }
    }

    /// Says on the default route that what follows comes there. Says whether there was memory for it.
    fn say_back(&mut self, peer: Tid, acknowledged: u32, answers: bool) -> bool {
        let daemon = self.tid.host();
        let mut meta: Meta = [SYSCTX_TC, TC_BACK, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let body = Writer::new().int(acknowledged as i32).int(i32::from(answers)).finish();
        let sent = self.endpoint.send_bytes(daemon.0, meta, &body);
        self.conclude(daemon, sent).is_ok()
    }

    /// The other side has gone back from a link.
    pub(super) fn heed_back(&mut self, peer: Tid, answered: bool) {
        self.direct.arrived.retain(|arrived| arrived.peer != peer);
        match self.direct.place(peer) {
            Ok(place) => {
                let end = &mut self.direct.ends[place];
                (end.returns, end.closed) = (true, true);
                if self.direct.waits_for == Some(peer) {
                    self.direct.waits_for = None;
                }
            }
            // It still waits to hear that nothing comes from here.
            Err(_) if !answered => drop(self.say_back(peer, 0, true)),
            Err(_) => {}
        }
    }

    /// Before the task or its process ends: what other sides have not acknowledged goes to them by the default route,
    /// where the daemon takes it over.
    pub(crate) fn hand_over_directs(&mut self, state: &mut State) {
        self.direct.wait_for_takers();
        let end = Instant::now() + LEAVE_WAIT_MAX;
        loop {
            for end in &mut self.direct.ends {
                end.returns |= !end.kept.is_empty();
            }
            self.go_back();
            if self.link.is_none() || self.direct.ends.iter().all(|end| end.kept.is_empty()) || Instant::now() >= end {
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
            member.link.as_ref().is_some_and(|link| link.wants_write())
                || member.direct.ends.iter().any(|end| !end.kept.is_empty())
        };
        self.member.as_ref().is_some_and(holds)
    }

    /// The process ends and may not have left: what it has sent goes out all the same.
    pub fn hand_over(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.hand_over_directs(&mut self.state);
        member.send_last_frames();
    }
}

impl Member {
    /// Takes in what has come on the default route, and what is said there of links.
    pub(super) fn hear_turns(&mut self, state: &mut State) {
        self.endpoint.poll_through(self.tid.host().0, &mut Arriving { state, own: self.tid.0 as i32 });
        self.heed_turns(state);
        self.go_back();
    }
}

#[cfg(test)]
#[path = "back_tests.rs"]
mod tests;
