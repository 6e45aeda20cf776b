//! Where a barrier over several hosts meets: arrivals are counted, at the master or at a coordinator.
//!
//! While all members live on one host, they synchronize in the page of that host, without the daemon. When a member
//! joins from another host, the arrivals are taken out of the page. Members that have arrived in the page keep waiting
//! there until an order of the master releases them. Members that arrive meanwhile wait at the master until the master
//! has received the arrivals from the page. When the remaining members live on one host again and no member waits, the
//! page of that host is used again. If a member then still arrives by way of its daemon, the master takes the arrivals
//! out of the page once more.
//!
//! An arrival may come twice, and in any order: each has a number.
use super::{Group, OverHosts, Place, Shared};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::{Barrier, GroupAction};
use crate::machine::groups::shortage::Verdict;
use crate::machine::groups::{ALL_MEMBERS, act};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Arrival, Frame, GroupChange, Taken};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long the master waits for members whose arrival in the page is uncertain. If such a member has not arrived in
/// the page, it arrives by way of its daemon within this time. After this time, the members that are still uncertain
/// count as arrived in the page.
const MAYBE_ARRIVED_WAIT: Duration = Duration::from_secs(1);

/// A barrier at which at least one member has arrived.
#[derive(Default)]
pub(super) struct Pending {
    pub need: u32,
    pub arrived: u32,
    /// The members that have arrived, including those in the page of `page_host`.
    pub members: BTreeSet<Tid>,
    /// Members that may have arrived in the page before it was taken out of use.
    maybe_arrived: BTreeSet<Tid>,
    /// The time from which the members in `maybe_arrived` count as arrived.
    maybe_until: Time,
    /// The arrivals by way of the daemons: member and number.
    pub arrivals: BTreeSet<(Tid, u64)>,
    /// Whether a member has asked for a release by broadcast.
    pub lan: bool,
    /// The host, if any, in whose page some of the members wait until the master releases them, and the number of its report.
    pub page_host: Option<(Tid, u32)>,
}

impl Pending {
    pub fn new(need: u32) -> Pending {
        Pending { need, ..Pending::default() }
    }

    /// Returns the barrier at which members have arrived in the page of a host.
    pub fn taken((number, taken): (u32, Taken), host: Tid, now: Time) -> Pending {
        let Taken { need, arrived, arrived_members, maybe_arrived } = taken;
        Pending {
            arrived: arrived.into(),
            members: arrived_members.into_iter().collect(),
            maybe_arrived: maybe_arrived.into_iter().collect(),
            maybe_until: now + MAYBE_ARRIVED_WAIT,
            page_host: Some((host, number)),
            ..Pending::new(need.into())
        }
    }

    /// Counts an arrival.
    pub fn count(&mut self, arrival: &Arrival) {
        self.maybe_arrived.remove(&arrival.tid);
        self.members.insert(arrival.tid);
        self.arrivals.insert((arrival.tid, arrival.turn));
        self.lan |= arrival.lan;
        self.arrived += 1;
    }

    /// Returns the arrivals by way of the daemons, by host.
    pub fn by_host(&self) -> BTreeMap<Tid, Vec<(Tid, u64)>> {
        let mut by_host: BTreeMap<Tid, Vec<(Tid, u64)>> = BTreeMap::new();
        self.arrivals.iter().for_each(|arrival| by_host.entry(arrival.0.host()).or_default().push(*arrival));
        by_host
    }
}

/// What the master knows about the arrivals of a member.
pub(super) struct Turn {
    /// The version of the group since which the task is a member.
    pub since: u64,
    /// The number of the last arrival.
    pub last: u64,
}

