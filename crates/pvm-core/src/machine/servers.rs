//! Tasks that serve the daemon: hoster, tasker, resource manager, tracer (contract 2.12).
use super::tasks::{Origin, State};
use super::{Machine, Start, hoster, joining, notify, spawn};
use crate::codes::{
    CLASS_HOSTER, CLASS_MANAGER, CLASS_TASKER, CLASS_TRACER, Code, MBOX_MULTI_INSTANCE, NOTIFY_CANCEL, NOTIFY_HOST_ADD,
    NOTIFY_TASK_EXIT, SM_ADD, SM_ADDHOST, SM_CONFIG, SM_DELHOST, SM_EXEC, SM_EXECACK, SM_HANDOFF, SM_NOTIFY, SM_SPAWN,
    SM_STHOSTACK, SM_STTASK, SM_TASK, SM_TASKX, TASK_HOSTER, TASK_RM, TASK_TASKER, TASK_TRACER,
};
use crate::encoding::{Reader, Writer};
use crate::proto::{ByteBuf, Host, Message, Reply, Request, Role, Spawn, TaskInfo, TraceSettings};
use crate::tid::{LOCAL_MASK, Tid};
use crate::wire::{self, Frame};

/// A request that a manager has been asked to answer.
struct Forwarded {
    manager: Tid,
    task: Tid,
    wait: u32,
    tag: i32,
    request: Request,
    /// Of a spawn: what the manager has had started for it.
    started: Vec<i32>,
}

/// A wish to be notified that a manager was told of.
struct Wish {
    manager: Tid,
    target: notify::Target,
    what: i32,
    count: i32,
    tids: Vec<Tid>,
}

/// Who serves, and what they were asked.
#[derive(Default)]
pub(super) struct Servers {
    pub hoster: Option<Tid>,
    pub tasker: Option<Tid>,
    pub manager: Option<Tid>,
    pub tracer: Option<Tid>,
    /// What other hosts were told last.
    spread: Option<wire::Servers>,
    forwarded: Vec<Forwarded>,
    wishes: Vec<Wish>,
    pub hosting: Option<hoster::Hosting>,
    pub last_wid: i32,
}

impl Servers {
    pub fn is_idle(&self) -> bool {
        let servers = [self.hoster, self.tasker, self.manager, self.tracer];
        servers.iter().all(Option::is_none)
            && self.forwarded.is_empty()
            && self.wishes.is_empty()
            && self.hosting.is_none()
    }

    fn of(&mut self, role: Role) -> (&mut Option<Tid>, &'static str) {
        match role {
            Role::Hoster => (&mut self.hoster, CLASS_HOSTER),
            Role::Tasker => (&mut self.tasker, CLASS_TASKER),
            Role::ResourceManager => (&mut self.manager, CLASS_MANAGER),
            Role::Tracer => (&mut self.tracer, CLASS_TRACER),
        }
    }
}

/// The flags of a task that serves, for `pvm_tasks`.
pub(super) fn flags(servers: &Servers, tid: Tid) -> u32 {
    let roles = [
        (servers.manager, TASK_RM),
        (servers.hoster, TASK_HOSTER),
        (servers.tasker, TASK_TASKER),
        (servers.tracer, TASK_TRACER),
    ];
    roles.iter().filter(|(server, _)| *server == Some(tid)).map(|(_, flag)| flag).sum()
}

const ROLES: [Role; 4] = [Role::Hoster, Role::Tasker, Role::ResourceManager, Role::Tracer];

impl Machine {
    pub(super) fn register(&mut self, from: Tid, role: Role, on: bool) -> Result<Reply, Code> {
        if role == Role::Hoster && from.host() != self.hosts.master() {
            return Err(Code::HostrNMstr);
        }
        let (server, class) = self.servers.of(role);
        let previous = *server;
        let manager = role == Role::ResourceManager;
        match (on, previous) {
            (true, Some(other)) if other != from && !manager => return Err(Code::Already),
            (true, _) => *server = Some(from),
            (false, Some(own)) if own == from => *server = None,
            (false, _) => {}
        }
        if let Some(previous) = previous.filter(|previous| on || *previous == from) {
            self.withdraw_server(role, previous, class);
        }
        match on {
            true => self.announce_server(role, from, class),
            false if previous == Some(from) => self.server_gone(from, role),
            false => return Ok(Reply::Int(0)),
        }
        self.spread_servers();
        match manager && on {
            true => Ok(Reply::Manager { previous: previous.unwrap_or(Tid::NONE), hosts: self.hosts.list() }),
            false => Ok(Reply::Int(0)),
        }
    }

