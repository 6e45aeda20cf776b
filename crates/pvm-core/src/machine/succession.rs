//! The master has died: its deputy becomes the master, and the other hosts follow it.
//!
//! What only the master knew is at the deputy ([`super::deputy`]); everything else is at the hosts. So the new master does what
//! it does after a hand-over ([`super::handover`]), and in addition:
//!
//! * It tells each host that follows the whole host table and its groups, because the last changes may not have come.
//! * It executes no request twice. If it keeps the answer of the former master, it gives that answer. A join and a leave that
//!   have happened already succeed.
//! * It counts anew who waits at barriers over several hosts (`groups/barrier/census.rs`).
//! * Hosts that had not joined are given up.
use super::core::Core;
use super::deputy::{self, Shadow};
use super::event::Event;
use super::parts::Parts;
use crate::hostfile;
use crate::master_state::MasterState;
use crate::proto::{ByteBuf, Reply, Request};
use crate::tid::Tid;
use crate::wire::Backup;
use std::collections::BTreeSet;

impl Parts {
    // ----- the master, as long as it lives

    /// At the end of a step of the master: sends what has changed to the deputy. Chooses a deputy if there is none.
    pub fn back_up(&mut self, core: &mut Core) {
        if !core.is_master() || core.halting {
            return self.stop_backups(core);
        }
        let is_new = self.deputies.choose(core);
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
    }

    fn stop_backups(&mut self, core: &mut Core) {
        if core.changes.are_kept {
            core.changes = Default::default();
            self.mailboxes.note_changes(false);
            self.deputies.stop(core);
            core.release_all();
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
            changes.push(Backup::State(Box::new(MasterState::Machine(self.machine_state(core)))));
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

    // ----- after its death

    /// Becomes the master, or follows the deputy.
    pub fn master_died(&mut self, core: &mut Core) {
        let (own, former) = (core.own_host(), core.hosts.master());
        let name = core.hosts.name_of(former);
        let shadow = self.deputies.take_shadow();
        match (core.deputy.take(), shadow) {
            _ if core.halting => {}
            (Some(deputy), Some(shadow)) if deputy == own => {
                core.log(format!("the master {name} has died"));
                self.succeed(core, former, *shadow);
            }
            (Some(deputy), _) if deputy != own && core.hosts.is_here(deputy) => {
                core.log(format!("the master {name} has died"));
                self.follow(core, deputy, true);
            }
            _ => core.raise(Event::MasterLost("its daemon has ended".into())),
        }
    }

    /// Becomes the master in place of `former`, which has died.
    fn succeed(&mut self, core: &mut Core, former: Tid, shadow: Shadow) {
        let Shadow { machine, version, hosts, joining, mailboxes, groups, servers, answers, .. } = shadow;
        self.begin_office(core);
        self.membership.table_replaced(core, version, hosts, &joining);
        for host in core.hosts.others().into_iter().filter(|host| *host != former && !joining.contains(host)) {
            core.await_following(host, false);
        }
        self.mailboxes.succeed(mailboxes);
        self.take_machine_state(core, machine);
        self.groups.succeed(core, groups);
        self.servers.succeed(core, servers);
        let clients: BTreeSet<Tid> = self.mailboxes.owners().chain(self.groups.all_members()).collect();
        self.take_clients(core, clients);
        core.keep_answers(answers);
        let unanswered = self.remote.take_of_master();
        // The hosts that had not joined, and the former master, are out.
        for host in joining {
            self.membership.lose_host(core, host, "the master has died before it had joined");
        }
        self.membership.lose_host(core, former, "its daemon has ended");
        core.hosts.others().into_iter().for_each(|host| core.want_link(host));
        self.membership.take_office(core);
        self.settle(core);
        for request in unanswered {
            self.decide_again(core, (core.own_host(), request.number), request.tid, request.wait, request.request);
        }
        core.drop_answers(core.own_host());
        self.groups.examine_barriers(core);
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
