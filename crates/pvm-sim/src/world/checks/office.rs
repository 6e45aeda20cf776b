//! Invariant: one host is the master, all others follow it, and it knows all that the former master has decided.
use super::{Checks, Unsettled};
use crate::ids::NodeId;
use crate::node::{Node, NodeState};
use crate::program::{Open, Task};
use crate::world::World;
use pvm_core::master_state::{GroupOfMaster, MachineState, MailboxEntry, MasterState};
use pvm_core::proto::{Host, Request};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// What a master knows, and its host table.
type KnownToMaster = (Vec<MasterState>, Vec<Host>);

/// What the next master has to know.
#[derive(Default)]
pub enum HandOver {
    #[default]
    None,
    /// What the master knew last before it may hand over.
    Wanted(KnownToMaster),
    /// What it knew when it has handed over.
    Done(KnownToMaster),
}

/// What only a master knows, in an order.
#[derive(Default)]
struct Known<'a> {
    machine: Option<&'a MachineState>,
    entries: BTreeMap<(&'a [u8], i32), &'a MailboxEntry>,
    groups: BTreeMap<u64, &'a GroupOfMaster>,
}

impl<'a> Known<'a> {
    fn of(parts: &'a [MasterState]) -> Known<'a> {
        let mut known = Known::default();
        for part in parts {
            match part {
                MasterState::Machine(machine) => known.machine = Some(machine),
                MasterState::Entry(entry) => drop(known.entries.insert((entry.name.as_slice(), entry.index), entry)),
                MasterState::Group(group) => drop(known.groups.insert(group.id, group)),
            }
        }
        known
    }

    fn members(&self) -> BTreeSet<(u64, u32, Tid)> {
        let of_group = |group: &&'a GroupOfMaster| {
            let id = group.id;
            group.members.iter().map(move |(instance, tid)| (id, *instance, *tid)).collect::<Vec<_>>()
        };
        self.groups.values().flat_map(of_group).collect()
    }
}

impl Checks {
    /// Returns whether a master has handed over.
    pub fn is_handed_over(&self) -> bool {
        matches!(self.office, HandOver::Done(_))
    }

    /// Notes what a master knows that is to move, and its host table.
    pub fn may_hand_over(&mut self, state: Vec<MasterState>, hosts: Vec<Host>) {
        self.office = HandOver::Wanted((state, hosts));
    }

    /// Notes that the master hands over.
    pub fn hands_over(&mut self) {
        self.office = match std::mem::take(&mut self.office) {
            HandOver::None => HandOver::None,
            HandOver::Wanted(known) | HandOver::Done(known) => HandOver::Done(known),
        };
    }
}

impl World {
    /// Checks a daemon that has just become the master: no other daemon is the master, and this one knows what the former one has
    /// decided. What tasks ask for just now may have changed that already.
    pub fn takes_office(&mut self, node: NodeId) {
        let tid = self.nodes[node].tid;
        let HandOver::Done((state, hosts)) = std::mem::take(&mut self.checks.office) else {
            // The former master is lost, and may not know that yet. Members of groups are compared at the end
            // (`groups_are_known`), entries of mailboxes are not.
            return;
        };
        // A master that was lost, and is out of the machine, may not know that yet.
        let is_in = |other: &Node| self.nodes[node].machine.has_host(other.tid);
        let serves = |other: &&Node| {
            other.tid != tid && other.state != NodeState::Dead && other.machine.is_master() && is_in(other)
        };
        if let Some(other) = self.nodes.iter().find(serves).map(|other| other.tid) {
            return self.checks.fail("office", &format!("{other} and {tid} are both the master"), &[tid, other]);
        }
        let now = self.nodes[node].machine.master_state();
        let (before, after) = (Known::of(&state), Known::of(&now));
        let lost = self.lost_hosts(&hosts, node).or_else(|| self.lost_numbers(&before, &after));
        let lost = lost.or_else(|| self.lost_entries(node, &before, &after));
        let lost = lost.or_else(|| self.lost_members(node, &before, &after));
        if let Some(text) = lost {
            self.checks.fail("office", &format!("the new master {tid} {text}"), &[tid]);
        }
    }

    fn lost_hosts(&self, before: &[Host], node: NodeId) -> Option<String> {
        let after: BTreeSet<Tid> = self.nodes[node].machine.host_list().iter().map(|host| host.tid).collect();
        let before: BTreeSet<Tid> = before.iter().map(|host| host.tid).collect();
        let place = |tid: Tid| self.nodes.iter().find(|node| node.tid == tid).map_or(1, |node| node.place);
        let kept = |tid: &&Tid| after.contains(*tid) || self.checks.may_be_removed(place(**tid));
        let (lost, new) = (before.iter().find(|tid| !kept(tid)), after.difference(&before).next());
        lost.or(new).map(|tid| format!("has the hosts {after:?} instead of {before:?}, see {tid}"))
    }

