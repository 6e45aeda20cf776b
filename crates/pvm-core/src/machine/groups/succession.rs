//! Groups when another host becomes the master: it gets what only the master knows. The pages and replicas stay as they are.
use super::{Freezing, Group, Groups};
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::master_state::{GroupOfMaster, MachineState};
use crate::proto::{ByteBuf, Request};
use crate::tid::Tid;
use std::collections::BTreeSet;

impl Groups {
    // ----- the former master

    /// Lets barriers meet at no coordinator, because the master is about to move.
    pub fn keep_barriers(&mut self, core: &mut Core) {
        self.shared.is_moving = true;
        self.with_each(|group, shared| group.take_back(core, shared, false));
    }

    /// Lets barriers meet at coordinators again.
    pub fn release_barriers(&mut self) {
        self.shared.is_moving = false;
    }

    /// Returns whether no answer of another host is awaited, and no page is being made for a member.
    pub fn is_settled(&self, core: &Core) -> bool {
        let is_listing = core.actions.iter().any(|action| matches!(action, Action::ListBarriers { .. }));
        let is_settled = |group: &Group| group.joining.is_empty() && group.barrier.is_settled();
        !is_listing && self.change_acks.is_idle() && self.listings.is_idle() && self.groups.values().all(is_settled)
    }

    /// Tells all hosts about the last releases again, unless they have shown that they know them.
    pub fn confirm_releases(&mut self, core: &mut Core) {
        self.with_each(|group, _| group.repeat_release(core));
    }

    /// Returns what only the master knows about all groups together.
    pub fn machine_state(&self) -> MachineState {
        MachineState { last_group: self.last, ..self.shared.machine_state() }
    }

    /// Returns what the master knows about each group.
    pub fn groups_of_master(&self, core: &Core) -> Vec<GroupOfMaster> {
        self.groups.values().map(|group| group.of_master(core.own_host())).collect()
    }

    /// Drops what only the master knows. Returns the callers of pending freezes, as requests.
    pub fn resign(&mut self, own: Tid) -> Vec<(Tid, u32, Request)> {
        self.shared.resign();
        self.memberships = Default::default();
        let mut callers = Vec::new();
        for group in self.groups.values_mut() {
            let name = ByteBuf::from(group.name.clone());
            if let Some(Freezing { need, callers: waiting }) = group.freezing.take() {
                let request = |(task, wait)| (task, wait, Request::FreezeGroup { name: name.clone(), count: need });
                callers.extend(waiting.into_iter().map(request));
            }
            group.replica.resign();
            group.barrier.resign();
        }
        let unused = self.groups.values().filter(|group| !group.is_kept_on(own)).map(|group| group.id);
        for id in unused.collect::<Vec<_>>() {
            self.remove(id);
        }
        callers
    }

    // ----- the new master

    /// Takes over what the former master knew about all groups together.
    pub fn take_machine_state(&mut self, state: &MachineState) {
        self.last = self.last.max(state.last_group);
        self.shared.take_machine_state(state);
    }

    /// Takes over what the former master knew about a group.
    pub fn take_group(&mut self, core: &Core, state: GroupOfMaster) {
        let id = state.id;
        for (_, tid) in &state.members {
            self.memberships.insert(*tid, id);
        }
        if self.by_id(id).is_none() {
            let mut group = Group::new(id, state.name.to_vec());
            state.members.iter().for_each(|(instance, tid)| group.put(*instance, *tid));
            (group.frozen, group.broken, group.version) = (state.frozen, state.broken, state.version);
            self.insert(group);
        }
        let Some(group) = self.by_id(id) else { return };
        // A replica does not know which numbers are free.
        group.holes = (0..group.places()).filter(|instance| !group.members.contains_key(instance)).collect();
        if !group.replica.meets_here {
            group.shortage.take(state.shortage);
        }
        let others = |host: &Tid| *host != core.own_host() && core.hosts.is_here(*host);
        group.replica.take_hosts(state.hosts.iter().copied().filter(others).collect::<BTreeSet<Tid>>());
        group.barrier.take_over(core.now, state);
    }

    /// Examines all barriers as the master.
    pub fn examine_barriers(&mut self, core: &mut Core) {
        self.with_each(|group, shared| group.examine_barrier(core, shared));
    }

    // ----- all hosts

    /// Sends to the master all arrivals of this host's members that have not been answered: the former master may not have
    /// counted them. The master recognizes those that it has.
    pub fn repeat_arrivals(&mut self, core: &mut Core) {
        self.with_each(|group, shared| group.repeat_arrivals(core, shared));
    }
}

impl Group {
    /// Returns whether this host has to follow the group although it is not the master.
    fn is_kept_on(&self, own: Tid) -> bool {
        self.replica.has_page() || self.has_members_on(own) || self.barrier.has_arrivals()
    }

    /// Returns what the master, host `own`, knows about the group.
    fn of_master(&self, own: Tid) -> GroupOfMaster {
        let hosts = self.replica.hosts().into_iter().chain(self.is_kept_on(own).then_some(own)).collect();
        let state = GroupOfMaster {
            id: self.id,
            name: ByteBuf::from(self.name.clone()),
            members: self.members().collect(),
            frozen: self.frozen,
            broken: self.broken,
            version: self.version,
            hosts,
            shortage: self.shortage.state(),
            ..GroupOfMaster::default()
        };
        self.barrier.add_to(state)
    }
}
