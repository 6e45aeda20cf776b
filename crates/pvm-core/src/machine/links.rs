//! The links to other daemons: made when needed, kept alive, watched, lost.
//!
//! Of two hosts the one with the lower number connects; the other asks it to, by way of the
//! master, to which every host has a link always. Between two others there is a link when one of
//! them has needed it. Frames for a host wait until its link stands. What is here of the link is that of control;
//! `data_links` has the other.
use super::data_links::DataLink;
use super::signs::Signs;
use super::suspicions::Sight;
use super::{Action, Machine, Time};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A host that has sent nothing for this part of the time that it may be silent sends a beat.
const BEATS_A_TIMEOUT: u32 = 5;
/// After so many times of a beat without one a host is in doubt.
const LATE_BEATS: u32 = 2;
/// After a pause of this part of the time that hosts may be silent, this daemon has been asleep and
/// cannot know whether the others were.
const SLEEPS_A_TIMEOUT: u32 = 2;

enum State {
    /// To be made since then; these frames wait for it.
    Wanted {
        since: Time,
        frames: Vec<Frame>,
    },
    Up,
    /// It has failed; the host will be removed from the machine.
    Failed,
}

struct Link {
    state: State,
    heard: Time,
    sent: Time,
    /// When it is to be looked at next.
    look: Time,
    signs: Signs,
    data: DataLink,
}

/// The links of this host.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<Tid, Link>,
    /// The looks of all, in order: never later than something is due there.
    looks: BTreeSet<(Time, Tid)>,
}

impl Links {
    pub fn next_wakeup(&self) -> Option<Time> {
        self.looks.first().map(|(when, _)| *when)
    }
    pub fn is_up(&self, host: Tid) -> bool {
        self.links.get(&host).is_some_and(|link| matches!(link.state, State::Up))
    }
    fn set(&mut self, host: Tid, state: State, now: Time, look: Time) {
        self.remove(host);
        let (signs, data) = (Signs::begin(now), DataLink::new(now));
        self.links.insert(host, Link { state, heard: now, sent: now, look, signs, data });
        self.looks.insert((look, host));
    }
    /// The data link to a host whose control link stands.
    pub fn data(&mut self, host: Tid) -> Option<&mut DataLink> {
        let link = self.links.get_mut(&host).filter(|link| matches!(link.state, State::Up))?;
        Some(&mut link.data)
    }
    /// The data link is to be looked at earlier than the link was to be.
    pub fn look_at_data(&mut self, host: Tid) {
        let Some(link) = self.links.get_mut(&host) else { return };
        if let Some(look) = link.data.look().filter(|look| *look < link.look) {
            self.looks.remove(&(link.look, host));
            link.look = look;
            self.looks.insert((look, host));
        }
    }
    /// The host is forgotten, or its link is another now.
    pub fn remove(&mut self, host: Tid) {
        if let Some(link) = self.links.remove(&host) {
            self.looks.remove(&(link.look, host));
        }
    }
}

impl Machine {
    fn beat_interval(&self) -> Duration {
        self.settings.host_timeout / BEATS_A_TIMEOUT
    }

    /// What the master sees of a host by itself.
    pub(super) fn sight_of(&self, host: Tid) -> Sight {
        let link = self.links.links.get(&host).filter(|link| matches!(link.state, State::Up));
        let in_time = |link: &Link| self.now <= link.heard + LATE_BEATS * self.beat_interval();
        Sight { bad: link.map_or(0, |link| link.signs.bad()), hears: link.is_some_and(in_time) }
    }

    /// So often has the system sent something again on the control link since it stands, as
    /// [`Action::CountSentAgain`] has asked.
    pub fn handle_sent_again(&mut self, host: Tid, total: u32) {
        if let Some(link) = self.links.links.get_mut(&host) {
            link.signs.sent_again(total);
        }
    }

    /// Sends a frame to another host, as soon as there is a link; to a host that does not belong to
    /// the machine, never.
    pub(super) fn send_host(&mut self, host: Tid, frame: Frame) {
        if !self.is_known(host) {
            return;
        }
        let now = self.now;
        let Some(link) = self.links.links.get_mut(&host) else {
            return self.make_link(host, vec![frame]);
        };
        match &mut link.state {
            State::Up => {
                link.sent = now;
                self.actions.push_back(Action::SendHost { host, frame });
            }
            State::Wanted { frames, .. } => frames.push(frame),
            State::Failed => {}
        }
    }

    /// There is something for the host: if there is no link, it is to be made.
    pub fn want_link(&mut self, now: Time, host: Tid) {
        self.pass(now);
        if self.is_known(host) && !self.links.links.contains_key(&host) {
            self.make_link(host, Vec::new());
        }
    }

