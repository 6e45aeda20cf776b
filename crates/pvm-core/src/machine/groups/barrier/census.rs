//! Barriers over several hosts when another host becomes the master: it counts anew who waits.
//!
//! Each host that follows says which barrier of the whole group was released last, as far as it knows, and which arrivals it has not
//! answered ([`GroupNews`]). When all hosts have said so, or are lost, the new master knows for each arrival what has become of
//! its barrier:
//!
//! * A barrier of the whole group that any host knows to be released is over for all: no member was missing there, and none could
//!   arrive at the next one before its host knew the release. So an arrival that another host has made before is answered, if
//!   the member was one then.
//! * A barrier of some members, or one that has failed, was told to the deputy before anybody heard of it ([`Group::note_ended`]).
//! * All other arrivals are counted, once, at the barrier that is pending now.
use super::meeting::{Pending, Turn};
use super::release::{Ended, Told};
use super::{Group, Place, Shared};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::release::{EndedArrival, EndedPage};
use crate::tid::Tid;
use crate::wire::{Arrival, Backup, GroupChange, GroupNews, Taken};
use std::collections::BTreeSet;

/// What the hosts have said about a group whose master has died.
#[derive(Default)]
pub(super) struct Census {
    /// The hosts that have said nothing.
    missing: BTreeSet<Tid>,
    /// The hosts that may have counted members of others: the former master, and the host that it wanted for the coordinator. Who
    /// has named that one may be lost with the former master.
    counters: [Tid; 2],
    news: Vec<(Tid, GroupNews)>,
}

impl Census {
    /// Returns whether that host has said nothing yet.
    pub fn awaits(&self, host: Tid) -> bool {
        self.missing.contains(&host)
    }
}

/// What the arrivals that hosts have reported need.
#[derive(Default)]
struct Sorted {
    /// Their barrier was released to the whole group.
    over: Ended,
    /// Their barrier has ended in another way.
    ended: Vec<((Tid, u64), Result<(), Code>)>,
    /// The first of each member that is to be counted, and later ones.
    first: Vec<Arrival>,
    later: Vec<Arrival>,
}

impl Group {
    // ----- the master, as long as it lives

    /// Tells the deputy how a barrier has ended, unless it was released to the whole group: then the hosts with members know
    /// enough.
    pub(super) fn note_ended(&mut self, core: &mut Core, pending: &Pending, outcome: Result<(), Code>) {
        let ended = |(tid, turn): &(Tid, u64)| EndedArrival { tid: *tid, turn: *turn, failure: outcome.err() };
        let ended: Vec<EndedArrival> = pending.arrivals.iter().map(ended).collect();
        let page = |(host, number)| EndedPage { host, number, opened: outcome.is_ok() };
        let page = pending.page_host.map(page);
        self.keep_ended(&ended, page);
        if core.changes.are_kept {
            core.changes.groups.push(Backup::BarrierEnded { id: self.id, ended, page });
        }
    }

    /// Keeps how a barrier has ended. What was kept about those who are no members any more is dropped.
    pub fn keep_ended(&mut self, ended: &[EndedArrival], page: Option<EndedPage>) {
        let (kept, instances) = (&mut self.barrier.ended, &self.instances);
        kept.retain(|tid, _| instances.contains_key(tid));
        // Those of a member are in the order of their numbers.
        kept.extend(ended.iter().map(|one| (one.tid, (one.turn, one.failure))));
        self.barrier.ended_page = page.or(self.barrier.ended_page);
    }

    // ----- a host that follows the new master, or becomes it

