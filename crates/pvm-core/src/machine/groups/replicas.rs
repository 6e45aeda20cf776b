//! What a host keeps of a group: memory for its tasks, which follows what the master decides.
//!
//! A host gets to know a group when one of its tasks asks for it, and from then on every change
//! until the group ends. Who has joined or left is answered when all hosts that keep the group know:
//! so nobody meets a member that he cannot find in the group.
use super::group::Group;
use super::{Groups, NO_MEMBER, act};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::{GroupAction, Taken};
use crate::machine::index::Index;
use crate::machine::pending_acks::Ack;
use crate::proto::{ByteBuf, Reply, Request};
use crate::tid::Tid;
use crate::wire::{Frame, GroupChange, GroupState};
use std::collections::{BTreeMap, BTreeSet};

/// The number of a change of which no other host needs to be told.
pub(in crate::machine) const NOBODY_ELSE: u64 = 0;

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Memory {
    #[default]
    None,
    Asked,
    Made,
}

/// What this host keeps of a group.
#[derive(Default)]
pub(super) struct Replica {
    memory: Memory,
    /// Whether members meet in this host's memory.
    pub meets_here: bool,
    /// Whether the master waits to hear what has been taken out of it.
    pub is_awaited: bool,
    /// At the master: other hosts that keep the group.
    hosts: BTreeSet<Tid>,
}

impl Replica {
    pub fn is_made(&self) -> bool {
        self.memory == Memory::Made
    }
}

/// What is kept, over all groups.
#[derive(Default)]
pub(super) struct Replicas {
    /// At the master: which groups each other host keeps.
    by_host: Index<Tid, u64>,
    /// Tasks of this host that have been told of a group of which the memory is being made, and are
    /// to see it: task, request, instance.
    showing: BTreeMap<u64, Vec<(Tid, u32, i32)>>,
}

impl Replicas {
    pub fn is_idle(&self) -> bool {
        self.by_host.is_empty() && self.showing.is_empty()
    }
}

/// An answer that waits until so many other hosts know of a change.
struct Unconfirmed {
    missing: usize,
    answer: Option<(Tid, u32, Result<Reply, Code>)>,
}

/// Changes of groups on their way to other hosts.
#[derive(Default)]
pub(super) struct Spreading {
    last: u64,
    unconfirmed: BTreeMap<u64, Unconfirmed>,
    /// The changes of which each host has not said that it knows.
    unaware: Index<Tid, u64>,
}

impl Spreading {
    pub fn is_idle(&self) -> bool {
        self.unconfirmed.is_empty() && self.unaware.is_empty()
    }
}

impl Groups {
    // ----- the master

    /// A group has changed: this host's memory follows, and all hosts that keep it are told. Gives
    /// the number under which they say that they know; the host of the task that is `asking`
    /// knows by its answer. Nobody says anything when nobody asks.
    pub fn change_group(&mut self, core: &mut Core, id: u64, change: GroupChange, asking: Tid) -> u64 {
        self.in_memory(core, id, action_of(&change));
        let Some(group) = self.by_id(id) else { return NOBODY_ELSE };
        let hosts: Vec<Tid> = group.replica.hosts.iter().copied().collect();
        let mut waited: BTreeSet<Tid> = hosts.iter().copied().filter(|host| *host != asking).collect();
        if asking == Tid::NONE {
            waited.clear();
        }
        let spreading = &mut self.spreading;
        let number = if waited.is_empty() { NOBODY_ELSE } else { spreading.last + 1 };
        if number != NOBODY_ELSE {
            spreading.last = number;
            spreading.unconfirmed.insert(number, Unconfirmed { missing: waited.len(), answer: None });
            for host in &waited {
                spreading.unaware.insert(*host, number);
                core.acks.expect(*host, Ack::Group(number), core.now);
            }
        }
        for host in hosts {
            let number = if waited.contains(&host) { number } else { NOBODY_ELSE };
            core.send_host(host, Frame::GroupChanged { id, number, change: change.clone() });
        }
        number
    }

