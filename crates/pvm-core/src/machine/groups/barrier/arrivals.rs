//! The members of this host at barriers over several hosts: their arrivals on the way to where the barrier meets, and the
//! answers.
//!
//! An arrival with a count below the size of the group goes straight to the master, and those of the master's own members are
//! counted at once unless there is a coordinator. The others are combined: a host keeps
//! the arrivals of its members until all have arrived that came to the barrier before, then sends them in one frame, to the
//! coordinator or the master. It keeps nothing longer than [`HOLD`]; so a member that is late, or that never comes, delays
//! the others' arrivals by a short time only.
//!
//! An arrival that went to the coordinator is sent again, to the master, if the barrier has not ended after
//! [`SEND_AGAIN_AFTER`]. The master recognizes it by its number.
use super::{Group, Shared};
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::groups::ALL_MEMBERS;
use crate::proto::{Reply, ToTask};
use crate::release::{Passed, Release};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Arrival, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a host keeps arrivals back while others, which it expects, are missing. Nobody needs any of them
/// before the last member of the group arrives, so only arrivals that will be refused come late.
const HOLD: Duration = Duration::from_millis(20);
/// After this time an arrival that went to the coordinator is sent again, to the master.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The arrival of a member of this host.
struct OwnArrival {
    wait: u32,
    arrival: Arrival,
    /// Whether the master has it, or will have it before anything that this host sends to the master later.
    is_direct: bool,
    /// Whether the member has left. Its arrival stays counted, but nobody waits for the answer.
    is_gone: bool,
    /// How many members the group had.
    size: usize,
}

/// The arrivals of this host's members, for one group.
#[derive(Default)]
pub(super) struct Passage {
    /// The arrivals of this host's members that have not been answered, by member and number.
    own: BTreeMap<(Tid, u64), OwnArrival>,
    held: Vec<Arrival>,
    /// The members that have arrived at the present barrier, and those that are expected because they did so at the barrier
    /// before.
    seen: BTreeSet<Tid>,
    expected: BTreeSet<Tid>,
    /// When `held` is sent, at the latest.
    hold_until: Option<Time>,
    /// When the arrivals that are not direct are sent again.
    repeat_at: Option<Time>,
    /// The host that has repeated the last release, and the release, until the next arrival of a member shows whether it
    /// had heard the release before.
    repeated: Option<(Tid, Release)>,
    /// The release that this host knows last, or the anchor of the chain. If there is none, only [`Frame::BarrierEnded`] answers
    /// arrivals.
    known: Option<Release>,
}

/// How a barrier has ended, as a host is told.
pub struct End<'a> {
    pub outcome: Result<(), Code>,
    pub release: Option<&'a Release>,
    /// Which barrier it was, if it was one of the whole group.
    pub passed: Option<Passed>,
    /// Whether the host should have heard of it in another way.
    pub is_late: bool,
}

/// What a host reports when the master takes the barriers back.
#[derive(Default)]
pub struct Report {
    /// The number of barriers that were released here since the coordinator was appointed.
    pub passed: u32,
    /// The arrivals at the barrier after these.
    pub arrivals: Vec<Arrival>,
}

