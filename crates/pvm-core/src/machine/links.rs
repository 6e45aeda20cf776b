//! The control links to other daemons, as the outbox sees them: frames for a host wait until its link stands.
//!
//! Of two hosts the one with the lower number connects; the other asks it to, by way of the master, to which every
//! host always has a link. Two other hosts have a link from when one of them needed it first.
use super::link_quality::LinkQuality;
use super::settings::Time;
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How a link stands.
pub(super) enum State {
    /// It is to be made since then; these frames wait for it.
    Wanted {
        since: Time,
        frames: Vec<Frame>,
    },
    Up,
    /// It has failed; the host will be removed from the machine.
    Failed,
}

/// The link to one host.
pub(super) struct Link {
    pub state: State,
    /// When something came, and when something was sent.
    pub heard: Time,
    pub sent: Time,
    pub quality: LinkQuality,
    /// When it is to be looked at next.
    look: Time,
}

/// The links of this host.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<Tid, Link>,
    /// The looks of all, in order: never later than something is due there.
    looks: BTreeSet<(Time, Tid)>,
}

impl Links {
    pub fn get(&self, host: Tid) -> Option<&Link> {
        self.links.get(&host)
    }
    pub fn get_mut(&mut self, host: Tid) -> Option<&mut Link> {
        self.links.get_mut(&host)
    }
    pub fn next_wakeup(&self) -> Option<Time> {
        self.looks.first().map(|(when, _)| *when)
    }
    pub fn is_up(&self, host: Tid) -> bool {
        self.links.get(&host).is_some_and(|link| matches!(link.state, State::Up))
    }
    /// Begins a link in that state, in the place of the one before.
    pub fn begin(&mut self, host: Tid, state: State, now: Time, look_after: Duration) {
        self.remove(host);
        let (quality, look) = (LinkQuality::begin(now), now + look_after);
        self.links.insert(host, Link { state, heard: now, sent: now, quality, look });
        self.looks.insert((look, host));
    }
    pub fn remove(&mut self, host: Tid) {
        if let Some(link) = self.links.remove(&host) {
            self.looks.remove(&(link.look, host));
        }
    }
    /// Begins the waits for others anew: this daemon was asleep.
    pub fn begin_again(&mut self, now: Time) {
        for link in self.links.values_mut() {
            link.heard = now;
            if let State::Wanted { since, .. } = &mut link.state {
                *since = now;
            }
        }
    }
    /// Takes the next host that is to be looked at by now.
    pub fn take_due(&mut self, now: Time) -> Option<Tid> {
        let (when, host) = self.looks.first().copied().filter(|(when, _)| *when <= now)?;
        self.looks.remove(&(when, host));
        Some(host)
    }
    /// Notes when the host is to be looked at next.
    pub fn look_at(&mut self, host: Tid, when: Time) {
        if let Some(link) = self.links.get_mut(&host) {
            link.look = when;
            self.looks.insert((when, host));
        }
    }
}
