//! Arrivals at barriers over several hosts on their way from the members to the master.
//!
//! A host other than the master sends the arrivals of its members up a tree. A host of the tree keeps what has arrived
//! until all arrived that came this way to the barrier before, then sends it in one frame. It keeps nothing longer than
//! [`HOLD`]; so a member that is late, or that never comes, delays the others' arrivals by a short time only, and the
//! master alone decides about every arrival. In a large group the parent of a host is another host of the group
//! ([`binomial`]); otherwise, and if there is no link to the parent, it is the master.
//!
//! An arrival that went to another host than the master is sent again, to the master, if a host is lost, the member
//! leaves, or the barrier has not ended after [`REPEAT_AFTER`]. The master recognizes it by its number.
//!
//! The release goes the same way back, or to all hosts at once ([`super::releases`]). Only barriers of the whole group
//! take this way; other arrivals are requests to the master.
use super::chain::KnownChain;
use super::releases::release_each;
use super::{ALL_MEMBERS, Group, Groups};
use crate::binomial;
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::proto::{Reply, ToTask};
use crate::release::Release;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Arrival, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a host keeps arrivals back while others, which it expects, are missing. The master needs none of them
/// before the last member of the group arrives, so only arrivals that will be refused come late.
const HOLD: Duration = Duration::from_millis(20);
/// After this time an arrival that went to another host than the master is sent again, to the master.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// The arrival of a member of this host.
struct OwnArrival {
    wait: u32,
    arrival: Arrival,
    /// Whether the master has it, or will have it before anything that this host sends to the master later.
    is_direct: bool,
    /// Whether the member has left. Its arrival stays counted, but nobody waits for the answer.
    is_gone: bool,
}

/// The arrivals that pass through this host, for one group.
#[derive(Default)]
pub(super) struct Combining {
    /// The arrivals of this host's members that have not been answered.
    own: BTreeMap<Tid, OwnArrival>,
    held: Vec<Arrival>,
    /// The members that have arrived through this host at the present barrier, and those that did at the barrier before.
    seen: BTreeSet<Tid>,
    expected: BTreeSet<Tid>,
    /// How many members in `expected` are not in `seen`.
    missing: usize,
    /// Whether members were late at the present barrier: nothing is kept back any more.
    is_late: bool,
    /// The hosts from which arrivals came.
    below: BTreeSet<Tid>,
    /// When `held` is sent, at the latest.
    hold_until: Option<Time>,
    /// When the arrivals that are not direct are sent again.
    repeat_at: Option<Time>,
    /// Whether this host has connected to its children in the tree.
    is_connected: bool,
    /// The host that has repeated the last release, and the release, until the next arrival of a member shows whether it
    /// had heard the release before.
    repeated: Option<(Tid, Release)>,
    /// The releases of the group's barriers.
    pub known_chain: Option<KnownChain>,
}

impl Combining {
    /// Returns when [`Groups::combine_on_time`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.hold_until.into_iter().chain(self.repeat_at).min()
    }

    /// Adds an arrival. Returns whether nobody else is expected, so that the arrivals are to be sent now.
    fn add(&mut self, arrival: Arrival) -> bool {
        if self.seen.contains(&arrival.tid) {
            // All members of the earlier barrier have arrived there, so this is the next barrier.
            self.expected = std::mem::take(&mut self.seen);
            (self.missing, self.is_late) = (self.expected.len(), false);
        }
        if self.expected.contains(&arrival.tid) {
            self.missing -= 1;
        }
        self.seen.insert(arrival.tid);
        self.held.push(arrival);
        self.missing == 0 || self.is_late
    }

    /// Forgets who arrived, because the members or hosts have changed.
    pub fn restart(&mut self) {
        (self.missing, self.is_late, self.is_connected) = (0, false, false);
        self.repeated = None;
        self.seen.clear();
        self.expected.clear();
        self.below.clear();
    }

    /// Returns the arrivals of this host's members that have not been answered, for the master, to which they go from
    /// now on.
    pub fn report(&mut self, own: Tid) -> Vec<Arrival> {
        self.restart();
        self.repeat_at = None;
        self.held.retain(|arrival| arrival.tid.host() != own);
        let arrivals = self.own.values().map(|own| own.arrival.clone()).collect();
        self.own.retain(|_, own| !own.is_gone);
        self.own.values_mut().for_each(|own| own.is_direct = true);
        arrivals
    }

    /// At the master: returns its members that wait at the coordinator, each with its wait id unless it has left.
    pub fn waits(&self) -> BTreeMap<Tid, Option<u32>> {
        self.own.iter().map(|(tid, own)| (*tid, Some(own.wait).filter(|_| !own.is_gone))).collect()
    }

    /// At the master: forgets its members that waited at the coordinator.
    pub fn forget_own(&mut self) {
        self.own.clear();
    }
}