impl Passage {
    /// Returns when [`Group::arrivals_on_time`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.hold_until.into_iter().chain(self.repeat_at).min()
    }

    /// Returns the first arrival of a member that has not been answered. (Threads of a member may arrive several times.)
    fn first_of(&self, tid: Tid) -> Option<(Tid, u64)> {
        self.own.range((tid, 0)..=(tid, u64::MAX)).next().map(|(key, _)| *key)
    }

    /// Returns the arrivals of a member that have not been answered.
    fn of_member(&mut self, tid: Tid) -> impl Iterator<Item = &mut OwnArrival> {
        self.own.range_mut((tid, 0)..=(tid, u64::MAX)).map(|(_, own)| own)
    }

    /// Adds an arrival. Returns whether nobody else is expected, so that the arrivals are to be sent now.
    fn add(&mut self, arrival: Arrival) -> bool {
        if self.seen.contains(&arrival.tid) {
            // All members of the earlier barrier have arrived there, so this is the next barrier.
            self.expected = std::mem::take(&mut self.seen);
        }
        self.expected.remove(&arrival.tid);
        self.seen.insert(arrival.tid);
        self.held.push(arrival);
        self.expected.is_empty()
    }

    /// Begins a new chain of releases, or goes on without one, for other members or at another place.
    pub fn begin_anew(&mut self, anchor: Option<Release>) {
        self.repeated = None;
        self.seen.clear();
        self.expected.clear();
        self.known = anchor;
    }

    /// Returns the arrivals of this host's members that are not direct, for the master: now they are.
    fn hand_over(&mut self) -> Vec<Arrival> {
        self.repeat_at = None;
        self.held.clear();
        let due = self.own.values_mut().filter_map(|own| {
            let was_direct = std::mem::replace(&mut own.is_direct, true);
            (!was_direct).then(|| own.arrival.clone())
        });
        due.collect()
    }

    pub fn has_arrivals(&self) -> bool {
        !self.own.is_empty()
    }

    /// Begins anew with another master: returns all arrivals that have not been answered, for it. It need not know how many
    /// members the group had.
    pub fn all_for_successor(&mut self) -> Vec<Arrival> {
        self.hand_over();
        self.begin_anew(None);
        self.hold_until = None;
        let count = |own: &OwnArrival| match own.arrival.count {
            ALL_MEMBERS => own.size as i32,
            count => count,
        };
        self.own.values().map(|own| Arrival { count: count(own), ..own.arrival.clone() }).collect()
    }

    /// Stops to follow the coordinator: returns what the master must know to take the barriers back.
    pub fn report(&mut self) -> Report {
        self.hand_over();
        let passed = self.known.as_ref().map_or(0, |known| known.index);
        self.begin_anew(None);
        let arrivals = self.own.values().map(|own| own.arrival.clone()).collect();
        Report { passed, arrivals }
    }
}

impl Group {
    /// Lets a member of this host arrive.
    pub fn arrive(&mut self, core: &mut Core, shared: &mut Shared, (from, wait): (Tid, u32), count: i32, lan: bool) {
        if let Some((by, _)) = self.barrier.passage.repeated.take() {
            core.send_host(by, Frame::ReleaseMissed);
        }
        if self.instance_of(from).is_none() {
            return core.reply(from, wait, Err(self.code_for_strangers()));
        }
        shared.last_turn += 1;
        let arrival = Arrival { tid: from, turn: shared.last_turn, version: self.version, count, lan };
        let is_whole = count == ALL_MEMBERS || usize::try_from(count) == Ok(self.size());
        let is_first = self.barrier.passage.first_of(from).is_none();
        let goes_elsewhere = self.barrier.coordinator().is_some() || !core.is_master() && self.only_host().is_none();
        let is_direct = !(is_whole && is_first && goes_elsewhere);
        if !is_first {
            // The master takes no arrival of a member after a later one, and takes the later one for a sign that this host knows
            // the last release. An earlier one that it gets again shows that this host does not.
            self.barrier.passage.of_member(from).for_each(|own| own.is_direct = false);
            self.send_again(core, shared);
        }
        let own = OwnArrival { wait, arrival: arrival.clone(), is_direct, is_gone: false, size: self.size() };
        self.barrier.passage.own.insert((from, arrival.turn), own);
        if is_direct {
            self.send_to_master(core, shared, vec![arrival]);
        } else {
            self.pass_on(core, shared, arrival);
        }
    }

    /// Returns why a task that is no member cannot arrive.
    pub(super) fn code_for_strangers(&self) -> Code {
        if self.broken { Code::NoGroup } else { Code::NotInGroup }
    }

    /// Handles arrivals that a host has sent: to the coordinator with that chain, or to the master.
    pub fn arrived(
        &mut self,
        core: &mut Core,
        shared: &mut Shared,
        from: Tid,
        arrivals: Vec<Arrival>,
        chain: Option<u32>,
    ) {
        match chain {
            Some(chain) => self.arrived_at_coordinator(core, shared, from, arrivals, chain),
            None if core.is_master() => self.arrived_at_master(core, shared, from, arrivals),
            None => {}
        }
    }

    /// Adds an arrival to those that are kept here. Sends all of them if nobody else is expected.
    fn pass_on(&mut self, core: &mut Core, shared: &mut Shared, arrival: Arrival) {
        match self.barrier.passage.add(arrival) {
            true => self.send_held(core, shared),
            false => _ = self.barrier.passage.hold_until.get_or_insert(core.now + HOLD),
        }
    }

