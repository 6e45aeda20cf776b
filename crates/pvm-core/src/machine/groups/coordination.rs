//! A coordinator: a host other than the master at which the barriers of a group meet, as the master has chosen.
//!
//! The master tells the hosts with members who coordinates, and the anchor of a new chain of releases
//! ([`super::chain`]); it tells the coordinator the secret of the chain. From then on arrivals at barriers of the whole
//! group go to the coordinator, which discloses a release when every member has arrived. It applies no other rule:
//! when anything else happens, the master takes the barriers back ([`super::placement`]). Then each host reports which
//! release it knows, and which of its members wait; what it still gets from the coordinator, it ignores.
use super::chain::{Chain, KnownChain};
use super::pending_barrier::PendingBarrier;
use super::releases::{Way, release_each};
use super::{ALL_MEMBERS, Groups};
use crate::machine::core::Core;
use crate::release::{ChainValue, Release};
use crate::tid::Tid;
use crate::wire::Waiting;
use crate::wire::{Arrival, Frame};
use std::collections::BTreeMap;

/// What a host knows about the coordinator of a group.
#[derive(Default)]
pub(super) struct Coordination {
    /// The coordinator, unless it is the master.
    pub by: Option<Tid>,
    /// On the coordinator: the barrier.
    post: Option<Post>,
    /// Arrivals that came before the news that this host is the coordinator, and the chain for which they came.
    early: Early,
}

/// Arrivals that came before the news that this host is the coordinator: other hosts may have got these news earlier.
#[derive(Default)]
struct Early {
    /// The chain for which they came.
    chain: u32,
    arrivals: Vec<Arrival>,
}

impl Early {
    /// Keeps an arrival. Honest hosts send at most one for each member.
    fn keep(&mut self, chain: u32, arrival: Arrival, members: usize) {
        if self.chain != chain {
            (self.chain, self.arrivals) = (chain, Vec::new());
        }
        if self.arrivals.len() < members {
            self.arrivals.push(arrival);
        }
    }
}

/// The present barrier at a coordinator.
struct Post {
    number: u32,
    chain: Chain,
    /// The arrivals: members and numbers.
    arrived: BTreeMap<Tid, u64>,
    /// Whether a member has asked for a release by broadcast.
    lan: bool,
}

/// What a host reports when the master takes the barriers back.
pub(super) struct Report {
    /// The number of barriers that were released here since the coordinator was appointed.
    pub passed: u32,
    /// The arrivals at the barrier after these.
    pub arrivals: Vec<Arrival>,
}

impl Coordination {
    /// Returns whether this host coordinates the barriers.
    pub fn is_here(&self) -> bool {
        self.post.is_some()
    }
}

impl Groups {
    /// Opens links to the hosts between which arrivals will travel. If that is not possible, nobody is to blame: then
    /// arrivals go to the master, which takes the barriers back.
    pub(super) fn prepare_for(&mut self, core: &mut Core, id: u64, by: Tid) {
        let own = core.own_host();
        let Some(group) = self.by_id(id) else { return };
        let others: Vec<Tid> = if by == own { group.hosts().collect() } else { vec![by] };
        // Of two hosts, the one with the lower tid connects.
        others.into_iter().filter(|other| own < *other).for_each(|other| core.try_link(other));
    }

    /// Follows the master's choice of a coordinator. `start`: the secret of the chain, if this host is the coordinator.
    pub(super) fn coordinate(
        &mut self,
        core: &mut Core,
        id: u64,
        by: Tid,
        anchor: &Release,
        start: Option<&ChainValue>,
    ) {
        let (own, one_way) = (core.own_host(), core.settings.one_way.clone());
        let Some(group) = self.by_id(id) else { return };
        group.combining.restart();
        group.combining.known_chain = Some(KnownChain::new(anchor.clone()));
        group.coordination.by = Some(by);
        if let (Some(start), Some(one_way), true) = (start, one_way, by == own) {
            let chain = Chain::from_start(&one_way, start, anchor.chain);
            group.coordination.post = Some(Post { number: anchor.chain, chain, arrived: BTreeMap::new(), lan: false });
            group.arrivals.releases.end_chain();
        }
        let early = std::mem::take(&mut group.coordination.early);
        self.let_members_hear(core, id);
        for arrival in early.arrivals.into_iter().filter(|_| early.chain == anchor.chain) {
            self.arrive_at_coordinator(core, arrival.tid.host(), id, anchor.chain, vec![arrival]);
        }
    }

