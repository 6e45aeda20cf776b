//! Barriers that meet at a coordinator: another host than the master, as the master chooses for each group (D2).
//!
//! Membership stays at the master. Only barriers of the whole group, between hosts, can meet at another host: at the one
//! that a member has named (`PvmGroupHost`), otherwise at the one that the hostfile names (`groups=yes`), otherwise, if the
//! present place is not allowed (`groups=no`), at a host with members.
//!
//! A coordinator is appointed at the end of a barrier, when no member waits anywhere. The hosts with members learn who it
//! is, and the anchor of a new chain of releases; the coordinator also learns the secret of the chain. From then on it
//! counts, and discloses a release when every member has arrived. It applies no other rule. The barriers are taken back as
//! soon as anything happens that is not a barrier of the whole group: a member comes or goes, a host is lost, a member
//! arrives for another count, or a barrier has not ended after a second. Each host then reports how many releases it
//! knows, and who waits; what it still gets from the coordinator, it ignores. At most one barrier is open: those who wait
//! at one that was released somewhere are answered, the others wait at the master from then on. So a barrier is released
//! once, whoever dies.
use super::arrivals::Report;
use super::chain::{self, Chain};
use super::meeting::Pending;
use super::release::{Releases, Told};
use super::{Group, Place, Shared};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::groups::{ALL_MEMBERS, Groups};
use crate::machine::pending_acks::Ack;
use crate::proto::{ByteBuf, GroupPlace, Reply};
use crate::release::{ChainValue, Passed, Release};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Arrival, GroupChange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time between the order to open links to a coordinator and its appointment.
const PREPARED_AFTER: Duration = Duration::from_millis(100);
/// How long the master keeps barriers that it has taken back because a member came to it: if the coordinator had them for
/// [`USEFUL_TIMES`] of that time, and at most. Otherwise the time is twice that of the time before.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);
const USEFUL_TIMES: u32 = 8;

/// A coordinator that has been appointed. Only the master knows more than its host.
#[derive(Default)]
pub(super) struct Appointment {
    pub by: Tid,
    since: Time,
    /// The hosts that were told, and the number of members.
    told: BTreeSet<Tid>,
    need: u32,
    /// The barrier before its first release.
    before: Passed,
}

/// Barriers that are being taken back.
#[derive(Default)]
pub(super) struct Recall {
    number: u64,
    /// The coordinator, and the number of members.
    by: Tid,
    need: u32,
    /// The barrier before the coordinator's first release.
    before: Passed,
    /// The hosts that have not reported.
    missing: BTreeSet<Tid>,
    reports: Vec<(Tid, Report)>,
    /// Whether the coordinator was of no use.
    pauses: bool,
}

impl Recall {
    /// Returns whether that host has not reported yet.
    pub fn awaits(&self, host: Tid) -> bool {
        self.missing.contains(&host)
    }
}

/// When there may be a coordinator.
#[derive(Default)]
pub(super) struct Pauses {
    /// The host for which hosts have opened links, for which members (by version of the group), and since when.
    prepared: Option<(Tid, u64, Time)>,
    /// When a coordinator may be appointed again.
    not_before: Time,
    /// The last pause, or zero.
    last: Duration,
}

/// What the choice depends on, besides the host table.
#[derive(Default)]
pub struct Wishes {
    /// The hosts that tasks have named.
    named: BTreeMap<Tid, Tid>,
}

impl Wishes {
    pub fn is_idle(&self) -> bool {
        self.named.is_empty()
    }
    /// Returns the hosts that tasks have named: task and host.
    pub fn all(&self) -> Vec<(Tid, Tid)> {
        self.named.iter().map(|(task, host)| (*task, *host)).collect()
    }
    /// Takes over what the former master knew.
    pub fn take(&mut self, named: &[(Tid, Tid)]) {
        self.named = named.iter().copied().collect();
    }
    pub fn task_gone(&mut self, tid: Tid) {
        self.named.remove(&tid);
    }
    pub fn host_gone(&mut self, host: Tid) {
        self.named.retain(|tid, named| tid.host() != host && *named != host);
    }
}

