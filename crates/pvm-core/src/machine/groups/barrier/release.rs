//! The ends of barriers where they meet: which hosts learn in which way that their members' barrier has ended.
//!
//! Each host is told on its control link ([`Frame::BarrierEnded`]). If all members of the group have arrived by way of
//! their daemons and the barrier has opened, a [`Release`] can be disclosed instead, by one datagram to all hosts. It can
//! be lost. So the release is repeated on the control links of hosts that have not shown within [`REPEAT_AFTER`] that they
//! know it; the next arrival of one of their members shows it.
use super::arrivals::End;
use super::chain::Chain;
use super::meeting::Pending;
use super::{Group, Shared};
use crate::codes::Code;
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::settings::OneWay;
use crate::release::{ChainValue, Passed, Release};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Backup, Frame, GroupChange, ReleaseDatagram};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the host where the barrier meets waits for a sign that a host knows a release, after the release and after each sign of another
/// host. In a program that does little between barriers, the next arrival comes earlier.
const REPEAT_AFTER: Duration = Duration::from_millis(20);
/// The longest time after a release until it is repeated, although other hosts still give signs.
const REPEAT_AFTER_MAX: Duration = REPEAT_AFTER.saturating_mul(5);
/// A host that has missed this number of broadcasts, one after another, is served on its control link from then on.
const MISSED_MAX: u8 = 3;
/// After this number of barriers, hosts that missed broadcasts are tried again. If they miss another one, that costs a
/// barrier [`REPEAT_AFTER`].
const TRY_AGAIN_AFTER: u32 = 4096;

/// Arrivals that have been answered, or are to be: members and numbers, by host.
pub(super) type Ended = BTreeMap<Tid, Vec<(Tid, u64)>>;

/// Of what a host is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The last barrier of the whole group.
    Whole,
    /// The same, and the host should have heard it as a datagram.
    Late,
    /// A barrier of some members, or one that has failed.
    Others,
}

/// The releases of one group, where its barriers meet.
#[derive(Default)]
pub(super) struct Releases {
    chain: Option<Chain>,
    /// The last release, and the arrivals that it has ended on each host that has not shown that it knows the release.
    unconfirmed: Ended,
    last: Option<Release>,
    /// When the last release is repeated, and when it is at the latest.
    repeat_at: Option<Time>,
    repeat_by: Time,
    /// At a coordinator: the barrier before its first release.
    before: Passed,
}

impl Releases {
    /// Returns the releases of a coordinator, whose chain has this anchor and begins with this secret value.
    pub fn of_coordinator(one_way: &OneWay, anchor: &Release, start: &ChainValue, before: Passed) -> Releases {
        Releases { chain: Some(Chain::from_start(one_way, start, anchor.chain)), before, ..Releases::default() }
    }
    /// Returns when [`Group::repeat_release`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.repeat_at
    }
    /// Ends the chain, because the members change.
    pub fn end_chain(&mut self) {
        self.chain = None;
    }
    /// Returns the last release of the chain, or its anchor.
    pub fn last_of_chain(&self) -> Option<&Release> {
        self.chain.as_ref().map(Chain::last)
    }
    pub fn is_chain_used_up(&self) -> bool {
        self.chain.as_ref().is_some_and(Chain::is_used_up)
    }
}

/// Which hosts broadcasts have not reached.
#[derive(Default)]
pub struct Reach {
    /// How many broadcasts in a row a host has missed.
    missed: BTreeMap<Tid, u8>,
    /// The barriers that could be released by broadcast since hosts were last tried again.
    barriers: u32,
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
    /// Notes that a host got a release only when it was repeated.
    pub fn note_miss(&mut self, host: Tid) {
        let missed = self.missed.entry(host).or_default();
        *missed = missed.saturating_add(1);
    }
    pub fn host_gone(&mut self, host: Tid) {
        self.missed.remove(&host);
    }
}

