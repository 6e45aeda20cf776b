//! The master hands over to another host, at one instant.
//!
//! 1. The master waits until no add, no change of the host table or of a group is under way, and until barriers meet at no
//!    coordinator. Meanwhile it keeps requests ([`super::membership::Moving`]). Then it asks the next master whether it lives.
//! 2. In one step it sends what only it knows to the next master, tells every host who that is, and follows it like the others.
//!    Each host hears that behind everything that the former master has decided.
//! 3. A host that follows says so to the new master, and which of its tasks live. Behind that it sends again what the former
//!    master may not have handled: requests without an answer, arrivals at barriers, suspicions. So each request is decided once.
//! 4. If the next master dies before it has the office, which takes a round trip, the machine ends like one whose master dies.
//! 5. The new master deletes hosts only when all follow it, so that each of them is told.
//! 6. The new master may hear of a host before it has the office: then that host's frames wait here. And what it sends to a
//!    host waits until that host follows: before, the host would take it from nobody but the former master.
use super::action::Action;
use super::core::Core;
use super::event::Event;
use super::membership::HeldRequest;
use super::parts::Parts;
use super::pending_acks::Ack;
use super::remote::{self, OwnRequest};
use crate::codes::CLASS_TASKER;
use crate::hostfile::Hostfile;
use crate::master_state::{MachineState, MasterState};
use crate::proto::Role;
use crate::tid::Tid;
use crate::wire::{Frame, GroupNews};
use std::collections::BTreeMap;

impl Parts {
    /// At the master: decides what had to wait until all hosts follow it, and hands over if that is wanted and nothing is under
    /// way.
    pub fn hand_over_if_due(&mut self, core: &mut Core) {
        if let Some(deputy) = self.deputies.host().filter(|deputy| self.membership.is_to_leave(core, *deputy)) {
            self.deputies.depose(core, deputy);
        }
        for (task, wait, request) in self.membership.take_deletions(core) {
            self.decide(core, task, wait, request);
            self.settle(core);
        }
        let has_deletions = self.membership.has_deletions();
        if !self.membership.moving.is_wanted() || core.halting || core.awaits_hosts() || has_deletions {
            return;
        }
        let Some(next) = self.membership.moving.next_master(core) else { return self.stay(core) };
        self.groups.keep_barriers(core);
        if let Some(deputy) = self.deputies.host().filter(|deputy| *deputy != next) {
            // No other host must take over while the master moves.
            self.deputies.depose(core, deputy);
        }
        if self.is_quiet(core) && self.membership.moving.offer(next) {
            core.acks.expect(next, Ack::Master, core.now);
            core.send_host(next, Frame::MasterOffered);
        }
    }

    /// Handles the answer of the next master.
    pub fn master_accepted(&mut self, core: &mut Core, host: Tid) {
        core.acks.received(host, Ack::Master);
        let is_asked = self.membership.moving.accepted(host);
        // If something is under way again, or another host is the next one now, the next host is asked once more.
        if is_asked && self.is_quiet(core) && self.membership.moving.next_master(core) == Some(host) {
            self.hand_over(core, host);
        }
    }

    /// Returns whether nothing is under way that other hosts have to acknowledge.
    fn is_quiet(&self, core: &Core) -> bool {
        let is_idle = self.membership.is_idle_but_moving() && self.groups.is_settled(core);
        let is_kept = self.deputies.has_all() && core.holds_nothing();
        is_idle && is_kept && core.acks.oldest().is_none() && !core.halting
    }

    /// Cancels the move, because no other host is left.
    fn stay(&mut self, core: &mut Core) {
        self.groups.release_barriers();
        for (task, wait, request) in self.membership.moving.take_held() {
            self.decide(core, task, wait, request);
        }
        self.settle(core);
    }

    /// Makes another host the master.
    fn hand_over(&mut self, core: &mut Core, next: Tid) {
        self.servers.retire_hoster(core);
        self.settle(core);
        self.groups.confirm_releases(core);
        core.send_host(next, Frame::MasterState(self.master_state(core)));
        for host in core.hosts.others() {
            core.send_host(host, Frame::NewMaster { master: next });
        }
        let unanswered = self.resign(core);
        self.follow(core, next, false);
        self.deputies.stop(core);
        for (task, wait, request) in unanswered {
            self.remote.for_other_host(core, task, wait, request);
        }
    }

    /// Returns what only the master knows.
    pub fn master_state(&self, core: &Core) -> Vec<MasterState> {
        let own_tasks = core.tasks.iter().map(|(tid, _)| tid);
        let clients = core.clients.iter().copied().chain(own_tasks).collect();
        let machine = MachineState { clients, ..self.machine_state(core) };
        let entries = self.mailboxes.entries().map(MasterState::Entry);
        let groups = self.groups.groups_of_master(core).into_iter().map(MasterState::Group);
        [MasterState::Machine(machine)].into_iter().chain(entries).chain(groups).collect()
    }

    /// Returns what there is once, without the clients.
    pub fn machine_state(&self, core: &Core) -> MachineState {
        let Hostfile { hosts, defaults, .. } = core.settings.hostfile.clone();
        MachineState {
            last_host: core.hosts.last_number(),
            resolved: core.hosts.resolved(),
            hostfile: hosts,
            host_options: defaults,
            add_failures: self.membership.joining.failures().to_vec(),
            lost_hosts: self.membership.lost_host_reasons(),
            ..self.groups.machine_state()
        }
    }

