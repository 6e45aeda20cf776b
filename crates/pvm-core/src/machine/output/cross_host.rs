//! Output on its way to collectors of other hosts: how much that may be.
//!
//! The collector's daemon says what the collector has taken; while too much is on its way the printers'
//! daemon leaves the rest in their pipes. So what waits at a collector's daemon is bounded whatever the
//! number of hosts: by twice that much, since what comes while it takes what waited counts with it.
use super::{ANNOUNCED, AT_END, CREATED};
use crate::encoding::{Reader, Writer};
use crate::machine::core::Core;
use crate::proto::{Message, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Output that may be on its way from one host to a collector of another one, in bytes. What is printed
/// beyond waits in its pipe.
const HOST_BYTES_MAX: u64 = 256 << 10;
/// The same from all hosts together, in bytes, of which each has its share; it has a few messages' worth always.
const ALL_HOSTS_BYTES_MAX: u64 = 16 << 20;
const SHARE_BYTES_MIN: u64 = 16 << 10;
/// The daemon of a collector tells another one of no less than this that was taken, in bytes.
const TOLD_BYTES_MIN: u64 = SHARE_BYTES_MIN / 4;

/// Tasks of one host of which a collector elsewhere hears.
///
/// * Filled by: each other host
/// * Setting: none, that many tasks of a host print for one task in no program
/// * Reached: a collector hears of more of them, but not of their end when their host is lost
/// * Test: `of_so_many_tasks_of_a_lost_host_a_collector_hears_the_end_and_of_no_more`
const COLLECTED_MAX: usize = 16_384;

/// What a host owes an answer for.
#[derive(Default)]
struct Given {
    /// Waits for the collector.
    waiting: u64,
    /// The collector has it, and the host has not been told.
    taken: u64,
}

/// What a collector of this host has heard of the output of a task of another one.
#[derive(Default)]
struct Collected {
    ctx: i32,
    tag: i32,
    parent: i32,
    announced: bool,
    ended: bool,
}

/// Output between this host and others.
#[derive(Default)]
pub(in crate::machine) struct CrossHost {
    /// On its way to collectors of other hosts, in bytes.
    under_way: BTreeMap<Tid, u64>,
    /// By collector of this host, and host that it comes from.
    given: BTreeMap<(Tid, Tid), Given>,
    /// By collector of this host, and host of the task: until the collector has heard all of it.
    collected: BTreeMap<(Tid, Tid), BTreeMap<Tid, Collected>>,
}

impl CrossHost {
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.given.is_empty() && self.collected.is_empty()
    }
    /// Nothing goes there any more, and nothing that comes from there has to be answered.
    fn forget_host(&mut self, host: Tid) {
        self.under_way.retain(|collector, _| collector.host() != host);
        self.given.retain(|(_, from), _| *from != host);
    }
    /// What the collector has heard of the task, unless it hears of too many.
    fn collected(&mut self, collector: Tid, task: Tid) -> Option<&mut Collected> {
        let tasks = self.collected.entry((collector, task.host())).or_default();
        let remembers = tasks.len() < COLLECTED_MAX || tasks.contains_key(&task);
        remembers.then(|| tasks.entry(task).or_default())
    }
    fn heard_all(&mut self, collector: Tid, task: Tid) {
        let place = (collector, task.host());
        let Some(tasks) = self.collected.get_mut(&place) else { return };
        tasks.remove(&task);
        if tasks.is_empty() {
            self.collected.remove(&place);
        }
    }
    fn of(&self, collector: Tid) -> Vec<Tid> {
        self.given.range((collector, Tid(0))..=(collector, Tid(u32::MAX))).map(|((_, host), _)| *host).collect()
    }
}

impl CrossHost {
    /// Output on its way to a collector of another host that has not taken it, in bytes.
    pub fn under_way(&self, collector: Tid) -> u64 {
        self.under_way.get(&collector).copied().unwrap_or(0)
    }

    /// How much that may be, in bytes, by the number of hosts.
    pub fn under_way_max(core: &Core) -> u64 {
        (ALL_HOSTS_BYTES_MAX / core.hosts.tids().count().max(1) as u64).clamp(SHARE_BYTES_MIN, HOST_BYTES_MAX)
    }

    pub fn sent(&mut self, collector: Tid, bytes: usize) {
        *self.under_way.entry(collector).or_default() += bytes as u64;
    }

