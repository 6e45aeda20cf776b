//! The master hands over to its deputy, at one instant, because its host is to leave.
//!
//! 1. If the deputy is not the host that is to be the next master, the master chooses that one ([`super::deputy`]).
//! 2. The master waits until no add and no change is under way that others have to acknowledge, and until the deputy keeps
//!    everything. Meanwhile it keeps requests ([`super::membership::Moving`]). Then it asks the deputy whether it lives, by a mark.
//! 3. In one step it tells every host that the deputy is the master, and follows it like the others. Each host hears that behind
//!    everything that the former master has decided.
//! 4. The next master and all other hosts do what they do when a master is lost ([`super::succession`]); but the former one is
//!    a host like others.
//! 5. The new master deletes hosts only when all follow it, so that each of them is told.
//!
//! If the next master dies before it has the office, which takes the way to it, the machine ends.
use super::action::Action;
use super::core::Core;
use super::event::Event;
use super::membership::HeldRequest;
use super::parts::Parts;
use super::pending_acks::Ack;
use super::remote;
use crate::codes::CLASS_TASKER;
use crate::hostfile::Hostfile;
use crate::master_state::{MachineState, MasterState};
use crate::proto::{ByteBuf, Request, Role};
use crate::tid::Tid;
use crate::wire::{Frame, GroupNews};
use std::collections::BTreeMap;

impl Parts {
    /// At the master: decides what had to wait until all hosts follow it. Does without a deputy that is to leave, or is not to be
    /// the next master.
    pub fn prepare_hand_over(&mut self, core: &mut Core) {
        let leaves = |deputy: &Tid| self.membership.is_to_leave(core, *deputy);
        if let Some(deputy) = self.deputies.host().filter(leaves) {
            self.deputies.depose(core, deputy);
        }
        for (task, wait, request) in self.membership.take_deletions(core) {
            self.decide(core, task, wait, request);
            self.settle(core);
        }
        if !self.may_hand_over(core) {
            return;
        }
        match (self.membership.moving.next_master(core), self.deputies.host()) {
            (None, _) => self.stay(core),
            (Some(next), Some(deputy)) if deputy != next => self.deputies.depose(core, deputy),
            _ => {}
        }
    }

    /// At the end of a step of the master: hands over to the deputy if that is wanted, and nothing is under way.
    pub fn hand_over_if_ready(&mut self, core: &mut Core) {
        let next = self.membership.moving.next_master(core);
        let Some(next) = next.filter(|next| self.may_hand_over(core) && self.deputies.is_ready(*next)) else { return };
        let is_idle = self.membership.is_idle_but_moving() && !self.groups.has_joiners();
        let is_quiet = is_idle && core.acks.oldest().is_none() && !core.waits_for_deputy();
        if is_quiet && self.membership.moving.asked() == Some(next) {
            self.hand_over(core, next);
        } else if is_quiet {
            self.membership.moving.set_asked(Some(next));
            self.deputies.send(core, Vec::new());
        } else if self.deputies.has_all() {
            // It is asked again when nothing else is under way.
            self.membership.moving.set_asked(None);
        }
    }

    /// Lets this host leave the machine with its tasks. A master asks to be deleted, so it hands over first. If no other host can be
    /// the master, halts.
    pub fn leave_machine(&mut self, core: &mut Core) {
        let own = core.own_host();
        if !core.is_master() {
            self.halt(core, None);
        } else if !core.halting && !self.membership.moving.holds_request_of(own) {
            let name = ByteBuf::from(core.hosts.plain_name_of(own).into_bytes());
            self.decide(core, own, 0, Request::DeleteHosts(vec![name]));
        }
    }

    fn may_hand_over(&self, core: &Core) -> bool {
        let has_deletions = self.membership.has_deletions();
        self.membership.moving.is_wanted() && !core.halting && !core.awaits_hosts() && !has_deletions
    }

    /// Cancels the move, because no other host is left.
    fn stay(&mut self, core: &mut Core) {
        for (task, wait, request) in self.membership.moving.take_held() {
            self.decide(core, task, wait, request);
        }
        self.settle(core);
    }

    /// Makes the deputy the master.
    fn hand_over(&mut self, core: &mut Core, next: Tid) {
        for host in core.hosts.others() {
            core.send_host(host, Frame::NewMaster { master: next });
        }
        let news = self.groups.take_news(core.own_host());
        let unanswered = self.resign(core);
        self.follow(core, next, news);
        self.stop_backups(core);
        for (task, wait, request) in unanswered {
            self.remote.for_other_host(core, task, wait, request);
        }
    }

    /// Returns what only the master knows.
    pub fn master_state(&self, core: &Core) -> Vec<MasterState> {
        let entries = self.mailboxes.entries().map(MasterState::Entry);
        let groups = self.groups.groups_of_master().map(MasterState::Group);
        [MasterState::Machine(Box::new(self.machine_state(core)))].into_iter().chain(entries).chain(groups).collect()
    }

    /// Returns what there is once.
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
        core.roles.hoster = None;
        for host in core.hosts.others() {
            core.requests.forget_host(host);
        }
        core.tasks.set_known_to_master();
        // The hosts of other tasks send their requests again.
        [held, waiting, freezing].into_iter().flatten().filter(|(task, ..)| task.host() == own).collect()
    }

    /// Follows another master from now on. `groups`: what this host knows about the barriers of its groups.
    pub fn follow(&mut self, core: &mut Core, master: Tid, groups: Vec<GroupNews>) {
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
        let table = core.hosts.not_joined().is_empty().then_some(core.hosts.version);
        core.send_master(Frame::Following { clients, tasker: core.roles.tasker, groups, table });
        self.remote.repeat_to_master(core);
        self.membership.report_again(core);
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

    /// Takes over what the former master knew about the whole machine.
    pub fn take_machine_state(&mut self, core: &mut Core, machine: MachineState) {
        self.groups.take_machine_state(&machine);
        core.hosts.take_office(machine.last_host, machine.resolved);
        let Hostfile { hosts, defaults, .. } = &mut core.settings.hostfile;
        (*hosts, *defaults) = (machine.hostfile, machine.host_options);
        self.membership.take_failures(machine.add_failures, machine.lost_hosts);
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