/// Returns the tree of hosts with members: the master, then the other hosts in the order of the host table. Returns
/// `None` if there are too few hosts.
fn tree_of(core: &Core, group: &Group) -> Option<Vec<Tid>> {
    let master = core.hosts.master();
    let others = || group.hosts().filter(|host| *host != master);
    (others().count() + 1 >= core.settings.barrier_tree_hosts)
        .then(|| std::iter::once(master).chain(others()).collect())
}

/// Returns the host to which this host sends arrivals.
fn parent(core: &Core, group: &Group) -> Tid {
    let master = core.hosts.master();
    if let Some(by) = group.coordination.by {
        return if by == core.own_host() || core.links.is_up(by) { by } else { master };
    }
    let Some(tree) = tree_of(core, group) else { return master };
    let own = tree.iter().position(|host| *host == core.own_host());
    own.and_then(binomial::parent)
        .map(|parent| tree[parent])
        .filter(|parent| core.links.is_up(*parent))
        .unwrap_or(master)
}

impl Groups {
    /// Handles the arrival of a member of this host, if it can be combined with others; returns whether it can.
    pub fn combine(&mut self, core: &mut Core, from: Tid, wait: u32, id: u64, count: i32, lan: bool) -> bool {
        let turn = self.last_turn + 1;
        let Some(group) = self.by_id(id) else { return false };
        if let Some((by, _)) = group.combining.repeated.take() {
            core.send_host(by, Frame::ReleaseMissed);
        }
        if core.is_master() && group.coordination.by.is_none() {
            return false;
        }
        let is_whole = count == ALL_MEMBERS || usize::try_from(count) == Ok(group.size());
        let is_far = group.only_host().is_none() && group.instance_of(from).is_some();
        if !is_whole || !is_far || group.combining.own.contains_key(&from) {
            return false;
        }
        let arrival = Arrival { tid: from, turn, version: group.version, count, lan };
        group
            .combining
            .own
            .insert(from, OwnArrival { wait, arrival: arrival.clone(), is_direct: false, is_gone: false });
        self.last_turn = turn;
        self.connect_children(core, id);
        self.pass_on(core, id, vec![arrival]);
        true
    }

