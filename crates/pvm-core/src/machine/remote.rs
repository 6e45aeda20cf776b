//! Requests of tasks, each decided by another host than the task's own.
//!
//! The deciding daemon handles a request as if the task lived on its host. The answer returns to the daemon on the
//! task's host, which knows the waiting task. Requests that are pending at a lost host fail at once.
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::PairIndex;
use super::pending_acks::Ack;
use super::request_kinds::{declared_failed, is_of_master};
use super::tasks;
use crate::codes::Code;
use crate::proto::{Reply, Request, Role, TaskInfo};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// The origin of a request to another host.
enum Asker {
    /// A task of this host. If the other host is lost, the task's answer is `lost`.
    Task { tid: Tid, wait: u32, lost: Reply },
    /// This daemon, which collects the list with that number; the list names the tasks of all hosts.
    TaskList(u32),
}

/// A request that another host has not answered yet.
struct PendingRequest {
    host: Tid,
    asker: Asker,
    /// The request, if only the master decides it: another host may become the master.
    of_master: Option<Box<Request>>,
}

/// A request of a task of this host that the former master has not answered.
pub(super) struct OwnRequest {
    /// Its number at the former master.
    pub number: u32,
    pub tid: Tid,
    pub wait: u32,
    pub request: Request,
}

/// Tasks of one host that wait for a list of the tasks of all hosts.
///
/// * Filled by: tasks of each host
/// * Setting: none, each task waits for one answer at a time
/// * Reached: `pvm_tasks` returns `PvmOutOfRes`
/// * Test: `hosts_are_not_asked_for_their_tasks_more_often_than_they_answer`
const LISTENERS_PER_HOST_MAX: usize = 4096;

/// Requests for a list of the tasks of all hosts, by the host of the asking task: that task and the wait id.
type Listeners = BTreeMap<Tid, Vec<(Tid, u32)>>;

/// An incomplete list of the tasks of all hosts. There is one such list at a time; requests that arrive meanwhile are
/// answered by the next one, so that no host is asked more often than it answers.
struct Gathering {
    number: u32,
    askers: Listeners,
    missing: usize,
    tasks: BTreeMap<Tid, Vec<TaskInfo>>,
}

/// Requests from this host that are pending at other hosts.
#[derive(Default)]
pub(super) struct Remote {
    last: u32,
    pending: BTreeMap<u32, PendingRequest>,
    /// The pending requests by the waiting task, and by the host that is to answer.
    by_task: PairIndex<Tid, u32>,
    by_host: PairIndex<Tid, u32>,
    gathering: Option<Gathering>,
    /// The requests that the next list will answer.
    listeners: Listeners,
}

impl SubMachine for Remote {
    fn name(&self) -> &'static str {
        "requests to other hosts"
    }
    fn is_idle(&self) -> bool {
        let none_open = self.pending.is_empty() && self.by_task.is_empty() && self.by_host.is_empty();
        none_open && self.gathering.is_none() && self.listeners.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, .. } => self.withdraw(*tid),
            Event::HostGone(host) => {
                self.fail_requests_to(core, *host);
                self.listeners.remove(host);
                if let Some(gathering) = &mut self.gathering {
                    gathering.askers.remove(host);
                }
            }
            _ => {}
        }
    }
}

