//! Replicas of groups: each host keeps a page for its tasks, which follows the decisions of the master.
//!
//! A host learns of a group when one of its tasks asks for it; from then on the master sends it every change until the
//! group ends. A join or leave is answered when all hosts with a replica have acknowledged the change. So when the call
//! of a task that joins or leaves returns, all hosts with a replica know the change.
use super::barrier::{Report, Shared};
use super::{Group, Groups, NO_ACK, NO_MEMBER, act};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::GroupAction;
use crate::machine::index::PairIndex;
use crate::machine::pending_acks::Ack;
use crate::proto::{ByteBuf, Reply, Request};
use crate::tid::Tid;
use crate::wire::{Backup, Frame, GroupChange, GroupState, Taken};
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
    /// The arrivals that were taken out of the page, until their barrier has ended, and the number of that report.
    pub taken: Option<(u32, Taken)>,
    /// How often arrivals were taken out.
    takes: u32,
    /// At the master: other hosts with a replica.
    hosts: BTreeSet<Tid>,
}

impl Replica {
    /// Returns whether this host has a page of the group.
    pub fn is_made(&self) -> bool {
        self.page == PageState::Ready
    }
    /// Returns whether this host has a page of the group, or makes one.
    pub fn has_page(&self) -> bool {
        self.page != PageState::None
    }
    /// Notes the arrivals that were taken out of the page. Returns them, and the number of this report.
    pub fn note_taken(&mut self, taken: Taken) -> (u32, Taken) {
        self.takes = self.takes.wrapping_add(1);
        self.taken = Some((self.takes, taken.clone())).filter(|(_, taken)| taken.need > 0);
        (self.takes, taken)
    }
    /// Notes that a host has no replica, as far as it is known.
    pub fn forget(&mut self, host: Tid) {
        self.hosts.remove(&host);
    }
    /// Takes over from the former master which other hosts have a replica.
    pub fn take_hosts(&mut self, hosts: BTreeSet<Tid>) {
        self.hosts = hosts;
    }
    /// Drops what only the master knows.
    pub fn resign(&mut self) {
        self.hosts.clear();
    }
    /// Returns the other hosts with a replica, at the master.
    pub fn hosts(&self) -> Vec<Tid> {
        self.hosts.iter().copied().collect()
    }
}

/// The replicas of all groups.
#[derive(Default)]
pub(super) struct Replicas {
    /// For each group whose page is being made: the tasks of this host that are to get the page (task, wait id,
    /// instance number).
    page_requests: BTreeMap<u64, Vec<(Tid, u32, i32)>>,
}

impl Replicas {
    pub fn is_idle(&self) -> bool {
        self.page_requests.is_empty()
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
    /// The deferred answers, by the number of the change.
    deferred: BTreeMap<u64, DeferredAnswer>,
    /// The changes that each host has not acknowledged.
    unacknowledged: PairIndex<Tid, u64>,
}

impl ChangeAcks {
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
        if matches!(change, GroupChange::Joined { .. } | GroupChange::Gone { .. }) {
            self.with(id, |group, shared| group.barrier_members_changed(core, shared));
        }
        let Some(group) = self.groups.get_mut(&id) else { return NO_ACK };
        if core.changes.are_kept {
            let name = ByteBuf::from(group.name.clone());
            core.changes.groups.push(Backup::GroupChanged { id, name, change: change.clone() });
        }
        if let GroupChange::Joined { tid, .. } = change {
            group.barrier.member_came(tid, group.version);
        }
        let hosts = group.replica.hosts();
        let mut waited: BTreeSet<Tid> = hosts.iter().copied().filter(|host| *host != asking_host).collect();
        if asking_host == Tid::NONE {
            waited.clear();
        }
        let number = if waited.is_empty() { NO_ACK } else { self.shared.next_change() };
        let change_acks = &mut self.change_acks;
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
    pub(super) fn replica_host_gone(&mut self, core: &mut Core, host: Tid) {
        self.groups.values_mut().for_each(|group| _ = group.replica.hosts.remove(&host));
        for number in self.change_acks.unacknowledged.take(host) {
            self.count_ack(core, number);
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
            core.send_master(Frame::Request { wait: 0, from: to, request, again: false });
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
        let Some(mut group) = self.remove(id) else { return };
        if group.replica.page == PageState::Requested {
            // The page is being made; the daemon closes it after that.
            act(core, id, GroupAction::Close);
        }
        for (to, wait, _) in self.replicas.page_requests.remove(&id).unwrap_or_default() {
            core.reply(to, wait, Err(Code::NoGroup));
        }
        group.end_arrivals(core);
    }

    // ----- hosts other than the master

    /// Adds a group that this host replicates from now on.
    pub fn replicate(&mut self, core: &mut Core, state: GroupState) {
        let GroupState { id, name, members, frozen, broken, meets_here, version, chain } = state;
        let mut group = Group::known(id, name.into_vec(), &members, (frozen, broken), version);
        group.replica.meets_here = meets_here;
        chain.into_iter().for_each(|anchor| group.begin_chain_here(core, anchor));
        self.insert(group);
    }

    /// Handles a change that the master has sent.
    pub fn change_received(&mut self, core: &mut Core, id: u64, number: u64, change: &GroupChange) {
        self.follow(core, id, change);
        if number != NO_ACK {
            core.send_master(Frame::GroupSeen { number });
        }
    }

    /// Applies a change to this host's replica.
    pub(super) fn follow(&mut self, core: &mut Core, id: u64, change: &GroupChange) {
        match change {
            GroupChange::Close => {
                self.act_on_page(core, id, GroupAction::Close);
                self.forget_group(core, id);
            }
            // The master waits for the report even if the group has ended here.
            GroupChange::Recall { number } => {
                let report = self.with(id, |group, _| group.recalled(core)).unwrap_or_default();
                let (number, Report { passed, arrivals }) = (*number, report);
                core.send_master(Frame::Recalled { id, number, passed, arrivals });
            }
            // The same if the former master has died before it could tell this host of the group.
            GroupChange::Take if self.by_id(id).is_none() => {
                core.send_master(Frame::GroupTaken { id, number: 0, taken: Taken::default() });
            }
            change => _ = self.with(id, |group, shared| group.follow(core, shared, change)),
        }
    }
}

impl Group {
    /// Sends a change that the host need not acknowledge.
    pub fn tell_host(&self, core: &mut Core, host: Tid, change: GroupChange) {
        core.send_host(host, Frame::GroupChanged { id: self.id, number: NO_ACK, change });
    }

