//! Output on its way to collectors of other hosts: how much that may be.
//!
//! The collector's daemon says what the collector has taken; while too much is on its way the printers'
//! daemon leaves the rest in their pipes. So what waits at a collector's daemon is bounded whatever the
//! number of hosts: by twice that much, since what comes while it takes what waited counts with it.
use super::Machine;
use crate::proto::{Message, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Output that may be on its way from one host to a collector of another one, in bytes. What is printed
/// beyond waits in its pipe.
const FAR_OUTPUT_BYTES_MAX: u64 = 256 << 10;
/// The same from all hosts together, in bytes, of which each has its share; it has a few messages' worth always.
const ALL_HOSTS_BYTES_MAX: u64 = 16 << 20;
const SHARE_BYTES_MIN: u64 = 16 << 10;
/// The daemon of a collector tells another one of no less than this that was taken, in bytes.
const TOLD_BYTES_MIN: u64 = SHARE_BYTES_MIN / 4;

/// What a host owes an answer for.
#[derive(Default)]
struct Given {
    /// Waits for the collector.
    waiting: u64,
    /// The collector has it, and the host has not been told.
    taken: u64,
}

/// Output between this host and others.
#[derive(Default)]
pub(super) struct FarOutput {
    /// On its way to collectors of other hosts, in bytes.
    under_way: BTreeMap<Tid, u64>,
    /// By collector of this host, and host that it comes from.
    given: BTreeMap<(Tid, Tid), Given>,
}

impl FarOutput {
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.given.is_empty()
    }
    /// Nothing goes there any more, and nothing that comes from there has to be answered.
    pub fn forget_host(&mut self, host: Tid) {
        self.under_way.retain(|collector, _| collector.host() != host);
        self.given.retain(|(_, from), _| *from != host);
    }
    fn of(&self, collector: Tid) -> Vec<Tid> {
        self.given.range((collector, Tid(0))..=(collector, Tid(u32::MAX))).map(|((_, host), _)| *host).collect()
    }
}

impl Machine {
    /// Output on its way to a collector of another host that has not taken it, in bytes.
    pub fn output_under_way(&self, collector: Tid) -> u64 {
        self.far_output.under_way.get(&collector).copied().unwrap_or(0)
    }

    /// How much that may be in a machine of so many hosts.
    pub fn far_output_max(&self) -> u64 {
        (ALL_HOSTS_BYTES_MAX / self.hosts.tids().count().max(1) as u64).clamp(SHARE_BYTES_MIN, FAR_OUTPUT_BYTES_MAX)
    }

    pub(super) fn output_sent(&mut self, collector: Tid, bytes: usize) {
        *self.far_output.under_way.entry(collector).or_default() += bytes as u64;
    }

    /// The daemon of a collector says that so much of what came from here was taken.
    pub(super) fn output_was_taken(&mut self, from: Tid, collector: Tid, bytes: u64) {
        let known = self.far_output.under_way.get_mut(&collector).filter(|_| collector.host() == from);
        let Some(under_way) = known else { return };
        *under_way = under_way.saturating_sub(bytes);
        if *under_way == 0 {
            self.far_output.under_way.remove(&collector);
        }
    }

    /// Output of a task of another host, for a collector of this one.
    pub(super) fn output_came(&mut self, from: Tid, message: Message) {
        let (collector, bytes) = (message.dst, message.body.len() as u64);
        if message.src.host() != from || collector.host() != self.own_host() {
            return;
        }
        if !self.tasks.takes_frames(collector) {
            // Nobody collects it any more.
            return self.send_host(from, Frame::OutputTaken { collector, bytes });
        }
        self.far_output.given.entry((collector, from)).or_default().waiting += bytes;
        self.send(collector, ToTask::Message(message));
    }

    /// Whether that task has been given output of other hosts of which is not known that it has taken it.
    pub fn is_given_output(&self, collector: Tid) -> bool {
        !self.far_output.given.is_empty()
            && self.far_output.of(collector).iter().any(|host| self.far_output.given[&(collector, *host)].waiting > 0)
    }

    /// That task has taken all that it was given so far, or nearly all.
    pub fn handle_output_taken(&mut self, collector: Tid) {
        for host in self.far_output.of(collector) {
            let given = self.far_output.given.entry((collector, host)).or_default();
            given.taken += std::mem::take(&mut given.waiting);
            if given.taken >= TOLD_BYTES_MIN {
                self.tell_taken(collector, host);
            }
        }
    }

    /// The task takes nothing any more: all that it was given counts as taken.
    pub(super) fn collects_no_more(&mut self, collector: Tid) {
        for host in self.far_output.of(collector) {
            self.tell_taken(collector, host);
        }
    }

    fn tell_taken(&mut self, collector: Tid, host: Tid) {
        let Some(Given { waiting, taken }) = self.far_output.given.remove(&(collector, host)) else { return };
        self.send_host(host, Frame::OutputTaken { collector, bytes: waiting + taken });
    }
}
