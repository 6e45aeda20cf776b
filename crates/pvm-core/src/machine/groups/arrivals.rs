//! Barriers of a group with members on several hosts: the members arrive at the master, by way of their daemons.
//!
//! While all members live on one host, they synchronize in the page of that host, without the daemon. When a member
//! joins from another host, the arrivals are taken out of the page. Members that have arrived in the page keep waiting
//! there until an order of the master releases them. Members that arrive meanwhile wait at the master until the master
//! has received the arrivals from the page. When the remaining members live on one host again and no member waits, the
//! page of that host is used again. If a member then still arrives by way of its daemon, the master takes the arrivals
//! out of the page once more.
//!
//! An arrival of a member of another host is a request of the member, or it comes in a frame with others
//! ([`super::combining`]). Such an arrival may come twice, and in any order: each has a number.
use super::barrier::Verdict;
use super::pending_barrier::{Arriver, PendingBarrier};
use super::releases::Releases;
use super::{ALL_MEMBERS, Group, Groups};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::Barrier;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{self, Frame, GroupChange};
use crate::wire::{Taken, Waiting};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long the master waits for members whose arrival in the page is uncertain. If such a member has not arrived in
/// the page, it arrives by way of its daemon within this time. After this time, the members that are still uncertain
/// count as arrived in the page.
const MAYBE_ARRIVED_WAIT: Duration = Duration::from_secs(1);

/// Where the members of a group arrive at a barrier.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeetingPlace {
    /// There are no members.
    #[default]
    Nowhere,
    /// In the page of that host.
    PageOf(Tid),
    /// At the master, as soon as that host has sent the arrivals from its page.
    Moving(Tid),
    /// At the master.
    Master,
    /// At that coordinator.
    Coordinator(Tid),
    /// At the master, as soon as the hosts have reported who waits at the coordinator.
    TakenBack,
}

/// An arrival by way of the daemon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub arriver: Arriver,
    /// The host that has sent it.
    pub sender: Tid,
    pub count: i32,
    pub lan: bool,
}

/// What the master knows about the arrivals of a member.
#[derive(Default)]
struct Turn {
    /// The version of the group since which the task is a member.
    since: u64,
    /// The number of the last arrival.
    last: u64,
    /// How its barrier has ended.
    outcome: Option<Result<(), Code>>,
}

/// The place where the members of a group arrive, and the arrivals at the master.
#[derive(Default)]
pub(super) struct Arrivals {
    pub place: MeetingPlace,
    /// The number of barriers at the master that have ended.
    generation: u32,
    pending: Option<PendingBarrier>,
    /// Arrivals at the master that wait until the master has received the arrivals from a page.
    queue: VecDeque<Arrival>,
    /// At the master: all members.
    turns: BTreeMap<Tid, Turn>,
    pub releases: Releases,
}

