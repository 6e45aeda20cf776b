//! Barriers of a group with members on several hosts: the members arrive at the master, by way of their daemons.
//!
//! While all members live on one host, they synchronize in the page of that host, without the daemon. When a member
//! joins from another host, the arrivals are taken out of the page. Members that have arrived in the page keep waiting
//! there until an order of the master releases them. Members that arrive meanwhile wait at the master until the master
//! has received the arrivals from the page. When the remaining members live on one host again and no member waits, the
//! page of that host is used again. If a member then still arrives by way of its daemon, the master takes the arrivals
//! out of the page once more.
use super::barrier::Verdict;
use super::group::Group;
use super::{ALL_MEMBERS, Groups};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::{Barrier, Taken, Waiting};
use crate::machine::settings::Time;
use crate::proto::Reply;
use crate::tid::Tid;
use crate::wire::{Frame, GroupChange};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How long the master waits for members whose arrival in the page is uncertain. If such a member has not arrived in
/// the page, it arrives by way of its daemon within this time. After this time, the members that are still uncertain
/// count as arrived in the page.
const MAYBE_ARRIVED_WAIT: Duration = Duration::from_secs(1);

/// Where the members of a group arrive at a barrier.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum MeetingPlace {
    /// There are no members.
    #[default]
    Nowhere,
    /// In the page of that host.
    PageOf(Tid),
    /// At the master, as soon as that host has sent the arrivals from its page.
    Moving(Tid),
    /// At the master.
    Master,
}

/// An arrival by way of the daemon: task, wait id, count.
type Arrival = (Tid, u32, i32);

/// A barrier at the master; at least one member has arrived.
struct PendingBarrier {
    need: u32,
    arrived: u32,
    /// The members that have arrived, including those in the page of `page_host`.
    members: BTreeSet<Tid>,
    /// Members that may have arrived in the page before it was taken out of use.
    maybe_arrived: BTreeSet<Tid>,
    /// The time from which the members in `maybe_arrived` count as arrived.
    maybe_until: Time,
    /// Arrivals by way of the daemon: task and wait id.
    to_answer: Vec<(Tid, u32)>,
    /// The host, if any, in whose page some of the members wait until the master releases them.
    page_host: Option<Tid>,
}

/// The place where the members of a group arrive, and the arrivals at the master.
#[derive(Default)]
pub(super) struct Arrivals {
    place: MeetingPlace,
    /// The number of barriers at the master that have ended.
    generation: u32,
    pending: Option<PendingBarrier>,
    /// Arrivals at the master that wait until the master has received the arrivals from a page.
    queue: VecDeque<Arrival>,
}

impl Arrivals {
    /// Returns whether members arrive in the page of that host.
    pub fn is_at(&self, host: Tid) -> bool {
        self.place == MeetingPlace::PageOf(host)
    }
    /// Returns whether no member waits at the master.
    fn is_quiet(&self) -> bool {
        self.pending.is_none() && self.queue.is_empty()
    }
    /// Returns how many members the barrier needs and which members have arrived, for the group server.
    pub fn waiting(&self) -> Option<Waiting> {
        let pending = self.pending.as_ref()?;
        let need = u16::try_from(pending.need).unwrap_or(u16::MAX);
        Some(Waiting { need, tids: pending.members.iter().copied().collect() })
    }
    /// Returns the host in whose page members arrive, if it is another host than this one.
    pub fn elsewhere(&self, own: Tid) -> Option<Tid> {
        match self.place {
            MeetingPlace::PageOf(host) | MeetingPlace::Moving(host) if host != own => Some(host),
            _ => None,
        }
    }
}

