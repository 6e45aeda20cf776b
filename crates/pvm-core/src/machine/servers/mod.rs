//! Tasks that serve the daemon: hoster, tasker, resource manager, tracer (contract 2.12).
//!
//! * `hoster`: start of daemons by the hoster
//! * `manager_messages`: messages between the daemon and a resource manager

mod hoster;
mod manager_messages;

use self::hoster::HosterRequest;
use self::manager_messages::{manager_reply, manager_request, read_exec, strings};
use super::core::{Core, SubMachine};
use super::event::Event;
use super::membership::{self, Membership};
use super::notify::{self, Notify};
use super::roles::ROLES;
use super::spawn::{self, Spawns};
use super::task_table::Origin;
use super::tasks::Tasks;
use crate::codes::{Code, SM_ADD, SM_EXEC, SM_EXECACK, SM_HANDOFF, SM_STHOSTACK, SM_TASKX};
use crate::encoding::{Reader, Writer};
use crate::proto::{Message, Reply, Request, Role, TaskEnd, TraceSettings, Usage};
use crate::tid::{LOCAL_MASK, Tid};
use crate::wire::{self, Frame};

/// A request that was forwarded to a manager.
struct ForwardedRequest {
    manager: Tid,
    task: Tid,
    wait: u32,
    /// The tag of the message to the manager and of its answer.
    tag: i32,
    request: Request,
    /// For a spawn: its tasks that were started by order of the manager.
    started: Vec<i32>,
}

/// Requests that are pending at servers.
#[derive(Default)]
pub(super) struct Servers {
    /// At the master: the servers of the whole machine, as they were last sent to the other hosts.
    last_broadcast: Option<wire::Servers>,
    forwarded: Vec<ForwardedRequest>,
    hoster_request: Option<HosterRequest>,
    /// The wait id assigned last to a message to the hoster.
    last_wid: i32,
}

/// The sub-machines that execute the orders in messages to the daemon.
pub(super) struct MessageTargets<'a> {
    pub membership: &'a mut Membership,
    pub tasks: &'a mut Tasks,
    pub spawns: &'a mut Spawns,
}

impl SubMachine for Servers {
    fn name(&self) -> &'static str {
        "servers"
    }
    fn is_idle(&self) -> bool {
        self.forwarded.is_empty() && self.hoster_request.is_none()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskEnrolled { tid, arrived: true } => {
                if let Some(manager) = core.roles.manager {
                    core.tell(manager, 0, SM_EXECACK, 0, Writer::new().int(1).int(tid.0 as i32).finish());
                }
            }
            Event::TaskLeft { tid, .. } => {
                self.vacate(core, |holder| holder == *tid);
                self.forwarded.retain(|forwarded| forwarded.task != *tid);
            }
            Event::ClientLeft { tid, .. } => self.vacate(core, |holder| holder == *tid),
            // Other hosts learn from the master that a server is gone.
            Event::HostGone(host) if core.is_master() => self.vacate(core, |holder| holder.host() == *host),
            Event::ManagerSpawned { manager, wid, ctx, parent, results } => {
                self.note_managed_spawn(*manager, *parent, results);
                answer_exec(core, *manager, *wid, *ctx, results);
            }
            _ => {}
        }
    }
}

/// Announces that a task has taken a role.
fn announce(core: &mut Core, role: Role, tid: Tid) {
    if core.is_master() {
        return core.raise(Event::RoleTaken { role, tid });
    }
    if let Some(task) = core.tasks.get_mut(tid) {
        task.known_to_master = true;
    }
    core.send_master(Frame::Serves { role, tid, on: true });
}

/// Withdraws what [`announce`] has announced.
fn withdraw(core: &mut Core, role: Role, tid: Tid) {
    match core.is_master() {
        true => core.raise(Event::RoleLeft { role, tid }),
        false => core.send_master(Frame::Serves { role, tid, on: false }),
    }
}