    /// At the master: sends the group to another host, which replicates the group from now on.
    pub fn subscribe(&mut self, core: &mut Core, host: Tid) {
        if host == core.own_host() || !self.replica.hosts.insert(host) {
            return;
        }
        let (name, members) = (ByteBuf::from(self.name().to_vec()), self.members().collect());
        let (meets_here, chain) = (self.barrier.meets_in_page_of(host), self.barrier.chain());
        let (id, frozen, broken, version) = (self.id, self.frozen, self.broken, self.version);
        core.send_host(
            host,
            Frame::GroupKnown(GroupState { id, name, members, frozen, broken, meets_here, version, chain }),
        );
    }

    /// Applies a change of the members.
    pub(super) fn change_members(&mut self, change: &GroupChange) {
        match change {
            GroupChange::Joined { instance, tid } => {
                self.put(*instance, *tid);
                self.shortage.member_joined();
            }
            GroupChange::Gone { instance } => {
                let size = self.size();
                if let Some(tid) = self.tid_of(*instance) {
                    self.remove(tid);
                    self.barrier.member_gone(tid);
                    self.shortage.member_left(size);
                }
            }
            GroupChange::Freeze => self.frozen = true,
            GroupChange::Break => self.broken = true,
            _ => {}
        }
    }

    /// Applies a change to this host's replica.
    fn follow(&mut self, core: &mut Core, shared: &mut Shared, change: &GroupChange) {
        match change {
            GroupChange::Joined { .. } | GroupChange::Gone { .. } | GroupChange::Freeze | GroupChange::Break => {
                self.change_members(change);
            }
            GroupChange::Chain(anchor) => self.begin_chain_here(core, anchor.clone()),
            GroupChange::Prepare { by } => self.prepare_for(core, *by),
            GroupChange::Coordinate { by, anchor, start, passed } => {
                self.coordinate(core, shared, *by, anchor, start.as_ref().map(|start| (start, *passed)));
            }
            GroupChange::Take | GroupChange::Give | GroupChange::Release { .. } => {
                self.page_ordered(core, shared, change);
            }
            GroupChange::Close | GroupChange::Recall { .. } => {}
        }
        if let Some(action) = action_of(change).filter(|_| self.replica.is_made()) {
            act(core, self.id, action);
        }
        if matches!(change, GroupChange::Joined { .. } | GroupChange::Gone { .. }) {
            self.barrier_members_changed(core, shared);
        }
        if matches!(change, GroupChange::Gone { .. } | GroupChange::Break) {
            self.examine_barrier(core, shared);
        }
    }
}

/// Returns the action that applies a change of the members to a page.
fn action_of(change: &GroupChange) -> Option<GroupAction> {
    Some(match change {
        GroupChange::Joined { instance, tid } => GroupAction::Joined { instance: *instance, tid: *tid },
        GroupChange::Gone { instance } => GroupAction::Gone { instance: *instance },
        GroupChange::Freeze => GroupAction::Freeze,
        GroupChange::Break => GroupAction::Break,
        GroupChange::Close => GroupAction::Close,
        _ => return None,
    })
}
