//! The control links to other daemons: their states and deadlines. Frames for a host wait until its link is up. From then on
//! the link is a session ([`crate::session`]): a connection that breaks is made again, and the session goes on.
//!
//! Of two hosts, the one with the lower number connects. The other host can ask it to do so by way of the master,
//! because every host has a link to the master. A link between two hosts other than the master is opened when one of
//! the two first needs it.
use super::attempts::Attempts;
use super::fences::Fences;
use super::link_quality::LinkQuality;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{self, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The state of a link.
pub(super) enum State {
    /// This host began to open the link at the time `since`; `frames` wait for the link.
    Wanted {
        since: Time,
        frames: Vec<Frame>,
    },
    Up,
    /// The connection has brought nothing for so long that it may not carry any more; another one is being made meanwhile.
    Quiet(Call),
    /// The connection has broken; another one is being made. Frames wait in the session.
    Broken(Call),
    /// The link has failed; the host will be removed from the machine.
    Failed,
}

/// The next call for a connection that takes the place of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It begins at this time.
    At(Time),
    /// It has begun.
    Begun,
    /// The other host has no address at which it could be called. It calls.
    Awaited,
}

/// How a connection has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkBreak {
    /// The other side has closed it in the normal way, as the system does for a process that ends.
    Ended,
    /// It was reset, or has failed otherwise.
    Lost,
}

/// Why a call for a new connection has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// Nobody has answered.
    NoAnswer,
    /// The host's system has answered that no daemon listens there, or another daemon was there.
    Absent,
}

impl State {
    /// Returns whether both hosts have had both links, so that frames go into the session.
    pub fn has_session(&self) -> bool {
        matches!(self, State::Up | State::Quiet(_) | State::Broken(_))
    }
}

/// The control link to one host.
pub(super) struct Link {
    pub state: State,
    /// When bytes last arrived, and when a frame was last sent.
    pub last_received: Time,
    pub sent: Time,
    pub quality: LinkQuality,
    pub fences: Fences,
    /// The calls for new connections.
    pub attempts: Attempts,
    /// Whether nothing needs the link, so that it does not matter if it cannot be opened.
    pub is_optional: bool,
    /// When the link must be checked next.
    deadline: Time,
}

/// The frames of hosts that follow this host already, although it does not know yet that it is the master.
#[derive(Default)]
struct Early {
    frames: VecDeque<Frame>,
    bytes: usize,
}

/// Frames of one host that come before this host knows that it is the master.
///
/// * Filled by: each other host
/// * Setting: none, the news come within a fraction of a second
/// * Reached: the frames are dropped; if this host becomes the master, it removes the other host
/// * Test: `a_host_that_follows_nobody_cannot_fill_the_memory`
pub const EARLY_BYTES_MAX: usize = 32 << 20;

/// The links of this host.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<Tid, Link>,
    /// The deadlines of all links, in order. A deadline can be too early, but never later than the first action that is
    /// due at its link.
    deadlines: BTreeSet<(Time, Tid)>,
    /// The hosts whose frames may have stopped waiting for messages.
    unfenced: BTreeSet<Tid>,
    early: BTreeMap<Tid, Early>,
}