    fn announce_server(&mut self, role: Role, tid: Tid, class: &str) {
        if !self.hosts.is_master() {
            if let Some(task) = self.tasks.get_mut(tid) {
                task.known_to_master = true;
            }
            return self.send_host(self.hosts.master(), Frame::Serves { role, tid, on: true });
        }
        let body = Writer::new().int(tid.0 as i32).finish();
        let message = Message::new(tid, Tid::DAEMON, 0, 0, body);
        // Where another task has put something under that name, both entries stand.
        let _ = self.put_info(tid, ByteBuf::from(class.as_bytes().to_vec()), MBOX_MULTI_INSTANCE, message);
    }

    fn withdraw_server(&mut self, role: Role, tid: Tid, class: &str) {
        match self.hosts.is_master() {
            true => self.mailboxes.withdraw(tid, class),
            false => self.send_host(self.hosts.master(), Frame::Serves { role, tid, on: false }),
        }
    }

    /// A task serves another host, or serves it no more.
    pub(super) fn serves(&mut self, role: Role, tid: Tid, on: bool) {
        let (_, class) = self.servers.of(role);
        match on {
            _ if !self.hosts.is_master() => {}
            true => {
                self.remote.guests.insert(tid);
                self.announce_server(role, tid, class);
            }
            false => self.mailboxes.withdraw(tid, class),
        }
    }

    /// Who serves the whole machine.
    pub(super) fn common_servers(&self) -> wire::Servers {
        let (manager, tracer) = (self.servers.manager, self.servers.tracer);
        wire::Servers { manager, tracer, wish: self.traces.wish().cloned() }
    }

    /// The master tells all other hosts who serves the whole machine.
    pub(super) fn spread_servers(&mut self) {
        // Also when there are no others: those who come are told of the servers in their welcome.
        if self.hosts.is_master() {
            let servers = self.common_servers();
            if self.servers.spread.as_ref() != Some(&servers) {
                for host in self.hosts.others() {
                    self.send_host(host, Frame::Servers(servers.clone()));
                }
                self.servers.spread = Some(servers);
            }
        }
    }

    /// The master has told who serves the whole machine.
    pub(super) fn servers_changed(&mut self, servers: wire::Servers) {
        let wire::Servers { manager, tracer, wish } = servers;
        let before = std::mem::replace(&mut self.servers.manager, manager);
        if let Some(heir) = manager.filter(|manager| manager.host() == self.own_host()) {
            // Another one may have handed the office on to it.
            match self.tasks.get_mut(heir) {
                Some(task) => task.known_to_master = true,
                None => self.send_host(self.hosts.master(), Frame::Left { tid: heir, ended: true }),
            }
        }
        self.servers.tracer = tracer;
        self.traces.set_wish(wish);
        if let Some(before) = before.filter(|before| manager != Some(*before)) {
            self.manager_gone(before);
        }
    }

    /// A task has left: what it served, nobody serves now.
    pub(super) fn forget_server(&mut self, tid: Tid) {
        for role in ROLES {
            // Of those that serve the whole machine the master knows.
            if role != Role::Tasker && !self.hosts.is_master() {
                continue;
            }
            let (server, class) = self.servers.of(role);
            if *server == Some(tid) {
                *server = None;
                self.withdraw_server(role, tid, class);
                self.server_gone(tid, role);
                self.spread_servers();
            }
        }
        // It may have been the manager before the present one.
        self.manager_gone(tid);
        self.servers.forwarded.retain(|forwarded| forwarded.task != tid);
        self.forget_wishes(|wish, _| wish.target.task == tid);
    }

    /// A task or host is no more, as that watcher can know or everybody: it needs not to be told of that later.
    pub(super) fn forget_wishes_of(&mut self, tid: Tid, watcher: Option<Tid>) {
        let same = |wanted: Tid| wanted == tid || tid.is_host() && wanted.host() == tid;
        self.forget_wishes(|wish, wanted| same(wanted) && watcher.is_none_or(|watcher| wish.target.task == watcher));
    }