    /// Counts arrivals at the coordinator. Each host speaks for its own members only.
    pub fn arrive_at_coordinator(&mut self, core: &mut Core, from: Tid, id: u64, chain: u32, arrivals: Vec<Arrival>) {
        self.release_confirmed(id, from, core.now);
        let Some(group) = self.by_id(id) else { return };
        let size = group.size();
        for arrival in arrivals {
            let Arrival { tid, turn, version, lan, .. } = arrival;
            if tid.host() != from || version != group.version || group.instance_of(tid).is_none() {
                continue;
            }
            match &mut group.coordination {
                Coordination { post: Some(post), .. } if post.number == chain => {
                    post.arrived.insert(tid, turn);
                    post.lan |= lan;
                }
                Coordination { post: None, early, .. } => early.keep(chain, arrival, size),
                _ => {}
            }
        }
        if group.coordination.post.as_ref().is_some_and(|post| post.arrived.len() == size) {
            self.open(core, id);
        }
    }

    /// Discloses the release of the barrier at this host, at which all members have arrived.
    fn open(&mut self, core: &mut Core, id: u64) {
        let (own, Some(one_way)) = (core.own_host(), core.settings.one_way.clone()) else { return };
        let Some(post) = self.by_id(id).and_then(|group| group.coordination.post.as_mut()) else { return };
        let Some(release) = post.chain.disclose(&one_way) else {
            // The chain is used up. The master ends this barrier, and may begin another chain.
            return core.send_master(Frame::HandBack { id });
        };
        let mut ended: BTreeMap<Tid, Vec<(Tid, u64)>> = BTreeMap::new();
        for (tid, turn) in std::mem::take(&mut post.arrived).into_iter().filter(|(tid, _)| tid.host() != own) {
            ended.entry(tid.host()).or_default().push((tid, turn));
        }
        let pending = PendingBarrier::reached_by(ended.keys().copied(), std::mem::take(&mut post.lan));
        self.count_barrier();
        match self.choose_way(core, id, &pending, ended.keys().copied()) {
            Way::Broadcast => self.broadcast_release(core, id, &release, ended),
            Way::Each | Way::Tree => release_each(core, id, ended.into_keys(), &release, false),
        }
        // Not accepted only if the master's anchor was of another chain.
        let _ = self.released(core, own, id, &release, None);
    }

    /// Returns the members that wait at barriers that this host coordinates, by group.
    pub(super) fn waiting_at_coordinator(&self) -> impl Iterator<Item = (u64, Waiting)> + '_ {
        self.groups.values().filter_map(|group| {
            let post = group.coordination.post.as_ref().filter(|post| !post.arrived.is_empty())?;
            let need = u16::try_from(group.size()).unwrap_or(u16::MAX);
            Some((group.id, Waiting { need, tids: post.arrived.keys().copied().collect() }))
        })
    }

    /// Stops to follow the coordinator, and returns what the master must know to take the barriers back.
    pub(super) fn stop_coordination(&mut self, core: &Core, id: u64) -> Option<Report> {
        let own = core.own_host();
        let group = self.by_id(id)?;
        let post = group.coordination.post.take();
        group.coordination.by = None;
        let combining = &mut group.combining;
        let passed = combining.known_chain.take().map_or(0, |known| known.index());
        let mut arrivals = combining.report(own);
        for (tid, turn) in post.iter().flat_map(|post| &post.arrived).filter(|(tid, _)| tid.host() != own) {
            let lan = post.as_ref().is_some_and(|post| post.lan);
            arrivals.push(Arrival { tid: *tid, turn: *turn, version: group.version, count: ALL_MEMBERS, lan });
        }
        if post.is_some() {
            group.arrivals.releases.forget();
        }
        Some(Report { passed, arrivals })
    }

    /// Handles the master's order to stop following the coordinator.
    pub(super) fn recalled(&mut self, core: &mut Core, id: u64, number: u64) {
        // The master waits for the report even if the group has ended here.
        let nothing = Report { passed: 0, arrivals: Vec::new() };
        let Report { passed, arrivals } = self.stop_coordination(core, id).unwrap_or(nothing);
        core.send_master(Frame::Recalled { id, number, passed, arrivals });
    }
}