impl OverHosts {
    /// Returns whether no member waits at the master.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.is_none() && self.queue.is_empty()
    }
    /// Records since which version of the group a task is a member.
    pub fn member_came(&mut self, tid: Tid, version: u64) {
        self.turns.insert(tid, Turn { since: version, last: 0 });
    }
    /// Forgets a member that has gone.
    pub fn member_gone(&mut self, tid: Tid) {
        self.turns.remove(&tid);
        self.early.remove(&tid);
    }
    /// Records an arrival. Returns whether it is new.
    pub(super) fn note_turn(&mut self, arrival: &Arrival) -> bool {
        let is_newer = |known: &&mut Turn| arrival.version >= known.since && arrival.turn > known.last;
        let known = self.turns.get_mut(&arrival.tid).filter(is_newer);
        known.map(|known| known.last = arrival.turn).is_some()
    }
}

impl Group {
    // ----- the place

    /// Chooses where members arrive, after the membership has changed or the last member at a barrier has been
    /// released.
    pub fn choose_place(&mut self, core: &mut Core, shared: &mut Shared) {
        let only = self.only_host();
        match (&self.barrier.place, only) {
            _ if self.size() == 0 => {}
            (Place::Nowhere, Some(host)) => {
                self.barrier.place = Place::PageOf(host);
                self.replica.meets_here = host == core.own_host();
            }
            (Place::PageOf(host), only) if only != Some(*host) => self.move_to_master(core, shared, *host),
            (Place::Master, Some(host)) if self.barrier.is_quiet() => {
                self.barrier.place = Place::PageOf(host);
                self.order_page(core, shared, host, GroupChange::Give);
            }
            _ => {}
        }
    }

    /// Orders a host to send the arrivals in its page to the master.
    pub(super) fn move_to_master(&mut self, core: &mut Core, shared: &mut Shared, from: Tid) {
        self.barrier.place = Place::Moving(from);
        self.shortage.place_changed();
        self.order_page(core, shared, from, GroupChange::Take);
        if from != core.own_host() && !core.hosts.is_here(from) {
            // The host was lost with all members, before another one was admitted.
            self.page_host_gone(core, shared, from);
        }
    }

    /// Handles the arrivals that were taken out of this host's page.
    pub fn page_taken(&mut self, core: &mut Core, shared: &mut Shared, taken: Taken) {
        // If a new page is out of use from the start, the daemon also makes this report, but the master has not asked
        // for it.
        if !std::mem::take(&mut self.replica.take_ordered) {
            return;
        }
        let (number, taken) = self.replica.note_taken(taken);
        match core.is_master() {
            true => self.page_arrivals_came(core, shared, core.own_host(), (number, taken)),
            false => core.send_master(Frame::GroupTaken { id: self.id, number, taken }),
        }
    }

    /// Handles the arrivals that a host has taken out of its page: from now on members arrive at the master.
    pub fn page_arrivals_came(&mut self, core: &mut Core, shared: &mut Shared, from: Tid, taken: (u32, Taken)) {
        if matches!(self.barrier.place, Place::Moving(host) if host == from) {
            let pending = Some(taken).filter(|(_, taken)| taken.need > 0);
            self.resume_at_master(core, shared, pending.map(|taken| Pending::taken(taken, from, core.now)));
        }
    }

    /// Lets members arrive at the master. `pending`: the barrier at which members have arrived elsewhere.
    pub(super) fn resume_at_master(&mut self, core: &mut Core, shared: &mut Shared, pending: Option<Pending>) {
        self.barrier.place = Place::Master;
        let is_complete = pending.as_ref().is_some_and(|pending| pending.arrived >= pending.need);
        self.barrier.pending = pending;
        if is_complete {
            self.end_barrier(core, shared, Ok(()));
        }
        // One after another: no coordinator is appointed while arrivals wait.
        while let Some(arrival) = self.barrier.queue.pop_front() {
            self.count_at_master(core, shared, arrival);
        }
        self.examine_barrier(core, shared);
        self.choose_place(core, shared);
    }

    /// Orders a host to act on its page, in which members arrive or have arrived.
    pub(super) fn order_page(&mut self, core: &mut Core, shared: &mut Shared, host: Tid, change: GroupChange) {
        match host == core.own_host() {
            true => self.page_ordered(core, shared, &change),
            false => self.tell_host(core, host, change),
        }
    }

