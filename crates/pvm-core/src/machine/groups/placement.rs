//! Where the barriers of groups meet: the master's choice of a coordinator for each group (D2).
//!
//! Membership stays at the master. Only barriers of the whole group, between hosts, can meet at another host
//! ([`super::coordination`]): at the one that a member has named (`PvmGroupHost`), otherwise at the one that the hostfile
//! names (`groups=yes`), otherwise, if the present place is busy or not allowed (`groups=no`), at a host with members.
//!
//! A coordinator is appointed at the end of a barrier, when no member waits anywhere. The barriers are taken back as
//! soon as anything happens that is not a barrier of the whole group: a member comes or goes, a host is lost, a member
//! arrives for another count, or a barrier has not ended after a second. Each host then reports how many releases it
//! knows, and who waits. At most one barrier is open: those who wait at one that was released somewhere are answered,
//! the others wait at the master from then on. So a barrier is released once, whoever dies.
use super::arrivals::{Arrival, MeetingPlace, ended};
use super::chain::{self, Chain};
use super::coordination::Report;
use super::pending_barrier::{Arriver, PendingBarrier};
use super::{ALL_MEMBERS, Group, Groups, NO_ACK};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::pending_acks::Ack;
use crate::proto::{ByteBuf, GroupPlace, Reply};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{self, Frame, GroupChange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time between the order to open links to a coordinator and its appointment.
const PREPARED_AFTER: Duration = Duration::from_millis(100);
/// How long the master keeps barriers that it has taken back because a member came to it: at first, and at most. The
/// time is doubled if the coordinator had less than [`USEFUL_TIMES`] of that time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);
const USEFUL_TIMES: u32 = 8;

/// The coordinator of one group, at the master.
pub(super) struct Placement {
    /// The host for which hosts have opened links, since when, and these hosts.
    prepared: Option<(Tid, Time, BTreeSet<Tid>)>,
    /// When a coordinator may be appointed again.
    not_before: Time,
    pause: Duration,
    /// When the present coordinator was appointed, the hosts that were told, and the number of members.
    since: Time,
    told: BTreeSet<Tid>,
    need: u32,
    recall: Option<Recall>,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement {
            prepared: None,
            not_before: Time::ZERO,
            pause: PAUSE_MIN,
            since: Time::ZERO,
            told: BTreeSet::new(),
            need: 0,
            recall: None,
        }
    }
}

/// Barriers that are being taken back.
struct Recall {
    number: u64,
    /// The coordinator.
    by: Tid,
    /// The hosts that have not reported.
    missing: BTreeSet<Tid>,
    reports: Vec<(Tid, Report)>,
    /// Whether the coordinator was of no use.
    pauses: bool,
}

impl Placement {
    /// Returns whether that host has not reported yet.
    pub fn awaits(&self, host: Tid) -> bool {
        self.recall.as_ref().is_some_and(|recall| recall.missing.contains(&host))
    }
}

/// What the choice depends on, besides the host table.
#[derive(Default)]
pub(super) struct Wishes {
    /// The hosts that tasks have named.
    named: BTreeMap<Tid, Tid>,
    /// The hosts whose daemons wait long for a processor.
    busy: BTreeSet<Tid>,
}

impl Wishes {
    pub fn is_idle(&self) -> bool {
        self.named.is_empty()
    }
    pub fn task_gone(&mut self, tid: Tid) {
        self.named.remove(&tid);
    }
    pub fn host_gone(&mut self, host: Tid) {
        self.busy.remove(&host);
        self.named.retain(|tid, named| tid.host() != host && *named != host);
    }
}

impl Groups {
    /// Handles `pvm_setopt(PvmGroupHost)`: names the host at which the barriers of the task's groups meet.
    pub fn name_host(&mut self, core: &mut Core, from: Tid, host: Tid) -> Result<Reply, Code> {
        match host {
            Tid::NONE => self.wishes.named.remove(&from),
            host if !host.is_host() => return Err(Code::BadParam),
            host if !core.hosts.is_here(host) => return Err(Code::NoHost),
            host => self.wishes.named.insert(from, host),
        };
        let ids: Vec<u64> = self.memberships.of(from).collect();
        ids.into_iter().for_each(|id| _ = self.prepare(core, id));
        self.wishes_changed(core);
        Ok(Reply::Done)
    }

    /// Returns where the barriers of all groups meet.
    pub fn places(&self, core: &Core) -> Reply {
        let place = |(name, group): (&[u8], &Group)| GroupPlace {
            name: ByteBuf::from(name.to_vec()),
            members: group.size() as u32,
            hosts: group.hosts().count() as u32,
            at: group.arrivals.meets_on().unwrap_or(core.own_host()),
        };
        Reply::GroupPlaces(self.iter().map(place).collect())
    }

    /// Handles a host's news that it has become busy, or is no longer.
    pub fn host_busy(&mut self, core: &mut Core, host: Tid, busy: bool) {
        match busy {
            true => self.wishes.busy.insert(host),
            false => self.wishes.busy.remove(&host),
        };
        self.wishes_changed(core);
    }