    fn make_link(&mut self, host: Tid, frames: Vec<Frame>) {
        let (own, master, now) = (self.own_host(), self.hosts.master(), self.now);
        self.links.set(host, State::Wanted { since: now, frames }, now, now + self.settings.host_timeout);
        if own < host {
            let addresses = self.addresses_of(host);
            self.actions.push_back(Action::OpenLink { host, addresses });
        } else if host != master {
            // The master connects by itself.
            self.send_host(master, Frame::PleaseConnect { to: host, from: own });
        }
    }

    /// A host cannot connect to another by itself.
    pub(super) fn asked_to_connect(&mut self, from: Tid, to: Tid, asking: Tid) {
        let own = self.own_host();
        if to != own && self.hosts.is_master() && asking == from {
            self.send_host(to, Frame::PleaseConnect { to, from: asking });
        } else if to == own && from == self.hosts.master() && own < asking {
            self.want_link(self.now, asking);
        }
    }

    /// Both links to the host stand.
    pub fn handle_link_up(&mut self, now: Time, host: Tid) {
        self.pass(now);
        if !self.is_known(host) {
            // It has been removed meanwhile.
            return self.actions.push_back(Action::ForgetHost { host });
        }
        let frames = match self.links.links.get_mut(&host).map(|link| &mut link.state) {
            Some(State::Wanted { frames, .. }) => std::mem::take(frames),
            Some(State::Up | State::Failed) => return,
            None => Vec::new(),
        };
        self.links.set(host, State::Up, now, now + self.beat_interval());
        for frame in frames {
            self.actions.push_back(Action::SendHost { host, frame });
        }
        self.host_linked(host);
    }

    /// A link to the host could not be made, or is gone.
    pub fn handle_link_down(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.link_lost(host, "the connection is lost");
    }

    fn link_lost(&mut self, host: Tid, why: &str) {
        let Some(link) = self.links.links.get_mut(&host) else { return };
        if matches!(link.state, State::Failed) {
            return;
        }
        link.state = State::Failed;
        let master = self.hosts.master();
        if self.hosts.is_master() {
            self.lose_host(host, why);
        } else if host == master {
            self.lose_master(why);
        } else if !self.control.halting() {
            self.send_host(master, Frame::Suspect(host));
        }
    }

    /// Bytes came on the control link, though perhaps no whole frame.
    pub fn handle_heard(&mut self, now: Time, host: Tid) {
        self.pass(now);
        if let Some(link) = self.links.links.get_mut(&host) {
            link.heard = now;
        }
    }

    /// Time passes. One who has slept cannot blame others for their silence.
    pub(super) fn pass(&mut self, now: Time) {
        let slept = now.saturating_sub(self.now) > self.settings.host_timeout / SLEEPS_A_TIMEOUT;
        self.now = self.now.max(now);
        if slept {
            self.debts.begin_again(self.now);
            self.remote.suspicions.begin_again(self.now);
            for link in self.links.links.values_mut() {
                link.heard = self.now;
                if let State::Wanted { since, .. } = &mut link.state {
                    *since = self.now;
                }
            }
        }
    }

    /// Looks at the links for which it is time.
    pub(super) fn look_at_links(&mut self) {
        while let Some((_, host)) = self.links.looks.first().copied().filter(|(when, _)| *when <= self.now) {
            self.links.looks.pop_first();
            if let Some(next) = self.look_at_link(host) {
                self.links.looks.insert((next, host));
            }
        }
    }

    /// Does what is due at a link; when it is to be looked at next.
    fn look_at_link(&mut self, host: Tid) -> Option<Time> {
        let (now, timeout, interval) = (self.now, self.settings.host_timeout, self.beat_interval());
        let link = self.links.links.get_mut(&host)?;
        let lost = match &link.state {
            State::Failed => return None,
            State::Wanted { since, .. } => (now >= *since + timeout).then(|| "it cannot be reached".to_owned()),
            State::Up => (now >= link.heard + timeout).then(|| format!("silent for {} s", timeout.as_secs_f32())),
        };
        if let Some(why) = lost {
            self.link_lost(host, &why);
            return None;
        }
        self.make_data_link(host);
        let link = self.links.links.get_mut(&host)?;
        link.look = match &link.state {
            State::Wanted { since, .. } => *since + timeout,
            _ => {
                if self.hosts.is_master() && link.signs.pass(now, link.heard, interval) {
                    self.actions.push_back(Action::CountSentAgain { host });
                }
                if now >= link.sent + interval {
                    link.sent = now;
                    self.actions.push_back(Action::SendHost { host, frame: Frame::Beat });
                }
                let look = (link.sent + interval).min(link.heard + timeout);
                link.data.look().map_or(look, |data| look.min(data))
            }
        };
        Some(link.look)
    }
}
