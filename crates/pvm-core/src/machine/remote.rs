//! Requests of tasks that another host decides, and all frames between daemons.
//!
//! The deciding daemon handles a request as if the task lived there, and its answer goes back to the
//! task's own daemon, which knows who waits. What a host owes when it is lost, its askers are told
//! at once.
use super::control::declared_failed;
use super::debts::Debt;
use super::index::Index;
use super::suspicions::{Suspicions, Verdict};
use super::{Action, Machine, Time};
use crate::codes::Code;
use crate::proto::{Reply, Request, Role, TaskInfo, ToTask};
use crate::tid::{DAEMON_BIT, LOCAL_MASK, Tid};
use crate::wire::{Frame, VERSION};
use std::collections::{BTreeMap, BTreeSet};

/// Who waits for an answer of another host.
enum Asker {
    /// A task of this host; what it is told when the other host is lost.
    Task { tid: Tid, wait: u32, lost: Reply },
    /// A list of the tasks of all hosts.
    Gathering(u32),
}

/// A request that another host has not answered yet.
struct Open {
    host: Tid,
    asker: Asker,
}

/// Tasks of one host that can wait for a list of the tasks of all hosts.
///
/// * Filled by: tasks of each host
/// * Setting: none, each waits for one answer
/// * Reached: `pvm_tasks` says `PvmOutOfRes`
/// * Test: `hosts_are_not_asked_for_their_tasks_more_often_than_they_answer`
const LISTENERS_A_HOST_MAX: usize = 4096;

/// Who waits for a list of the tasks of all hosts, by host: task, request.
type Listeners = BTreeMap<Tid, Vec<(Tid, u32)>>;

/// A list of the tasks of all hosts, as far as they have answered. There is one at a time: who asks meanwhile
/// is told by the next one, so that hosts are not asked more often than they answer.
struct Gathering {
    number: u32,
    askers: Listeners,
    missing: usize,
    tasks: BTreeMap<Tid, Vec<TaskInfo>>,
}

/// What is open between this host and others.
#[derive(Default)]
pub(super) struct Remote {
    last: u32,
    open: BTreeMap<u32, Open>,
    /// The requests that are open, by the task that waits and by the host that owes.
    by_task: Index<Tid, u32>,
    by_host: Index<Tid, u32>,
    gathering: Option<Gathering>,
    /// For the next one.
    listeners: Listeners,
    /// At the master: tasks of other hosts that it knows something of.
    pub guests: BTreeSet<Tid>,
    /// At the master: who cannot reach whom.
    pub suspicions: Suspicions,
}

impl Remote {
    pub fn is_idle(&self) -> bool {
        let none_open = self.open.is_empty() && self.by_task.is_empty() && self.by_host.is_empty();
        none_open && self.gathering.is_none() && self.listeners.is_empty() && self.guests.is_empty()
    }
    fn open(&mut self, host: Tid, asker: Asker) -> u32 {
        // Never the number of one that was withdrawn just now: its answer may be on its way.
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.open.contains_key(&self.last) {
                break;
            }
        }
        if let Asker::Task { tid, .. } = asker {
            self.by_task.insert(tid, self.last);
        }
        self.by_host.insert(host, self.last);
        self.open.insert(self.last, Open { host, asker });
        self.last
    }
    /// The request is not open any more.
    fn close(&mut self, wait: u32) -> Option<Open> {
        let open = self.open.remove(&wait)?;
        if let Asker::Task { tid, .. } = open.asker {
            self.by_task.remove(tid, wait);
        }
        self.by_host.remove(open.host, wait);
        Some(open)
    }
    /// The task does not wait any more.
    pub fn withdraw(&mut self, task: Tid) {
        for wait in self.by_task.take(task) {
            self.close(wait);
        }
    }
}

/// All tids of a host.
pub(super) fn tids_of(host: Tid) -> std::ops::RangeInclusive<Tid> {
    host..=Tid(host.0 | LOCAL_MASK)
}