impl Arrivals {
    /// Queues arrivals that came before those in the queue.
    pub fn queue_first(&mut self, arrivals: Vec<Arrival>) {
        arrivals.into_iter().rev().for_each(|arrival| self.queue.push_front(arrival));
    }

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
    /// Records since which version of the group a task is a member.
    pub fn member_came(&mut self, tid: Tid, version: u64) {
        self.turns.insert(tid, Turn { since: version, ..Turn::default() });
    }
    /// Records how the barrier of an arrival has ended.
    pub fn note_outcome(&mut self, tid: Tid, turn: u64, outcome: Result<(), Code>) {
        if let Some(known) = self.turns.get_mut(&tid).filter(|known| known.last == turn) {
            known.outcome = Some(outcome);
        }
    }
    /// Forgets a member that has gone.
    pub fn member_gone(&mut self, tid: Tid) {
        self.turns.remove(&tid);
    }
    /// Returns the host in whose page members arrive, if it is another host than this one.
    pub fn elsewhere(&self, own: Tid) -> Option<Tid> {
        match self.place {
            MeetingPlace::PageOf(host) | MeetingPlace::Moving(host) | MeetingPlace::Coordinator(host)
                if host != own =>
            {
                Some(host)
            }
            _ => None,
        }
    }
    /// Returns the coordinator, unless it is the master.
    pub fn coordinator(&self) -> Option<Tid> {
        match self.place {
            MeetingPlace::Coordinator(host) => Some(host),
            _ => None,
        }
    }
    /// Returns the host at which members arrive, unless it is the master.
    pub fn meets_on(&self) -> Option<Tid> {
        match self.place {
            MeetingPlace::PageOf(host) | MeetingPlace::Coordinator(host) => Some(host),
            _ => None,
        }
    }
    /// Returns whether members arrive at the master, and none waits there.
    pub fn is_free_at_master(&self) -> bool {
        self.place == MeetingPlace::Master && self.is_quiet()
    }
    /// Lets members arrive at a coordinator.
    pub fn meet_at(&mut self, by: Tid) {
        self.place = MeetingPlace::Coordinator(by);
    }
    /// Records an arrival that a host has reported.
    pub fn note_turn(&mut self, tid: Tid, turn: u64) {
        if let Some(known) = self.turns.get_mut(&tid).filter(|known| known.last < turn) {
            (known.last, known.outcome) = (turn, None);
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
                arrived: arrived.into(),
                members: arrived_members.into_iter().collect(),
                maybe_arrived: maybe_arrived.into_iter().collect(),
                maybe_until,
                page_host: Some(from),
                ..PendingBarrier::new(need.into())
            });
        }
        self.serve_queue(core, id);
    }

    /// Counts the arrivals that have waited until the master knew who had arrived elsewhere.
    fn serve_queue(&mut self, core: &mut Core, id: u64) {
        let queue = self.by_id(id).map(|group| std::mem::take(&mut group.arrivals.queue)).unwrap_or_default();
        for arrival in queue {
            self.arrive_at_master(core, id, arrival);
        }
        self.examine_barrier(core, id);
        self.choose_place(core, id);
    }

    /// Lets members arrive at the master again. `pending`: the barrier at which members have arrived elsewhere.
    pub(super) fn resume_at_master(&mut self, core: &mut Core, id: u64, pending: PendingBarrier) {
        let Some(group) = self.by_id(id) else { return };
        group.arrivals.place = MeetingPlace::Master;
        let is_complete = pending.arrived >= pending.need;
        group.arrivals.pending = Some(pending).filter(|pending| pending.arrived > 0);
        if is_complete {
            self.end_barrier(core, id, Ok(()));
        }
        self.serve_queue(core, id);
    }

    /// Handles the request of a member to arrive.
    pub fn arrive(&mut self, core: &mut Core, from: Tid, wait: u32, id: u64, count: i32, lan: bool) {
        let arriver = Arriver::Request { tid: from, wait };
        self.arrive_by_daemon(core, id, Arrival { arriver, sender: from.host(), count, lan });
    }

    /// Handles arrivals that other hosts have sent.
    pub fn combined_arrived(&mut self, core: &mut Core, from: Tid, id: u64, arrivals: Vec<wire::Arrival>) {
        if !core.is_master() {
            return self.arrivals_passing(core, from, id, arrivals);
        }
        let Some(group) = self.by_id(id) else { return };
        if group.arrivals.coordinator().is_some() {
            // The host's report will repeat these arrivals.
            if group.has_members_on(from) {
                self.take_back(core, id, true, Tid::NONE);
            }
            return;
        }
        for arrival in arrivals {
            let is_reported = self.by_id(id).is_some_and(|group| group.placement.awaits(arrival.tid.host()));
            if !is_reported && self.is_new(core, from, id, &arrival) {
                self.release_confirmed(id, arrival.tid.host(), core.now);
                let wire::Arrival { tid, turn, count, lan, .. } = arrival;
                let arriver = Arriver::Combined { tid, turn };
                self.arrive_by_daemon(core, id, Arrival { arriver, sender: from, count, lan });
            }
        }
    }

    /// Returns whether a combined arrival is to be counted. It is not if it comes a second time, or if it is older than
    /// the membership, or if its sender may not speak for the member: a host speaks for its own members, and if it has
    /// members in the group, for all members of other hosts.
    fn is_new(&mut self, core: &mut Core, from: Tid, id: u64, arrival: &wire::Arrival) -> bool {
        let (own, tid, turn) = (core.own_host(), arrival.tid, arrival.turn);
        let Some(group) = self.by_id(id) else { return false };
        let is_own = tid.host() == from;
        if tid.host() == own || !is_own && !group.has_members_on(from) {
            return false;
        }
        let Some(known) = group.arrivals.turns.get_mut(&tid) else {
            if is_own {
                core.send_host(from, ended(id, (tid, turn), Err(Code::NotInGroup)));
            }
            return false;
        };
        if arrival.version < known.since {
            return false;
        }
        if turn > known.last {
            (known.last, known.outcome) = (turn, None);
            return true;
        }
        if let Some(outcome) = known.outcome.filter(|_| turn == known.last && is_own) {
            self.answer_again(core, id, (tid, turn), outcome);
        }
        false
    }

    /// Handles an arrival by way of the daemon.
    fn arrive_by_daemon(&mut self, core: &mut Core, id: u64, arrival: Arrival) {
        let Some(group) = self.by_id(id).filter(|group| group.size() > 0) else {
            return self.refuse(core, id, arrival.arriver, Code::NoGroup);
        };
        match group.arrivals.place {
            MeetingPlace::PageOf(host) => {
                group.arrivals.queue.push_back(arrival);
                self.move_to_master(core, id, host);
            }
            MeetingPlace::Coordinator(_) if group.instance_of(arrival.arriver.tid()).is_none() => {
                self.refuse(core, id, arrival.arriver, Code::NotInGroup);
            }
            MeetingPlace::Coordinator(_) => {
                group.arrivals.queue.push_back(arrival);
                self.take_back(core, id, true, Tid::NONE);
            }
            MeetingPlace::Moving(_) | MeetingPlace::TakenBack => group.arrivals.queue.push_back(arrival),
            MeetingPlace::Master | MeetingPlace::Nowhere => {
                self.arrive_at_master(core, id, arrival);
                self.choose_place(core, id);
            }
        }
    }

    /// Refuses an arrival.
    fn refuse(&mut self, core: &mut Core, id: u64, arriver: Arriver, code: Code) {
        match arriver {
            Arriver::Request { tid, wait } => core.reply(tid, wait, Err(code)),
            Arriver::Combined { tid, turn } => {
                if let Some(group) = self.by_id(id) {
                    group.arrivals.note_outcome(tid, turn, Err(code));
                }
                core.send_host(tid.host(), ended(id, (tid, turn), Err(code)));
            }
        }
    }

    /// Counts an arrival at the master; opens the barrier if this arrival was the last.
    fn arrive_at_master(&mut self, core: &mut Core, id: u64, arrival: Arrival) {
        let (own, Arrival { arriver, sender, count, lan }) = (core.own_host(), arrival);
        let from = arriver.tid();
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
            return self.refuse(core, id, arriver, code);
        }
        let pending = group.arrivals.pending.get_or_insert_with(|| PendingBarrier::new(need));
        pending.maybe_arrived.remove(&from);
        pending.members.insert(from);
        pending.to_answer.push(arriver);
        pending.senders.extend(Some(sender).filter(|sender| *sender != own));
        pending.lan |= lan;
        pending.arrived += 1;
        if pending.arrived >= pending.need {
            self.end_barrier(core, id, Ok(()));
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
    fn end_barrier(&mut self, core: &mut Core, id: u64, outcome: Result<(), Code>) {
        let Some(group) = self.by_id(id) else { return };
        let Some(pending) = group.arrivals.pending.take() else { return };
        group.arrivals.generation = group.arrivals.generation.wrapping_add(1);
        let page_host = pending.page_host;
        self.answer_all(core, id, pending, outcome);
        if let Some(host) = page_host {
            self.order_group(core, host, id, GroupChange::Release { opened: outcome.is_ok() });
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

/// Returns the frame that tells a host that the barrier of one arrival has ended.
pub(super) fn ended(id: u64, arrival: (Tid, u64), outcome: Result<(), Code>) -> Frame {
    Frame::BarrierEnded { id, ended: vec![arrival], failure: outcome.err(), release: None, late: false }
}

/// Answers the members that wait at the barrier of a group that has ended. (Other hosts answer those whose arrivals came
/// combined when they learn that the group has ended.)
pub(super) fn end_arrivals(core: &mut Core, arrivals: Arrivals) {
    let waiting = arrivals.pending.into_iter().flat_map(|pending| pending.to_answer);
    let queued = arrivals.queue.into_iter().map(|arrival| arrival.arriver);
    let left: Vec<Arriver> = waiting.chain(queued).collect();
    for arriver in left {
        if let Arriver::Request { tid, wait } = arriver {
            core.reply(tid, wait, Err(Code::NoGroup));
        }
    }
}