    /// Sends the arrivals that are kept here to the coordinator or the master.
    pub(super) fn send_held(&mut self, core: &mut Core, shared: &mut Shared) {
        self.barrier.passage.hold_until = None;
        let arrivals = std::mem::take(&mut self.barrier.passage.held);
        if arrivals.is_empty() {
            return;
        }
        let can_reach = |host: &Tid| *host == core.own_host() || core.links.has_session(*host);
        let coordinator = self.barrier.coordinator().filter(can_reach);
        let to = coordinator.unwrap_or(core.hosts.master());
        let passage = &mut self.barrier.passage;
        let chain = passage.known.as_ref().filter(|_| coordinator.is_some()).map(|known| known.chain);
        for arrival in &arrivals {
            let own = passage.own.get_mut(&(arrival.tid, arrival.turn));
            own.into_iter().for_each(|own| own.is_direct = to == core.hosts.master());
        }
        if passage.own.values().any(|own| !own.is_direct) {
            passage.repeat_at.get_or_insert(core.now + SEND_AGAIN_AFTER);
        }
        match to == core.own_host() {
            true => self.arrived(core, shared, to, arrivals, chain),
            false => core.send_host(to, Frame::Arrived { id: self.id, arrivals, chain }),
        }
    }

    pub(super) fn send_to_master(&mut self, core: &mut Core, shared: &mut Shared, arrivals: Vec<Arrival>) {
        match core.is_master() {
            true => self.arrived_at_master(core, shared, core.own_host(), arrivals),
            false => core.send_master(Frame::Arrived { id: self.id, arrivals, chain: None }),
        }
    }

    /// Sends to the master the arrivals of this host's members that it may not have.
    fn send_again(&mut self, core: &mut Core, shared: &mut Shared) {
        let arrivals = self.barrier.passage.hand_over();
        if !arrivals.is_empty() {
            self.send_to_master(core, shared, arrivals);
        }
    }

    /// Sends the arrivals that are due.
    pub(super) fn arrivals_on_time(&mut self, core: &mut Core, shared: &mut Shared) {
        let now = core.now;
        let is_due = |when: Option<Time>| when.is_some_and(|when| when <= now);
        if is_due(self.barrier.passage.hold_until) {
            // They are late: nothing is kept back any more.
            self.barrier.passage.expected.clear();
            self.send_held(core, shared);
        }
        if is_due(self.barrier.passage.repeat_at) {
            self.send_again(core, shared);
        }
    }

    /// Sends the arrivals of a task that is about to leave to the master, so that they precede the news of its end. If
    /// there is a coordinator, the master will ask for them when it has these news.
    pub fn arriver_leaves(&mut self, core: &mut Core, tid: Tid) {
        let has_coordinator = self.barrier.coordinator().is_some();
        let passage = &mut self.barrier.passage;
        if !has_coordinator {
            passage.held.retain(|arrival| arrival.tid != tid);
        }
        // They are kept until they are answered, because the master may die.
        for own in passage.of_member(tid) {
            own.is_gone = true;
            if !has_coordinator && !std::mem::replace(&mut own.is_direct, true) {
                core.send_master(Frame::Arrived { id: self.id, arrivals: vec![own.arrival.clone()], chain: None });
            }
        }
    }

    // ----- the end of a barrier

    /// Begins a new chain of releases, and lets the members on this host hear them themselves. So a release need not wake
    /// the daemon first. They do not hear those of a coordinator: if it dies, the master must learn from the hosts what it
    /// has released.
    pub fn begin_chain_here(&mut self, core: &mut Core, anchor: Release) {
        let own = core.own_host();
        self.barrier.passage.begin_anew(Some(anchor.clone()));
        let anchor = Some(anchor).filter(|_| self.barrier.coordinator().is_none());
        // The master may not know yet that a member has gone.
        let hears = |tid: &Tid| tid.host() == own && core.tasks.takes_frames(*tid);
        let members: Vec<Tid> = self.members().map(|(_, tid)| tid).filter(hears).collect();
        let tasks = if anchor.is_some() { members.clone() } else { Vec::new() };
        if !members.is_empty() {
            core.push(Action::HearBroadcasts { tasks });
        }
        for to in members {
            core.send(to, ToTask::Chain { group: self.id, anchor: anchor.clone() });
        }
    }

    /// Handles a release that a member on this host has heard itself. The member does not wait any more.
    pub fn heard(&mut self, core: &mut Core, from: Tid, release: &Release) {
        if self.instance_of(from).is_none() {
            return;
        }
        // The member did not need the repetition.
        self.barrier.passage.repeated.take_if(|(_, repeated)| repeated == release);
        // Not accepted if the chain has ended meanwhile, or if the release was repeated here: then the member was answered.
        let _ = self.released(core, release, from);
    }

