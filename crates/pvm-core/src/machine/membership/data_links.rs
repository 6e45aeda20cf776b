//! Data links that break while the control link is up; they are opened again.
//!
//! Data in flight are not lost when a data link breaks ([`crate::flows::RetransmitQueue`]). The host with the lower number
//! calls. The host with the higher number accepts the call and decides when a new link is opened: it makes tokens, expects a
//! call that shows them, and sends them to the calling host on the control link. Data links are numbered, and only the link with the highest number counts. So it
//! does not matter which side first notices the end of a link, and a late report of the end of an old link is ignored.
use crate::machine::action::Action;
use crate::machine::attempts::Attempts;
use crate::machine::core::Core;
use crate::machine::links::Links;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{DataCall, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The state of a data link.
enum State {
    Up,
    /// The link is to be opened at that time. The tokens are present on the calling side only.
    Scheduled(Time, Option<DataCall>),
    /// Being opened.
    Connecting,
    /// On the calling side: the loss of the link has been reported to the other side, which decides when to open a new
    /// one.
    ReportedLost,
}

/// The data link to a host whose control link is up.
struct DataLink {
    /// The number of the link; the first is 0.
    number: u32,
    state: State,
    attempts: Attempts,
    /// The time of this link's entry in `DataLinks::deadlines`.
    registered_deadline: Option<Time>,
}

impl DataLink {
    /// Makes a link that is up.
    fn new(now: Time) -> DataLink {
        DataLink { number: 0, state: State::Up, attempts: Attempts::new(now), registered_deadline: None }
    }

    /// Schedules the next attempt.
    fn schedule(&mut self, now: Time, timeout: Duration, call: Option<DataCall>) {
        self.state = State::Scheduled(self.attempts.next(now, timeout), call);
    }

    /// Begins an attempt.
    fn begin_attempt(&mut self, now: Time) {
        self.state = State::Connecting;
        self.attempts.begin(now);
    }
}

/// The data links to all hosts whose control links are up.
#[derive(Default)]
pub(in crate::machine) struct DataLinks {
    links: BTreeMap<Tid, DataLink>,
    /// The times of the scheduled attempts, in order.
    deadlines: BTreeSet<(Time, Tid)>,
}

impl DataLinks {
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.deadlines.first().map(|(when, _)| *when)
    }

    /// Begins the attempts that are due.
    pub(super) fn on_time(&mut self, core: &mut Core) {
        while let Some((_, host)) = self.deadlines.first().copied().filter(|(when, _)| *when <= core.now) {
            self.attempt(core, host);
        }
    }

    /// Adds the first data link to a host; this link is up.
    pub(super) fn begin(&mut self, host: Tid, now: Time) {
        self.remove(host);
        self.links.insert(host, DataLink::new(now));
    }

    pub(super) fn remove(&mut self, host: Tid) {
        if let Some(deadline) = self.links.remove(&host).and_then(|data| data.registered_deadline) {
            self.deadlines.remove(&(deadline, host));
        }
    }

    /// Drops the data links to hosts that have no control link any more.
    pub(super) fn forget_unlinked(&mut self, core: &Core) {
        let unlinked: Vec<Tid> = self.links.keys().filter(|host| !core.links.has_session(**host)).copied().collect();
        unlinked.into_iter().for_each(|host| self.remove(host));
    }

    /// Returns the data link to a host whose control link is up.
    fn linked(&mut self, links: &Links, host: Tid) -> Option<&mut DataLink> {
        self.links.get_mut(&host).filter(|_| links.has_session(host))
    }

    /// Handles the news that the data link is up again.
    pub fn up(&mut self, core: &Core, host: Tid) {
        if let Some(data) = self.linked(&core.links, host) {
            data.state = State::Up;
            self.register_deadline(host);
        }
    }

    /// Handles the news that the data link has ended or could not be opened again.
    pub fn down(&mut self, core: &mut Core, host: Tid) {
        let (calls, timeout) = (core.own_host() < host, core.settings.host_timeout);
        let data = self.linked(&core.links, host).filter(|data| matches!(data.state, State::Up | State::Connecting));
        let Some(data) = data else { return };
        if calls {
            data.state = State::ReportedLost;
            let number = data.number;
            return core.send_host(host, Frame::DataLost { number });
        }
        data.schedule(core.now, timeout, None);
        self.attempt(core, host);
    }

    /// Handles the calling host's report that it has lost the data link with that number.
    pub fn reported_lost(&mut self, core: &mut Core, host: Tid, number: u32) {
        let (called, timeout) = (host < core.own_host(), core.settings.host_timeout);
        let data = self.linked(&core.links, host).filter(|data| called && data.number == number);
        let Some(data) = data else { return };
        if matches!(data.state, State::Up | State::Connecting) {
            data.schedule(core.now, timeout, None);
            core.push(Action::DropData { host });
            self.attempt(core, host);
        }
    }

    /// Handles the news that the other host, which accepts calls, expects the call for a new data link.
    pub fn call_received(&mut self, core: &mut Core, host: Tid, number: u32, call: DataCall) {
        let (calls, timeout) = (core.own_host() < host, core.settings.host_timeout);
        let data = self.linked(&core.links, host).filter(|data| calls && data.number < number);
        let Some(data) = data else { return };
        data.number = number;
        data.schedule(core.now, timeout, Some(call));
        core.push(Action::DropData { host });
        self.attempt(core, host);
    }

    /// Handles the result of [`Action::ExpectData`]: the tokens for the other host's call, or `None` if the call could
    /// not be prepared.
    pub fn expected(&mut self, core: &mut Core, host: Tid, call: Option<DataCall>) {
        let number = match self.linked(&core.links, host) {
            Some(DataLink { state: State::Connecting, number, .. }) => *number,
            _ => return,
        };
        match call {
            Some(call) => core.send_host(host, Frame::DataCall { number, call }),
            None => self.down(core, host),
        }
    }

    /// Begins an attempt if it is due, else registers its time.
    fn attempt(&mut self, core: &mut Core, host: Tid) {
        self.attempt_if_due(core, host);
        self.register_deadline(host);
    }

    /// Begins an attempt if it is due.
    fn attempt_if_due(&mut self, core: &mut Core, host: Tid) {
        let Some(data) = self.linked(&core.links, host) else { return self.remove(host) };
        let State::Scheduled(at, call) = &mut data.state else { return };
        if core.now < *at {
            return;
        }
        match call.take() {
            Some(call) => {
                data.begin_attempt(core.now);
                let addresses = core.hosts.addresses_of(host);
                core.push(Action::CallData { host, addresses, call });
            }
            None => {
                debug_assert!(host < core.own_host(), "the one with the lower number calls");
                data.begin_attempt(core.now);
                data.number += 1;
                core.push(Action::ExpectData { host });
            }
        }
    }

    /// Registers the time of the scheduled attempt, if there is one.
    fn register_deadline(&mut self, host: Tid) {
        let Some(data) = self.links.get_mut(&host) else { return };
        let next = match data.state {
            State::Scheduled(at, _) => Some(at),
            _ => None,
        };
        let before = std::mem::replace(&mut data.registered_deadline, next);
        before.map(|when| self.deadlines.remove(&(when, host)));
        next.map(|when| self.deadlines.insert((when, host)));
    }
}