impl Group {
    /// Ends the barrier at the master: answers or releases the members that have arrived, and begins the next barrier.
    pub(super) fn end_barrier(&mut self, core: &mut Core, shared: &mut Shared, outcome: Result<(), Code>) {
        let Some(pending) = self.barrier.pending.take() else { return };
        let (own, page_host) = (core.own_host(), pending.page_host);
        self.barrier.generation = self.barrier.generation.wrapping_add(1);
        // What was not confirmed is repeated now, because the next release replaces it.
        self.repeat_release(core);
        let is_whole = outcome.is_ok() && self.is_whole(&pending);
        match is_whole {
            true => self.barrier.passed = self.barrier.passed.later(self.version, 1),
            false => self.note_ended(core, &pending, outcome),
        }
        let may_release = is_whole && core.settings.one_way.is_some();
        if may_release && self.appoint(core, shared) {
            self.barrier.releases = Releases::default();
            self.tell_each(core, pending.by_host(), outcome, None, Told::Whole);
        } else if may_release && pending.arrivals.iter().any(|(tid, _)| tid.host() != own) {
            self.release(core, shared, pending);
        } else {
            let how = if is_whole { Told::Whole } else { Told::Others };
            self.tell_each(core, pending.by_host(), outcome, None, how);
        }
        if let Some((host, _)) = page_host {
            self.order_page(core, shared, host, GroupChange::Release { opened: outcome.is_ok() });
        }
    }

    /// Returns whether all members, and nobody else, have arrived by way of their daemons.
    fn is_whole(&self, pending: &Pending) -> bool {
        let count = self.size();
        pending.page_host.is_none()
            && pending.arrived as usize == count
            && pending.members.len() == count
            && pending.members.iter().all(|tid| self.instance_of(*tid).is_some())
    }

    /// Returns whether a barrier that the whole group has reached is to be released by broadcast to these other hosts.
    fn is_broadcast(core: &Core, shared: &Shared, lan: bool, hosts: &Ended) -> bool {
        let reached = hosts.keys().filter(|host| !shared.reach.is_out_of_reach(**host)).count();
        let is_worth_it = lan || hosts.len() >= core.settings.barrier_broadcast_hosts;
        core.settings.broadcast.is_some() && is_worth_it && reached * 2 > hosts.len()
    }

    /// Releases a barrier that the whole group has reached. A coordinator discloses a release for each barrier; the master
    /// only for a broadcast.
    pub(super) fn release(&mut self, core: &mut Core, shared: &mut Shared, pending: Pending) {
        let (own, Some(one_way)) = (core.own_host(), core.settings.one_way.clone()) else { return };
        let mut ended = pending.by_host();
        let here = ended.remove(&own).unwrap_or_default();
        shared.reach.count_barrier();
        let is_broadcast = Group::is_broadcast(core, shared, pending.lan, &ended);
        let chain = self.barrier.releases.chain.as_mut().filter(|_| is_broadcast || !core.is_master());
        let release = chain.and_then(|chain| chain.disclose(&one_way));
        match &release {
            Some(release) if is_broadcast => self.broadcast_release(core, shared, release, &mut ended),
            None if is_broadcast => self.begin_chain(core, shared, &one_way),
            _ => {}
        }
        self.tell_each(core, ended, Ok(()), release.as_ref(), Told::Whole);
        let end = End { outcome: Ok(()), release: release.as_ref(), passed: None, is_late: false };
        self.barrier_ended(core, own, &here, end);
        if !core.is_master() {
            // A coordinator without members has not counted the barriers before.
            let index = release.as_ref().map_or(0, |release| release.index);
            self.barrier.passed = self.barrier.releases.before.later(self.version, index);
        }
    }