    /// Forgets those parts of wishes, and ends the watches at other hosts that were for them.
    fn forget_wishes(&mut self, ends: impl Fn(&Wish, Tid) -> bool) {
        let mut ended = Vec::new();
        for wish in &mut self.servers.wishes {
            let tids = std::mem::take(&mut wish.tids);
            let (gone, left) = tids.into_iter().partition::<Vec<Tid>, _>(|tid| ends(wish, *tid));
            wish.tids = left;
            let far = gone.into_iter().filter(|_| wish.what == NOTIFY_TASK_EXIT);
            ended.extend(far.map(|tid| (wish.target.task, tid)));
        }
        self.servers
            .wishes
            .retain(|wish| wish.what == NOTIFY_HOST_ADD && !ends(wish, Tid::NONE) || !wish.tids.is_empty());
        ended.into_iter().for_each(|(watcher, tid)| self.unwatch_unless_wanted(watcher, tid));
    }

    /// Whether a manager was asked to tell that task of the end of that other one.
    pub(super) fn wishes_for(&self, watcher: Tid, tid: Tid) -> bool {
        let fits = |wish: &Wish| wish.what == NOTIFY_TASK_EXIT && wish.target.task == watcher;
        self.servers.wishes.iter().any(|wish| fits(wish) && wish.tids.contains(&tid))
    }

    /// Answers what the server was asked.
    fn server_gone(&mut self, tid: Tid, role: Role) {
        match role {
            Role::Hoster if self.servers.hosting.take().is_some() => self.fail_add(Code::DSysErr),
            Role::Hoster => {}
            Role::Tracer => self.traces.drop_wish(),
            Role::Tasker => {
                let lost =
                    |task: &super::tasks::Task| task.origin == Origin::Tasker(tid) && task.state != State::Connected;
                let lost: Vec<Tid> = self.tasks.iter().filter(|(_, task)| lost(task)).map(|(tid, _)| tid).collect();
                lost.into_iter().for_each(|tid| self.end(tid));
            }
            Role::ResourceManager => self.manager_gone(tid),
        }
    }

    /// What the manager was asked, the daemon answers by itself. Of those whose end the manager was
    /// to tell, it has told the dead; the daemon tells of the living.
    fn manager_gone(&mut self, manager: Tid) {
        let (left, others) =
            std::mem::take(&mut self.servers.forwarded).into_iter().partition(|one| one.manager == manager);
        self.servers.forwarded = others;
        for Forwarded { task, wait, request, mut started, .. } in left {
            match request {
                Request::Spawn(spawn) if !started.is_empty() => {
                    // Not once more: the rest is lost.
                    let wanted = usize::try_from(spawn.count).unwrap_or(0).min(LOCAL_MASK as usize);
                    started.resize(started.len().max(wanted), Code::DSysErr.number());
                    self.reply(task, wait, Ok(Reply::Tids(started)));
                }
                request => self.handle_request(self.now, task, wait, request),
            }
        }
        let (left, others) =
            std::mem::take(&mut self.servers.wishes).into_iter().partition(|wish| wish.manager == manager);
        self.servers.wishes = others;
        for Wish { target, what, count, tids, .. } in left {
            // Whoever asked has had an answer.
            let _ = self.ask_notify(target, what, count, &tids);
        }
    }

    // ----- tasker

    pub(super) fn ask_tasker(&mut self, tasker: Tid, start: &Start, flags: i32, instance: i32, here: i32, total: i32) {
        let body = Writer::new().int(start.tid.0 as i32).int(flags).string(&start.path);
        let body = start.arguments.iter().fold(body.int(start.arguments.len() as i32), |body, one| body.string(one));
        let cookie = format!("PVMEPID={}", start.cookie);
        let body = body.int(start.environment.len() as i32 + 1).string(cookie.as_bytes());
        let body = start.environment.iter().fold(body, |body, one| body.string(one));
        let body = body.int(instance).int(here).int(total);
        self.tell(tasker, 0, SM_STTASK, 0, body.finish());
    }

    fn task_ended(&mut self, from: Tid, body: &mut Reader<'_>) {
        let Some(tid) = body.int().map(|tid| Tid(tid as u32)) else { return };
        if self.tasks.get(tid).is_some_and(|task| task.origin == Origin::Tasker(from)) {
            self.handle_process_end(tid, body.int().unwrap_or(0));
        }
    }

    // ----- resource manager