/// At the master: handles the news from another host that a task has taken or given up a role.
pub(super) fn role_changed(core: &mut Core, role: Role, tid: Tid, on: bool) {
    if !core.is_master() {
        return;
    }
    if on {
        core.clients.insert(tid);
        announce(core, role, tid);
    } else {
        withdraw(core, role, tid);
    }
}

/// Answers a manager's order to start tasks.
fn answer_exec(core: &mut Core, manager: Tid, wid: i32, ctx: i32, results: &[i32]) {
    let body = Writer::new().int(results.len() as i32);
    let body = results.iter().fold(body, |body, result| body.int(*result));
    core.tell(manager, ctx, SM_EXECACK, wid, body.finish());
}

impl Servers {
    /// Gives a task a role, or takes the role away.
    pub fn register(&mut self, core: &mut Core, from: Tid, role: Role, on: bool) -> Result<Reply, Code> {
        if role == Role::Hoster && from.host() != core.hosts.master() {
            return Err(Code::HostrNMstr);
        }
        let (previous, manager) = (core.roles.of(role), role == Role::ResourceManager);
        match (on, previous) {
            (true, Some(other)) if other != from && !manager => return Err(Code::Already),
            (true, _) => core.roles.set(role, Some(from)),
            (false, Some(own)) if own == from => core.roles.set(role, None),
            (false, _) => {}
        }
        if let Some(previous) = previous.filter(|previous| on || *previous == from) {
            withdraw(core, role, previous);
        }
        match on {
            true => announce(core, role, from),
            false if previous == Some(from) => self.server_gone(core, from, role),
            false => return Ok(Reply::Int(0)),
        }
        self.broadcast_servers(core);
        match manager && on {
            true => Ok(Reply::Manager { previous: previous.unwrap_or(Tid::NONE), hosts: core.hosts.list(core.deputy) }),
            false => Ok(Reply::Int(0)),
        }
    }

    /// Sets where the traces and the output of later tasks go by default, at the request of the tracer.
    pub fn set_tracer(&mut self, core: &mut Core, from: Tid, wish: TraceSettings) -> Result<Reply, Code> {
        if core.roles.tracer != Some(from) {
            return Err(Code::Denied);
        }
        core.roles.tracer_settings = Some(wish);
        self.broadcast_servers(core);
        Ok(Reply::Done)
    }

    /// At the master: sends all other hosts the tids of the tasks that serve the whole machine.
    fn broadcast_servers(&mut self, core: &mut Core) {
        // The servers are recorded even if there are no other hosts, because hosts that join get them in their welcome.
        let servers = core.roles.common();
        if core.is_master() && self.last_broadcast.as_ref() != Some(&servers) {
            core.changes.servers = true;
            for host in core.hosts.others() {
                core.send_host(host, Frame::Servers(servers.clone()));
            }
            self.last_broadcast = Some(servers);
        }
    }

    /// Takes over the servers that the deputy has kept for the former master. Tells them to all hosts, because the
    /// last change may not have come there.
    pub fn succeed(&mut self, core: &mut Core, servers: wire::Servers) {
        self.servers_received(core, servers);
        self.last_broadcast = None;
        self.broadcast_servers(core);
    }

    /// Handles the master's news of the servers of the whole machine.
    pub fn servers_received(&mut self, core: &mut Core, servers: wire::Servers) {
        let wire::Servers { manager, tracer, tracer_settings } = servers;
        let before = std::mem::replace(&mut core.roles.manager, manager);
        if let Some(heir) = manager.filter(|manager| manager.host() == core.own_host()) {
            // The previous manager may have passed the role on to a task of this host. If so, the master needs a report
            // when this task ends.
            match core.tasks.get_mut(heir) {
                Some(task) => task.known_to_master = true,
                None => core.send_master(Frame::Left { tid: heir, ended: true }),
            }
        }
        (core.roles.tracer, core.roles.tracer_settings) = (tracer, tracer_settings);
        if let Some(before) = before.filter(|before| manager != Some(*before)) {
            self.manager_gone(core, before);
        }
    }

