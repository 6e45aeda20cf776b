//! Replicas of groups: each host keeps a page for its tasks, which follows the decisions of the master.
//!
//! A host learns of a group when one of its tasks asks for it; from then on the master sends it every change until the
//! group ends. A join or leave is answered when all hosts with a replica have acknowledged the change. So when the call
//! of a task that joins or leaves returns, all hosts with a replica know the change.
use super::arrivals::end_arrivals;
use super::chain::KnownChain;
use super::combining::end_combining;
use super::{Group, Groups, NO_ACK, NO_MEMBER, act};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::GroupAction;
use crate::machine::index::PairIndex;
use crate::machine::pending_acks::Ack;
use crate::proto::{ByteBuf, Reply, Request};
use crate::tid::Tid;
use crate::wire::Taken;
use crate::wire::{Frame, GroupChange, GroupState};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a page.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum PageState {
    #[default]
    None,
    Requested,
    Ready,
}

/// The replica of a group on this host.
#[derive(Default)]
pub(super) struct Replica {
    page: PageState,
    /// Whether members that reach the barrier arrive in this host's page.
    pub meets_here: bool,
    /// Whether the master has ordered this host to send the arrivals in its page, and waits for them.
    pub take_ordered: bool,
    /// At the master: other hosts with a replica.
    hosts: BTreeSet<Tid>,
}

impl Replica {
    /// Returns whether this host has a page of the group.
    pub fn is_made(&self) -> bool {
        self.page == PageState::Ready
    }
    /// Returns the other hosts with a replica, at the master.
    pub fn hosts(&self) -> Vec<Tid> {
        self.hosts.iter().copied().collect()
    }
}

/// The replicas of all groups.
#[derive(Default)]
pub(super) struct Replicas {
    /// At the master: the groups that each other host replicates.
    by_host: PairIndex<Tid, u64>,
    /// For each group whose page is being made: the tasks of this host that are to get the page (task, wait id,
    /// instance number).
    page_requests: BTreeMap<u64, Vec<(Tid, u32, i32)>>,
}

impl Replicas {
    pub fn is_idle(&self) -> bool {
        self.by_host.is_empty() && self.page_requests.is_empty()
    }
}

/// An answer that waits until hosts have acknowledged a change.
struct DeferredAnswer {
    /// The number of acknowledgements that are pending.
    missing: usize,
    /// Task, wait id and answer.
    answer: Option<(Tid, u32, Result<Reply, Code>)>,
}

/// Acknowledgements of changes of groups; at the master.
#[derive(Default)]
pub(super) struct ChangeAcks {
    /// The number assigned last to a change.
    last: u64,
    /// The deferred answers, by the number of the change.
    deferred: BTreeMap<u64, DeferredAnswer>,
    /// The changes that each host has not acknowledged.
    unacknowledged: PairIndex<Tid, u64>,
}

impl ChangeAcks {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
    pub fn is_idle(&self) -> bool {
        self.deferred.is_empty() && self.unacknowledged.is_empty()
    }
}

impl Groups {
    // ----- the master

    /// Applies a change to this host's page and sends it to all hosts with a replica. Returns the number that their
    /// acknowledgements carry. `asking_host`, the host of the task that asked for the change, does not acknowledge it,
    /// because the change reaches `asking_host` before the answer to that task does. If no task asked (`Tid::NONE`), no
    /// acknowledgements are requested.
    pub(super) fn change_group(&mut self, core: &mut Core, id: u64, change: GroupChange, asking_host: Tid) -> u64 {
        if let Some(action) = action_of(&change) {
            self.act_on_page(core, id, action);
        }
        let Some(group) = self.by_id(id) else { return NO_ACK };
        if matches!(change, GroupChange::Joined { .. } | GroupChange::Gone { .. }) {
            group.version += 1;
            group.arrivals.releases.end_chain();
        }
        if let GroupChange::Joined { tid, .. } = change {
            group.arrivals.member_came(tid, group.version);
        }
        let hosts = group.replica.hosts();
        let mut waited: BTreeSet<Tid> = hosts.iter().copied().filter(|host| *host != asking_host).collect();
        if asking_host == Tid::NONE {
            waited.clear();
        }
        let change_acks = &mut self.change_acks;
        let number = if waited.is_empty() { NO_ACK } else { change_acks.next() };
        if number != NO_ACK {
            change_acks.deferred.insert(number, DeferredAnswer { missing: waited.len(), answer: None });
            for host in &waited {
                change_acks.unacknowledged.insert(*host, number);
                core.acks.expect(*host, Ack::Group(number), core.now);
            }
        }
        for host in hosts {
            let number = if waited.contains(&host) { number } else { NO_ACK };
            core.send_host(host, Frame::GroupChanged { id, number, change: change.clone() });
        }
        number
    }