    /// The daemon of a collector says how much of what came from here was taken, in bytes.
    pub fn was_taken(&mut self, from: Tid, collector: Tid, bytes: u64) {
        let known = self.under_way.get_mut(&collector).filter(|_| collector.host() == from);
        let Some(under_way) = known else { return };
        *under_way = under_way.saturating_sub(bytes);
        if *under_way == 0 {
            self.under_way.remove(&collector);
        }
    }

    /// Output of a task of another host, for a collector of this one.
    pub fn came(&mut self, core: &mut Core, from: Tid, message: Message) {
        let (collector, bytes) = (message.dst, message.body.len() as u64);
        if message.src.host() != from || collector.host() != core.own_host() {
            return;
        }
        let mut body = Reader::of(&message.body, message.format);
        let (Some(task), Some(length)) = (body.int(), body.int()) else { return };
        let task = Tid(task as u32);
        let counts = length > 0;
        if !core.tasks.takes_frames(collector) {
            // Nobody collects it any more.
            if counts {
                core.send_host(from, Frame::OutputTaken { collector, bytes });
            }
            return;
        }
        // Of a task of a lost host the collector has heard the end. Its own host speaks for it, and its spawner's.
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
            self.given.entry((collector, from)).or_default().waiting += bytes;
        }
        core.send(collector, ToTask::Message(message));
        self.tell_rest(core, collector, task);
    }

    /// A task of this host announces one of another host to a collector of this one.
    pub fn announcement_came(&mut self, core: &mut Core, collector: Tid, task: Tid, ctx: i32, tag: i32, body: Vec<u8>) {
        if !core.hosts.is_here(task.host()) {
            return;
        }
        if let Some(collected) = self.collected(collector, task) {
            (collected.ctx, collected.tag, collected.announced) = (ctx, tag, true);
        }
        core.tell(collector, ctx, tag, 0, body);
        self.tell_rest(core, collector, task);
    }

    /// Tells a collector what nobody else will: that a task of a lost host has printed all, and that one was announced
    /// whose spawner's host is lost.
    fn tell_rest(&mut self, core: &mut Core, collector: Tid, task: Tid) {
        let tasks = self.collected.get(&(collector, task.host()));
        let Some(collected) = tasks.and_then(|tasks| tasks.get(&task)) else { return };
        let &Collected { ctx, tag, parent, announced, ended } = collected;
        let (lost, spawner) = (!core.hosts.is_here(task.host()), Tid(parent as u32));
        // Of one without a parent it is not known who spawned it.
        let orphaned = ended && spawner.is_task() && !core.hosts.is_here(spawner);
        let body = |kind| Writer::new().int(task.0 as i32).int(kind);
        if !announced && (lost || orphaned) {
            core.tell(collector, ctx, tag, 0, body(ANNOUNCED).int(parent).finish());
        }
        if !ended && lost {
            core.tell(collector, ctx, tag, 0, body(AT_END).finish());
        }
        if lost || ended && (announced || orphaned) {
            self.heard_all(collector, task);
        }
    }

    /// A host is gone: nobody else tells what becomes of the output of its tasks.
    pub fn host_gone(&mut self, core: &mut Core, host: Tid) {
        self.forget_host(host);
        let places = self.collected.iter();
        let all = places.flat_map(|((collector, _), tasks)| tasks.keys().map(|task| (*collector, *task)));
        all.collect::<Vec<_>>().into_iter().for_each(|(collector, task)| self.tell_rest(core, collector, task));
    }

    /// Whether that task has been given output of other hosts and may not have taken it.
    pub fn is_given(&self, collector: Tid) -> bool {
        !self.given.is_empty() && self.of(collector).iter().any(|host| self.given[&(collector, *host)].waiting > 0)
    }

    /// That task has taken all that it was given so far, or nearly all.
    pub fn taken(&mut self, core: &mut Core, collector: Tid) {
        for host in self.of(collector) {
            let given = self.given.entry((collector, host)).or_default();
            given.taken += std::mem::take(&mut given.waiting);
            if given.taken >= TOLD_BYTES_MIN {
                self.tell_taken(core, collector, host);
            }
        }
    }

    /// The task takes nothing any more: all that it was given counts as taken.
    pub fn collects_no_more(&mut self, core: &mut Core, collector: Tid) {
        for host in self.of(collector) {
            self.tell_taken(core, collector, host);
        }
        self.collected.retain(|(other, _), _| *other != collector);
    }

    fn tell_taken(&mut self, core: &mut Core, collector: Tid, host: Tid) {
        let Some(Given { waiting, taken }) = self.given.remove(&(collector, host)) else { return };
        core.send_host(host, Frame::OutputTaken { collector, bytes: waiting + taken });
    }
}