    /// Vacates the roles of tasks that are gone.
    fn vacate(&mut self, core: &mut Core, is_gone: impl Fn(Tid) -> bool) {
        for role in ROLES {
            // The master vacates the roles that serve the whole machine.
            if role != Role::Tasker && !core.is_master() {
                continue;
            }
            if let Some(holder) = core.roles.of(role).filter(|holder| is_gone(*holder)) {
                core.roles.set(role, None);
                withdraw(core, role, holder);
                self.server_gone(core, holder, role);
                self.broadcast_servers(core);
            }
        }
        // The present manager may live, but an earlier manager may be gone with requests that it has not answered.
        self.decide_forwarded(core, is_gone);
    }

    /// Handles the news that a task has given up a role or is gone; the task will not answer pending requests.
    fn server_gone(&mut self, core: &mut Core, tid: Tid, role: Role) {
        match role {
            Role::Hoster if self.hoster_request.take().is_some() => core.raise(Event::HosterGone),
            Role::Hoster => {}
            Role::Tracer => core.roles.tracer_settings = None,
            Role::Tasker => core.raise(Event::TaskerGone(tid)),
            Role::ResourceManager => self.manager_gone(core, tid),
        }
    }

    /// Takes over from a manager that is gone.
    fn manager_gone(&mut self, core: &mut Core, manager: Tid) {
        self.decide_forwarded(core, |tid| tid == manager);
        core.raise(Event::ManagerGone(manager));
    }

    /// Decides the requests that were forwarded to managers that are gone.
    fn decide_forwarded(&mut self, core: &mut Core, is_gone: impl Fn(Tid) -> bool) {
        let (left, others) = std::mem::take(&mut self.forwarded).into_iter().partition(|one| is_gone(one.manager));
        self.forwarded = others;
        for ForwardedRequest { task, wait, request, mut started, .. } in left {
            match request {
                Request::Spawn(spawn) if !started.is_empty() => {
                    // Some tasks of the spawn have started, so the spawn is not repeated: its other tasks count as
                    // failed.
                    let wanted = usize::try_from(spawn.count).unwrap_or(0).min(LOCAL_MASK as usize);
                    started.resize(started.len().max(wanted), Code::DSysErr.number());
                    core.reply(task, wait, Ok(Reply::Tids(started)));
                }
                request => core.raise(Event::RequestReturned { from: task, wait, request }),
            }
        }
    }

    // ----- resource manager

    /// Adds tasks, started by order of the manager, to the results of the spawn that their parent waits for.
    fn note_managed_spawn(&mut self, manager: Tid, parent: i32, results: &[i32]) {
        let fits = |one: &&mut ForwardedRequest| {
            one.manager == manager && one.task.0 as i32 == parent && matches!(one.request, Request::Spawn(_))
        };
        if let Some(one) = self.forwarded.iter_mut().find(fits) {
            one.started.extend(results.iter().filter(|tid| **tid > 0));
        }
    }

    /// Forwards a request to the manager if the manager decides it; else returns it.
    pub fn for_manager(
        &mut self,
        core: &mut Core,
        notify: &mut Notify,
        from: Tid,
        wait: u32,
        request: Request,
    ) -> Option<Request> {
        let manager = core.roles.manager.filter(|manager| *manager != from);
        let bound = core.tasks.get(from).is_some_and(|task| manager == Some(task.manager));
        let (true, Some(manager)) = (bound, manager) else { return Some(request) };
        let Some((tag, body)) = manager_request(&request) else { return Some(request) };
        core.send_message(Message { wid: wait as i32, ..Message::new(from, manager, 0, tag, body.finish()) });
        match request {
            // The manager passes the request on or sends the notifies itself; it does not answer, so this daemon
            // answers the task.
            Request::Notify { what, ctx, tag, count, tids } => {
                notify.delegate(core, manager, notify::Target { task: from, ctx, tag }, what, count, &tids);
                core.reply(from, wait, Ok(Reply::Done));
            }
            request => {
                self.forwarded.push(ForwardedRequest { manager, task: from, wait, tag, request, started: Vec::new() });
            }
        }
        None
    }