    pub(super) fn tell_manager_of_new(&mut self, tid: Tid) {
        if let Some(manager) = self.servers.manager {
            self.tell(manager, 0, SM_EXECACK, 0, Writer::new().int(1).int(tid.0 as i32).finish());
        }
    }

    pub(super) fn tell_manager_of_end(&mut self, tid: Tid, status: i32) {
        if let Some(manager) = self.servers.manager {
            let body = Writer::new().int(tid.0 as i32).int(status).int(0).int(0).int(0).int(0);
            self.tell(manager, 0, SM_TASKX, 0, body.finish());
        }
    }

    /// What the manager has had started belongs to the spawn for which the parent waits.
    pub(super) fn note_managed_spawn(&mut self, manager: Tid, parent: i32, tids: &[i32]) {
        let fits = |one: &&mut Forwarded| {
            one.manager == manager && one.task.0 as i32 == parent && matches!(one.request, Request::Spawn(_))
        };
        if let Some(one) = self.servers.forwarded.iter_mut().find(fits) {
            one.started.extend(tids.iter().filter(|tid| **tid > 0));
        }
    }

    pub(super) fn answer_manager_spawn(&mut self, manager: Tid, wid: i32, ctx: i32, tids: Vec<i32>) {
        let body = Writer::new().int(tids.len() as i32);
        let body = tids.into_iter().fold(body, Writer::int);
        self.tell(manager, ctx, SM_EXECACK, wid, body.finish());
    }

    /// Hands a request to the manager when it is the manager's to answer; else gives it back.
    pub(super) fn for_manager(&mut self, from: Tid, wait: u32, request: Request) -> Option<Request> {
        let manager = self.servers.manager.filter(|manager| *manager != from);
        let bound = self.tasks.get(from).is_some_and(|task| manager == Some(task.manager));
        let (true, Some(manager)) = (bound, manager) else { return Some(request) };
        let Some((tag, body)) = manager_request(&request) else { return Some(request) };
        let message = Message { wid: wait as i32, ..Message::new(from, manager, 0, tag, body.finish()) };
        self.send_message(message);
        if tag == SM_NOTIFY {
            // The manager passes it on or notifies by itself; it sends no answer.
            self.remember_wish(manager, from, request);
            self.reply(from, wait, Ok(Reply::Done));
        } else {
            self.servers.forwarded.push(Forwarded { manager, task: from, wait, tag, request, started: Vec::new() });
        }
        None
    }

    fn remember_wish(&mut self, manager: Tid, from: Tid, request: Request) {
        let Request::Notify { what, ctx, tag, count, mut tids } = request else { return };
        let target = notify::Target { task: from, ctx, tag };
        let wanted = what & !NOTIFY_CANCEL;
        if wanted == NOTIFY_TASK_EXIT {
            tids.retain(|tid| self.may_live(*tid));
        }
        if what != wanted {
            let all = wanted == NOTIFY_HOST_ADD;
            let same = |wish: &Wish| wish.target == target && wish.what == wanted;
            return self.forget_wishes(|wish, tid| same(wish) && (all || tids.contains(&tid)));
        }
        // Who has died elsewhere before the manager did, of that the manager has told.
        let far = tids.iter().filter(|tid| wanted == NOTIFY_TASK_EXIT && tid.host() != self.own_host());
        for tid in far.copied().collect::<Vec<_>>() {
            self.watch_far(tid, from);
        }
        self.servers.wishes.push(Wish { manager, target, what, count, tids });
    }

    /// The manager's answer to a forwarded request: by way of the daemon, or handed back by the
    /// task that got it.
    pub(super) fn answer_of_manager(&mut self, from: Tid, message: &Message) -> bool {
        let theirs = |one: &Forwarded| one.task == from || (one.manager == from && one.task == message.dst);
        let fits = |one: &Forwarded| theirs(one) && one.wait as i32 == message.wid && one.tag == message.tag;
        let Some(at) = self.servers.forwarded.iter().position(fits) else { return false };
        let Forwarded { task, wait, .. } = self.servers.forwarded.remove(at);
        let answer = manager_reply(message.tag, &mut message.reader()).ok_or(Code::BadMsg);
        self.reply(task, wait, answer);
        true
    }