    /// Drops what only the master knows. Returns the unanswered requests of this host's tasks.
    fn resign(&mut self, core: &mut Core) -> Vec<HeldRequest> {
        let own = core.own_host();
        let held = self.membership.resign();
        let waiting = self.mailboxes.resign();
        let freezing = self.groups.resign(own);
        core.clients.clear();
        for host in core.hosts.others() {
            core.requests.forget_host(host);
        }
        core.tasks.set_known_to_master();
        // The hosts of other tasks send their requests again.
        [held, waiting, freezing].into_iter().flatten().filter(|(task, ..)| task.host() == own).collect()
    }

    /// Follows another master from now on. `has_died`: the former one has died.
    pub fn follow(&mut self, core: &mut Core, master: Tid, has_died: bool) {
        core.hosts.set_master(master);
        self.deputies.forget(core);
        core.log(format!("host {} is the master from now on", core.hosts.name_of(master)));
        core.push(Action::MasterChanged);
        core.want_link(master);
        if core.links.failed().contains(&master) {
            // It was no reason to end while the former master could judge it.
            return core.raise(Event::MasterLost("the link is lost".into()));
        }
        let clients = core.tasks.iter().filter(|(_, task)| task.known_to_master);
        let clients = clients.map(|(tid, task)| (tid, task.has_left())).collect();
        let groups = if has_died { self.groups.take_news(core.own_host()) } else { Vec::new() };
        let table = core.hosts.not_joined().is_empty().then_some(core.hosts.version);
        core.send_master(Frame::Following { clients, tasker: core.roles.tasker, groups, table });
        self.remote.repeat_to_master(core, has_died);
        self.membership.report_again(core);
        if !has_died {
            self.groups.repeat_arrivals(core);
        }
    }

    /// Becomes the master.
    pub fn take_office(&mut self, core: &mut Core) {
        self.begin_office(core);
        for host in core.hosts.others() {
            core.await_following(host, None);
        }
        let mut clients = Vec::new();
        for part in self.membership.moving.take_parts() {
            match part {
                MasterState::Machine(machine) => clients = self.take_machine_state(core, machine),
                MasterState::Entry(entry) => self.mailboxes.take_entry(entry),
                MasterState::Group(group) => self.groups.take_group(core, group),
            }
        }
        self.servers.take_office(core);
        core.hosts.others().into_iter().for_each(|host| core.want_link(host));
        self.take_clients(core, clients);
        self.membership.take_office(core);
        self.settle(core);
        for OwnRequest { tid, wait, request, .. } in self.remote.take_of_master() {
            self.decide(core, tid, wait, request);
        }
        self.groups.repeat_arrivals(core);
        self.groups.examine_barriers(core);
    }

    /// Has the office of the master from now on.
    pub fn begin_office(&mut self, core: &mut Core) {
        core.hosts.set_master(core.own_host());
        self.deputies.forget(core);
        core.log("this host is the master from now on");
        core.push(Action::MasterChanged);
    }

    /// Takes over the tasks for which the former master may have kept state. Those of this host may have left meanwhile.
    pub fn take_clients(&mut self, core: &mut Core, clients: impl IntoIterator<Item = Tid>) {
        let own = core.own_host();
        let (here, elsewhere) = clients.into_iter().partition::<Vec<Tid>, _>(|tid| tid.host() == own);
        core.clients.extend(elsewhere.into_iter().filter(|tid| core.hosts.is_here(*tid)));
        for tid in here {
            match core.tasks.get(tid).map(|task| task.has_left()) {
                None => core.raise(Event::ClientLeft { tid, ended: true }),
                Some(true) => core.raise(Event::ClientLeft { tid, ended: false }),
                Some(false) => {}
            }
        }
    }

    /// Takes over what the former master knew about the whole machine. Returns the tasks for which it may have kept state.
    pub fn take_machine_state(&mut self, core: &mut Core, machine: MachineState) -> Vec<Tid> {
        self.groups.take_machine_state(&machine);
        core.hosts.take_office(machine.last_host, machine.resolved);
        let Hostfile { hosts, defaults, .. } = &mut core.settings.hostfile;
        (*hosts, *defaults) = (machine.hostfile, machine.host_options);
        self.membership.take_failures(machine.add_failures, machine.lost_hosts);
        machine.clients
    }

    /// At a new master: a host follows it.
    pub fn followed(
        &mut self,
        core: &mut Core,
        host: Tid,
        clients: Vec<(Tid, bool)>,
        tasker: Option<Tid>,
        groups: Vec<GroupNews>,
        table: Option<u64>,
    ) {
        if !core.is_awaited(host) {
            return;
        }
        core.acks.received(host, Ack::Following);
        self.groups.news_told(core, host, groups);
        let living: BTreeMap<Tid, bool> = clients.into_iter().filter(|(tid, _)| tid.host() == host).collect();
        let known: Vec<Tid> = core.clients.iter().copied().filter(|tid| tid.host() == host).collect();
        for tid in known {
            match living.get(&tid) {
                None => remote::client_left(core, tid, true),
                Some(true) => remote::client_left(core, tid, false),
                Some(false) => {}
            }
        }
        core.clients.extend(living.keys());
        // News of a tasker that the former master did not handle.
        let tasker = tasker.filter(|tid| tid.host() == host);
        for tid in living.keys().copied() {
            match (tasker == Some(tid), self.mailboxes.is_published(tid, CLASS_TASKER)) {
                (true, false) => core.raise(Event::RoleTaken { role: Role::Tasker, tid }),
                (false, true) => core.raise(Event::RoleLeft { role: Role::Tasker, tid }),
                _ => {}
            }
        }
        self.settle(core);
        core.let_follow(host, table);
    }
}