impl Links {
    pub fn get(&self, host: Tid) -> Option<&Link> {
        self.links.get(&host)
    }
    pub fn get_mut(&mut self, host: Tid) -> Option<&mut Link> {
        self.links.get_mut(&host)
    }
    /// Returns the hosts whose links have failed.
    pub fn failed(&self) -> Vec<Tid> {
        self.with_state(|state| matches!(state, State::Failed))
    }
    /// Returns the hosts whose links are being opened.
    pub fn wanted(&self) -> Vec<Tid> {
        self.with_state(|state| matches!(state, State::Wanted { .. }))
    }
    fn with_state(&self, is_meant: impl Fn(&State) -> bool) -> Vec<Tid> {
        self.links.iter().filter(|(_, link)| is_meant(&link.state)).map(|(host, _)| *host).collect()
    }
    pub fn next_wakeup(&self) -> Option<Time> {
        self.deadlines.first().map(|(when, _)| *when)
    }
    pub fn has_failed(&self, host: Tid) -> bool {
        self.links.get(&host).is_some_and(|link| matches!(link.state, State::Failed))
    }
    /// Returns whether a host follows this host already, which is not the master yet.
    pub fn follows_early(&self, host: Tid) -> bool {
        self.early.contains_key(&host)
    }
    pub fn has_session(&self, host: Tid) -> bool {
        self.links.get(&host).is_some_and(|link| link.state.has_session())
    }
    /// Notes that bytes of a host have come.
    pub fn heard(&mut self, host: Tid, now: Time) {
        let Some(link) = self.links.get_mut(&host) else { return };
        link.last_received = now;
        // The other side may already use the connection of a call that has begun.
        if matches!(link.state, State::Quiet(Call::At(_) | Call::Awaited)) {
            link.state = State::Up;
        }
    }
    /// Replaces the link to a host by a new one in that state.
    pub fn begin(&mut self, host: Tid, state: State, now: Time, deadline_after: Duration) {
        self.remove(host);
        let (quality, deadline) = (LinkQuality::begin(now), now + deadline_after);
        let (fences, attempts) = (Fences::default(), Attempts::new(now));
        let link =
            Link { state, last_received: now, sent: now, quality, fences, attempts, is_optional: false, deadline };
        self.links.insert(host, link);
        self.deadlines.insert((deadline, host));
    }
    pub fn remove(&mut self, host: Tid) {
        self.unfenced.remove(&host);
        self.early.remove(&host);
        if let Some(link) = self.links.remove(&host) {
            self.deadlines.remove(&(link.deadline, host));
        }
    }
    /// Keeps a frame of a host that follows this host already, although it is not the master yet; otherwise returns the frame.
    pub fn keep_early(&mut self, host: Tid, frame: Frame) -> Option<Frame> {
        if !matches!(frame, Frame::Following { .. }) && !self.early.contains_key(&host) || frame == Frame::Beat {
            return Some(frame);
        }
        let early = self.early.entry(host).or_default();
        early.bytes += size_of::<Frame>() + wire::encode(&frame).len();
        match early.bytes > EARLY_BYTES_MAX {
            true => early.frames.clear(),
            false => early.frames.push_back(frame),
        }
        None
    }
    #[cfg(test)]
    pub fn early_bytes(&self) -> usize {
        self.early.values().flat_map(|early| &early.frames).map(|frame| wire::encode(frame).len()).sum()
    }
    /// Takes the frames that came early, now that this host is the master.
    pub fn take_early(&mut self) -> Vec<(Tid, Frame)> {
        let early = std::mem::take(&mut self.early).into_iter();
        early.flat_map(|(host, early)| early.frames.into_iter().map(move |frame| (host, frame))).collect()
    }
    /// Takes a frame of a host's control link. Returns it unless it waits for messages.
    pub fn take_frame(&mut self, host: Tid, now: Time, frame: Frame) -> Option<Frame> {
        let Some(link) = self.links.get_mut(&host) else { return Some(frame) };
        let taken = link.fences.take(now, frame);
        if taken.is_none() {
            self.unfenced.insert(host);
        }
        taken
    }
    /// Notes that a fence of a host has come in band.
    pub fn pass_fence(&mut self, host: Tid) {
        if let Some(link) = self.links.get_mut(&host) {
            link.fences.pass();
            self.unfenced.insert(host);
        }
    }
    /// Notes that a link that was up is down. Lets the frames go on that it has brought: the messages before them will not come
    /// any more. What these frames send to that host goes nowhere.
    pub fn set_down(&mut self, host: Tid, now: Time) {
        if let Some(link) = self.links.get_mut(&host).filter(|link| link.state.has_session()) {
            link.state = State::Wanted { since: now, frames: Vec::new() };
            link.fences.give_up();
            self.unfenced.insert(host);
        }
    }
    /// Lets all frames of a host go on if they have waited for messages for `patience`, or are too many. Returns whether it did.
    pub fn expire_fences(&mut self, host: Tid, now: Time, patience: Duration) -> bool {
        let expired = self.links.get_mut(&host).is_some_and(|link| link.fences.expire(now, patience));
        if expired {
            self.unfenced.insert(host);
        }
        expired
    }
    /// Returns a frame that need not wait for messages any more, and its host.
    pub fn next_unfenced(&mut self, now: Time) -> Option<(Tid, Frame)> {
        while let Some(host) = self.unfenced.first().copied() {
            match self.links.get_mut(&host).and_then(|link| link.fences.next(now)) {
                Some(frame) => return Some((host, frame)),
                None => self.unfenced.remove(&host),
            };
        }
        None
    }
    /// Restarts the timers that limit the silence of other hosts, because this daemon was suspended.
    pub fn restart_timers(&mut self, now: Time) {
        self.links.values_mut().for_each(|link| link.last_received = now);
        self.wait_from(now);
    }
    /// Lets the links that are to be opened be waited for from that time on.
    pub fn wait_from(&mut self, when: Time) {
        for link in self.links.values_mut() {
            if let State::Wanted { since, .. } = &mut link.state {
                *since = when;
            }
        }
    }
    /// Removes the earliest deadline if it has passed, and returns its host.
    pub fn take_due(&mut self, now: Time) -> Option<Tid> {
        let (when, host) = self.deadlines.first().copied().filter(|(when, _)| *when <= now)?;
        self.deadlines.remove(&(when, host));
        Some(host)
    }
    /// Sets when the link must be checked next.
    pub fn set_deadline(&mut self, host: Tid, when: Time) {
        if let Some(link) = self.links.get_mut(&host) {
            self.deadlines.remove(&(link.deadline, host));
            link.deadline = when;
            self.deadlines.insert((when, host));
        }
    }
}