impl Group {
    /// Returns the barrier if members arrive at the master. (Otherwise they arrive in the page of one host, and that
    /// host judges the barrier.)
    fn barrier_at_master(&self, now: Time) -> Option<Barrier> {
        if self.arrivals.place != MeetingPlace::Master {
            return None;
        }
        let generation = self.arrivals.generation;
        let Some(pending) = &self.arrivals.pending else {
            let absent = self.size() as u32;
            return Some(Barrier { generation, need: 0, arrived: 0, absent, arriving: 0 });
        };
        let is_uncertain = |tid: &Tid| now < pending.maybe_until && pending.maybe_arrived.contains(tid);
        let (mut absent, mut arriving) = (0, 0);
        for (_, tid) in self.members().filter(|(_, tid)| !pending.members.contains(tid)) {
            match pending.maybe_arrived.contains(&tid) {
                true if is_uncertain(&tid) => arriving += 1,
                true => {}
                false => absent += 1,
            }
        }
        let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let (need, arrived) = (clamp(pending.need), clamp(pending.arrived));
        Some(Barrier { generation, need, arrived, absent, arriving })
    }
}

impl Groups {
    /// Chooses where members arrive, after the membership has changed or the last member at a barrier has been
    /// released.
    pub(super) fn choose_place(&mut self, core: &mut Core, id: u64) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|group| group.size() > 0) else { return };
        let only = group.only_host();
        let arrivals = &mut group.arrivals;
        match (arrivals.place, only) {
            (MeetingPlace::Nowhere, Some(host)) => {
                group.arrivals.place = MeetingPlace::PageOf(host);
                group.replica.meets_here = host == own;
            }
            (MeetingPlace::PageOf(host), only) if only != Some(host) => self.move_to_master(core, id, host),
            (MeetingPlace::Master, Some(host)) if arrivals.is_quiet() => {
                arrivals.place = MeetingPlace::PageOf(host);
                self.order_group(core, host, id, GroupChange::Give);
            }
            _ => {}
        }
    }

    /// Orders a host to send the arrivals in its page to the master.
    fn move_to_master(&mut self, core: &mut Core, id: u64, from: Tid) {
        if let Some(group) = self.by_id(id) {
            group.arrivals.place = MeetingPlace::Moving(from);
            group.shortage.place_changed();
            self.order_group(core, from, id, GroupChange::Take);
        }
    }

    /// Handles the arrivals that were taken out of this host's page.
    pub fn arrivals_taken(&mut self, core: &mut Core, group: u64, taken: Taken) {
        let own = core.own_host();
        let Some(found) = self.by_id(group) else { return };
        // If a new page is out of use from the start, the daemon also makes this report, but the master has not asked
        // for it.
        if !std::mem::take(&mut found.replica.take_ordered) {
            return;
        }
        match core.is_master() {
            true => self.arrivals_moved(core, own, group, taken),
            false => core.send_master(Frame::GroupTaken { id: group, taken }),
        }
    }

    /// Handles the arrivals that a host has taken out of its page: from now on members arrive at the master.
    pub fn arrivals_moved(&mut self, core: &mut Core, from: Tid, id: u64, taken: Taken) {
        let maybe_until = core.now + MAYBE_ARRIVED_WAIT;
        let Some(group) = self.by_id(id) else { return };
        let arrivals = &mut group.arrivals;
        if arrivals.place != MeetingPlace::Moving(from) {
            return;
        }
        arrivals.place = MeetingPlace::Master;
        if taken.need > 0 {
            let Taken { need, arrived, arrived_members, maybe_arrived } = taken;
            arrivals.pending = Some(PendingBarrier {
                need: need.into(),
                arrived: arrived.into(),
                members: arrived_members.into_iter().collect(),
                maybe_arrived: maybe_arrived.into_iter().collect(),
                maybe_until,
                to_answer: Vec::new(),
                page_host: Some(from),
            });
        }
        for arrival in std::mem::take(&mut arrivals.queue) {
            self.arrive_at_master(core, id, arrival);
        }
        self.examine_barrier(core, id);
        self.choose_place(core, id);
    }

    /// Handles the arrival of a member by way of its daemon.
    pub fn arrive(&mut self, core: &mut Core, from: Tid, wait: u32, id: u64, count: i32) {
        let Some(group) = self.by_id(id).filter(|group| group.size() > 0) else {
            return core.reply(from, wait, Err(Code::NoGroup));
        };
        match group.arrivals.place {
            MeetingPlace::PageOf(host) => {
                group.arrivals.queue.push_back((from, wait, count));
                self.move_to_master(core, id, host);
            }
            MeetingPlace::Moving(_) => group.arrivals.queue.push_back((from, wait, count)),
            MeetingPlace::Master | MeetingPlace::Nowhere => {
                self.arrive_at_master(core, id, (from, wait, count));
                self.choose_place(core, id);
            }
        }
    }

    /// Counts an arrival at the master; opens the barrier if this arrival was the last.
    fn arrive_at_master(&mut self, core: &mut Core, id: u64, (from, wait, count): Arrival) {
        let Some(group) = self.by_id(id) else { return };
        let size = group.size();
        let need = match count {
            ALL_MEMBERS => size as u32,
            count => u32::try_from(count).unwrap_or(0),
        };
        let refusal = match &group.arrivals.pending {
            _ if group.broken => Some(Code::NoGroup),
            _ if group.instance_of(from).is_none() => Some(Code::NotInGroup),
            _ if need == 0 => Some(Code::BadParam),
            Some(pending) if pending.need != need => Some(Code::Mismatch),
            _ => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        let pending = group.arrivals.pending.get_or_insert_with(|| PendingBarrier::new(need));
        pending.maybe_arrived.remove(&from);
        pending.members.insert(from);
        pending.to_answer.push((from, wait));
        pending.arrived += 1;
        if pending.arrived >= pending.need {
            self.end_barrier(core, id, Ok(Reply::Done));
        } else if size < need as usize {
            group.shortage.note_size(size);
            self.examine_barrier(core, id);
        }
    }

    /// Fails the barrier at the master if it can no longer open.
    pub(super) fn judge_at_master(&mut self, core: &mut Core, id: u64) {
        let (now, patience) = (core.now, core.settings.barrier_patience);
        let Some(group) = self.by_id(id) else { return };
        let Some(barrier) = group.barrier_at_master(now) else { return };
        let size = group.size();
        let fails = group.broken || group.shortage.judge(now, patience, size, &barrier) == Verdict::Fail;
        let fails = fails && barrier.need != 0;
        let code = if group.frozen { Code::NoGroup } else { Code::NoTask };
        if fails {
            group.shortage.barrier_failed();
        }
        self.register_deadline(id);
        if fails {
            self.end_barrier(core, id, Err(code));
        }
    }

    /// Ends the barrier at the master: answers or releases the members that have arrived, and begins the next barrier.
    fn end_barrier(&mut self, core: &mut Core, id: u64, answer: Result<Reply, Code>) {
        let Some(group) = self.by_id(id) else { return };
        let Some(pending) = group.arrivals.pending.take() else { return };
        group.arrivals.generation = group.arrivals.generation.wrapping_add(1);
        for (tid, wait) in pending.to_answer {
            core.reply(tid, wait, answer.clone());
        }
        if let Some(host) = pending.page_host {
            self.order_group(core, host, id, GroupChange::Release { opened: answer.is_ok() });
        }
    }

    /// Handles the loss of a host with members.
    pub(super) fn arrivals_host_lost(&mut self, core: &mut Core, id: u64, host: Tid) {
        let Some(group) = self.by_id(id) else { return };
        if let Some(pending) = group.arrivals.pending.as_mut().filter(|pending| pending.page_host == Some(host)) {
            pending.page_host = None;
        }
        if group.arrivals.place == MeetingPlace::Moving(host) {
            self.arrivals_moved(core, host, id, Taken::default());
        }
    }
}

impl PendingBarrier {
    fn new(need: u32) -> PendingBarrier {
        PendingBarrier {
            need,
            arrived: 0,
            members: BTreeSet::new(),
            maybe_arrived: BTreeSet::new(),
            maybe_until: Time::ZERO,
            to_answer: Vec::new(),
            page_host: None,
        }
    }
}

/// Answers the members that wait at the barrier of a group that has ended.
pub(super) fn end_arrivals(core: &mut Core, arrivals: Arrivals) {
    let waiting = arrivals.pending.into_iter().flat_map(|pending| pending.to_answer);
    let queued = arrivals.queue.into_iter().map(|(tid, wait, _)| (tid, wait));
    let left: Vec<(Tid, u32)> = waiting.chain(queued).collect();
    for (tid, wait) in left {
        core.reply(tid, wait, Err(Code::NoGroup));
    }
}
