//! The ends of barriers at the master: which hosts learn in which way that their members' barrier has ended.
//!
//! The master tells each host on its control link ([`Frame::BarrierEnded`]), except if all members of the group have
//! arrived by way of their daemons and the barrier has opened. Then it can disclose a [`Release`]: by one datagram to
//! all hosts, or down the tree in which the arrivals came. Both can be lost. So the master repeats the release on the
//! control links of hosts that have not shown within [`REPEAT_AFTER`] that they know it; the next arrival of one of
//! their members shows it.
use super::chain::Chain;
use super::faster_way::FasterWay;
use super::pending_barrier::{Arriver, PendingBarrier};
use super::{Group, Groups, NO_ACK};
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::settings::OneWay;
use crate::proto::Reply;
use crate::release::Release;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Frame, GroupChange, ReleaseDatagram};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the master waits for a sign that a host knows a release, after the release and after each sign of another
/// host. In a program that does little between barriers, the next arrival comes earlier.
const REPEAT_AFTER: Duration = Duration::from_millis(20);
/// The longest time after a release until it is repeated, although other hosts still give signs.
const REPEAT_AFTER_MAX: Duration = REPEAT_AFTER.saturating_mul(5);
/// A host that has missed this number of broadcasts, one after another, is served on its control link from then on.
const MISSED_MAX: u8 = 3;
/// After this number of barriers, hosts that missed broadcasts are tried again. If they miss another one, that costs a
/// barrier [`REPEAT_AFTER`].
const TRY_AGAIN_AFTER: u32 = 4096;

/// The releases of one group, at the master.
#[derive(Default)]
pub(super) struct Releases {
    chain: Option<Chain>,
    /// The last release, and the arrivals that it has ended on each host that has not shown that it knows the release.
    unconfirmed: BTreeMap<Tid, Vec<(Tid, u64)>>,
    last: Option<Release>,
    /// Whether the last release was broadcast.
    was_broadcast: bool,
    /// When the last release is repeated, and when it is at the latest.
    repeat_at: Option<Time>,
    repeat_by: Time,
    faster_way: FasterWay,
}

impl Releases {
    /// Returns when [`Groups::repeat_release`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.repeat_at
    }
    /// Ends the chain, because the members change.
    pub fn end_chain(&mut self) {
        (self.chain, self.faster_way) = (None, FasterWay::default());
    }
    /// Forgets the last release: nobody needs to be told again.
    pub fn forget(&mut self) {
        *self = Releases::default();
    }
    /// Returns the last release of the chain.
    pub fn chain(&mut self, one_way: Option<&OneWay>) -> Option<Release> {
        self.chain.as_mut().zip(one_way).map(|(chain, one_way)| chain.last(one_way))
    }
}

/// Which hosts broadcasts have not reached.
#[derive(Default)]
pub(super) struct Reach {
    /// How many broadcasts in a row a host has missed.
    missed: BTreeMap<Tid, u8>,
    /// The barriers that could be released by broadcast since hosts were last tried again.
    barriers: u32,
    /// The number of the last chain of releases.
    last_chain: u32,
}

impl Reach {
    fn is_out_of_reach(&self, host: Tid) -> bool {
        self.missed.get(&host).is_some_and(|missed| *missed >= MISSED_MAX)
    }
    /// Counts a barrier that could be released by broadcast.
    fn count_barrier(&mut self) {
        self.barriers += 1;
        if self.barriers == TRY_AGAIN_AFTER {
            self.barriers = 0;
            self.missed.values_mut().for_each(|missed| *missed = (*missed).min(MISSED_MAX - 1));
        }
    }
    pub fn host_gone(&mut self, host: Tid) {
        self.missed.remove(&host);
    }
}

/// The ways in which a release travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// On the control link of each host.
    Each,
    /// Down the tree in which the arrivals came.
    Tree,
    Broadcast,
}

/// Returns whether all members, and nobody else, have arrived, and those of other hosts by way of their daemons.
fn is_whole(own: Tid, group: &Group, pending: &PendingBarrier) -> bool {
    let is_combined = |arriver: &Arriver| matches!(arriver, Arriver::Combined { .. }) || arriver.tid().host() == own;
    let count = group.size();
    pending.page_host.is_none()
        && pending.arrived as usize == count
        && pending.members.len() == count
        && pending.members.iter().all(|tid| group.instance_of(*tid).is_some())
        && pending.to_answer.iter().all(is_combined)
}