impl Machine {
    /// Which other host decides a request, and what the task is told when that host is lost.
    fn decider(&self, request: &Request) -> Option<(Tid, Reply)> {
        let failed = Reply::Error(Code::HostFail);
        let code = |code: Code| Reply::Code(code.number());
        let (host, lost) = match request {
            Request::TaskStatus(tid) if tid.is_task() => (tid.host(), code(Code::NoTask)),
            Request::HostStatus(name) => (self.hosts.find(name)?, code(Code::HostFail)),
            Request::Tasks(Tid::NONE) => (self.hosts.master(), failed),
            Request::Tasks(tid) | Request::HostSync(tid) | Request::ExitStatus(tid) => (tid.host(), failed),
            Request::Input { tid, .. } => (tid.host(), failed),
            Request::AddHosts(_)
            | Request::AwaitHosts
            | Request::DeleteHosts(_)
            | Request::PutInfo { .. }
            | Request::RecvInfo { .. }
            | Request::DeleteInfo { .. }
            | Request::MailboxInfo { .. }
            | Request::ResetInfo { .. }
            | Request::SetTracer(_)
            | Request::JoinGroup(_)
            | Request::LeaveGroup(_)
            | Request::Group(_)
            | Request::FreezeGroup { .. }
            | Request::Barrier { .. }
            | Request::LostHosts
            | Request::Halt => (self.hosts.master(), failed),
            Request::Register { role, .. } if *role != Role::Tasker => (self.hosts.master(), failed),
            Request::Tickle(arguments) if declared_failed(arguments)? != self.own_host() => {
                (self.hosts.master(), failed)
            }
            _ => return None,
        };
        (host != self.own_host() && self.is_known(host)).then_some((host, lost))
    }

    /// Hands a request to the host that decides it; gives back what is decided here.
    pub(super) fn for_other_host(&mut self, from: Tid, wait: u32, request: Request) -> Option<Request> {
        let Some((host, lost)) = self.decider(&request) else { return Some(request) };
        if host == self.hosts.master() {
            if let Some(task) = self.tasks.get_mut(from) {
                task.known_to_master = true;
            }
        }
        let wait = self.remote.open(host, Asker::Task { tid: from, wait, lost });
        self.send_host(host, Frame::Request { wait, from, request });
        None
    }

    /// A request of a task of another host.
    fn requested(&mut self, now: Time, wait: u32, from: Tid, request: Request) {
        let everywhere = matches!(
            request,
            Request::TaskStatus(_)
                | Request::HostStatus(_)
                | Request::Tasks(_)
                | Request::HostSync(_)
                | Request::ExitStatus(_)
                | Request::Input { .. }
        );
        if !self.may_wait(from, wait) {
            return;
        }
        match (everywhere, self.hosts.is_master()) {
            // Somebody has it pass through here for nothing.
            _ if self.decider(&request).is_some() => self.reply(from, wait, Err(Code::NoHost)),
            (true, _) => self.decide(now, from, wait, request),
            (false, true) if self.is_for_master(&request) => {
                self.remote.guests.insert(from);
                self.decide(now, from, wait, request);
            }
            (false, _) => self.reply(from, wait, Err(Code::BadParam)),
        }
    }

