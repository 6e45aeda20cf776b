//! The control links to other daemons: their states and deadlines. Frames for a host wait until its link is up.
//!
//! Of two hosts, the one with the lower number connects. The other host can ask it to do so by way of the master,
//! because every host has a link to the master. A link between two hosts other than the master is opened when one of
//! the two first needs it.
use super::fences::Fences;
use super::link_quality::LinkQuality;
use super::settings::Time;
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The state of a link.
pub(super) enum State {
    /// This host began to open the link at the time `since`; `frames` wait for the link.
    Wanted {
        since: Time,
        frames: Vec<Frame>,
    },
    Up,
    /// The link has failed; the host will be removed from the machine.
    Failed,
}

/// The control link to one host.
pub(super) struct Link {
    pub state: State,
    /// When bytes last arrived, and when a frame was last sent.
    pub last_received: Time,
    pub sent: Time,
    pub quality: LinkQuality,
    pub fences: Fences,
    /// Whether nothing needs the link, so that it does not matter if it cannot be opened.
    pub is_optional: bool,
    /// When the link must be checked next.
    deadline: Time,
}

/// The links of this host.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<Tid, Link>,
    /// The deadlines of all links, in order. A deadline can be too early, but never later than the first action that is
    /// due at its link.
    deadlines: BTreeSet<(Time, Tid)>,
}

impl Links {
    pub fn get(&self, host: Tid) -> Option<&Link> {
        self.links.get(&host)
    }
    pub fn get_mut(&mut self, host: Tid) -> Option<&mut Link> {
        self.links.get_mut(&host)
    }
    pub fn next_wakeup(&self) -> Option<Time> {
        self.deadlines.first().map(|(when, _)| *when)
    }
    pub fn is_up(&self, host: Tid) -> bool {
        self.links.get(&host).is_some_and(|link| matches!(link.state, State::Up))
    }
    /// Replaces the link to a host by a new one in that state.
    pub fn begin(&mut self, host: Tid, state: State, now: Time, deadline_after: Duration) {
        self.remove(host);
        let (quality, deadline) = (LinkQuality::begin(now), now + deadline_after);
        let fences = Fences::default();
        let link = Link { state, last_received: now, sent: now, quality, fences, is_optional: false, deadline };
        self.links.insert(host, link);
        self.deadlines.insert((deadline, host));
    }
    pub fn remove(&mut self, host: Tid) {
        if let Some(link) = self.links.remove(&host) {
            self.deadlines.remove(&(link.deadline, host));
        }
    }
    /// Restarts the timers that limit the silence of other hosts, because this daemon was suspended.
    pub fn restart_timers(&mut self, now: Time) {
        for link in self.links.values_mut() {
            link.last_received = now;
            if let State::Wanted { since, .. } = &mut link.state {
                *since = now;
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
            link.deadline = when;
            self.deadlines.insert((when, host));
        }
    }
}