    /// Returns what this host knows about the barriers of the group, whose master has died. What it hears from a coordinator
    /// later, it ignores.
    pub fn take_news(&mut self, own: Tid) -> GroupNews {
        let mut arrivals = self.barrier.passage.all_for_successor();
        if self.barrier.pending.is_some() || self.barrier.coordinator().is_some() {
            let pending = self.barrier.pending.take().unwrap_or_default();
            let (version, count, lan) = (self.version, self.size() as i32, pending.lan);
            let others = pending.arrivals.into_iter().filter(|(tid, _)| tid.host() != own);
            arrivals.extend(others.map(|(tid, turn)| Arrival { tid, turn, version, count, lan }));
            self.barrier.resign();
        }
        let (id, meets_here, passed) = (self.id, self.replica.meets_here, self.barrier.passed);
        GroupNews { id, meets_here, passed, arrivals, taken: self.replica.taken.clone() }
    }

    // ----- the new master

    /// Begins to ask the hosts. They say what they know when they follow this host.
    pub fn begin_census(&mut self, core: &Core, shared: &Shared, hosts: &BTreeSet<Tid>, former: Tid) {
        let counters = [former, self.wanted(core, shared)];
        let barrier = &mut self.barrier;
        barrier.place = Place::Counted(Census { missing: hosts.clone(), counters, news: Vec::new() });
        (barrier.pending, barrier.queue, barrier.releases) = Default::default();
        barrier.turns = self.instances.keys().map(|tid| (*tid, Turn { since: 0, last: 0 })).collect();
    }

    /// Handles what a host knows; nothing if it does not know the group.
    pub fn news_told(&mut self, core: &mut Core, shared: &mut Shared, host: Tid, news: Option<GroupNews>) {
        if let Place::Counted(census) = &mut self.barrier.place {
            if census.missing.remove(&host) {
                census.news.extend(news.iter().cloned().map(|news| (host, news)));
                // The host may repeat them, before all others have said something.
                let own = news.iter().flat_map(|news| &news.arrivals).filter(|arrival| arrival.tid.host() == host);
                own.for_each(|arrival| _ = self.barrier.note_turn(arrival));
                self.finish_census(core, shared);
            }
        } else if let Some(news) = news {
            // The former master has handed over, and died before this host knew that.
            let Sorted { over, ended, first, later } = self.sort_arrivals(core, &[], &[(host, news)]);
            self.tell_ended(core, over, ended);
            self.arrived_at_master(core, shared, host, first.into_iter().chain(later).collect());
        }
    }

    /// Handles the loss of a host that may have said nothing.
    pub(super) fn counted_host_gone(&mut self, core: &mut Core, shared: &mut Shared, host: Tid) {
        if let Place::Counted(census) = &mut self.barrier.place {
            census.missing.remove(&host);
            self.finish_census(core, shared);
        }
    }

    /// When all hosts have said what they know, continues the barrier.
    fn finish_census(&mut self, core: &mut Core, shared: &mut Shared) {
        let Place::Counted(census) = &mut self.barrier.place else { return };
        if !census.missing.is_empty() {
            return;
        }
        let (news, counters) = (std::mem::take(&mut census.news), census.counters);
        // A host cannot know a release to members that this host does not know.
        let passed = news.iter().map(|(_, news)| news.passed).filter(|passed| passed.version <= self.version);
        self.barrier.passed = passed.fold(self.barrier.passed, Ord::max);
        let Sorted { over, ended, first, later } = self.sort_arrivals(core, &counters, &news);
        self.tell_ended(core, over, ended);
        let is_here = |host: &Tid| *host == core.own_host() || core.hosts.is_here(*host);
        let meets_on = news.iter().find(|(host, news)| news.meets_here && is_here(host)).map(|(host, _)| *host);
        let taken = news.into_iter().filter_map(|(host, news)| Some((host, news.taken?))).collect();
        let mut pending = self.continue_taken(core, shared, taken);
        let mut rest = Vec::new();
        for arrival in first {
            let need = u32::try_from(arrival.count).unwrap_or(0);
            let may_begin = meets_on.is_none() && need > 0;
            let at = if may_begin { Some(pending.get_or_insert_with(|| Pending::new(need))) } else { pending.as_mut() };
            let expects =
                |at: &&mut Pending| at.need == need && at.arrived < need && !at.members.contains(&arrival.tid);
            match at.filter(expects) {
                Some(at) => at.count(&arrival),
                None => rest.push(arrival),
            }
        }
        // They came before those that wait already.
        rest.into_iter().chain(later).rev().for_each(|arrival| self.barrier.queue.push_front(arrival));
        match meets_on.filter(|_| pending.is_none()) {
            Some(host) => self.continue_in_page(core, shared, host),
            None => self.resume_at_master(core, shared, pending),
        }
    }

