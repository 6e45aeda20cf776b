//! Daemons that other hosts start for the master: its orders, and their news. Who starts whom is decided
//! where commands are run.
use super::{Action, Machine};
use crate::tid::Tid;
use crate::wire::{Frame, StartNews, StartOrder};

impl Machine {
    /// The master wants a command run by another host, or ended there.
    pub fn order_start(&mut self, host: Tid, number: u64, order: StartOrder) {
        self.send_host(host, Frame::StartOrder { number, order });
    }

    /// There is news of a command that the master has ordered here.
    pub fn report_start(&mut self, number: u64, news: StartNews) {
        self.send_host(self.hosts.master(), Frame::StartNews { number, news });
    }

    /// The master orders something.
    pub(super) fn start_ordered(&mut self, number: u64, order: StartOrder) {
        if !self.control.halting() {
            self.actions.push_back(Action::OrderStart { number, order });
        }
    }

    /// A host has news for the master.
    pub(super) fn start_news(&mut self, from: Tid, number: u64, news: StartNews) {
        self.actions.push_back(Action::StartNews { host: from, number, news });
    }
}