impl Groups {
    /// Answers the members that wait at a barrier that has ended, except those in a page.
    pub(super) fn answer_all(&mut self, core: &mut Core, id: u64, pending: PendingBarrier, outcome: Result<(), Code>) {
        let own = core.own_host();
        let Some(group) = self.by_id(id) else { return };
        let may_release = outcome.is_ok() && core.settings.one_way.is_some() && is_whole(own, group, &pending);
        let mut ended: BTreeMap<Tid, Vec<(Tid, u64)>> = BTreeMap::new();
        let mut requests = Vec::new();
        for arriver in &pending.to_answer {
            match *arriver {
                Arriver::Request { tid, wait } => requests.push((tid, wait)),
                Arriver::Combined { tid, turn } => {
                    group.arrivals.note_outcome(tid, turn, outcome);
                    ended.entry(tid.host()).or_default().push((tid, turn));
                }
            }
        }
        // What was not confirmed is repeated now, because the next release replaces it.
        self.repeat_release(core, id);
        if may_release && self.appoint(core, id) {
            if let Some(group) = self.by_id(id) {
                group.arrivals.releases.forget();
            }
            tell_each(core, id, ended, outcome, None, false);
        } else if may_release && !ended.is_empty() {
            self.release(core, id, &pending, ended);
        } else {
            if let Some(group) = self.by_id(id) {
                group.arrivals.releases.faster_way.interrupt();
            }
            tell_each(core, id, ended, outcome, None, false);
        }
        for (tid, wait) in requests {
            core.reply(tid, wait, outcome.map(|()| Reply::Done));
        }
    }

    /// Chooses the way of the release of a barrier that the whole group has reached.
    pub(super) fn choose_way(
        &mut self,
        core: &Core,
        id: u64,
        pending: &PendingBarrier,
        hosts: impl Iterator<Item = Tid> + Clone,
    ) -> Way {
        let count = hosts.clone().count();
        let reached = hosts.filter(|host| !self.reach.is_out_of_reach(*host)).count();
        let may_broadcast = core.settings.broadcast.is_some() && reached * 2 > count;
        let Some(group) = self.by_id(id) else { return Way::Each };
        let faster_way = &mut group.arrivals.releases.faster_way;
        let is_measured = may_broadcast && !pending.lan && count >= core.settings.barrier_broadcast_hosts;
        if !is_measured {
            faster_way.interrupt();
        }
        if may_broadcast && pending.lan || is_measured && faster_way.is_broadcast(core.now) {
            Way::Broadcast
        } else if pending.senders.len() < count {
            Way::Tree
        } else {
            Way::Each
        }
    }

    /// Releases a barrier that the whole group has reached.
    fn release(&mut self, core: &mut Core, id: u64, pending: &PendingBarrier, ended: BTreeMap<Tid, Vec<(Tid, u64)>>) {
        let Some(one_way) = core.settings.one_way.clone() else { return };
        self.count_barrier();
        let way = self.choose_way(core, id, pending, ended.keys().copied());
        let Some(group) = self.groups.get_mut(&id) else { return };
        let releases = &mut group.arrivals.releases;
        let disclosed = releases.chain.as_mut().filter(|_| way != Way::Each).and_then(|chain| chain.disclose(&one_way));
        let Some(release) = disclosed else {
            if way != Way::Each {
                self.begin_chain(core, id, &one_way);
            }
            return tell_each(core, id, ended, Ok(()), None, false);
        };
        if way == Way::Broadcast {
            return self.broadcast_release(core, id, &release, ended);
        }
        release_each(core, id, pending.senders.iter().copied(), &release, false);
        self.await_signs(core, id, &release, ended, false);
    }

    /// Releases a barrier by one datagram to all hosts. Those that do not hear datagrams are told on their control links.
    pub(super) fn broadcast_release(
        &mut self,
        core: &mut Core,
        id: u64,
        release: &Release,
        ended: BTreeMap<Tid, Vec<(Tid, u64)>>,
    ) {
        let datagram = ReleaseDatagram { group: id, release: release.clone() };
        core.push(Action::Broadcast { bytes: crate::wire::encode(&datagram) });
        let (near, far): (BTreeMap<_, _>, BTreeMap<_, _>) =
            ended.into_iter().partition(|(host, _)| !self.reach.is_out_of_reach(*host));
        match core.is_master() {
            true => tell_each(core, id, far, Ok(()), Some(release), false),
            false => release_each(core, id, far.into_keys(), release, false),
        }
        self.await_signs(core, id, release, near, true);
    }

    /// Notes the arrivals that a release has ended, on hosts that have not shown that they know it.
    fn await_signs(
        &mut self,
        core: &Core,
        id: u64,
        release: &Release,
        ended: BTreeMap<Tid, Vec<(Tid, u64)>>,
        was_broadcast: bool,
    ) {
        let Some(group) = self.by_id(id) else { return };
        let releases = &mut group.arrivals.releases;
        (releases.unconfirmed, releases.last) = (ended, Some(release.clone()));
        (releases.was_broadcast, releases.repeat_at) = (was_broadcast, Some(core.now + REPEAT_AFTER));
        releases.repeat_by = core.now + REPEAT_AFTER_MAX;
        self.register_deadline(id);
    }