    /// Releases a barrier by one datagram to all hosts. Leaves those in `ended` that do not hear datagrams; awaits signs of
    /// the others.
    fn broadcast_release(&mut self, core: &mut Core, shared: &Shared, release: &Release, ended: &mut Ended) {
        let datagram = ReleaseDatagram { group: self.id, release: release.clone() };
        core.push(Action::Broadcast { bytes: crate::wire::encode(&datagram) });
        if core.changes.are_kept {
            core.changes.releases.push(Backup::Released { id: self.id, passed: self.barrier.passed });
        }
        let releases = &mut self.barrier.releases;
        let is_far = |host: &Tid| shared.reach.is_out_of_reach(*host);
        (*ended, releases.unconfirmed) = std::mem::take(ended).into_iter().partition(|(host, _)| is_far(host));
        releases.last = Some(release.clone());
        (releases.repeat_at, releases.repeat_by) = (Some(core.now + REPEAT_AFTER), core.now + REPEAT_AFTER_MAX);
    }

    /// Begins a new chain of releases, and tells all hosts that keep the group. The present barrier ends without it, so
    /// every host knows the chain before the next one.
    fn begin_chain(&mut self, core: &mut Core, shared: &mut Shared, one_way: &OneWay) {
        let chain = Chain::new(one_way, shared.next_chain());
        let anchor = chain.last().clone();
        self.barrier.releases.chain = Some(chain);
        for host in self.replica.hosts() {
            self.tell_host(core, host, GroupChange::Chain(anchor.clone()));
        }
    }

    /// Notes that a host knows the last release, because a member there has arrived again. The wait for the other hosts
    /// begins anew: on a slow network their arrivals follow one another for longer than [`REPEAT_AFTER`], and releases
    /// that are repeated meanwhile would slow them further.
    pub(super) fn release_confirmed(&mut self, shared: &mut Shared, host: Tid, now: Time) {
        let releases = &mut self.barrier.releases;
        if releases.unconfirmed.remove(&host).is_some() {
            shared.reach.missed.remove(&host);
            let repeat_at = (now + REPEAT_AFTER).min(releases.repeat_by);
            releases.repeat_at = (!releases.unconfirmed.is_empty()).then_some(repeat_at);
        }
    }

    /// Repeats the last release to the host of an arrival that it has ended, if that host waits for it.
    pub(super) fn repeat_release_of(&mut self, core: &mut Core, arrival: (Tid, u64)) {
        let (host, releases) = (arrival.0.host(), &mut self.barrier.releases);
        if releases.unconfirmed.get(&host).is_some_and(|ended| ended.contains(&arrival)) {
            let (ended, release) = (releases.unconfirmed.remove_entry(&host), releases.last.clone());
            releases.repeat_at.take_if(|_| releases.unconfirmed.is_empty());
            self.tell_each(core, ended.into_iter().collect(), Ok(()), release.as_ref(), Told::Late);
        }
    }

    /// Repeats the last release on the control links of the hosts that may not know it.
    pub fn repeat_release(&mut self, core: &mut Core) {
        let releases = &mut self.barrier.releases;
        releases.repeat_at = None;
        let (unconfirmed, release) = (std::mem::take(&mut releases.unconfirmed), releases.last.clone());
        self.tell_each(core, unconfirmed, Ok(()), release.as_ref(), Told::Late);
    }

    /// Tells the host of an arrival at the master how its barrier has ended.
    pub(super) fn tell(&mut self, core: &mut Core, arrival: (Tid, u64), outcome: Result<(), Code>) {
        self.tell_each(core, BTreeMap::from([(arrival.0.host(), vec![arrival])]), outcome, None, Told::Others);
    }

    /// Tells each host on its control link how the barrier of its members has ended.
    pub(super) fn tell_each(
        &mut self,
        core: &mut Core,
        ended: Ended,
        outcome: Result<(), Code>,
        release: Option<&Release>,
        told: Told,
    ) {
        let passed = Some(self.barrier.passed).filter(|_| told != Told::Others && core.is_master());
        let is_late = told == Told::Late;
        for (host, ended) in ended {
            if host == core.own_host() {
                self.barrier_ended(core, host, &ended, End { outcome, release, passed, is_late });
            } else {
                let (id, failure, release) = (self.id, outcome.err(), release.cloned());
                core.send_host(host, Frame::BarrierEnded { id, ended, failure, release, passed, late: is_late });
            }
        }
    }
}
