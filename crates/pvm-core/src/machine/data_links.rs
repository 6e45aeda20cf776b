//! The data link to another host breaks while the control link stands: it is made again.
//!
//! What is on its way there is not lost by that ([`crate::flows::Outgoing`]), so that only the end of the control
//! link is the end of the host. The daemon that is called decides when: it makes up tokens, expects whoever shows
//! them, and tells the other by the control link. Data links are numbered, and the one with the highest number
//! counts: so it does not matter which side finds first that one has ended, and one that ends late is nobody's.
use super::{Action, Machine, Time};
use crate::tid::Tid;
use crate::wire::{DataCall, Frame};
use std::time::Duration;

/// Pause before the second of several attempts in a row. It doubles from one to the next.
const PAUSE_LEAST: Duration = Duration::from_millis(100);
/// The longest pause, as a part of the time that hosts may be silent.
const LONGEST_PAUSES_A_TIMEOUT: u32 = 4;

/// What is with the data link.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug)]
pub(super) struct DataLink {
    number: u32,
    stage: Stage,
    /// Attempts in a row.
    tries: u32,
    /// When the last attempt began.
    tried: Time,
}

impl DataLink {
    /// One that stands from then on.
    pub fn new(now: Time) -> DataLink {
        DataLink { number: 0, stage: Stage::Up, tries: 0, tried: now }
    }

    /// When it is to be looked at.
    pub fn look(&self) -> Option<Time> {
        match self.stage {
            Stage::Waits(at, _) => Some(at),
            _ => None,
        }
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

impl Machine {
    /// The data link to the host stands again.
    pub fn handle_data_up(&mut self, now: Time, host: Tid) {
        self.pass(now);
        if let Some(data) = self.links.data(host) {
            data.stage = Stage::Up;
        }
    }

    /// The data link to the host has ended, or could not be made again; the control link stands.
    pub fn handle_data_down(&mut self, now: Time, host: Tid) {
        self.pass(now);
        let (calls, timeout) = (self.own_host() < host, self.settings.host_timeout);
        let Some(data) = self.links.data(host).filter(|data| matches!(data.stage, Stage::Up | Stage::Tries)) else {
            return;
        };
        if calls {
            data.stage = Stage::Lost;
            let number = data.number;
            return self.send_host(host, Frame::DataLost { number });
        }
        data.wait(now, timeout, None);
        self.look_at_data_link(host);
    }

    /// The host that calls has no use for that data link.
    pub(super) fn data_lost(&mut self, host: Tid, number: u32) {
        let (called, now, timeout) = (host < self.own_host(), self.now, self.settings.host_timeout);
        let Some(data) = self.links.data(host).filter(|data| called && data.number == number) else { return };
        if matches!(data.stage, Stage::Up | Stage::Tries) {
            data.wait(now, timeout, None);
            self.actions.push_back(Action::DropData { host });
            self.look_at_data_link(host);
        }
    }

    /// The host that is called expects a data link.
    pub(super) fn data_may_be_made(&mut self, host: Tid, number: u32, call: DataCall) {
        let (calls, now, timeout) = (self.own_host() < host, self.now, self.settings.host_timeout);
        let Some(data) = self.links.data(host).filter(|data| calls && data.number < number) else { return };
        data.number = number;
        data.wait(now, timeout, Some(call));
        self.actions.push_back(Action::DropData { host });
        self.look_at_data_link(host);
    }

    /// How the other host can call, as [`Action::ExpectData`] has asked; `None` where nothing can be made up.
    pub fn handle_data_expected(&mut self, now: Time, host: Tid, call: Option<DataCall>) {
        self.pass(now);
        let number = match self.links.data(host) {
            Some(DataLink { stage: Stage::Tries, number, .. }) => *number,
            _ => return,
        };
        match call {
            Some(call) => self.send_host(host, Frame::DataCall { number, call }),
            None => self.handle_data_down(now, host),
        }
    }

    /// Makes the data link if it is time, else sees to it that it is looked at when it is.
    fn look_at_data_link(&mut self, host: Tid) {
        self.make_data_link(host);
        self.links.look_at_data(host);
    }

    /// Begins an attempt if one is due.
    pub(super) fn make_data_link(&mut self, host: Tid) {
        let (now, own) = (self.now, self.own_host());
        let Some(data) = self.links.data(host) else { return };
        let Stage::Waits(at, call) = &mut data.stage else { return };
        if now < *at {
            return;
        }
        match call.take() {
            Some(call) => {
                data.begin(now);
                let addresses = self.addresses_of(host);
                self.actions.push_back(Action::CallData { host, addresses, call });
            }
            None => {
                debug_assert!(host < own, "the one with the lower number calls");
                data.begin(now);
                data.number += 1;
                self.actions.push_back(Action::ExpectData { host });
            }
        }
    }
}
