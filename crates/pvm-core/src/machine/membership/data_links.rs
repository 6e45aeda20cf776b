//! The data link to another host breaks while the control link stands: it is made again.
//!
//! What is on its way there is not lost by that ([`crate::flows::Outgoing`]), so that only the end of the control
//! link is the end of the host. The daemon that is called decides when: it makes up tokens, expects whoever shows
//! them, and tells the other by the control link. Data links are numbered, and the one with the highest number
//! counts: so it does not matter which side finds first that one has ended, and one that ends late is nobody's.
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::links::Links;
use crate::machine::settings::Time;
use crate::tid::Tid;
use crate::wire::{DataCall, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pause before the second of several attempts in a row. It doubles from one to the next.
const PAUSE_LEAST: Duration = Duration::from_millis(100);
/// The longest pause, as a part of the time that hosts may be silent.
const LONGEST_PAUSES_A_TIMEOUT: u32 = 4;

/// What is with the data link.
enum Stage {
    Up,
    /// To be made at that time; the side that calls has been told how.
    Waits(Time, Option<DataCall>),
    /// Being made.
    Tries,
    /// The other side, which decides, has been told that it is lost.
    Lost,
}

/// The data link to a host whose control link stands.
struct DataLink {
    number: u32,
    stage: Stage,
    /// Attempts in a row.
    tries: u32,
    /// When the last attempt began.
    tried: Time,
    /// When it is to be looked at, as far as that has been noted for all.
    noted_look: Option<Time>,
}

impl DataLink {
    /// One that stands from then on.
    fn new(now: Time) -> DataLink {
        DataLink { number: 0, stage: Stage::Up, tries: 0, tried: now, noted_look: None }
    }

    /// It is to be made again: soon after it had stood for long, and after growing pauses else, so that neither a
    /// broken network nor a host that means harm keeps this one busy.
    fn wait(&mut self, now: Time, timeout: Duration, call: Option<DataCall>) {
        if now >= self.tried + timeout {
            self.tries = 0;
        }
        let longest = timeout / LONGEST_PAUSES_A_TIMEOUT;
        let pause = match self.tries {
            0 => Duration::ZERO,
            tries => (PAUSE_LEAST * (1 << (tries - 1).min(10))).min(longest),
        };
        self.stage = Stage::Waits(now.max(self.tried + pause), call);
    }

    fn begin(&mut self, now: Time) {
        (self.stage, self.tried) = (Stage::Tries, now);
        self.tries = self.tries.saturating_add(1);
    }
}

/// The data links to all hosts whose control links stand.
#[derive(Default)]
pub(in crate::machine) struct DataLinks {
    links: BTreeMap<Tid, DataLink>,
    /// When they are to be looked at.
    looks: BTreeSet<(Time, Tid)>,
}

impl DataLinks {
    pub fn next_wakeup(&self) -> Option<Time> {
        self.looks.first().map(|(when, _)| *when)
    }

    /// Makes the data links for which it is time.
    pub fn on_time(&mut self, core: &mut Core) {
        while let Some((_, host)) = self.looks.first().copied().filter(|(when, _)| *when <= core.now) {
            self.make(core, host);
        }
    }

    /// The links to a host stand from now on.
    pub fn begin(&mut self, host: Tid, now: Time) {
        self.remove(host);
        self.links.insert(host, DataLink::new(now));
    }

    pub fn remove(&mut self, host: Tid) {
        if let Some(look) = self.links.remove(&host).and_then(|data| data.noted_look) {
            self.looks.remove(&(look, host));
        }
    }

    /// Forgets the hosts that have no control link any more.
    pub fn forget_unlinked(&mut self, core: &Core) {
        let unlinked: Vec<Tid> = self.links.keys().filter(|host| !core.links.is_up(**host)).copied().collect();
        unlinked.into_iter().for_each(|host| self.remove(host));
    }

    /// The data link to a host whose control link stands.
    fn of(&mut self, links: &Links, host: Tid) -> Option<&mut DataLink> {
        self.links.get_mut(&host).filter(|_| links.is_up(host))
    }

    /// The data link to the host stands again.
    pub fn up(&mut self, core: &Core, host: Tid) {
        if let Some(data) = self.of(&core.links, host) {
            data.stage = Stage::Up;
            self.note_look(host);
        }
    }

    /// The data link to the host has ended, or could not be made again; the control link stands.
    pub fn down(&mut self, core: &mut Core, host: Tid) {
        let (calls, timeout) = (core.own_host() < host, core.settings.host_timeout);
        let data = self.of(&core.links, host).filter(|data| matches!(data.stage, Stage::Up | Stage::Tries));
        let Some(data) = data else { return };
        if calls {
            data.stage = Stage::Lost;
            let number = data.number;
            return core.send_host(host, Frame::DataLost { number });
        }
        data.wait(core.now, timeout, None);
        self.make(core, host);
    }

    /// The host that calls has no use for that data link.
    pub fn lost(&mut self, core: &mut Core, host: Tid, number: u32) {
        let (called, timeout) = (host < core.own_host(), core.settings.host_timeout);
        let data = self.of(&core.links, host).filter(|data| called && data.number == number);
        let Some(data) = data else { return };
        if matches!(data.stage, Stage::Up | Stage::Tries) {
            data.wait(core.now, timeout, None);
            core.push(Action::DropData { host });
            self.make(core, host);
        }
    }

    /// The host that is called expects a data link.
    pub fn may_be_made(&mut self, core: &mut Core, host: Tid, number: u32, call: DataCall) {
        let (calls, timeout) = (core.own_host() < host, core.settings.host_timeout);
        let data = self.of(&core.links, host).filter(|data| calls && data.number < number);
        let Some(data) = data else { return };
        data.number = number;
        data.wait(core.now, timeout, Some(call));
        core.push(Action::DropData { host });
        self.make(core, host);
    }

    /// How the other host can call, as [`Action::ExpectData`] has asked; `None` where nothing can be made up.
    pub fn expected(&mut self, core: &mut Core, host: Tid, call: Option<DataCall>) {
        let number = match self.of(&core.links, host) {
            Some(DataLink { stage: Stage::Tries, number, .. }) => *number,
            _ => return,
        };
        match call {
            Some(call) => core.send_host(host, Frame::DataCall { number, call }),
            None => self.down(core, host),
        }
    }

    /// Makes the data link if it is time, else sees to it that it is looked at when it is.
    fn make(&mut self, core: &mut Core, host: Tid) {
        self.try_now(core, host);
        self.note_look(host);
    }

    /// Begins an attempt if one is due.
    fn try_now(&mut self, core: &mut Core, host: Tid) {
        let Some(data) = self.of(&core.links, host) else { return self.remove(host) };
        let Stage::Waits(at, call) = &mut data.stage else { return };
        if core.now < *at {
            return;
        }
        match call.take() {
            Some(call) => {
                data.begin(core.now);
                let addresses = core.hosts.addresses_of(host);
                core.push(Action::CallData { host, addresses, call });
            }
            None => {
                debug_assert!(host < core.own_host(), "the one with the lower number calls");
                data.begin(core.now);
                data.number += 1;
                core.push(Action::ExpectData { host });
            }
        }
    }

    fn note_look(&mut self, host: Tid) {
        let Some(data) = self.links.get_mut(&host) else { return };
        let next = match data.stage {
            Stage::Waits(at, _) => Some(at),
            _ => None,
        };
        let before = std::mem::replace(&mut data.noted_look, next);
        before.map(|when| self.looks.remove(&(when, host)));
        next.map(|when| self.looks.insert((when, host)));
    }
}