    /// Executes an order of the master: to use the page, to stop using it, or to release the members that wait in it.
    pub fn page_ordered(&mut self, core: &mut Core, shared: &mut Shared, change: &GroupChange) {
        let action = match change {
            GroupChange::Take => {
                (self.replica.meets_here, self.replica.take_ordered) = (false, true);
                GroupAction::Take
            }
            GroupChange::Give => {
                self.replica.meets_here = true;
                self.replica.taken = None;
                self.shortage.place_changed();
                GroupAction::Give
            }
            GroupChange::Release { opened } => {
                self.replica.taken = None;
                GroupAction::Release { opened: *opened }
            }
            _ => return,
        };
        match (self.replica.is_made(), action) {
            (true, action) => act(core, self.id, action),
            // No member can have arrived.
            (false, GroupAction::Take) => self.page_taken(core, shared, Taken::default()),
            (false, _) => {}
        }
    }

    /// Handles the loss of a host: members may have arrived in its page.
    pub(super) fn page_host_gone(&mut self, core: &mut Core, shared: &mut Shared, host: Tid) {
        if let Some(pending) = &mut self.barrier.pending {
            pending.page_host.take_if(|(page_host, _)| *page_host == host);
        }
        self.page_arrivals_came(core, shared, host, (0, Taken::default()));
    }

    // ----- arrivals at the master

    /// Handles arrivals that a host has sent to the master.
    pub(super) fn arrived_at_master(
        &mut self,
        core: &mut Core,
        shared: &mut Shared,
        from: Tid,
        arrivals: Vec<Arrival>,
    ) {
        if self.barrier.coordinator().is_some() {
            // The host's report will repeat these arrivals.
            if self.has_members_on(from) {
                self.take_back(core, shared, true);
            }
            return;
        }
        // A host speaks for its own members.
        for arrival in arrivals.into_iter().filter(|arrival| arrival.tid.host() == from) {
            if self.barrier.place.awaits_report(from) {
                continue;
            }
            if self.is_new(core, &arrival) {
                self.release_confirmed(shared, from, core.now);
                self.arrive_at_master(core, shared, arrival);
            } else {
                self.repeat_release_of(core, (arrival.tid, arrival.turn));
            }
        }
    }

    /// Returns whether an arrival of a member is to be counted. It is not if it comes a second time, or if it is older than
    /// the membership.
    fn is_new(&mut self, core: &mut Core, arrival: &Arrival) -> bool {
        if !self.barrier.turns.contains_key(&arrival.tid) {
            self.tell(core, (arrival.tid, arrival.turn), Err(self.code_for_strangers()));
        }
        self.barrier.note_turn(arrival)
    }

    /// Handles a new arrival at the master.
    fn arrive_at_master(&mut self, core: &mut Core, shared: &mut Shared, arrival: Arrival) {
        match self.barrier.place {
            Place::Master | Place::Nowhere => {
                self.count_at_master(core, shared, arrival);
                return self.choose_place(core, shared);
            }
            _ => self.barrier.queue.push_back(arrival),
        }
        match self.barrier.place {
            Place::PageOf(host) => self.move_to_master(core, shared, host),
            _ => self.take_back(core, shared, true),
        }
    }

    /// Counts an arrival at the master; opens the barrier if this arrival was the last.
    fn count_at_master(&mut self, core: &mut Core, shared: &mut Shared, arrival: Arrival) {
        let size = self.size();
        let need = match arrival.count {
            ALL_MEMBERS => size as u32,
            count => u32::try_from(count).unwrap_or(0),
        };
        let refusal = match &self.barrier.pending {
            _ if self.broken => Some(Code::NoGroup),
            _ if self.instance_of(arrival.tid).is_none() => Some(Code::NotInGroup),
            _ if need == 0 => Some(Code::BadParam),
            Some(pending) if pending.need != need => Some(Code::Mismatch),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.tell(core, (arrival.tid, arrival.turn), Err(code));
        }
        let pending = self.barrier.pending.get_or_insert_with(|| Pending::new(need));
        pending.count(&arrival);
        if pending.arrived >= pending.need {
            self.end_barrier(core, shared, Ok(()));
        } else if size < need as usize {
            self.shortage.note_size(size);
            self.examine_barrier(core, shared);
        }
    }