    /// Connects this host to its children in the tree. A child uses the link as soon as it is there. If it cannot be
    /// made, the child's arrivals go to the master, and nobody is to blame.
    fn connect_children(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id).filter(|group| group.coordination.by.is_none()) else { return };
        if std::mem::replace(&mut group.combining.is_connected, true) {
            return;
        }
        let Some(tree) = tree_of(core, group) else { return };
        let own = tree.iter().position(|host| *host == core.own_host());
        for child in own.into_iter().flat_map(|own| binomial::children(own, tree.len())) {
            core.try_link(tree[child]);
        }
    }

    /// Handles arrivals that another host sends up the tree through this host. Ignores those of a host without members.
    pub fn arrivals_passing(&mut self, core: &mut Core, from: Tid, id: u64, arrivals: Vec<Arrival>) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|group| group.has_members_on(from) && group.has_members_on(own)) else {
            return;
        };
        let waiting = &group.combining.held;
        let is_held = |tid: Tid| waiting.iter().any(|held| held.tid == tid);
        let is_due = |arrival: &Arrival| {
            arrival.tid.host() != own && group.instance_of(arrival.tid).is_some() && !is_held(arrival.tid)
        };
        let mut due: Vec<Arrival> = arrivals.into_iter().filter(is_due).collect();
        due.sort_by_key(|arrival| arrival.tid);
        due.dedup_by_key(|arrival| arrival.tid);
        group.combining.below.insert(from);
        self.pass_on(core, id, due);
    }

    /// Adds arrivals to those that are kept here. Sends all of them if nobody else is expected.
    fn pass_on(&mut self, core: &mut Core, id: u64, arrivals: Vec<Arrival>) {
        let hold_until = core.now + HOLD;
        let Some(group) = self.by_id(id) else { return };
        let combining = &mut group.combining;
        let mut complete = false;
        for arrival in arrivals {
            complete = combining.add(arrival);
        }
        if complete {
            return self.send_held(core, id);
        }
        combining.hold_until = combining.hold_until.or(Some(hold_until).filter(|_| !combining.held.is_empty()));
        self.register_deadline(id);
    }

    /// Sends the arrivals that are kept here up the tree.
    fn send_held(&mut self, core: &mut Core, id: u64) {
        let repeat_at = core.now + REPEAT_AFTER;
        let Some(group) = self.by_id(id) else { return };
        group.combining.hold_until = None;
        let arrivals = std::mem::take(&mut group.combining.held);
        if arrivals.is_empty() {
            return;
        }
        let to = parent(core, group);
        let chain = group.combining.known_chain.as_ref().filter(|_| group.coordination.by == Some(to));
        let chain = chain.map(|known| known.number());
        let is_direct = to == core.hosts.master();
        let combining = &mut group.combining;
        for arrival in arrivals.iter() {
            let own = combining.own.get_mut(&arrival.tid).filter(|own| own.arrival.turn == arrival.turn);
            own.into_iter().for_each(|own| own.is_direct = is_direct);
        }
        if !is_direct && combining.own.values().any(|own| !own.is_direct) {
            combining.repeat_at = combining.repeat_at.or(Some(repeat_at));
        }
        self.register_deadline(id);
        match chain {
            Some(chain) if to == core.own_host() => self.arrive_at_coordinator(core, to, id, chain, arrivals),
            // There is no link to the coordinator.
            _ if to == core.own_host() => self.take_back(core, id, true, Tid::NONE),
            chain => core.send_host(to, Frame::Arrived { id, arrivals, chain }),
        }
    }

    /// Sends the arrivals of this host's members to the master, if another host has them that may not pass them on.
    fn repeat(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        group.combining.repeat_at = None;
        if core.is_master() {
            return self.take_back(core, id, true, Tid::NONE);
        }
        let mut arrivals = Vec::new();
        for own in group.combining.own.values_mut().filter(|own| !own.is_direct) {
            own.is_direct = true;
            arrivals.push(own.arrival.clone());
        }
        if !arrivals.is_empty() {
            core.send_master(Frame::Arrived { id, arrivals, chain: None });
        }
    }

    /// Handles what is due.
    pub(super) fn combine_on_time(&mut self, core: &mut Core, id: u64) {
        let now = core.now;
        let is_due = |when: Option<Time>| when.is_some_and(|when| when <= now);
        let Some(group) = self.by_id(id) else { return };
        let (late, repeats) = (is_due(group.combining.hold_until), is_due(group.combining.repeat_at));
        if late {
            group.combining.is_late = true;
            self.send_held(core, id);
        }
        if repeats {
            self.repeat(core, id);
        }
    }

    /// Handles a change of the members of a group: other members are expected from now on, and the chain of releases
    /// has ended.
    pub(super) fn members_changed(&mut self, core: &mut Core, id: u64) {
        self.send_held(core, id);
        if let Some(group) = self.by_id(id) {
            group.version += 1;
            group.combining.restart();
            group.combining.known_chain = None;
        }
    }

    /// Handles the loss of a host: it may have kept arrivals of this host's members.
    pub(super) fn combining_host_lost(&mut self, core: &mut Core, host: Tid) {
        // If there is a coordinator, and the loss concerns the group, the master takes the barriers back.
        let in_use = |group: &&Group| {
            let waits = !group.combining.own.is_empty() || group.combining.below.contains(&host);
            waits && group.coordination.by.is_none()
        };
        let ids: Vec<u64> = self.groups.values().filter(in_use).map(|group| group.id).collect();
        for id in ids {
            self.send_held(core, id);
            self.repeat(core, id);
            if let Some(group) = self.by_id(id) {
                group.combining.restart();
            }
        }
    }

    /// Sends the arrivals of a task that is about to leave to the master, so that they precede the news of its end. If
    /// there is a coordinator, the master will ask for them when it has these news.
    pub fn task_leaves(&mut self, core: &mut Core, tid: Tid) {
        let ids: Vec<u64> =
            self.groups.values().filter(|group| group.combining.own.contains_key(&tid)).map(|group| group.id).collect();
        for id in ids {
            let Some(group) = self.by_id(id) else { continue };
            if group.coordination.by.is_some() {
                group.combining.own.entry(tid).and_modify(|own| own.is_gone = true);
                continue;
            }
            let own = group.combining.own.remove(&tid);
            if let Some(own) = own.filter(|own| !own.is_direct) {
                core.send_master(Frame::Arrived { id, arrivals: vec![own.arrival], chain: None });
            }
        }
    }

    // ----- the end of a barrier

    /// Lets the members on this host hear the releases of a new chain themselves. So a release need not wake the daemon
    /// first. They do not hear those of a coordinator: if it dies, the master must learn from the hosts what it has
    /// released.
    pub(super) fn let_members_hear(&mut self, core: &mut Core, id: u64) {
        let own = core.own_host();
        let Some(group) = self.by_id(id) else { return };
        let Some(known) = &group.combining.known_chain else { return };
        let anchor = Some(known.last().clone()).filter(|_| group.coordination.by.is_none());
        // The master may not know yet that a member has gone.
        let hears = |tid: &Tid| tid.host() == own && core.tasks.takes_frames(*tid);
        let members: Vec<Tid> = group.members().map(|(_, tid)| tid).filter(hears).collect();
        let tasks = if anchor.is_some() { members.clone() } else { Vec::new() };
        if !members.is_empty() {
            core.push(Action::HearBroadcasts { tasks });
        }
        for to in members {
            core.send(to, ToTask::Chain { group: id, anchor: anchor.clone() });
        }
    }

    /// Handles a release that a member on this host has heard itself. The member does not wait any more.
    pub fn heard(&mut self, core: &mut Core, from: Tid, id: u64, release: &Release) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|group| group.instance_of(from).is_some()) else { return };
        let combining = &mut group.combining;
        combining.own.remove(&from);
        // The member did not need the repetition.
        combining.repeated.take_if(|(_, repeated)| repeated == release);
        // Not accepted if the chain has ended meanwhile, or if the release was repeated here.
        let _ = self.released(core, own, id, release, None);
    }

    /// Handles the master's news that the barrier of these arrivals has ended.
    pub fn barrier_ended(
        &mut self,
        core: &mut Core,
        id: u64,
        ended: &[(Tid, u64)],
        outcome: Result<(), Code>,
        release: Option<&Release>,
        late: bool,
    ) {
        let Some(group) = self.by_id(id) else { return };
        let combining = &mut group.combining;
        if let (Some(known), Some(release)) = (&mut combining.known_chain, release) {
            known.told(release);
        }
        let mut answers = Vec::new();
        for (tid, turn) in ended {
            if combining.own.get(tid).is_some_and(|own| own.arrival.turn == *turn) {
                answers.extend(combining.own.remove(tid).map(|own| (*tid, own.wait)));
            }
        }
        if let Some(release) = release.filter(|_| late && !answers.is_empty()) {
            combining.repeated = Some((core.hosts.master(), release.clone()));
        }
        for (tid, wait) in answers {
            core.reply(tid, wait, outcome.map(|()| release.cloned().map_or(Reply::Done, Reply::Released)));
        }
    }

    /// Handles a release that anybody may have sent. If a host of the machine has sent it on a control link (`late`: it
    /// was sent before in another way), this host sends it on to those whose arrivals came through it.
    ///
    /// The master ends a chain before it changes the members, and so does this host. So if the release is of the chain
    /// that this host knows, it releases exactly the members that this host knows, and all arrivals of this host that
    /// were not answered before.
    pub fn released(
        &mut self,
        core: &mut Core,
        from: Tid,
        id: u64,
        release: &Release,
        late: Option<bool>,
    ) -> Result<(), DatagramError> {
        let one_way = core.settings.one_way.clone().ok_or(DatagramError::Unexpected)?;
        let combining = &mut self.by_id(id).ok_or(DatagramError::Unexpected)?.combining;
        let known = combining.known_chain.as_mut().ok_or(DatagramError::Unexpected)?;
        known.accept(&one_way, release)?;
        combining.repeat_at = None;
        let own = std::mem::take(&mut combining.own);
        let below: Vec<Tid> = combining.below.iter().copied().filter(|_| late.is_some()).collect();
        if late == Some(true) && !own.is_empty() {
            combining.repeated = Some((from, release.clone()));
        }
        release_each(core, id, below.into_iter(), release, false);
        for (tid, own) in own.into_iter().filter(|(_, own)| !own.is_gone) {
            core.reply(tid, own.wait, Ok(Reply::Released(release.clone())));
        }
        Ok(())
    }
}

/// Answers the members of this host that wait at the barrier of a group that has ended.
pub(super) fn end_combining(core: &mut Core, combining: Combining) {
    for (tid, own) in combining.own.into_iter().filter(|(_, own)| !own.is_gone) {
        core.reply(tid, own.wait, Err(Code::NoGroup));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_kept_until_those_who_came_before_have_arrived() {
        let mut combining = Combining::default();
        let arrival = |tid, turn| Arrival { tid: Tid(tid), turn, version: 0, count: -1, lan: false };
        assert!(combining.add(arrival(1, 1)) && combining.add(arrival(2, 2)), "nobody was here before");
        assert!(!combining.add(arrival(2, 3)));
        assert!(combining.add(arrival(1, 4)));
        assert!(!combining.add(arrival(1, 5)));
        assert!(!combining.add(arrival(3, 6)));
        assert!(combining.add(arrival(2, 7)));
        assert!(!combining.add(arrival(1, 8)) && !combining.add(arrival(2, 9)) && combining.add(arrival(3, 10)));
        combining.is_late = true;
        assert!(!combining.add(arrival(3, 11)), "a new barrier");
    }
}