    /// Handles the news that the barrier of these arrivals has ended: of the master, or of the coordinator. If it is
    /// late, this host notes who repeats it.
    pub fn barrier_ended(&mut self, core: &mut Core, from: Tid, ended: &[(Tid, u64)], end: End<'_>) {
        let End { outcome, release, passed, is_late } = end;
        let is_of_coordinator = self.barrier.coordinator() == Some(from) && self.is_proven(core, outcome, release);
        if from != core.hosts.master() && !is_of_coordinator {
            return;
        }
        if let Some(passed) = passed.filter(|passed| from == core.hosts.master() && passed.version <= self.version) {
            self.barrier.passed = self.barrier.passed.max(passed);
        }
        let passage = &mut self.barrier.passage;
        if let (Some(known), Some(release)) = (&mut passage.known, release) {
            known.told(release);
        }
        let answers: Vec<OwnArrival> = ended.iter().filter_map(|key| passage.own.remove(key)).collect();
        passage.repeat_at.take_if(|_| passage.own.values().all(|own| own.is_direct));
        if let Some(release) = release.filter(|_| is_late && !answers.is_empty()) {
            passage.repeated = Some((from, release.clone()));
        }
        let reply = outcome.map(|()| release.cloned().map_or(Reply::Done, Reply::Released));
        for own in answers.iter().filter(|own| !own.is_gone) {
            core.reply(own.arrival.tid, own.wait, reply.clone());
        }
    }

    /// Returns whether a coordinator may say that a barrier has ended so: only with a release of its chain.
    fn is_proven(&mut self, core: &Core, outcome: Result<(), Code>, release: Option<&Release>) -> bool {
        let Some(release) = release.filter(|_| outcome.is_ok()) else { return false };
        let Some(known) = &self.barrier.passage.known else { return false };
        release.chain == known.chain && release.index <= known.index || self.accept(core, release).is_ok()
    }

    /// Accepts a release that anybody may have sent, if it is the next one of the chain.
    fn accept(&mut self, core: &Core, release: &Release) -> Result<(), DatagramError> {
        let one_way = core.settings.one_way.as_ref().ok_or(DatagramError::Unexpected)?;
        let known = self.barrier.passage.known.as_mut().ok_or(DatagramError::Unexpected)?;
        let before = known.index;
        known.accept(release, one_way.function)?;
        self.barrier.passed = self.barrier.passed.later(self.version, release.index - before);
        Ok(())
    }

    /// Handles a release that anybody may have sent. `heard_by`: the member that has heard it itself, if any, and does not
    /// wait any more.
    ///
    /// The master ends a chain before it changes the members, and so does this host. So if the release is of the chain
    /// that this host knows, it releases exactly the members that this host knows, and all arrivals of this host that
    /// were not answered before.
    pub fn released(&mut self, core: &mut Core, release: &Release, heard_by: Tid) -> Result<(), DatagramError> {
        self.accept(core, release)?;
        let passage = &mut self.barrier.passage;
        passage.repeat_at = None;
        let mut before = Tid::NONE;
        for (key, own) in std::mem::take(&mut passage.own) {
            if std::mem::replace(&mut before, key.0) == key.0 {
                // Another thread of the member has arrived at the next barrier.
                passage.own.insert(key, own);
            } else if !own.is_gone && key.0 != heard_by {
                core.reply(key.0, own.wait, Ok(Reply::Released(release.clone())));
            }
        }
        Ok(())
    }

    /// Answers the members of this host that wait at the barrier of a group that has ended.
    pub fn end_arrivals(&mut self, core: &mut Core) {
        let own = std::mem::take(&mut self.barrier.passage.own);
        for ((tid, _), own) in own.into_iter().filter(|(_, own)| !own.is_gone) {
            core.reply(tid, own.wait, Err(Code::NoGroup));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_kept_until_those_who_came_before_have_arrived() {
        let mut passage = Passage::default();
        let arrival = |tid, turn| Arrival { tid: Tid(tid), turn, version: 0, count: -1, lan: false };
        assert!(passage.add(arrival(1, 1)) && passage.add(arrival(2, 2)), "nobody was here before");
        assert!(!passage.add(arrival(2, 3)));
        assert!(passage.add(arrival(1, 4)));
        assert!(!passage.add(arrival(1, 5)));
        assert!(!passage.add(arrival(3, 6)));
        assert!(passage.add(arrival(2, 7)));
        assert!(!passage.add(arrival(1, 8)) && !passage.add(arrival(2, 9)) && passage.add(arrival(3, 10)));
        passage.expected.clear();
        assert!(!passage.add(arrival(3, 11)), "a new barrier");
    }
}