    fn is_for_master(&self, request: &Request) -> bool {
        if let Request::Tickle(arguments) = request {
            return declared_failed(arguments).is_some();
        }
        !matches!(
            request,
            Request::Connect(_)
                | Request::Direct(_)
                | Request::AllowDirect(_)
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

    /// Another host has answered.
    fn answered(&mut self, from: Tid, wait: u32, reply: Reply) {
        if self.remote.open.get(&wait).is_some_and(|open| open.host == from) {
            let open = self.remote.close(wait).expect("looked up just now");
            self.debts.pay(from, Debt::Tasks(wait));
            self.settle(open, Some(reply));
        }
    }

    /// Passes on an answer, or that there will be none.
    fn settle(&mut self, open: Open, reply: Option<Reply>) {
        match open.asker {
            Asker::Task { tid, wait, lost } => {
                let reply = reply.unwrap_or(lost);
                self.answer_with_group(tid, wait, Ok(reply));
            }
            Asker::Gathering(number) => {
                let tasks = match reply {
                    Some(Reply::Tasks(tasks)) => tasks,
                    _ => Vec::new(),
                };
                self.gathered(number, open.host, tasks);
            }
        }
    }

    /// A host is lost: whoever waits for it is told.
    pub(super) fn answer_for_lost(&mut self, host: Tid) {
        for wait in self.remote.by_host.take(host) {
            if let Some(open) = self.remote.close(wait) {
                self.settle(open, None);
            }
        }
    }

    // ----- tasks of all hosts

    /// A task wants to know the tasks of all hosts.
    pub(super) fn gather_tasks(&mut self, from: Tid, wait: u32) {
        let listeners = self.remote.listeners.entry(from.host()).or_default();
        if listeners.len() >= LISTENERS_A_HOST_MAX {
            return self.reply(from, wait, Err(Code::OutOfRes));
        }
        listeners.push((from, wait));
        if self.remote.gathering.is_none() {
            self.gather();
        }
    }

    /// Asks all other hosts for their tasks.
    fn gather(&mut self) {
        let own = self.own_host();
        let hosts: Vec<Tid> = self.hosts.tids().filter(|host| *host != own).collect();
        self.remote.last = self.remote.last.wrapping_add(1);
        let number = self.remote.last;
        let tasks = BTreeMap::from([(own, self.tasks_here(own))]);
        let (askers, missing) = (std::mem::take(&mut self.remote.listeners), hosts.len() + 1);
        self.remote.gathering = Some(Gathering { number, askers, missing, tasks });
        for host in hosts {
            let wait = self.remote.open(host, Asker::Gathering(number));
            self.debts.owe(host, Debt::Tasks(wait), self.now);
            self.send_host(host, Frame::Request { wait, from: own, request: Request::Tasks(host) });
        }
        self.one_more_gathered(number);
    }

    fn gathered(&mut self, number: u32, host: Tid, tasks: Vec<TaskInfo>) {
        if let Some(gathering) = self.remote.gathering.as_mut().filter(|gathering| gathering.number == number) {
            gathering.tasks.insert(host, tasks);
            self.one_more_gathered(number);
        }
    }

    fn one_more_gathered(&mut self, number: u32) {
        let Some(gathering) = self.remote.gathering.as_mut().filter(|gathering| gathering.number == number) else {
            return;
        };
        gathering.missing -= 1;
        if gathering.missing > 0 {
            return;
        }
        let Some(Gathering { askers, tasks, .. }) = self.remote.gathering.take() else { return };
        let tasks: Vec<TaskInfo> = tasks.into_values().flatten().collect();
        for (asker, wait) in askers.into_values().flatten() {
            self.reply(asker, wait, Ok(Reply::Tasks(tasks.clone())));
        }
        if !self.remote.listeners.is_empty() {
            self.gather();
        }
    }

    // ----- guests of the master

    /// Whether the task may be answered: it is connected here, or a guest from another host.
    pub(super) fn is_present(&self, tid: Tid) -> bool {
        self.tasks.is_connected(tid) || self.remote.guests.contains(&tid)
    }

    /// Tells the master that a task of which it knows has left, or ended.
    pub(super) fn tell_master_left(&mut self, tid: Tid, ended: bool) {
        let master = self.hosts.master();
        if master != self.own_host() && self.tasks.get(tid).is_some_and(|task| task.known_to_master) {
            self.send_host(master, Frame::Left { tid, ended });
        }
    }

    fn guest_left(&mut self, tid: Tid, ended: bool) {
        if !self.remote.guests.contains(&tid) {
            return;
        }
        self.leave_all_groups(tid);
        self.forget_server(tid);
        self.mailboxes.stop_waiting(tid);
        self.waits.forget(tid);
        if ended {
            self.remote.guests.remove(&tid);
            self.mailboxes.forget(tid);
        }
    }

    /// The host is lost, and its tasks with it.
    pub(super) fn forget_guests_of(&mut self, host: Tid) {
        let guests: Vec<Tid> = self.remote.guests.range(tids_of(host)).copied().collect();
        guests.into_iter().for_each(|guest| self.guest_left(guest, true));
        self.remote.listeners.remove(&host);
        if let Some(gathering) = &mut self.remote.gathering {
            gathering.askers.remove(&host);
        }
        self.tasks.forget_waiting_of(host);
        self.waits.forget_host(host);
    }

    // ----- frames

    /// A frame of another daemon, from its control link or out of a flow.
    pub fn handle_host_frame(&mut self, now: Time, from: Tid, frame: Frame) {
        self.handle_heard(now, from);
        // What a host that has been removed still says, nobody heeds.
        if !self.is_known(from) {
            return;
        }
        match frame {
            Frame::Beat => {}
            Frame::Request { wait, from: task, request } if task.host() == from => {
                self.requested(now, wait, task, request);
            }
            Frame::Reply { wait, reply } => self.answered(from, wait, reply),
            Frame::Suspect(host) => self.suspected(from, host),
            Frame::PleaseConnect { to, from: asking } => self.asked_to_connect(from, to, asking),
            Frame::TableAck { version } if self.hosts.is_master() => self.table_known(from, version),
            Frame::GroupSeen { number } if self.hosts.is_master() => self.group_change_known(from, number),
            Frame::GroupTaken { id, taken } if self.hosts.is_master() => self.barrier_moved(from, id, taken),
            Frame::BarriersListed { number, waiting } if self.hosts.is_master() => {
                self.barriers_listed(from, number, waiting);
            }
            Frame::StartNews { number, news } if self.hosts.is_master() => self.start_news(from, number, news),
            Frame::Left { tid, ended } if tid.host() == from => self.guest_left(tid, ended),
            Frame::Serves { role, tid, on } if tid.host() == from => self.serves(role, tid, on),
            Frame::Signal { tid, signal } => drop(self.signal(tid, signal)),
            Frame::SignalGroup { tid, signal } => drop(self.signal_group(tid, signal)),
            Frame::Spawn { wait, parent, first, total, spawn } => {
                self.spawn_for(from, wait, parent, first, total, spawn);
            }
            Frame::Spawned { wait, results } => self.part_spawned(from, wait, results),
            Frame::Siblings { wait, tids } => self.siblings_known(from, wait, &tids),
            Frame::Direct { number, from: asker, to, call } if asker.host() == from => {
                self.direct_asked(number, asker, to, call);
            }
            Frame::DirectCall { number, call } => self.direct_may_call(from, number, call),
            Frame::DirectRefused { number } => self.direct_refused(from, number),
            Frame::DataLost { number } => self.data_lost(from, number),
            Frame::DataCall { number, call } => self.data_may_be_made(from, number, call),
            Frame::Watch { tid, watcher } if watcher.host() == from => self.watched(tid, watcher),
            Frame::Unwatch { tid, watcher } if watcher.host() == from => self.unwatched(tid, watcher),
            Frame::Died { tid, watcher } if tid.host() == from => self.announce_far_exit(tid, watcher),
            Frame::Deliver(message) => self.delivered(from, message),
            Frame::Output(message) => self.output_came(from, message),
            Frame::OutputTaken { collector, bytes } => self.output_was_taken(from, collector, bytes),
            Frame::Log { tid, line } if tid.host() == from => self.actions.push_back(Action::Log { tid, line }),
            Frame::Leave => self.told_to_leave(now, from),
            frame if from == self.hosts.master() => self.told_by_master(frame),
            // What nobody but another may say.
            _ => {}
        }
    }

    fn told_by_master(&mut self, frame: Frame) {
        match frame {
            Frame::Welcome { wire, .. } if wire != VERSION => {
                let own = format!("this host version {VERSION}; install the same hpvm on both");
                self.lose_master(&format!("it speaks version {wire} of what daemons say to each other, {own}"));
            }
            Frame::Welcome { version, hosts, joining, shared, options, .. } => {
                self.welcomed(version, hosts, &joining, shared, options);
            }
            Frame::Table { version, added, removed } => self.table_changed(version, added, removed),
            Frame::GroupKnown(state) => self.group_known(state),
            Frame::GroupChanged { id, number, change } => self.group_changed(id, number, &change),
            Frame::ListBarriers { number } => self.list_barriers(number),
            Frame::Joined { hosts } => self.hosts_joined(&hosts),
            Frame::Servers(servers) => self.servers_changed(servers),
            Frame::StartOrder { number, order } => self.start_ordered(number, order),
            _ => {}
        }
    }

    /// A host cannot reach another.
    fn suspected(&mut self, from: Tid, host: Tid) {
        // Of one that is joining the master knows best: others have no link to it yet.
        let member = |host: Tid| host.is_host() && host != self.own_host() && self.hosts.is_here(host);
        if self.hosts.is_master() && !self.control.halting() && from != host && member(from) && member(host) {
            let named = |host: Tid| (host, self.plain_name_of(host));
            let (one, other) = (named(from), named(host));
            self.remote.suspicions.complain(one, other, self.now);
            self.settle_suspicions();
        }
    }

    /// By when one of two hosts that cannot reach each other has to go.
    pub(super) fn next_verdict(&self) -> Option<Time> {
        let next = self.remote.suspicions.next_decision(self.settings.host_timeout);
        next.filter(|_| !self.control.halting())
    }

    /// Removes the hosts that are to blame for missing links, as far as that is known.
    pub(super) fn settle_suspicions(&mut self) {
        let (now, patience) = (self.now, self.settings.host_timeout);
        while !self.control.halting() {
            let mut suspicions = std::mem::take(&mut self.remote.suspicions);
            let verdict = suspicions.decide(now, patience, |host| self.sight_of(host));
            self.remote.suspicions = suspicions;
            let Some(Verdict { guilty, other, why }) = verdict else { return };
            let other = self.name_of(other);
            self.lose_host(guilty, &format!("it and {other} cannot reach each other; {why}"));
        }
    }

    fn told_to_leave(&mut self, now: Time, from: Tid) {
        if self.hosts.is_master() {
            self.lose_host(from, "it has ended");
        } else if from == self.hosts.master() {
            self.log("the master has told this host to leave".into());
            self.halt(now);
        }
    }

    /// A message that came from another host by way of the daemons.
    fn delivered(&mut self, from: Tid, message: crate::proto::Message) {
        let src = message.src;
        // What the group server says comes from the master, to tasks of each host in that host's name.
        if src.host() != from && !(src.is_service() && from == self.hosts.master()) {
            return;
        }
        if message.dst.is_service() {
            self.ask_group_server(src, &message);
        } else if message.dst.0 & DAEMON_BIT != 0 {
            self.handle_server_message(src, &message);
        } else if !self.answer_of_manager(src, &message) && message.dst.host() == self.own_host() {
            self.send(message.dst, ToTask::Message(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet_tests::{Fleet, MASTER};
    use super::*;

    #[test]
    fn hosts_are_not_asked_for_their_tasks_more_often_than_they_answer() {
        let mut fleet = Fleet::new(3, 11);
        let (asker, flood) = (fleet.task(Fleet::host(3)), LISTENERS_A_HOST_MAX as u32 + 500);
        fleet.nodes.get_mut(&Fleet::host(2)).expect("a host").frozen = true;
        for wait in 0..flood {
            let from = Tid(Fleet::host(2).0 | (1 + wait));
            let frame = Frame::Request { wait, from, request: Request::Tasks(Tid::NONE) };
            let now = fleet.now;
            fleet.machine(MASTER).handle_host_frame(now, Fleet::host(2), frame);
        }
        fleet.work(MASTER);
        assert_eq!(fleet.ask(asker, Request::Tasks(Tid::NONE)), None);
        let remote = &fleet.machine(MASTER).remote;
        assert!(remote.open.len() <= 2, "{} questions are open", remote.open.len());
        assert_eq!(remote.listeners[&Fleet::host(2)].len(), LISTENERS_A_HOST_MAX);
        // The others are answered when the host answers or is gone.
        fleet.kill(Fleet::host(2));
        fleet.settle();
        assert!(fleet.open.is_empty(), "{:?}", fleet.open);
        assert!(fleet.machine(MASTER).remote.gathering.is_none());
    }

    #[test]
    fn an_answer_to_one_that_has_gone_is_not_taken_for_that_of_another() {
        let (host, mut remote) = (Tid::host_number(2), Remote::default());
        let asker = |tid| Asker::Task { tid: Tid(tid), wait: 1, lost: Reply::Done };
        let first = remote.open(host, asker(0x40001));
        remote.withdraw(Tid(0x40001));
        assert_ne!(remote.open(host, asker(0x40002)), first);
    }
}