    /// Takes back the barriers that are to meet elsewhere.
    fn wishes_changed(&mut self, core: &mut Core) {
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        for id in ids {
            let place = self.groups[&id].arrivals.coordinator();
            if place.is_some_and(|by| self.wanted(core, id) != by) {
                self.take_back(core, id, false, Tid::NONE);
            }
        }
    }

    /// Returns the host at which the barriers of a group are to meet.
    fn wanted(&self, core: &Core, id: u64) -> Tid {
        let own = core.own_host();
        let Some(group) = self.groups.get(&id) else { return own };
        let is_busy = |host: &Tid| self.wishes.busy.contains(host);
        let named = match self.wishes.named.is_empty() {
            true => None,
            false => group.members().find_map(|(_, tid)| self.wishes.named.get(&tid)),
        };
        let named = named.copied().filter(|host| core.hosts.is_here(*host));
        if let Some(host) = named.or_else(|| core.hosts.with_groups(true).find(|host| core.hosts.is_here(*host))) {
            return host;
        }
        let refused: BTreeSet<Tid> = core.hosts.with_groups(false).collect();
        let allowed = |host: &Tid| !refused.contains(host);
        let present = group.arrivals.coordinator().unwrap_or(own);
        if allowed(&present) && !is_busy(&present) {
            return present;
        }
        let hosts = || std::iter::once(own).chain(group.hosts()).filter(allowed);
        let kept = Some(present).filter(allowed);
        hosts().find(|host| !is_busy(host)).or(kept).or_else(|| hosts().next()).unwrap_or(own)
    }

    /// Lets hosts open the links that they need if the barriers of the group are to meet elsewhere; returns that host.
    pub(super) fn prepare(&mut self, core: &mut Core, id: u64) -> Option<Tid> {
        let (own, now) = (core.own_host(), core.now);
        let by = self.wanted(core, id);
        let group = self.by_id(id).filter(|group| group.only_host().is_none())?;
        let prepared = &mut group.placement.prepared;
        if by == own {
            *prepared = None;
            return None;
        }
        let hosts: BTreeSet<Tid> = group.hosts().chain([by]).filter(|host| *host != own).collect();
        let group = self.by_id(id)?;
        if group.placement.prepared.as_ref().is_some_and(|(host, _, before)| *host == by && hosts.is_subset(before)) {
            return Some(by);
        }
        group.placement.prepared = Some((by, now, hosts.clone()));
        self.subscribe(core, id, by);
        for host in hosts {
            self.order_group(core, host, id, GroupChange::Prepare { by });
        }
        Some(by)
    }

    /// Appoints a coordinator, if the barriers of the group are to meet elsewhere. All members have just arrived, and
    /// none has been answered: so none can arrive before its host knows the coordinator. Returns whether one was
    /// appointed.
    pub(super) fn appoint(&mut self, core: &mut Core, id: u64) -> bool {
        let (own, now, one_way) = (core.own_host(), core.now, core.settings.one_way.clone());
        let (Some(by), Some(one_way)) = (self.prepare(core, id), one_way) else { return false };
        let Some(Group { arrivals, placement, .. }) = self.by_id(id) else { return false };
        let since = placement.prepared.as_ref().map_or(now, |(_, since, _)| *since);
        let begins_at = placement.not_before.max(since + PREPARED_AFTER);
        if !arrivals.is_free_at_master() || now < begins_at {
            return false;
        }
        let number = self.next_chain();
        let Some(group) = self.by_id(id) else { return false };
        let start = chain::start(&one_way, number);
        let anchor = Chain::from_start(&one_way, &start, number).last(&one_way);
        let told: BTreeSet<Tid> = group.hosts().chain([by]).collect();
        (group.placement.since, group.placement.need) = (now, group.size() as u32);
        group.placement.told = told.clone();
        group.arrivals.meet_at(by);
        for host in told {
            let start = Some(start).filter(|_| host == by);
            match host == own {
                true => self.coordinate(core, id, by, &anchor, None),
                false => {
                    let change = GroupChange::Coordinate { by, anchor: anchor.clone(), start };
                    core.send_host(host, Frame::GroupChanged { id, number: NO_ACK, change });
                }
            }
        }
        true
    }

    /// Handles a coordinator's request to take its barriers back.
    pub fn handed_back(&mut self, core: &mut Core, from: Tid, id: u64) {
        if self.by_id(id).is_some_and(|group| group.arrivals.coordinator() == Some(from)) {
            self.take_back(core, id, false, Tid::NONE);
        }
    }