    /// Counts a barrier that could be released by broadcast.
    pub(super) fn count_barrier(&mut self) {
        self.reach.count_barrier();
    }

    /// Returns a number for a new chain.
    pub(super) fn next_chain(&mut self) -> u32 {
        self.reach.last_chain = self.reach.last_chain.wrapping_add(1);
        self.reach.last_chain
    }

    /// Begins a new chain of releases, and tells all hosts that keep the group. The present barrier ends without it, so
    /// every host knows the chain before the next one.
    fn begin_chain(&mut self, core: &mut Core, id: u64, one_way: &OneWay) {
        let mut chain = Chain::new(one_way, self.next_chain());
        let anchor = chain.last(one_way);
        let Some(group) = self.by_id(id) else { return };
        group.arrivals.releases.chain = Some(chain);
        for host in group.replica.hosts() {
            let change = GroupChange::Chain(anchor.clone());
            core.send_host(host, Frame::GroupChanged { id, number: NO_ACK, change });
        }
    }

    /// Notes that a host knows the last release, because a member there has arrived again. The wait for the other hosts
    /// begins anew: on a slow network their arrivals follow one another for longer than [`REPEAT_AFTER`], and releases
    /// that are repeated meanwhile would slow them further.
    pub(super) fn release_confirmed(&mut self, id: u64, host: Tid, now: Time) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let releases = &mut group.arrivals.releases;
        if releases.unconfirmed.remove(&host).is_some() {
            if releases.was_broadcast {
                self.reach.missed.remove(&host);
            }
            let repeat_at = (now + REPEAT_AFTER).min(releases.repeat_by);
            releases.repeat_at = (!releases.unconfirmed.is_empty()).then_some(repeat_at);
        }
    }

    /// Repeats the last release on the control links of the hosts that may not know it.
    pub(super) fn repeat_release(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        let releases = &mut group.arrivals.releases;
        releases.repeat_at = None;
        let unconfirmed = std::mem::take(&mut releases.unconfirmed);
        let late = releases.was_broadcast;
        let Some(release) = releases.last.clone() else { return };
        if group.coordination.is_here() {
            return release_each(core, id, unconfirmed.into_keys(), &release, late);
        }
        tell_each(core, id, unconfirmed, Ok(()), Some(&release), late);
    }

    /// Answers an arrival once more: its host has sent it again, because it does not know that the barrier has ended. If
    /// the barrier was released, the host learns this for all its members; otherwise it could take the release for that
    /// of a later barrier when it comes.
    pub(super) fn answer_again(&mut self, core: &mut Core, id: u64, arrival: (Tid, u64), outcome: Result<(), Code>) {
        let host = arrival.0.host();
        let Some(group) = self.by_id(id) else { return };
        let releases = &mut group.arrivals.releases;
        let mut ended = releases.unconfirmed.remove(&host).unwrap_or_default();
        if !ended.contains(&arrival) {
            ended.push(arrival);
        }
        let release = releases.last.clone();
        tell_each(core, id, BTreeMap::from([(host, ended)]), outcome, release.as_ref(), false);
    }

    /// Handles a datagram that anybody may have sent.
    pub fn datagram_received(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), DatagramError> {
        let ReleaseDatagram { group, release } = ReleaseDatagram::read(bytes)?;
        self.released(core, core.own_host(), group, &release, None)
    }

    /// Handles a host's news that it got a release of this host only when it was repeated.
    pub fn release_missed(&mut self, from: Tid) {
        let missed = self.reach.missed.entry(from).or_default();
        *missed = missed.saturating_add(1);
    }
}

/// Tells each host on its control link how the barrier of its members has ended.
fn tell_each(
    core: &mut Core,
    id: u64,
    ended: BTreeMap<Tid, Vec<(Tid, u64)>>,
    outcome: Result<(), Code>,
    release: Option<&Release>,
    late: bool,
) {
    for (host, ended) in ended {
        let (failure, release) = (outcome.err(), release.cloned());
        core.send_host(host, Frame::BarrierEnded { id, ended, failure, release, late });
    }
}

/// Sends the release to each host on its control link.
pub(super) fn release_each(core: &mut Core, id: u64, hosts: impl Iterator<Item = Tid>, release: &Release, late: bool) {
    hosts.for_each(|host| core.send_host(host, Frame::Released { id, release: release.clone(), late }));
}