    /// Returns the barrier if members arrive at the master. (Otherwise they arrive in the page of one host, and that
    /// host judges the barrier, or at a coordinator.)
    fn barrier_at_master(&self, now: Time) -> Option<Barrier> {
        if !matches!(self.barrier.place, Place::Master) {
            return None;
        }
        let generation = self.barrier.generation;
        let Some(pending) = &self.barrier.pending else {
            let absent = self.size() as u32;
            return Some(Barrier { generation, need: 0, arrived: 0, absent, arriving: 0 });
        };
        let (mut absent, mut arriving) = (0, 0);
        for (_, tid) in self.members().filter(|(_, tid)| !pending.members.contains(tid)) {
            match pending.maybe_arrived.contains(&tid) {
                true if now < pending.maybe_until => arriving += 1,
                true => {}
                false => absent += 1,
            }
        }
        let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let (need, arrived) = (clamp(pending.need), clamp(pending.arrived));
        Some(Barrier { generation, need, arrived, absent, arriving })
    }

    /// Examines whether the barrier can still open; does nothing if its members arrive on another host.
    pub fn examine_barrier(&mut self, core: &mut Core, shared: &mut Shared) {
        match (self.replica.meets_here, self.replica.is_made()) {
            (true, true) => act(core, self.id, GroupAction::Look),
            (false, _) => self.judge_at_master(core, shared),
            (true, false) => {}
        }
    }

    /// Fails the barrier at the master if it can no longer open.
    fn judge_at_master(&mut self, core: &mut Core, shared: &mut Shared) {
        let (now, patience, size) = (core.now, core.settings.barrier_patience, self.size());
        let Some(barrier) = self.barrier_at_master(now) else { return };
        let fails = self.broken || self.shortage.judge(now, patience, size, &barrier) == Verdict::Fail;
        if fails && barrier.need != 0 {
            self.shortage.barrier_failed();
            let code = if self.frozen { Code::NoGroup } else { Code::NoTask };
            self.end_barrier(core, shared, Err(code));
        }
    }

    // ----- arrivals at a coordinator

    /// Counts arrivals at the coordinator. Each host speaks for its own members only.
    pub(super) fn arrived_at_coordinator(
        &mut self,
        core: &mut Core,
        shared: &mut Shared,
        from: Tid,
        arrivals: Vec<Arrival>,
        chain: u32,
    ) {
        self.release_confirmed(shared, from, core.now);
        let (size, is_here) = (self.size(), self.barrier.coordinator() == Some(core.own_host()));
        let speaks_for = |arrival: &Arrival| {
            arrival.tid.host() == from && arrival.version == self.version && self.instance_of(arrival.tid).is_some()
        };
        let arrivals: Vec<Arrival> = arrivals.into_iter().filter(speaks_for).collect();
        if !is_here {
            let early = arrivals.into_iter().map(|arrival| (arrival.tid, (chain, arrival)));
            return self.barrier.early.extend(early);
        }
        let has_chain = self.barrier.releases.last_of_chain().is_some_and(|last| last.chain == chain);
        if arrivals.is_empty() || !has_chain {
            return;
        }
        let pending = self.barrier.pending.get_or_insert_with(|| Pending::new(size as u32));
        for arrival in arrivals {
            if !pending.members.contains(&arrival.tid) {
                pending.count(&arrival);
            }
        }
        match pending.arrived as usize == size {
            false => {}
            // The master ends this barrier, and may begin another chain.
            true if self.barrier.releases.is_chain_used_up() => core.send_master(Frame::HandBack { id: self.id }),
            true => self.barrier.pending.take().into_iter().for_each(|pending| self.release(core, shared, pending)),
        }
    }
}