    /// Handles a message that may be the manager's answer to a forwarded request. The message is on its way from the
    /// manager to the task, or the task has received it and hands it back. Returns whether the message was such an
    /// answer.
    pub fn answer_of_manager(&mut self, core: &mut Core, from: Tid, message: &Message) -> bool {
        let theirs = |one: &ForwardedRequest| one.task == from || (one.manager == from && one.task == message.dst);
        let fits = |one: &ForwardedRequest| theirs(one) && one.wait as i32 == message.wid && one.tag == message.tag;
        let Some(at) = self.forwarded.iter().position(fits) else { return false };
        let ForwardedRequest { task, wait, .. } = self.forwarded.remove(at);
        let answer = manager_reply(message.tag, &mut message.reader()).ok_or(Code::BadMsg);
        core.reply(task, wait, answer);
        true
    }

    /// Handles a message to the daemon.
    pub fn handle_message(&mut self, core: &mut Core, targets: &mut MessageTargets<'_>, from: Tid, message: &Message) {
        if self.answer_of_manager(core, from, message) {
            return;
        }
        let body = &mut message.reader();
        let manager = core.roles.manager == Some(from);
        match message.tag {
            SM_ADD | SM_HANDOFF if manager && !core.is_master() => {
                core.send_master(Frame::Deliver(message.clone()));
            }
            SM_TASKX => {
                let Some(tid) = body.int().map(|tid| Tid(tid as u32)) else { return };
                if core.tasks.get(tid).is_some_and(|task| task.origin == Origin::Tasker(from)) {
                    targets.tasks.process_ended(core, tid, read_end(body));
                }
            }
            SM_STHOSTACK => self.hosts_started(core, targets.membership, from, message.wid, body),
            SM_EXEC if manager => match read_exec(body) {
                // Each task receives its instance number, which must not overflow.
                Some((parent, spawn, first, total)) if first.checked_add(spawn.count.max(0)).is_some() => {
                    let asker = spawn::Asker::Manager { tid: from, wid: message.wid, ctx: message.ctx, parent };
                    targets.spawns.distribute(core, asker, spawn, first, total);
                }
                _ => answer_exec(core, from, message.wid, message.ctx, &[Code::BadMsg.number()]),
            },
            SM_ADD if manager => {
                let asker = membership::Asker::Manager { tid: from, wid: message.wid, ctx: message.ctx };
                targets.membership.add_managed_hosts(core, asker, strings(body).unwrap_or_default());
            }
            SM_HANDOFF if manager => self.hand_off(core, from, body),
            _ => {}
        }
    }

    /// Passes the role of the manager on to another task.
    fn hand_off(&mut self, core: &mut Core, from: Tid, body: &mut Reader<'_>) {
        let heir = body.int().map(|tid| Tid(tid as u32)).filter(|tid| core.can_receive(*tid));
        withdraw(core, Role::ResourceManager, from);
        core.roles.manager = heir;
        if let Some(heir) = heir {
            if heir.host() != core.own_host() {
                // Once the host of the heir knows of the role, it reports the end of the heir to the master.
                core.clients.insert(heir);
            }
            announce(core, Role::ResourceManager, heir);
        }
        self.broadcast_servers(core);
    }
}

/// Reads how a process of a tasker has ended: the wait status, then seconds and microseconds of the program and of the
/// system.
fn read_end(body: &mut Reader<'_>) -> TaskEnd {
    let status = body.int().unwrap_or(0);
    let mut part = || body.int().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let mut time = || part() * 1_000_000 + part();
    let usage = Usage { user_us: time(), system_us: time(), memory_max_bytes: 0 };
    TaskEnd { status, usage }
}