    /// Returns a number for an order that hosts acknowledge.
    pub(super) fn next_change(&mut self) -> u64 {
        self.change_acks.next()
    }

    /// Sends a group to another host, which replicates the group from now on.
    pub(super) fn subscribe(&mut self, core: &mut Core, id: u64, host: Tid) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|_| host != own) else { return };
        if !group.replica.hosts.insert(host) {
            return;
        }
        let (name, members) = (ByteBuf::from(group.name().to_vec()), group.members().collect());
        let meets_here = group.arrivals.is_at(host);
        let chain = group.arrivals.releases.chain(core.settings.one_way.as_ref());
        let (frozen, broken, version) = (group.frozen, group.broken, group.version);
        let state = GroupState { id, name, members, frozen, broken, meets_here, version, chain };
        self.replicas.by_host.insert(host, id);
        core.send_host(host, Frame::GroupKnown(state));
    }

    /// Answers as soon as all hosts have acknowledged a change.
    pub(super) fn answer_when_known(
        &mut self,
        core: &mut Core,
        number: u64,
        to: Tid,
        wait: u32,
        answer: Result<Reply, Code>,
    ) {
        match self.change_acks.deferred.get_mut(&number) {
            Some(deferred) => deferred.answer = Some((to, wait, answer)),
            None => self.answer_with_group(core, to, wait, answer),
        }
    }

    /// Handles a host's acknowledgement of a change.
    pub fn change_acknowledged(&mut self, core: &mut Core, host: Tid, number: u64) {
        core.acks.received(host, Ack::Group(number));
        if self.change_acks.unacknowledged.remove(host, number) {
            self.count_ack(core, number);
        }
    }

    /// Counts an acknowledgement; sends the answer after the last one.
    fn count_ack(&mut self, core: &mut Core, number: u64) {
        let Some(deferred) = self.change_acks.deferred.get_mut(&number) else { return };
        deferred.missing -= 1;
        if deferred.missing == 0 {
            let answer = self.change_acks.deferred.remove(&number).and_then(|deferred| deferred.answer);
            if let Some((to, wait, answer)) = answer {
                self.answer_with_group(core, to, wait, answer);
            }
        }
    }

    /// Handles the loss of a host with replicas.
    pub(super) fn replica_lost(&mut self, core: &mut Core, host: Tid) {
        let ids = self.replicas.by_host.take(host);
        for id in &ids {
            if let Some(group) = self.by_id(*id) {
                group.replica.hosts.remove(&host);
            }
        }
        for number in self.change_acks.unacknowledged.take(host) {
            self.count_ack(core, number);
        }
        // If members of a group arrive in the page of the lost host, `ids` includes the group, because that host has a
        // replica of it.
        for id in ids {
            self.arrivals_host_lost(core, id, host);
        }
    }

    /// Orders a host to act on its page, in which members arrive or have arrived.
    pub(super) fn order_group(&mut self, core: &mut Core, host: Tid, id: u64, change: GroupChange) {
        match host == core.own_host() {
            true => self.page_ordered(core, id, &change),
            false => core.send_host(host, Frame::GroupChanged { id, number: NO_ACK, change }),
        }
    }

    // ----- any host

    /// Answers a task; if the answer is a group, also sends the task the page of the group.
    pub fn answer_with_group(&mut self, core: &mut Core, to: Tid, wait: u32, answer: Result<Reply, Code>) {
        match answer {
            Ok(Reply::Group { id, instance }) if to.host() == core.own_host() => {
                self.show_group(core, id, to, wait, instance);
            }
            other => core.reply(to, wait, other),
        }
    }

    /// Sends a task the page of a group and the answer; the page is made if necessary.
    fn show_group(&mut self, core: &mut Core, id: u64, to: Tid, wait: u32, instance: i32) {
        let Some(group) = self.by_id(id) else {
            return core.reply(to, wait, Err(Code::NoGroup));
        };
        if group.replica.is_made() {
            act(core, id, GroupAction::Show { to, member: instance != NO_MEMBER });
            return core.reply(to, wait, Ok(Reply::Group { id, instance }));
        }
        self.replicas.page_requests.entry(id).or_default().push((to, wait, instance));
        self.make_page(core, id);
    }

    /// Orders the daemon to make the page of a group, unless there is one.
    pub(super) fn make_page(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        if group.replica.page == PageState::None {
            group.replica.page = PageState::Requested;
            act(core, id, GroupAction::Make);
        }
    }

    /// Acts on the page of a group, if there is one.
    fn act_on_page(&mut self, core: &mut Core, id: u64, action: GroupAction) {
        if self.by_id(id).is_some_and(|group| group.replica.is_made()) {
            act(core, id, action);
        }
    }

    /// Handles the result of [`GroupAction::Make`].
    pub fn page_made(&mut self, core: &mut Core, group: u64, made: bool) {
        let Some(found) = self.by_id(group) else {
            // The group has ended meanwhile.
            if made {
                act(core, group, GroupAction::Close);
            }
            return;
        };
        found.replica.page = if made { PageState::Ready } else { PageState::None };
        let page_requests = self.replicas.page_requests.remove(&group).unwrap_or_default();
        if made {
            self.fill_page(core, group);
        }
        self.admit_joiners(core, group, made);
        for (to, wait, instance) in page_requests {
            match made {
                true => self.show_group(core, group, to, wait, instance),
                false => self.refuse_page(core, group, to, wait, instance),
            }
        }
        if core.is_master() {
            self.drop_empty(core, group);
        }
    }

    /// Writes the state of a group into its new page.
    fn fill_page(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        let members: Vec<(u32, Tid)> = group.members().collect();
        let (frozen, broken, meets_here) = (group.frozen, group.broken, group.replica.meets_here);
        for (instance, tid) in members {
            act(core, id, GroupAction::Joined { instance, tid });
        }
        if frozen {
            act(core, id, GroupAction::Freeze);
        }
        if broken {
            act(core, id, GroupAction::Break);
        }
        // If the group has no members yet, its first member decides where members arrive.
        if !meets_here && self.by_id(id).is_some_and(|group| group.size() > 0) {
            act(core, id, GroupAction::Take);
        }
    }

    /// Refuses a task that cannot get the page; without the page the task cannot stay a member.
    fn refuse_page(&mut self, core: &mut Core, id: u64, to: Tid, wait: u32, instance: i32) {
        core.reply(to, wait, Err(Code::OutOfRes));
        let Some(name) = self.by_id(id).map(|group| group.name().to_vec()) else { return };
        if instance != NO_MEMBER && !core.is_master() {
            let request = Request::LeaveGroup(ByteBuf::from(name));
            // The answer is not awaited.
            core.send_master(Frame::Request { wait: 0, from: to, request });
        }
    }

    /// Drops a task's requests for the pages of groups.
    pub(super) fn forget_viewer(&mut self, tid: Tid) {
        self.replicas
            .page_requests
            .values_mut()
            .for_each(|page_requests| page_requests.retain(|(to, _, _)| *to != tid));
    }

    /// Drops a group that has ended.
    pub(super) fn forget_group(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.remove(id) else { return };
        if group.replica.page == PageState::Requested {
            // The page is being made; the daemon closes it after that.
            act(core, id, GroupAction::Close);
        }
        group.replica.hosts.iter().for_each(|host| _ = self.replicas.by_host.remove(*host, id));
        for (to, wait, _) in self.replicas.page_requests.remove(&id).unwrap_or_default() {
            core.reply(to, wait, Err(Code::NoGroup));
        }
        end_arrivals(core, group.arrivals);
        end_combining(core, group.combining);
    }

    // ----- hosts other than the master

    /// Adds a group that this host replicates from now on.
    pub fn replicate(&mut self, core: &mut Core, state: GroupState) {
        let GroupState { id, name, members, frozen, broken, meets_here, version, chain } = state;
        let mut group = Group::new(id, name.into_vec());
        members.into_iter().for_each(|(instance, tid)| group.put(instance, tid));
        (group.frozen, group.broken, group.replica.meets_here) = (frozen, broken, meets_here);
        (group.version, group.combining.known_chain) = (version, chain.map(KnownChain::new));
        self.insert(group);
        self.let_members_hear(core, id);
    }

    /// Handles a change that the master has sent.
    pub fn change_received(&mut self, core: &mut Core, id: u64, number: u64, change: &GroupChange) {
        self.follow(core, id, change);
        if number != NO_ACK {
            core.send_master(Frame::GroupSeen { number });
        }
    }

    /// Applies a change to this host's replica.
    fn follow(&mut self, core: &mut Core, id: u64, change: &GroupChange) {
        if let GroupChange::Recall { number } = change {
            return self.recalled(core, id, *number);
        }
        let Some(group) = self.by_id(id) else { return };
        match change {
            GroupChange::Joined { instance, tid } => {
                group.put(*instance, *tid);
                group.shortage.member_joined();
            }
            GroupChange::Gone { instance } => {
                let size = group.size();
                if let Some(tid) = group.tid_of(*instance) {
                    group.remove(tid);
                    group.shortage.member_left(size);
                }
            }
            GroupChange::Freeze => group.frozen = true,
            GroupChange::Break => group.broken = true,
            GroupChange::Close | GroupChange::Recall { .. } => {}
            GroupChange::Chain(anchor) => {
                group.combining.known_chain = Some(KnownChain::new(anchor.clone()));
                return self.let_members_hear(core, id);
            }
            GroupChange::Prepare { by } => return self.prepare_for(core, id, *by),
            GroupChange::Coordinate { by, anchor, start } => {
                return self.coordinate(core, id, *by, anchor, start.as_ref());
            }
            GroupChange::Take | GroupChange::Give | GroupChange::Release { .. } => {
                return self.page_ordered(core, id, change);
            }
        }
        if let Some(action) = action_of(change) {
            self.act_on_page(core, id, action);
        }
        if matches!(change, GroupChange::Joined { .. } | GroupChange::Gone { .. }) {
            self.members_changed(core, id);
        }
        match change {
            GroupChange::Gone { .. } | GroupChange::Break => self.examine_barrier(core, id),
            GroupChange::Close => self.forget_group(core, id),
            _ => {}
        }
    }

    /// Executes an order of the master: to use the page, to stop using it, or to release the members that wait in it.
    fn page_ordered(&mut self, core: &mut Core, id: u64, change: &GroupChange) {
        let Some(group) = self.by_id(id) else { return };
        let made = group.replica.is_made();
        match change {
            GroupChange::Take => (group.replica.meets_here, group.replica.take_ordered) = (false, true),
            GroupChange::Give => {
                group.replica.meets_here = true;
                group.shortage.place_changed();
            }
            _ => {}
        }
        match (made, change) {
            (true, change) => action_of(change).into_iter().for_each(|action| act(core, id, action)),
            // No member can have arrived.
            (false, GroupChange::Take) => self.arrivals_taken(core, id, Taken::default()),
            (false, _) => {}
        }
    }
}

/// Returns the action that applies a change to a page, if the change concerns the page.
fn action_of(change: &GroupChange) -> Option<GroupAction> {
    Some(match change {
        GroupChange::Joined { instance, tid } => GroupAction::Joined { instance: *instance, tid: *tid },
        GroupChange::Gone { instance } => GroupAction::Gone { instance: *instance },
        GroupChange::Freeze => GroupAction::Freeze,
        GroupChange::Break => GroupAction::Break,
        GroupChange::Close => GroupAction::Close,
        GroupChange::Take => GroupAction::Take,
        GroupChange::Give => GroupAction::Give,
        GroupChange::Release { opened } => GroupAction::Release { opened: *opened },
        GroupChange::Chain(_)
        | GroupChange::Prepare { .. }
        | GroupChange::Coordinate { .. }
        | GroupChange::Recall { .. } => return None,
    })
}