    /// A message to the daemon.
    pub(super) fn handle_server_message(&mut self, from: Tid, message: &Message) {
        if self.answer_of_manager(from, message) {
            return;
        }
        let body = &mut message.reader();
        let manager = self.servers.manager == Some(from);
        match message.tag {
            SM_ADD | SM_HANDOFF if manager && !self.hosts.is_master() => {
                self.send_host(self.hosts.master(), Frame::Deliver(message.clone()));
            }
            SM_TASKX => self.task_ended(from, body),
            SM_STHOSTACK => self.hosts_started(from, message.wid, body),
            SM_EXEC if manager => self.manager_exec(from, message.wid, message.ctx, body),
            SM_ADD if manager => {
                let asker = joining::Asker::Manager { tid: from, wid: message.wid, ctx: message.ctx };
                self.add_hosts(asker, strings(body).unwrap_or_default());
            }
            SM_HANDOFF if manager => {
                let heir = body.int().map(|tid| Tid(tid as u32)).filter(|tid| self.may_take(*tid));
                self.mailboxes.withdraw(from, CLASS_MANAGER);
                self.servers.manager = heir;
                if let Some(heir) = heir {
                    if heir.host() != self.own_host() {
                        // Its host tells when it ends, as soon as it hears of the office.
                        self.remote.guests.insert(heir);
                    }
                    self.announce_server(Role::ResourceManager, heir, CLASS_MANAGER);
                }
                self.spread_servers();
            }
            _ => {}
        }
    }

    fn manager_exec(&mut self, manager: Tid, wid: i32, ctx: i32, body: &mut Reader<'_>) {
        match read_exec(body) {
            // Each is told its number.
            Some((parent, spawn, first, total)) if first.checked_add(spawn.count.max(0)).is_some() => {
                let asker = spawn::Asker::Manager { tid: manager, wid, ctx, parent };
                self.deal(asker, spawn, first, total);
            }
            _ => self.answer_manager_spawn(manager, wid, ctx, vec![Code::BadMsg.number()]),
        }
    }
}

fn write_strings(body: Writer, list: &[ByteBuf]) -> Writer {
    list.iter().fold(body.int(list.len() as i32), |body, one| body.string(one))
}

/// A count and that many strings.
fn strings(body: &mut Reader<'_>) -> Option<Vec<ByteBuf>> {
    let count = body.int()?;
    (0..count).map(|_| body.string().map(|text| ByteBuf::from(text.to_vec()))).collect()
}

/// A request in the form in which a manager gets it.
fn manager_request(request: &Request) -> Option<(i32, Writer)> {
    let body = Writer::new();
    Some(match request {
        Request::Spawn(spawn) => {
            let body = body.string(&spawn.file).int(spawn.flags).string(&spawn.place).int(spawn.count);
            let traces = &spawn.children;
            let body = write_strings(body, &spawn.arguments);
            let body = body.int(traces.output_tid).int(traces.output_ctx).int(traces.output_tag);
            let body = body.int(traces.trace_tid).int(traces.trace_ctx).int(traces.trace_tag);
            (SM_SPAWN, write_strings(body, &spawn.environment))
        }
        Request::Tasks(place) => (SM_TASK, body.int(place.0 as i32)),
        Request::Config => (SM_CONFIG, body),
        Request::AddHosts(names) => (SM_ADDHOST, write_strings(body, names)),
        Request::DeleteHosts(names) => (SM_DELHOST, write_strings(body, names)),
        Request::Notify { what, ctx, tag, count, tids } => {
            let count = if tids.is_empty() { *count } else { tids.len() as i32 };
            let body = body.int(*what).int(*ctx).int(*tag).int(count);
            (SM_NOTIFY, tids.iter().fold(body, |body, tid| body.int(tid.0 as i32)))
        }
        _ => return None,
    })
}

/// A manager's answer.
fn manager_reply(tag: i32, body: &mut Reader<'_>) -> Option<Reply> {
    let count = body.int()?;
    if count < 0 {
        let code = Code::from_number(count)?;
        return Some(Reply::Error(code));
    }
    match tag {
        SM_SPAWN => Some(Reply::Tids((0..count).map(|_| body.int()).collect::<Option<_>>()?)),
        SM_DELHOST => Some(Reply::Codes((0..count).map(|_| body.int()).collect::<Option<_>>()?)),
        SM_TASK => {
            let mut tasks = Vec::new();
            while !body.rest().is_empty() {
                tasks.push(read_task(body)?);
            }
            Some(Reply::Tasks(tasks))
        }
        SM_CONFIG => {
            let formats = body.int()?;
            let hosts = (0..count).map(|_| read_host(body)).collect::<Option<_>>()?;
            Some(Reply::Hosts { hosts, formats })
        }
        SM_ADDHOST => {
            body.int()?;
            let hosts: Vec<i32> = (0..count).map(|_| Some(read_host(body)?.tid.0 as i32)).collect::<Option<_>>()?;
            let count = hosts.iter().filter(|tid| **tid > 0).count() as i32;
            Some(Reply::AddedHosts { count, reasons: vec![String::new(); hosts.len()], hosts })
        }
        _ => None,
    }
}