    /// Takes the barriers of a group back from its coordinator, if there is one. With `pauses`, the coordinator was of
    /// no use. The host `lost` cannot report.
    pub(super) fn take_back(&mut self, core: &mut Core, id: u64, pauses: bool, lost: Tid) {
        let (own, now) = (core.own_host(), core.now);
        let Some(by) = self.by_id(id).and_then(|group| group.arrivals.coordinator()) else { return };
        let number = self.next_change();
        let Some(group) = self.by_id(id) else { return };
        group.arrivals.place = MeetingPlace::TakenBack;
        group.shortage.place_changed();
        let placement = &mut group.placement;
        if pauses {
            let was_useful = now.saturating_sub(placement.since) >= placement.pause * USEFUL_TIMES;
            placement.pause = if was_useful { PAUSE_MIN } else { (placement.pause * 2).min(PAUSE_MAX) };
        }
        let told = std::mem::take(&mut placement.told);
        let missing: BTreeSet<Tid> =
            told.into_iter().filter(|host| *host != own && *host != lost && core.hosts.is_known(*host)).collect();
        for host in &missing {
            core.acks.expect(*host, Ack::Group(number), now);
            let change = GroupChange::Recall { number };
            core.send_host(*host, Frame::GroupChanged { id, number: NO_ACK, change });
        }
        placement.recall = Some(Recall { number, by, missing, reports: Vec::new(), pauses });
        self.finish_recall(core, id);
    }

    /// Handles a host's report.
    pub fn recall_reported(
        &mut self,
        core: &mut Core,
        from: Tid,
        id: u64,
        number: u64,
        passed: u32,
        arrivals: Vec<wire::Arrival>,
    ) {
        core.acks.received(from, Ack::Group(number));
        let Some(recall) = self.by_id(id).and_then(|group| group.placement.recall.as_mut()) else { return };
        if recall.number == number && recall.missing.remove(&from) {
            recall.reports.push((from, Report { passed, arrivals }));
            self.finish_recall(core, id);
        }
    }

    /// Handles the loss of a host: it may coordinate, or owe a report.
    pub(super) fn placement_host_lost(&mut self, core: &mut Core, host: Tid) {
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        for id in ids {
            let Some(group) = self.by_id(id) else { continue };
            if group.placement.told.contains(&host) {
                self.take_back(core, id, false, host);
            } else if let Some(recall) = &mut group.placement.recall {
                if recall.missing.remove(&host) {
                    self.finish_recall(core, id);
                }
            }
        }
    }

    /// When all hosts have reported, answers those who wait at a barrier that was released, and continues the barrier
    /// at which the others wait.
    fn finish_recall(&mut self, core: &mut Core, id: u64) {
        let (own, now) = (core.own_host(), core.now);
        let Some(group) = self.by_id(id) else { return };
        if group.placement.recall.as_ref().is_none_or(|recall| !recall.missing.is_empty()) {
            return;
        }
        let Some(Recall { by, mut reports, pauses, .. }) = group.placement.recall.take() else { return };
        if pauses {
            group.placement.not_before = now + group.placement.pause;
        }
        let need = group.placement.need;
        let local = group.combining.waits();
        if let Some(report) = self.stop_coordination(core, id) {
            reports.push((own, report));
        }
        self.by_id(id).into_iter().for_each(|group| group.combining.forget_own());
        let passed = reports.iter().map(|(_, report)| report.passed).max().unwrap_or(0);
        let (mut pending, mut others) = (PendingBarrier::new(need), Vec::new());
        for (from, report) in reports {
            let is_over = report.passed < passed;
            for arrival in report.arrivals {
                let wire::Arrival { tid, turn, count, lan, .. } = arrival;
                let Some(group) = self.by_id(id) else { return };
                // A host speaks for its members; the coordinator, for those of the others that it has counted.
                if tid.host() != from && (from != by || is_over || tid.host() == own) {
                    continue;
                }
                group.arrivals.note_turn(tid, turn);
                match (is_over, local.get(&tid).filter(|_| from == own)) {
                    (true, Some(wait)) => wait.iter().for_each(|wait| core.reply(tid, *wait, Ok(Reply::Done))),
                    (true, None) => {
                        group.arrivals.note_outcome(tid, turn, Ok(()));
                        core.send_host(tid.host(), ended(id, (tid, turn), Ok(())));
                    }
                    (false, waits) => {
                        let arriver = match waits {
                            Some(wait) => wait.map(|wait| Arriver::Request { tid, wait }),
                            None => Some(Arriver::Combined { tid, turn }),
                        };
                        // The group may have grown since the coordinator was appointed, and this member knew that.
                        let is_same = count == ALL_MEMBERS || u32::try_from(count) == Ok(need);
                        let sender = if waits.is_some() { from } else { tid.host() };
                        match arriver.filter(|_| !is_same) {
                            Some(arriver) => others.push(Arrival { arriver, sender, count, lan }),
                            None => pending.count(tid, arriver, sender, lan),
                        }
                    }
                }
            }
        }
        if let Some(group) = self.by_id(id) {
            group.arrivals.queue_first(others);
        }
        pending.senders.remove(&own);
        self.resume_at_master(core, id, pending);
    }
}
