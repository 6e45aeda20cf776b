//! Flow control of output for collectors on other hosts.
//!
//! The collector's daemon reports how much output the collector has taken. While too much output is in flight, the
//! daemon of the printing tasks leaves further output in the pipes of these tasks. So the output that waits at a
//! collector's daemon is bounded for any number of hosts. The bound is twice the limit on output in flight, because
//! output that arrives while the collector reads is reported as taken together with the output that waited before.
use super::{ANNOUNCED, AT_END, CREATED};
use crate::encoding::{Reader, Writer};
use crate::machine::core::Core;
use crate::machine::index::pairs_with;
use crate::proto::{Message, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Bytes of output in flight from one host to a collector on another. Further output waits in the pipes of the printing
/// tasks.
const HOST_BYTES_MAX: u64 = 256 << 10;
/// Bytes of output in flight to a collector from all hosts together. Each host has an equal share, but never less than
/// `SHARE_BYTES_MIN`, enough for a few messages.
const ALL_HOSTS_BYTES_MAX: u64 = 16 << 20;
/// The smallest share of a host, in bytes.
const SHARE_BYTES_MIN: u64 = 16 << 10;
/// The daemon of a collector reports taken output as soon as it amounts to at least this many bytes.
const CREDIT_BYTES_MIN: u64 = SHARE_BYTES_MIN / 4;

/// Tasks of one host that print for a collector on another host.
///
/// * Filled by: each other host
/// * Setting: none, no program has that many tasks on one host that print for one task
/// * Reached: a collector receives the output of further tasks, but not the end of this output if their host is lost
/// * Test: `the_tasks_of_a_lost_host_whose_end_a_collector_hears_are_limited`
const COLLECTED_MAX: usize = 16_384;

/// Bytes of output from one host, not yet reported to that host as taken.
#[derive(Default)]
struct UncreditedOutput {
    /// Bytes that the collector has not taken yet.
    untaken: u64,
    /// Bytes that the collector has taken.
    taken: u64,
}

/// What a collector of this host has received about the output of a task on another host.
#[derive(Default)]
struct CollectedTask {
    ctx: i32,
    tag: i32,
    parent: i32,
    /// Whether the announcement by the spawner has arrived.
    announced: bool,
    /// Whether the end of the output has arrived.
    ended: bool,
}

/// The output that goes from this host to others, and from others to this host.
#[derive(Default)]
pub(in crate::machine) struct RemoteOutput {
    /// Bytes of output in flight to each collector on another host.
    in_flight: BTreeMap<Tid, u64>,
    /// Output not yet reported as taken, by collector (on this host) and sending host.
    uncredited: BTreeMap<(Tid, Tid), UncreditedOutput>,
    /// The tasks of other hosts, by collector (on this host) and host of the task. A task is dropped when the collector
    /// has received everything about its output.
    collected: BTreeMap<(Tid, Tid), BTreeMap<Tid, CollectedTask>>,
}

impl RemoteOutput {
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.uncredited.is_empty() && self.collected.is_empty()
    }
    /// Drops the counters of a lost host.
    fn forget_host(&mut self, host: Tid) {
        self.in_flight.retain(|collector, _| collector.host() != host);
        self.uncredited.retain(|(_, from), _| *from != host);
    }
    /// Returns what the collector has received about the task, unless there are too many tasks of that host.
    fn collected(&mut self, collector: Tid, task: Tid) -> Option<&mut CollectedTask> {
        let tasks = self.collected.entry((collector, task.host())).or_default();
        let remembers = tasks.len() < COLLECTED_MAX || tasks.contains_key(&task);
        remembers.then(|| tasks.entry(task).or_default())
    }
    /// Drops a task: the collector has received everything about its output.
    fn forget_task(&mut self, collector: Tid, task: Tid) {
        let place = (collector, task.host());
        let Some(tasks) = self.collected.get_mut(&place) else { return };
        tasks.remove(&task);
        if tasks.is_empty() {
            self.collected.remove(&place);
        }
    }
    /// Returns the hosts from which that collector has output that is not yet reported as taken.
    fn hosts_with_uncredited(&self, collector: Tid) -> Vec<Tid> {
        self.uncredited.range(pairs_with(collector)).map(|((_, host), _)| *host).collect()
    }

    /// Returns how many bytes of output are in flight to a collector on another host.
    pub fn in_flight(&self, collector: Tid) -> u64 {
        self.in_flight.get(&collector).copied().unwrap_or(0)
    }

    /// Returns how many bytes of output may be in flight to one collector. This limit depends on the number of hosts.
    pub fn in_flight_max(core: &Core) -> u64 {
        (ALL_HOSTS_BYTES_MAX / core.hosts.tids().count().max(1) as u64).clamp(SHARE_BYTES_MIN, HOST_BYTES_MAX)
    }

    /// Counts output that was sent to a collector.
    pub(super) fn sent(&mut self, collector: Tid, bytes: usize) {
        *self.in_flight.entry(collector).or_default() += bytes as u64;
    }

    /// Handles the report of a collector's daemon that the collector has taken `bytes` bytes of output from this host.
    pub fn credited(&mut self, from: Tid, collector: Tid, bytes: u64) {
        let known = self.in_flight.get_mut(&collector).filter(|_| collector.host() == from);
        let Some(in_flight) = known else { return };
        *in_flight = in_flight.saturating_sub(bytes);
        if *in_flight == 0 {
            self.in_flight.remove(&collector);
        }
    }

    /// Handles output of a task of another host, for a collector on this host.
    pub fn received(&mut self, core: &mut Core, from: Tid, message: Message) {
        let (collector, bytes) = (message.dst, message.body.len() as u64);
        if message.src.host() != from || collector.host() != core.own_host() {
            return;
        }
        let mut body = Reader::of(&message.body, message.format);
        let (Some(task), Some(length)) = (body.int(), body.int()) else { return };
        let task = Tid(task as u32);
        let counts = length > 0;
        if !core.tasks.takes_frames(collector) {
            // The collector is gone.
            if counts {
                core.send_host(from, Frame::OutputTaken { collector, bytes });
            }
            return;
        }
        // News of a lost host's task is ignored, because the collector has already received the end of the task's
        // output. News that does not come from the task's host is ignored, too, except the announcement, which the
        // spawner's host sends.
        if !core.hosts.is_here(task.host()) || task.host() != from && length != ANNOUNCED {
            return;
        }
        if let Some(collected) = self.collected(collector, task) {
            (collected.ctx, collected.tag) = (message.ctx, message.tag);
            match length {
                CREATED => collected.parent = body.int().unwrap_or(0),
                ANNOUNCED => collected.announced = true,
                AT_END => collected.ended = true,
                _ => {}
            }
        }
        if counts {
            self.uncredited.entry((collector, from)).or_default().untaken += bytes;
        }
        core.send(collector, ToTask::Message(message));
        self.announce_missing(core, collector, task);
    }

    /// Announces a task of another host, spawned from this host, to a collector of this host.
    pub(super) fn announce(&mut self, core: &mut Core, collector: Tid, task: Tid, ctx: i32, tag: i32, body: Vec<u8>) {
        if !core.hosts.is_here(task.host()) {
            return;
        }
        if let Some(collected) = self.collected(collector, task) {
            (collected.ctx, collected.tag, collected.announced) = (ctx, tag, true);
        }
        core.tell(collector, ctx, tag, 0, body);
        self.announce_missing(core, collector, task);
    }

    /// Sends a collector the messages about a task that lost hosts can no longer send: the end of the output if the
    /// task's host is lost, and the announcement if the task's host or the spawner's host is lost.
    fn announce_missing(&mut self, core: &mut Core, collector: Tid, task: Tid) {
        let tasks = self.collected.get(&(collector, task.host()));
        let Some(collected) = tasks.and_then(|tasks| tasks.get(&task)) else { return };
        let &CollectedTask { ctx, tag, parent, announced, ended } = collected;
        let (lost, spawner) = (!core.hosts.is_here(task.host()), Tid(parent as u32));
        // If a task has no parent, its spawner is unknown here.
        let orphaned = ended && spawner.is_task() && !core.hosts.is_here(spawner);
        let body = |kind| Writer::new().int(task.0 as i32).int(kind);
        if !announced && (lost || orphaned) {
            core.tell(collector, ctx, tag, 0, body(ANNOUNCED).int(parent).finish());
        }
        if !ended && lost {
            core.tell(collector, ctx, tag, 0, body(AT_END).finish());
        }
        if lost || ended && (announced || orphaned) {
            self.forget_task(collector, task);
        }
    }

    /// Handles the loss of a host: this host reports to its collectors that the output of the lost host's tasks has
    /// ended.
    pub(super) fn host_gone(&mut self, core: &mut Core, host: Tid) {
        self.forget_host(host);
        let places = self.collected.iter();
        let all = places.flat_map(|((collector, _), tasks)| tasks.keys().map(|task| (*collector, *task)));
        all.collect::<Vec<_>>().into_iter().for_each(|(collector, task)| self.announce_missing(core, collector, task));
    }

    /// Returns whether output from other hosts waits here for that collector.
    pub fn has_untaken(&self, collector: Tid) -> bool {
        !self.uncredited.is_empty()
            && self.hosts_with_uncredited(collector).iter().any(|host| self.uncredited[&(collector, *host)].untaken > 0)
    }

    /// Handles the news that a collector has taken all, or nearly all, output that was sent to it.
    pub fn taken(&mut self, core: &mut Core, collector: Tid) {
        for host in self.hosts_with_uncredited(collector) {
            let uncredited = self.uncredited.entry((collector, host)).or_default();
            uncredited.taken += std::mem::take(&mut uncredited.untaken);
            if uncredited.taken >= CREDIT_BYTES_MIN {
                self.send_credit(core, collector, host);
            }
        }
    }

    /// Handles the news that a collector has left: all output sent to it counts as taken.
    pub(super) fn collector_left(&mut self, core: &mut Core, collector: Tid) {
        for host in self.hosts_with_uncredited(collector) {
            self.send_credit(core, collector, host);
        }
        self.collected.retain(|(other, _), _| *other != collector);
    }

    /// Reports to a host that the collector has taken the output from there.
    fn send_credit(&mut self, core: &mut Core, collector: Tid, host: Tid) {
        let Some(UncreditedOutput { untaken, taken }) = self.uncredited.remove(&(collector, host)) else { return };
        core.send_host(host, Frame::OutputTaken { collector, bytes: untaken + taken });
    }
}