impl Groups {
    /// Handles `pvm_setopt(PvmGroupHost)`: names the host at which the barriers of the task's groups meet.
    pub fn name_host(&mut self, core: &mut Core, from: Tid, host: Tid) -> Result<Reply, Code> {
        match host {
            Tid::NONE => self.shared.wishes.named.remove(&from),
            host if !host.is_host() => return Err(Code::BadParam),
            host if !core.hosts.is_here(host) => return Err(Code::NoHost),
            host => self.shared.wishes.named.insert(from, host),
        };
        core.changes.machine = true;
        self.wish_changed(core, from);
        Ok(Reply::Done)
    }

    /// Takes back the barriers of the task's groups that are to meet elsewhere, and prepares for that.
    fn wish_changed(&mut self, core: &mut Core, from: Tid) {
        self.with_each(|group, shared| {
            if group.instance_of(from).is_none() {
                return;
            }
            if group.barrier.coordinator().is_some_and(|by| group.wanted(core, shared) != by) {
                group.take_back(core, shared, false);
            }
            group.prepare(core, shared);
        });
    }

    /// Returns where the barriers of all groups meet.
    pub fn places(&self, core: &Core) -> Reply {
        let place = |(name, group): (&[u8], &Group)| GroupPlace {
            name: ByteBuf::from(name.to_vec()),
            members: group.members().map(|(_, tid)| tid).collect(),
            is_frozen: group.frozen,
            hosts: group.hosts().count() as u32,
            at: group.barrier.meets_on().unwrap_or(core.own_host()),
        };
        Reply::GroupPlaces(self.iter().map(place).collect())
    }
}

impl Group {
    /// Returns the host at which the barriers are to meet.
    pub(super) fn wanted(&self, core: &Core, shared: &Shared) -> Tid {
        let (own, wishes) = (core.own_host(), &shared.wishes);
        let named_by = |(_, tid): (u32, Tid)| wishes.named.get(&tid).copied();
        let named = if wishes.named.is_empty() { None } else { self.members().find_map(named_by) };
        let is_here = |host: &Tid| core.hosts.is_here(*host);
        if let Some(host) = named.filter(is_here).or_else(|| core.hosts.with_groups(true).find(is_here)) {
            return host;
        }
        let refused: BTreeSet<Tid> = core.hosts.with_groups(false).collect();
        let present = self.barrier.coordinator().unwrap_or(own);
        [present, own].into_iter().chain(self.hosts()).find(|host| !refused.contains(host)).unwrap_or(own)
    }

    /// Lets hosts open the links that they need if the barriers of the group are to meet elsewhere; returns that host.
    fn prepare(&mut self, core: &mut Core, shared: &Shared) -> Option<Tid> {
        let (by, version) = (self.wanted(core, shared), self.version);
        if by == core.own_host() || self.hosts().nth(1).is_none() {
            self.barrier.pauses.prepared = None;
            return None;
        }
        if !matches!(self.barrier.pauses.prepared, Some((host, before, _)) if (host, before) == (by, version)) {
            self.barrier.pauses.prepared = Some((by, version, core.now));
            self.subscribe(core, by);
            self.tell_coordinated(core, by, |_| GroupChange::Prepare { by });
        }
        Some(by)
    }

    /// Tells the hosts with members and the coordinator, each in its own words; returns these hosts.
    fn tell_coordinated(&mut self, core: &mut Core, by: Tid, change: impl Fn(Tid) -> GroupChange) -> BTreeSet<Tid> {
        let hosts: BTreeSet<Tid> = self.hosts().chain([by]).collect();
        let own = core.own_host();
        for host in hosts.iter().filter(|host| **host != own) {
            self.tell_host(core, *host, change(*host));
        }
        hosts
    }