    fn lost_numbers(&self, before: &Known, after: &Known) -> Option<String> {
        let (Some(before), Some(after)) = (before.machine, after.machine) else {
            return Some("was told nothing".into());
        };
        let numbers = |state: &MachineState| {
            [u64::from(state.last_host), state.last_group, state.last_change, u64::from(state.last_chain)]
        };
        let is_lower = numbers(before).iter().zip(numbers(after)).any(|(before, after)| after < *before);
        is_lower.then(|| format!("goes on with the numbers {:?} after {:?}", numbers(after), numbers(before)))
    }

    fn lost_entries(&self, node: NodeId, before: &Known, after: &Known) -> Option<String> {
        let changes = |request: &Request, name: &[u8]| match request {
            Request::PutInfo { name: other, .. } | Request::DeleteInfo { name: other, .. } => other.as_slice() == name,
            Request::RecvInfo { name: other, .. } => other.as_slice() == name,
            Request::ResetInfo { .. } => true,
            // The roles of servers have mailboxes.
            Request::Register { .. } => name.starts_with(b"###"),
            _ => false,
        };
        let may_change = |(name, _): &(&[u8], i32)| self.asks(|_, request| changes(request, name));
        let may_end = |owner: Tid| owner != Tid::NONE && !self.lives_at(node, owner);
        let keys: BTreeSet<_> = before.entries.keys().chain(after.entries.keys()).copied().collect();
        for key in keys {
            let (old, new) = (before.entries.get(&key).copied(), after.entries.get(&key).copied());
            if old != new && !old.is_some_and(|entry| may_end(entry.owner)) && !may_change(&key) {
                return Some(format!("has {new:?} instead of {old:?} in {key:?}"));
            }
        }
        None
    }

    fn lost_members(&self, node: NodeId, before: &Known, after: &Known) -> Option<String> {
        let (old, new) = (before.members(), after.members());
        let name_of = |id: u64| before.groups.get(&id).or(after.groups.get(&id)).map(|group| &group.name);
        for (id, instance, tid) in old.symmetric_difference(&new).copied() {
            let name = name_of(id);
            let changes = |task: &Task, request: &Request| match request {
                Request::JoinGroup(other) | Request::LeaveGroup(other) => task.tid == tid && Some(other) == name,
                _ => false,
            };
            if self.lives_at(node, tid) && !self.asks(changes) {
                let has = if new.contains(&(id, instance, tid)) { "has a new" } else { "lacks the" };
                return Some(format!("{has} member {instance}, {tid}, of group {id}"));
            }
        }
        None
    }

    /// Returns whether a task has asked such a thing and has no answer, or has asked it a short time before its end.
    fn asks(&self, is_it: impl Fn(&Task, &Request) -> bool) -> bool {
        let is_new = |open: &Open| self.now < open.at + self.scenario.timeout;
        let asks = |task: &Task| {
            task.open.as_ref().is_some_and(|open| (task.is_enrolled() || is_new(open)) && is_it(task, &open.request))
        };
        self.tasks.iter().any(asks)
    }

    /// Returns whether a task, and its host, live in the machine.
    fn lives(&self, tid: Tid) -> bool {
        self.by_tid.get(&tid).is_some_and(|task| self.tasks[*task].is_enrolled() && self.in_machine(*task))
    }

    /// Returns whether a task lives, as far as the daemon of the new master may know. It may have removed hosts at once.
    fn lives_at(&self, node: NodeId, tid: Tid) -> bool {
        self.lives(tid) && self.nodes[node].machine.has_host(tid.host())
    }

    /// Checks that all living hosts follow the same master.
    pub fn all_follow_the_master(&self) -> Unsettled {
        let master = self.nodes[self.office.master].tid;
        let living = || self.nodes.iter().filter(|node| node.state != NodeState::Dead);
        if let Some(node) = living().find(|node| node.machine.master() != master) {
            let text = format!("{} follows {}, but {master} is the master", node.tid, node.machine.master());
            return Err((text, vec![node.tid, master]));
        }
        match living().find(|node| node.machine.is_master() != (node.tid == master)) {
            Some(node) => Err((format!("{} is wrong about who is the master", node.tid), vec![node.tid, master])),
            None => Ok(()),
        }
    }

    /// Checks that the master knows each member of a group, with its number, and no others.
    pub fn groups_are_known(&self) -> Unsettled {
        let state = self.nodes[self.office.master].machine.master_state();
        let known = Known::of(&state).members();
        let lives = |task: &Task| task.is_enrolled() && self.lives(task.tid);
        let joined = |task: &Task| {
            let tid = task.tid;
            task.joined.iter().map(move |(_, group, instance)| (*group, *instance, tid)).collect::<Vec<_>>()
        };
        let expected: BTreeSet<_> = self.tasks.iter().filter(|task| lives(task)).flat_map(joined).collect();
        match known.symmetric_difference(&expected).next() {
            Some((group, instance, tid)) => {
                let has = if known.contains(&(*group, *instance, *tid)) { "has" } else { "lacks" };
                let text = format!("the master {has} the member {instance}, {tid}, of group {group}");
                Err((text, vec![tid.host(), self.nodes[self.office.master].tid]))
            }
            None => Ok(()),
        }
    }
}