fn read_task(body: &mut Reader<'_>) -> Option<TaskInfo> {
    Some(TaskInfo {
        tid: Tid(body.int()? as u32),
        parent: body.int()?,
        host: Tid(body.int()? as u32),
        flags: body.int()? as u32,
        name: ByteBuf::from(body.string()?.to_vec()),
        pid: body.int()?,
        output: (0, 0, 0),
    })
}

fn read_host(body: &mut Reader<'_>) -> Option<Host> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Host {
        tid: Tid(body.int()? as u32),
        name: text(body.string()?),
        arch: text(body.string()?),
        speed: body.int()?,
        dsig: body.int()?,
    })
}

/// The body of `SM_EXEC`: parent, spawn, first instance, total.
fn read_exec(body: &mut Reader<'_>) -> Option<(i32, Spawn, i32, i32)> {
    let parent = body.int()?;
    let file = ByteBuf::from(body.string()?.to_vec());
    let (flags, count) = (body.int()?, body.int()?);
    let arguments = strings(body)?;
    let mut words = [0; 6];
    for word in &mut words {
        *word = body.int()?;
    }
    let [output_tid, output_ctx, output_tag, trace_tid, trace_ctx, trace_tag] = words;
    let environment = strings(body)?;
    let first = body.int().unwrap_or(0);
    let total = body.int().unwrap_or(count);
    let children =
        TraceSettings { output_tid, output_ctx, output_tag, trace_tid, trace_ctx, trace_tag, ..Default::default() };
    // The manager has chosen the place: it is this host.
    let flags = flags & !(crate::codes::TASK_HOST | crate::codes::TASK_ARCH | crate::codes::HOST_COMPL);
    Some((parent, Spawn { file, arguments, flags, place: ByteBuf::new(), count, environment, children }, first, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_manager_gets_it_can_pass_on() {
        let spawn = Spawn {
            file: ByteBuf::from(b"prog".to_vec()),
            arguments: vec![ByteBuf::from(b"a b".to_vec())],
            flags: 0,
            place: ByteBuf::new(),
            count: 3,
            environment: vec![ByteBuf::from(b"X=1".to_vec())],
            children: TraceSettings { output_tid: 0x40001, output_tag: 7, ..Default::default() },
        };
        let (tag, _) = manager_request(&Request::Spawn(spawn.clone())).unwrap();
        assert_eq!(tag, SM_SPAWN);
        let body = Writer::new().int(0x40001).string(&spawn.file).int(0).int(3);
        let body = write_strings(body, &spawn.arguments).int(0x40001).int(0).int(7).int(0).int(0).int(0);
        let body = write_strings(body, &spawn.environment).int(0).int(3).finish();
        assert_eq!(read_exec(&mut Reader::new(&body)), Some((0x40001, spawn, 0, 3)));
        assert_eq!(read_exec(&mut Reader::new(&body[..20])), None);
    }

    #[test]
    fn the_answers_of_a_manager_become_replies() {
        let body = Writer::new().int(2).int(0x40001).int(-7).finish();
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body)), Some(Reply::Tids(vec![0x40001, -7])));
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body[..8])), None);
        let body = Writer::new().int(-27).finish();
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body)), Some(Reply::Error(Code::OutOfRes)));
        let body = Writer::new().int(0).int(0x40001).int(0).int(0x40000).int(4).string(b"p").int(9).finish();
        assert!(
            matches!(manager_reply(SM_TASK, &mut Reader::new(&body)), Some(Reply::Tasks(list)) if list[0].pid == 9)
        );
        let body = Writer::new().int(1).int(1).int(0x40000).string(b"alfa").string(b"LINUX64").int(1000).int(7);
        assert!(matches!(
            manager_reply(SM_CONFIG, &mut Reader::new(&body.finish())),
            Some(Reply::Hosts { formats: 1, .. })
        ));
    }
}