impl Remote {
    /// Records a request to a host; returns its number.
    fn begin(&mut self, host: Tid, asker: Asker, of_master: Option<Box<Request>>) -> u32 {
        // Numbers are not reused at once: the answer to a withdrawn request may still arrive.
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.pending.contains_key(&self.last) {
                break;
            }
        }
        if let Asker::Task { tid, .. } = asker {
            self.by_task.insert(tid, self.last);
        }
        self.by_host.insert(host, self.last);
        self.pending.insert(self.last, PendingRequest { host, asker, of_master });
        self.last
    }
    /// Takes a pending request.
    fn end(&mut self, wait: u32) -> Option<PendingRequest> {
        let open = self.pending.remove(&wait)?;
        if let Asker::Task { tid, .. } = open.asker {
            self.by_task.remove(tid, wait);
        }
        self.by_host.remove(open.host, wait);
        Some(open)
    }
    /// Drops the requests of a task that has left.
    fn withdraw(&mut self, task: Tid) {
        for wait in self.by_task.take(task) {
            self.end(wait);
        }
    }

    /// If another host decides the request, sends it there; otherwise returns it.
    pub fn for_other_host(&mut self, core: &mut Core, from: Tid, wait: u32, request: Request) -> Option<Request> {
        let Some((host, lost)) = deciding_host(core, &request) else { return Some(request) };
        if host == core.hosts.master() {
            if let Some(task) = core.tasks.get_mut(from) {
                task.known_to_master = true;
            }
        }
        let of_master = is_of_master(&request).then(|| Box::new(request.clone()));
        let wait = self.begin(host, Asker::Task { tid: from, wait, lost }, of_master);
        core.send_host(host, Frame::Request { wait, from, request, again: false });
        None
    }

    /// Handles the answer of another host. Returns the task of this host that gets the answer, the wait id and the
    /// reply.
    pub fn answered(&mut self, core: &mut Core, from: Tid, wait: u32, reply: Reply) -> Option<(Tid, u32, Reply)> {
        self.pending.get(&wait).filter(|open| open.host == from)?;
        let open = self.end(wait)?;
        core.acks.received(from, Ack::Tasks(wait));
        self.settle(core, open, Some(reply))
    }

    /// Applies the answer of a host or, if `reply` is `None`, the loss of the host. If a task of this host asked,
    /// returns the answer for it.
    fn settle(&mut self, core: &mut Core, open: PendingRequest, reply: Option<Reply>) -> Option<(Tid, u32, Reply)> {
        match open.asker {
            Asker::Task { tid, wait, lost } => Some((tid, wait, reply.unwrap_or(lost))),
            Asker::TaskList(number) => {
                let tasks = match reply {
                    Some(Reply::Tasks(tasks)) => tasks,
                    _ => Vec::new(),
                };
                self.gathered(core, number, open.host, tasks);
                None
            }
        }
    }

    /// Fails all requests that are pending at a lost host.
    fn fail_requests_to(&mut self, core: &mut Core, host: Tid) {
        for wait in self.by_host.take(host) {
            let Some(open) = self.end(wait) else { continue };
            if let Some((tid, wait, lost)) = self.settle(core, open, None) {
                core.reply(tid, wait, Ok(lost));
            }
        }
    }

    // ----- another master

    /// Returns the numbers of the requests that the former master has not answered, the oldest first.
    fn of_master(&self) -> Vec<u32> {
        self.pending.iter().filter(|(_, open)| open.of_master.is_some()).map(|(wait, _)| *wait).collect()
    }

    /// Sends to the master what the former one has not answered.
    pub fn repeat_to_master(&mut self, core: &mut Core) {
        let master = core.hosts.master();
        for wait in self.of_master() {
            let Some(open) = self.pending.get_mut(&wait) else { continue };
            let (Asker::Task { tid, .. }, Some(request)) = (&open.asker, &open.of_master) else { continue };
            let (from, request) = (*tid, (**request).clone());
            self.by_host.remove(std::mem::replace(&mut open.host, master), wait);
            self.by_host.insert(master, wait);
            core.send_host(master, Frame::Request { wait, from, request, again: true });
        }
    }

    /// Takes what the former master has not answered, because this host decides it now, the oldest first.
    pub fn take_of_master(&mut self) -> Vec<OwnRequest> {
        let open: Vec<_> = self.of_master().into_iter().filter_map(|wait| Some((wait, self.end(wait)?))).collect();
        let request = |(number, open): (u32, PendingRequest)| match (open.asker, open.of_master) {
            (Asker::Task { tid, wait, .. }, Some(request)) => Some(OwnRequest { number, tid, wait, request: *request }),
            _ => None,
        };
        open.into_iter().filter_map(request).collect()
    }

    // ----- tasks of all hosts

    /// Handles a request for the tasks of all hosts.
    pub fn gather_tasks(&mut self, core: &mut Core, from: Tid, wait: u32) {
        let listeners = self.listeners.entry(from.host()).or_default();
        if listeners.len() >= LISTENERS_PER_HOST_MAX {
            return core.reply(from, wait, Err(Code::OutOfRes));
        }
        listeners.push((from, wait));
        if self.gathering.is_none() {
            self.gather(core);
        }
    }

    /// Asks all other hosts for their tasks.
    fn gather(&mut self, core: &mut Core) {
        let own = core.own_host();
        let hosts: Vec<Tid> = core.hosts.tids().filter(|host| *host != own).collect();
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let tasks = BTreeMap::from([(own, tasks::infos(core, own))]);
        let (askers, missing) = (std::mem::take(&mut self.listeners), hosts.len() + 1);
        self.gathering = Some(Gathering { number, askers, missing, tasks });
        for host in hosts {
            let wait = self.begin(host, Asker::TaskList(number), None);
            core.acks.expect(host, Ack::Tasks(wait), core.now);
            core.send_host(host, Frame::Request { wait, from: own, request: Request::Tasks(host), again: false });
        }
        self.count_gathered(core, number);
    }

    /// Adds the tasks of one host to the list.
    fn gathered(&mut self, core: &mut Core, number: u32, host: Tid, tasks: Vec<TaskInfo>) {
        if let Some(gathering) = self.gathering.as_mut().filter(|gathering| gathering.number == number) {
            gathering.tasks.insert(host, tasks);
            self.count_gathered(core, number);
        }
    }

    /// Counts an answer, and completes the list with the last one.
    fn count_gathered(&mut self, core: &mut Core, number: u32) {
        let Some(gathering) = self.gathering.as_mut().filter(|gathering| gathering.number == number) else {
            return;
        };
        gathering.missing -= 1;
        if gathering.missing > 0 {
            return;
        }
        let Some(Gathering { askers, tasks, .. }) = self.gathering.take() else { return };
        let tasks: Vec<TaskInfo> = tasks.into_values().flatten().collect();
        for (asker, wait) in askers.into_values().flatten() {
            core.reply(asker, wait, Ok(Reply::Tasks(tasks.clone())));
        }
        if !self.listeners.is_empty() {
            self.gather(core);
        }
    }
}

