//! Another host becomes the master: the deputy, because the master is lost, or has handed over ([`super::handover`]). All other
//! hosts follow it.
//!
//! * What only the master knew is at the deputy ([`super::deputy`]); everything else is at the hosts.
//! * A host that follows says so to the new master, and which of its tasks live. Behind that it sends again what the former
//!   master may not have handled: requests without an answer, suspicions.
//! * The new master tells each host that follows its groups, and the whole host table if the host has another version: the last
//!   changes may not have come.
//! * It executes no request twice. If it keeps the answer of the former master, it gives that answer. A join and a leave that
//!   have happened already succeed.
//! * It counts anew who waits at barriers over several hosts (`groups/barrier/census.rs`).
//! * The new master may hear of a host before it has the office: then that host's frames wait here. And what it sends to a
//!   host waits until that host follows: before, the host would take it from nobody but the former master.
//! * If the former master is lost, hosts that had not joined are given up.
use super::action::Action;
use super::core::Core;
use super::deputy::{self, Shadow};
use super::event::{Event, Loss};
use super::parts::Parts;
use super::pending_acks::Ack;
use super::remote;
use crate::codes::{CLASS_HOSTER, CLASS_TASKER};
use crate::hostfile::{self, Hostfile};
use crate::master_state::{MachineState, MasterState};
use crate::proto::{ByteBuf, Reply, Request, Role};
use crate::tid::Tid;
use crate::wire::{Backup, Frame, GroupNews};
use std::collections::{BTreeMap, BTreeSet};

impl Parts {
    // ----- the master, as long as it lives

    /// At the end of a step of the master: sends what has changed to the deputy. Chooses a deputy if there is none.
    pub fn back_up(&mut self, core: &mut Core) {
        if !core.is_master() || core.halting {
            return self.stop_backups(core);
        }
        let leaves = |host| self.membership.is_to_leave(core, host);
        let is_new = self.deputies.choose(core, self.membership.moving.next_master(core), leaves);
        let has_deputy = self.deputies.host().is_some();
        if has_deputy != core.changes.are_kept || is_new {
            core.changes.are_kept = has_deputy;
            self.mailboxes.note_changes(has_deputy);
        }
        let changes = if is_new { self.everything(core) } else { self.changes(core) };
        if has_deputy && !changes.is_empty() {
            self.deputies.send(core, changes);
        }
        let releases = std::mem::take(&mut core.changes.releases);
        self.deputies.tell(core, releases);
        core.suspend_acks();
    }

    /// Tells the deputy nothing any more.
    pub fn stop_backups(&mut self, core: &mut Core) {
        if core.changes.are_kept || self.deputies.is_active() {
            core.changes = Default::default();
            self.mailboxes.note_changes(false);
            self.deputies.give_up(core);
        }
    }

    /// Returns what has changed in this step.
    fn changes(&mut self, core: &mut Core) -> Vec<Backup> {
        let mut changes = self.mailboxes.take_changes();
        changes.append(&mut core.changes.groups);
        if std::mem::take(&mut core.changes.table) {
            changes.push(deputy::table(core));
        }
        if std::mem::take(&mut core.changes.servers) {
            changes.push(Backup::Servers(core.roles.common()));
        }
        if std::mem::take(&mut core.changes.machine) {
            changes.push(Backup::State(Box::new(MasterState::Machine(Box::new(self.machine_state(core))))));
        }
        changes
    }

    /// Returns all that only the master knows.
    fn everything(&mut self, core: &mut Core) -> Vec<Backup> {
        let _ = self.changes(core);
        let state = self.master_state(core).into_iter().map(|state| Backup::State(Box::new(state)));
        let rest = [deputy::table(core), Backup::Servers(core.roles.common())];
        [Backup::Begin].into_iter().chain(state).chain(rest).collect()
    }

    /// Returns what only the master knows.
    pub fn master_state(&self, core: &Core) -> Vec<MasterState> {
        let entries = self.mailboxes.entries().map(MasterState::Entry);
        let groups = self.groups.groups_of_master().map(MasterState::Group);
        [MasterState::Machine(Box::new(self.machine_state(core)))].into_iter().chain(entries).chain(groups).collect()
    }