    /// Another host keeps the group from now on.
    pub fn subscribe(&mut self, core: &mut Core, id: u64, host: Tid) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|_| host != own) else { return };
        if !group.replica.hosts.insert(host) {
            return;
        }
        let (name, members) = (ByteBuf::from(group.name().to_vec()), group.members().collect());
        let meets_here = group.arrivals.is_at(host);
        let state = GroupState { id, name, members, frozen: group.frozen, broken: group.broken, meets_here };
        self.replicas.by_host.insert(host, id);
        core.send_host(host, Frame::GroupKnown(state));
    }

    /// Answers as soon as all hosts know of a change.
    pub fn answer_when_known(&mut self, core: &mut Core, number: u64, to: Tid, wait: u32, answer: Result<Reply, Code>) {
        match self.spreading.unconfirmed.get_mut(&number) {
            Some(unconfirmed) => unconfirmed.answer = Some((to, wait, answer)),
            None => self.answer_with_group(core, to, wait, answer),
        }
    }

    /// A host knows of a change.
    pub fn change_known(&mut self, core: &mut Core, host: Tid, number: u64) {
        core.acks.received(host, Ack::Group(number));
        if self.spreading.unaware.remove(host, number) {
            self.one_more_knows(core, number);
        }
    }

    fn one_more_knows(&mut self, core: &mut Core, number: u64) {
        let Some(unconfirmed) = self.spreading.unconfirmed.get_mut(&number) else { return };
        unconfirmed.missing -= 1;
        if unconfirmed.missing == 0 {
            let answer = self.spreading.unconfirmed.remove(&number).and_then(|unconfirmed| unconfirmed.answer);
            if let Some((to, wait, answer)) = answer {
                self.answer_with_group(core, to, wait, answer);
            }
        }
    }

    /// A host is lost, and keeps nothing.
    pub fn replica_lost(&mut self, core: &mut Core, host: Tid) {
        let ids = self.replicas.by_host.take(host);
        for id in &ids {
            if let Some(group) = self.by_id(*id) {
                group.replica.hosts.remove(&host);
            }
        }
        for number in self.spreading.unaware.take(host) {
            self.one_more_knows(core, number);
        }
        // Where members meet keeps the group.
        for id in ids {
            self.arrivals_without(core, id, host);
        }
    }

    /// Has a host do something with its memory of a group, at which members meet or have met.
    pub fn order_group(&mut self, core: &mut Core, host: Tid, id: u64, change: GroupChange) {
        match host == core.own_host() {
            true => self.page_ordered(core, id, &change),
            false => core.send_host(host, Frame::GroupChanged { id, number: NOBODY_ELSE, change }),
        }
    }

    // ----- any host

    /// An answer to a task; with one that is a group comes its memory.
    pub fn answer_with_group(&mut self, core: &mut Core, to: Tid, wait: u32, answer: Result<Reply, Code>) {
        match answer {
            Ok(Reply::Group { id, instance }) if to.host() == core.own_host() => {
                self.show_group(core, id, to, wait, instance);
            }
            other => core.reply(to, wait, other),
        }
    }

    fn show_group(&mut self, core: &mut Core, id: u64, to: Tid, wait: u32, instance: i32) {
        let Some(group) = self.by_id(id) else {
            return core.reply(to, wait, Err(Code::NoGroup));
        };
        if group.replica.is_made() {
            act(core, id, GroupAction::Show { to, member: instance != NO_MEMBER });
            return core.reply(to, wait, Ok(Reply::Group { id, instance }));
        }
        self.replicas.showing.entry(id).or_default().push((to, wait, instance));
        self.make_memory(core, id);
    }

    /// Has the memory of a group made, if it is not.
    pub fn make_memory(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.by_id(id) else { return };
        if group.replica.memory == Memory::None {
            group.replica.memory = Memory::Asked;
            act(core, id, GroupAction::Make);
        }
    }

    fn in_memory(&mut self, core: &mut Core, id: u64, action: GroupAction) {
        if self.by_id(id).is_some_and(|group| group.replica.is_made()) {
            act(core, id, action);
        }
    }

    /// A group has its memory, or there was none to be had.
    pub fn made(&mut self, core: &mut Core, group: u64, made: bool) {
        let Some(found) = self.by_id(group) else {
            // It has ended meanwhile.
            if made {
                act(core, group, GroupAction::Close);
            }
            return;
        };
        found.replica.memory = if made { Memory::Made } else { Memory::None };
        let showing = self.replicas.showing.remove(&group).unwrap_or_default();
        if made {
            self.fill_memory(core, group);
        }
        self.let_joiners_in(core, group, made);
        for (to, wait, instance) in showing {
            match made {
                true => self.show_group(core, group, to, wait, instance),
                false => self.cannot_show(core, group, to, wait, instance),
            }
        }
        if core.is_master() {
            self.drop_empty(core, group);
        }
    }

    /// Writes what is known of a group into its fresh memory.
    fn fill_memory(&mut self, core: &mut Core, id: u64) {
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
        // A group without members will meet where the first one is.
        if !meets_here && self.by_id(id).is_some_and(|group| group.size() > 0) {
            act(core, id, GroupAction::Take);
        }
    }

    /// A task cannot have the memory; as a member it would be of no use.
    fn cannot_show(&mut self, core: &mut Core, id: u64, to: Tid, wait: u32, instance: i32) {
        core.reply(to, wait, Err(Code::OutOfRes));
        let Some(name) = self.by_id(id).map(|group| group.name().to_vec()) else { return };
        if instance != NO_MEMBER && !core.is_master() {
            let request = Request::LeaveGroup(ByteBuf::from(name));
            // Nobody waits for the answer.
            core.send_master(Frame::Request { wait: 0, from: to, request });
        }
    }

    /// The task sees no groups any more.
    pub fn show_no_more(&mut self, tid: Tid) {
        self.replicas.showing.values_mut().for_each(|showing| showing.retain(|(to, _, _)| *to != tid));
    }

    /// The group is no more.
    pub fn forget_group(&mut self, core: &mut Core, id: u64) {
        let Some(group) = self.remove(id) else { return };
        if group.replica.memory == Memory::Asked {
            // Behind the action that makes it.
            act(core, id, GroupAction::Close);
        }
        group.replica.hosts.iter().for_each(|host| _ = self.replicas.by_host.remove(*host, id));
        for (to, wait, _) in self.replicas.showing.remove(&id).unwrap_or_default() {
            core.reply(to, wait, Err(Code::NoGroup));
        }
        self.end_arrivals(core, group.arrivals);
    }

    // ----- other hosts than the master

    /// This host keeps a group from now on.
    pub fn known(&mut self, state: GroupState) {
        let GroupState { id, name, members, frozen, broken, meets_here } = state;
        let mut group = Group::new(id, name.into_vec());
        members.into_iter().for_each(|(instance, tid)| group.put(instance, tid));
        (group.frozen, group.broken, group.replica.meets_here) = (frozen, broken, meets_here);
        self.insert(group);
    }

    /// The master tells of a change.
    pub fn changed_at_master(&mut self, core: &mut Core, id: u64, number: u64, change: &GroupChange) {
        self.follow(core, id, change);
        if number != NOBODY_ELSE {
            core.send_master(Frame::GroupSeen { number });
        }
    }

    fn follow(&mut self, core: &mut Core, id: u64, change: &GroupChange) {
        let Some(group) = self.by_id(id) else { return };
        match change {
            GroupChange::Joined { instance, tid } => {
                group.put(*instance, *tid);
                group.shortage.somebody_joined();
            }
            GroupChange::Gone { instance } => {
                let size = group.size();
                if let Some(tid) = group.tid_of(*instance) {
                    group.remove(tid);
                    group.shortage.somebody_goes(size);
                }
            }
            GroupChange::Freeze => group.frozen = true,
            GroupChange::Break => group.broken = true,
            GroupChange::Close => {}
            GroupChange::Take | GroupChange::Give | GroupChange::Release { .. } => {
                return self.page_ordered(core, id, change);
            }
        }
        self.in_memory(core, id, action_of(change));
        match change {
            GroupChange::Gone { .. } | GroupChange::Break => self.look_at_barrier(core, id),
            GroupChange::Close => self.forget_group(core, id),
            _ => {}
        }
    }

    /// The master has this host's memory taken out of use or into it, or those released who wait there.
    fn page_ordered(&mut self, core: &mut Core, id: u64, change: &GroupChange) {
        let Some(group) = self.by_id(id) else { return };
        let made = group.replica.is_made();
        match change {
            GroupChange::Take => (group.replica.meets_here, group.replica.is_awaited) = (false, true),
            GroupChange::Give => {
                group.replica.meets_here = true;
                group.shortage.place_changes();
            }
            _ => {}
        }
        match (made, change) {
            (true, change) => act(core, id, action_of(change)),
            // Nobody can have arrived.
            (false, GroupChange::Take) => self.taken(core, id, Taken::default()),
            (false, _) => {}
        }
    }
}

fn action_of(change: &GroupChange) -> GroupAction {
    match change {
        GroupChange::Joined { instance, tid } => GroupAction::Joined { instance: *instance, tid: *tid },
        GroupChange::Gone { instance } => GroupAction::Gone { instance: *instance },
        GroupChange::Freeze => GroupAction::Freeze,
        GroupChange::Break => GroupAction::Break,
        GroupChange::Close => GroupAction::Close,
        GroupChange::Take => GroupAction::Take,
        GroupChange::Give => GroupAction::Give,
        GroupChange::Release { opened } => GroupAction::Release { opened: *opened },
    }
}