    /// Tells hosts how the barriers of arrivals have ended.
    fn tell_ended(&mut self, core: &mut Core, over: Ended, ended: Vec<((Tid, u64), Result<(), Code>)>) {
        self.tell_each(core, over, Ok(()), None, Told::Whole);
        ended.into_iter().for_each(|(arrival, outcome)| self.tell(core, arrival, outcome));
    }

    /// Finds out what the arrivals need that hosts have reported.
    fn sort_arrivals(&mut self, core: &Core, counters: &[Tid], news: &[(Tid, GroupNews)]) -> Sorted {
        let mut sorted = Sorted::default();
        let hosts: BTreeSet<Tid> = news.iter().map(|(host, _)| *host).collect();
        let passed = self.barrier.passed;
        let mut seen = BTreeSet::new();
        for (from, news) in news {
            let may_have_counted = self.has_members_on(*from) || counters.contains(from);
            for arrival in &news.arrivals {
                let (key, host) = ((arrival.tid, arrival.turn), arrival.tid.host());
                // A host speaks for its members; the coordinator, for those of lost hosts that it has counted.
                if host != *from && (hosts.contains(&host) || !may_have_counted) {
                    continue;
                }
                let ended = self.barrier.ended.get(&arrival.tid).filter(|(turn, _)| arrival.turn <= *turn);
                if let Some((_, failure)) = ended {
                    sorted.ended.push((key, failure.map_or(Ok(()), Err)));
                } else if !seen.insert(arrival.tid) {
                    // Threads of a member may arrive several times.
                    sorted.later.push(arrival.clone());
                } else if host == *from && news.passed < passed && arrival.version <= passed.version {
                    // A coordinator has counted the others for the barrier after all that were released.
                    sorted.over.entry(host).or_default().push(key);
                } else {
                    sorted.first.push(arrival.clone());
                }
            }
        }
        let is_here = |host: Tid| host == core.own_host() || core.hosts.is_here(host);
        sorted.over.retain(|host, _| is_here(*host));
        sorted.ended.retain(|((tid, _), _)| is_here(tid.host()));
        sorted
    }

    /// Continues the barriers whose arrivals the former master has taken out of a host's page: members still wait there. Releases
    /// the members if their barrier has ended; otherwise returns the barrier.
    fn continue_taken(
        &mut self,
        core: &mut Core,
        shared: &mut Shared,
        taken: Vec<(Tid, (u32, Taken))>,
    ) -> Option<Pending> {
        let mut pending = None;
        for (host, (number, taken)) in taken {
            let is_here = host == core.own_host() || core.hosts.is_here(host);
            let ended = self.barrier.ended_page.filter(|page| (page.host, page.number) == (host, number));
            match ended.map(|page| page.opened).or(pending.as_ref().map(|_: &Pending| false)) {
                Some(opened) if is_here => self.order_page(core, shared, host, GroupChange::Release { opened }),
                Some(_) => {}
                None => {
                    let mut found = Pending::taken((number, taken), host, core.now);
                    found.page_host.take_if(|_| !is_here);
                    pending = Some(found);
                }
            }
        }
        pending
    }

    /// Continues in the page of a host. If members have arrived elsewhere, they meet at the master instead.
    fn continue_in_page(&mut self, core: &mut Core, shared: &mut Shared, host: Tid) {
        self.barrier.place = Place::PageOf(host);
        if self.only_host() != Some(host) || !self.barrier.queue.is_empty() {
            self.move_to_master(core, shared, host);
        }
    }
}