    /// Appoints a coordinator, if the barriers of the group are to meet elsewhere. All members have just arrived, and
    /// none has been answered: so none can arrive before its host knows the coordinator. Returns whether one was
    /// appointed.
    pub(super) fn appoint(&mut self, core: &mut Core, shared: &mut Shared) -> bool {
        let (now, one_way) = (core.now, core.settings.one_way.clone());
        let (Some(by), Some(one_way)) = (self.prepare(core, shared), one_way) else { return false };
        let pauses = &self.barrier.pauses;
        let since = pauses.prepared.map_or(now, |(.., since)| since);
        let is_free = matches!(self.barrier.place, Place::Master) && self.barrier.is_quiet();
        if !is_free || now < pauses.not_before.max(since + PREPARED_AFTER) {
            return false;
        }
        let number = shared.next_chain();
        let start = chain::start(&one_way, number);
        let anchor = Chain::from_start(&one_way, &start, number).last().clone();
        let before = self.barrier.passed;
        let told = self.tell_coordinated(core, by, |host| {
            let start = Some(start).filter(|_| host == by);
            GroupChange::Coordinate { by, anchor: anchor.clone(), start, passed: before }
        });
        let need = self.size() as u32;
        self.barrier.place = Place::Coordinator(Appointment { by, since: now, told, need, before });
        self.begin_chain_here(core, anchor);
        true
    }

    /// Handles a coordinator's request to take its barriers back.
    pub fn handed_back(&mut self, core: &mut Core, shared: &mut Shared, from: Tid) {
        if self.barrier.coordinator() == Some(from) {
            self.take_back(core, shared, false);
        }
    }

    /// Takes the barriers of a group back from its coordinator, if there is one. With `pauses`, the coordinator was of
    /// no use.
    pub fn take_back(&mut self, core: &mut Core, shared: &mut Shared, pauses: bool) {
        let own = core.own_host();
        let Place::Coordinator(appointment) = &mut self.barrier.place else { return };
        let Appointment { by, since, told, need, before } = std::mem::take(appointment);
        self.shortage.place_changed();
        if pauses {
            let last = &mut self.barrier.pauses.last;
            let before = (*last).max(PAUSE_MIN);
            let was_useful = core.now.saturating_sub(since) >= before * USEFUL_TIMES;
            *last = if was_useful { PAUSE_MIN } else { (before * 2).min(PAUSE_MAX) };
        }
        let number = shared.next_change();
        let can_report = |host: &Tid| *host != own && core.hosts.is_known(*host);
        let missing: BTreeSet<Tid> = told.into_iter().filter(can_report).collect();
        for host in &missing {
            core.acks.expect(*host, Ack::Group(number), core.now);
            self.tell_host(core, *host, GroupChange::Recall { number });
        }
        let reports = vec![(own, self.barrier.passage.report())];
        self.barrier.place = Place::TakenBack(Recall { number, by, need, before, missing, reports, pauses });
        self.finish_recall(core, shared);
    }

    /// Handles a host's report.
    pub fn recall_reported(&mut self, core: &mut Core, shared: &mut Shared, from: Tid, number: u64, report: Report) {
        let Place::TakenBack(recall) = &mut self.barrier.place else { return };
        if recall.number == number && recall.missing.remove(&from) {
            recall.reports.push((from, report));
            self.finish_recall(core, shared);
        }
    }

    /// Handles the loss of a host: it may coordinate, or owe a report.
    pub(super) fn coordination_host_gone(&mut self, core: &mut Core, shared: &mut Shared, host: Tid) {
        match &mut self.barrier.place {
            Place::Coordinator(appointment) if appointment.told.contains(&host) => {
                self.take_back(core, shared, false);
            }
            Place::TakenBack(recall) => {
                recall.missing.remove(&host);
                self.finish_recall(core, shared);
            }
            Place::Counted(_) => self.counted_host_gone(core, shared, host),
            _ => {}
        }
    }