/// Admits a request of a task of another host; returns the request if this host is to decide it.
pub(super) fn admit(core: &mut Core, wait: u32, from: Tid, request: Request) -> Option<Request> {
    let everywhere = matches!(
        request,
        Request::TaskStatus(_)
            | Request::HostStatus(_)
            | Request::Tasks(_)
            | Request::Look(_)
            | Request::HostSync(_)
            | Request::ExitStatus(_)
            | Request::Input { .. }
    );
    if !core.admit(from, wait) {
        return None;
    }
    let refusal = match (everywhere, core.is_master()) {
        // Another host decides this request, so it should not have been sent here.
        _ if deciding_host(core, &request).is_some() => Code::NoHost,
        (true, _) => return Some(request),
        (false, true) if is_for_master(&request) => {
            core.clients.insert(from);
            return Some(request);
        }
        (false, _) => Code::BadParam,
    };
    core.reply(from, wait, Err(refusal));
    None
}

/// Handles the news that a task of another host has left PVM or, if `ended`, has ended; at the master.
pub(super) fn client_left(core: &mut Core, tid: Tid, ended: bool) {
    if !core.clients.contains(&tid) {
        return;
    }
    core.requests.forget(tid);
    if ended {
        core.clients.remove(&tid);
    }
    core.raise(Event::ClientLeft { tid, ended });
}

/// Returns the other host that decides a request, and the task's answer if that host is lost.
fn deciding_host(core: &Core, request: &Request) -> Option<(Tid, Reply)> {
    let failed = Reply::Error(Code::HostFail);
    let code = |code: Code| Reply::Code(code.number());
    let (host, lost) = match request {
        Request::TaskStatus(tid) if tid.is_task() => (tid.host(), code(Code::NoTask)),
        Request::HostStatus(name) => (core.hosts.find(name)?, code(Code::HostFail)),
        Request::Tasks(tid) if *tid != Tid::NONE => (tid.host(), failed),
        Request::HostSync(tid) | Request::ExitStatus(tid) | Request::Look(tid) => (tid.host(), failed),
        Request::Input { tid, .. } => (tid.host(), failed),
        Request::Tickle(arguments) if declared_failed(arguments) == Some(core.own_host()) => return None,
        request if is_of_master(request) => (core.hosts.master(), failed),
        _ => return None,
    };
    (host != core.own_host() && core.hosts.is_known(host)).then_some((host, lost))
}

/// Returns whether the master decides such requests for the whole machine.
fn is_for_master(request: &Request) -> bool {
    if let Request::Tickle(arguments) = request {
        return declared_failed(arguments).is_some();
    }
    !matches!(
        request,
        Request::Connect(_)
            | Request::Direct { .. }
            | Request::AllowDirect(_)
            | Request::Fabric { .. }
            | Request::FabricAnswer { .. }
            | Request::Spawn(_)
            | Request::Siblings
            | Request::Signal { .. }
            | Request::SignalGroup { .. }
            | Request::Notify { .. }
            | Request::NewContext
            | Request::FreeContext(_)
            | Request::SetOwn(_)
            | Request::Register { role: Role::Tasker, .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::fleet::{Fleet, MASTER};

    #[test]
    fn hosts_are_not_asked_for_their_tasks_more_often_than_they_answer() {
        let mut fleet = Fleet::new(3, 11);
        let (asker, flood) = (fleet.task(Fleet::host(3)), LISTENERS_PER_HOST_MAX as u32 + 500);
        fleet.nodes.get_mut(&Fleet::host(2)).expect("a host").frozen = true;
        for wait in 0..flood {
            let from = Tid(Fleet::host(2).0 | (1 + wait));
            let frame = Frame::Request { wait, from, request: Request::Tasks(Tid::NONE), again: false };
            let now = fleet.now;
            fleet.machine(MASTER).handle_host_frame(now, Fleet::host(2), frame);
        }
        fleet.work(MASTER);
        assert_eq!(fleet.ask(asker, Request::Tasks(Tid::NONE)), None);
        let remote = &fleet.machine(MASTER).parts.remote;
        assert!(remote.pending.len() <= 2, "{} questions are open", remote.pending.len());
        assert_eq!(remote.listeners[&Fleet::host(2)].len(), LISTENERS_PER_HOST_MAX);
        // The requests that were not refused are answered when host 2 answers or is gone.
        fleet.kill(Fleet::host(2));
        fleet.settle();
        assert!(fleet.open.is_empty(), "{:?}", fleet.open);
        assert!(fleet.machine(MASTER).parts.remote.gathering.is_none());
    }

    #[test]
    fn an_answer_to_one_that_has_gone_is_not_taken_for_that_of_another() {
        let (host, mut remote) = (Tid::host_number(2), Remote::default());
        let asker = |tid| Asker::Task { tid: Tid(tid), wait: 1, lost: Reply::Done };
        let first = remote.begin(host, asker(0x40001), None);
        remote.withdraw(Tid(0x40001));
        assert_ne!(remote.begin(host, asker(0x40002), None), first);
    }
}