    /// Returns what there is once.
    fn machine_state(&self, core: &Core) -> MachineState {
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

    // ----- the next master, and all others

    /// Handles the news that the master has handed over.
    pub fn master_moved(&mut self, core: &mut Core, master: Tid) {
        let former = core.hosts.master();
        if master != core.own_host() {
            if master != former && core.hosts.is_here(master) {
                self.follow_next(core, master);
                // The next master, which passes on requests for links, may learn that it is one a silence limit later, if its
                // connection to the former one breaks.
                core.links.wait_from(core.now + core.settings.host_timeout);
            }
        } else if let Some(shadow) = self.deputies.take_kept() {
            self.succeed(core, former, *shadow, None);
        } else {
            core.raise(Event::MasterLost("it has handed over to this host, which is not its deputy".into()));
        }
    }

    /// Follows the next master.
    fn follow_next(&mut self, core: &mut Core, master: Tid) {
        let news = self.groups.take_news(core.own_host());
        self.follow(core, master, news);
    }

    /// Becomes the master, or follows the deputy.
    pub fn master_gone(&mut self, core: &mut Core, loss: Loss) {
        let (own, name) = (core.own_host(), core.hosts.name_of(core.hosts.master()));
        let lost = format!("the master {name} is lost: {loss}");
        if loss != Loss::Proven {
            // It must not take this host for one of its own.
            core.push(Action::ForgetHost { host: core.hosts.master() });
        }
        match core.deputy.take() {
            _ if core.halting => {}
            Some(deputy) if deputy == own && self.deputies.stand(core, loss.clone()) => {
                core.log(lost);
                // The hosts with higher numbers cannot call this one to follow it.
                core.hosts.others().into_iter().for_each(|host| core.want_link(host));
            }
            Some(deputy) if deputy != own && core.hosts.is_here(deputy) => {
                core.log(lost);
                self.follow_next(core, deputy);
            }
            _ => core.raise(Event::MasterLost(loss.to_string())),
        }
    }

    /// At a deputy that has lost the master: becomes the master if a majority of the council has lost it.
    pub fn succeed_if_elected(&mut self, core: &mut Core) {
        if let Some((shadow, loss)) = self.deputies.take_elected(core).filter(|_| !core.halting) {
            self.succeed(core, core.hosts.master(), *shadow, Some(loss));
        }
    }

    /// Becomes the master in place of `former`, which has handed over unless it is lost.
    fn succeed(&mut self, core: &mut Core, former: Tid, shadow: Shadow, loss: Option<Loss>) {
        let Shadow { machine, version, hosts, joining, mailboxes, groups, servers, answers, .. } = shadow;
        self.begin_office(core);
        self.membership.table_replaced(core, version, hosts, &joining);
        let lost = loss.as_ref().map(|_| former);
        for host in core.hosts.others().into_iter().filter(|host| lost != Some(*host) && !joining.contains(host)) {
            core.await_following(host, version);
        }
        self.mailboxes.succeed(mailboxes);
        let wishers: Vec<Tid> = machine.group_hosts.iter().map(|(task, _)| *task).collect();
        self.take_machine_state(core, machine);
        self.groups.succeed(core, groups, former);
        self.servers.succeed(core, servers);
        // The hoster serves on the master's host only.
        let hoster = self.mailboxes.owners().find(|owner| self.mailboxes.is_published(*owner, CLASS_HOSTER));
        hoster.into_iter().for_each(|tid| core.raise(Event::RoleLeft { role: Role::Hoster, tid }));
        let clients = self.mailboxes.owners().chain(self.groups.all_members()).chain(wishers);
        let clients: BTreeSet<Tid> = clients.collect();
        self.take_clients(core, clients);
        core.keep_answers(answers);
        let unanswered = self.remote.take_of_master();
        // The hosts that had not joined, and the former master, are out.
        for host in joining {
            self.membership.lose_host(core, host, "the master has died before it had joined");
        }
        if let Some(loss) = loss {
            self.membership.lose_host(core, former, &loss.to_string());
        }
        core.hosts.others().into_iter().for_each(|host| core.want_link(host));
        self.membership.take_office(core);
        self.settle(core);
        for request in unanswered {
            self.decide_again(core, (core.own_host(), request.number), request.tid, request.wait, request.request);
        }
        core.drop_answers(core.own_host());
        self.groups.examine_barriers(core);
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
    fn begin_office(&mut self, core: &mut Core) {
        core.hosts.set_master(core.own_host());
        self.deputies.forget(core);
        core.log("this host is the master from now on");
        core.push(Action::MasterChanged);
    }

    /// Takes over the tasks for which the former master may have kept state. Those of this host may have left meanwhile.
    fn take_clients(&mut self, core: &mut Core, clients: impl IntoIterator<Item = Tid>) {
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
    fn take_machine_state(&mut self, core: &mut Core, machine: MachineState) {
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

    /// Decides a request that the former master may have executed. `number`: the host that asked the former master, and the
    /// number of its request there.
    pub fn decide_again(&mut self, core: &mut Core, number: (Tid, u32), from: Tid, wait: u32, request: Request) {
        match core.take_answer(number).or_else(|| self.done_already(core, from, &request)) {
            Some(reply) => {
                if let Reply::Group { id, .. } = reply {
                    // The host of the task may not know the group.
                    self.groups.with(id, |group, _| group.subscribe(core, from.host()));
                }
                self.groups.answer_with_group(core, from, wait, Ok(reply));
            }
            None => self.decide(core, from, wait, request),
        }
    }

    /// Returns the answer to a request that the former master has executed, although its answer is not known.
    fn done_already(&mut self, core: &Core, from: Tid, request: &Request) -> Option<Reply> {
        match request {
            Request::JoinGroup(name) => self.groups.membership_of(name, from),
            Request::LeaveGroup(name) if self.groups.membership_of(name, from).is_none() => Some(Reply::Done),
            Request::AddHosts(lines) => added_already(core, lines),
            _ => None,
        }
    }
}

/// Returns the answer to an add if all its hosts are in the machine.
fn added_already(core: &Core, lines: &[ByteBuf]) -> Option<Reply> {
    let find = |line: &ByteBuf| {
        let line = hostfile::parse_host(&String::from_utf8_lossy(line)).ok()?;
        Some(core.hosts.find(line.name().as_bytes())?.0 as i32)
    };
    let hosts: Vec<i32> = lines.iter().map(find).collect::<Option<_>>()?;
    let count = hosts.len() as i32;
    Some(Reply::AddedHosts { count, reasons: vec![String::new(); hosts.len()], hosts })
}