    /// When all hosts have reported, answers those who wait at a barrier that was released, and continues the barrier
    /// at which the others wait.
    fn finish_recall(&mut self, core: &mut Core, shared: &mut Shared) {
        let Place::TakenBack(recall) = &mut self.barrier.place else { return };
        if !recall.missing.is_empty() {
            return;
        }
        let Recall { by, need, before, reports, pauses, .. } = std::mem::take(recall);
        if pauses {
            self.barrier.pauses.not_before = core.now + self.barrier.pauses.last;
        }
        let passed = reports.iter().map(|(_, report)| report.passed).max().unwrap_or(0);
        self.barrier.passed = self.barrier.passed.max(before.later(before.version, passed));
        let mut pending = Pending::new(need);
        let (mut others, mut over) = (Vec::new(), BTreeMap::<Tid, Vec<(Tid, u64)>>::new());
        for (from, report) in reports {
            let is_over = report.passed < passed;
            let mut answered = Tid::NONE;
            for arrival in report.arrivals {
                let (host, key) = (arrival.tid.host(), (arrival.tid, arrival.turn));
                // A host speaks for its members; the coordinator, for those of the others that it has counted.
                if host != from && (from != by || is_over || host == core.own_host()) {
                    continue;
                }
                self.barrier.note_turn(&arrival);
                // The group may have grown since the coordinator was appointed, and this member knew that.
                let is_same = arrival.count == ALL_MEMBERS || u32::try_from(arrival.count) == Ok(need);
                // Of a member whose threads have arrived several times, the first arrival was at that barrier.
                if is_over && std::mem::replace(&mut answered, arrival.tid) != arrival.tid {
                    over.entry(host).or_default().push(key);
                } else if is_same && !pending.members.contains(&arrival.tid) {
                    pending.count(&arrival);
                } else if !pending.arrivals.contains(&key) {
                    others.push(arrival);
                }
            }
        }
        self.tell_each(core, over, Ok(()), None, Told::Whole);
        // They came before those that wait already.
        others.into_iter().rev().for_each(|other| self.barrier.queue.push_front(other));
        self.resume_at_master(core, shared, Some(pending).filter(|pending| pending.arrived > 0));
    }

    // ----- any host

    /// Opens links to the hosts between which arrivals will travel. If that is not possible, nobody is to blame: then
    /// arrivals go to the master, which takes the barriers back.
    pub fn prepare_for(&mut self, core: &mut Core, by: Tid) {
        let own = core.own_host();
        let others: Vec<Tid> = if by == own { self.hosts().collect() } else { vec![by] };
        // Of two hosts, the one with the lower tid connects.
        others.into_iter().filter(|other| own < *other).for_each(|other| core.try_link(other));
    }

    /// Follows the master's choice of a coordinator. `start`: the secret of the chain, if this host is the coordinator, and the
    /// barrier before its first release.
    pub fn coordinate(
        &mut self,
        core: &mut Core,
        shared: &mut Shared,
        by: Tid,
        anchor: &Release,
        start: Option<(&ChainValue, Passed)>,
    ) {
        self.barrier.place = Place::Coordinator(Appointment { by, ..Appointment::default() });
        self.begin_chain_here(core, anchor.clone());
        if let (Some((start, before)), Some(one_way), true) = (start, &core.settings.one_way, by == core.own_host()) {
            self.barrier.releases = Releases::of_coordinator(one_way, anchor, start, before);
        }
        for (tid, (chain, arrival)) in std::mem::take(&mut self.barrier.early) {
            self.arrived_at_coordinator(core, shared, tid.host(), vec![arrival], chain);
        }
    }

    /// Stops to follow the coordinator, and returns what the master must know to take the barriers back.
    pub fn recalled(&mut self, core: &Core) -> Report {
        let own = core.own_host();
        let mut report = self.barrier.passage.report();
        if self.barrier.coordinator() == Some(own) {
            self.barrier.releases = Releases::default();
            let Pending { arrivals, lan, .. } = self.barrier.pending.take().unwrap_or_default();
            for (tid, turn) in arrivals.into_iter().filter(|(tid, _)| tid.host() != own) {
                report.arrivals.push(Arrival { tid, turn, version: self.version, count: ALL_MEMBERS, lan });
            }
        }
        self.barrier.place = Place::Nowhere;
        report
    }
}
