//! Who lives on this host: tids, enrolment, introductions, death.
use super::index::Index;
use super::{Action, Connection, Machine, servers};
use crate::codes::{Code, TASK_CONNECTED, TASK_FORKED};
use crate::proto::{self, ByteBuf, Hello, Reply, TaskInfo, ToTask, TraceSettings, Welcome};
use crate::tid::{LOCAL_MASK, SLOT_MASK, Tid};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// The first cookie; PVM's taskers see such numbers as process ids that cannot be.
const COOKIE_FIRST: u32 = 10_000_000;
/// Cookies go round after this many.
const COOKIES: u32 = 1 << 30;
/// Tasks of this host at a time: as many as the port table has places.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: `PVM_MAX_TASKS`, for tasks that are spawned
/// * Reached: `pvm_spawn` gives `PvmOutOfRes` in the places of tids; a task that comes by itself is refused
/// * Test: `a_host_has_so_many_tasks_and_no_more`
pub const TASKS_MAX: usize = SLOT_MASK as usize;
/// Tasks that have ended of which the wait status is remembered: those of a spawn that asks after the last
/// task has been started, however large it was.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: none, a host has no more tasks at a time
/// * Reached: the oldest is forgotten
/// * Test: `how_a_task_ended_is_remembered_for_a_while`
pub const ENDED_MAX: usize = SLOT_MASK as usize;

/// How a task came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It said hello.
    Own,
    /// This daemon started its process.
    Spawned,
    /// That tasker started it.
    Tasker(Tid),
}

/// How a task stands to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Started, but has not said hello. Frames for it are kept.
    Expected,
    /// Has said hello.
    Connected,
    /// Has said goodbye; its process goes on.
    Left,
}

pub(super) struct Task {
    pub origin: Origin,
    pub state: State,
    /// The process to send signals to, or 0.
    pub process: i32,
    /// The process that this daemon started, as long as it lives, else 0.
    pub started: i32,
    pub cookie: u32,
    /// 0 for none, or a code.
    pub parent: i32,
    pub name: Vec<u8>,
    pub own: TraceSettings,
    /// Those to whom it was introduced.
    peers: BTreeSet<Tid>,
    /// The spawn that made it.
    pub group: Option<super::SpawnId>,
    /// A line of output that has not ended yet.
    pub line: Vec<u8>,
    /// The resource manager at its enrolment.
    pub manager: Tid,
    /// Whether it has asked the master of another host something.
    pub known_to_master: bool,
    /// Whether it was started as the leader of a process group.
    pub leads: bool,
    /// Whether its standard input takes what comes by requests; whose is on its way.
    pub has_input: bool,
    pub input_of: Option<(Tid, u32)>,
}

impl Task {
    pub fn new(origin: Origin, parent: i32, name: Vec<u8>, own: TraceSettings) -> Task {
        Task {
            origin,
            state: State::Expected,
            process: 0,
            started: 0,
            cookie: 0,
            parent,
            name,
            own,
            peers: BTreeSet::new(),
            group: None,
            line: Vec::new(),
            manager: Tid::NONE,
            known_to_master: false,
            leads: false,
            has_input: false,
            input_of: None,
        }
    }
}

/// The tasks of this host.
pub(super) struct Tasks {
    host: Tid,
    last: u32,
    tasks: BTreeMap<Tid, Task>,
    slots: HashSet<u32>,
    cookies: HashMap<u32, Tid>,
    last_cookie: u32,
    /// How the last tasks ended, and in what order.
    statuses: HashMap<Tid, i32>,
    ended: VecDeque<Tid>,
    /// By task: who waits for how it ends.
    waiting: BTreeMap<Tid, Vec<(Tid, u32)>>,
    /// The tasks for whose end each one waits.
    waiters: Index<Tid, Tid>,
}

impl Tasks {
    pub fn new(host: Tid) -> Tasks {
        Tasks {
            host,
            last: 0,
            tasks: BTreeMap::new(),
            slots: HashSet::new(),
            cookies: HashMap::new(),
            last_cookie: 0,
            statuses: HashMap::new(),
            ended: VecDeque::new(),
            waiting: BTreeMap::new(),
            waiters: Index::default(),
        }
    }
    pub fn get(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Task> {
        self.tasks.get_mut(&tid)
    }
    pub fn exists(&self, tid: Tid) -> bool {
        self.tasks.contains_key(&tid)
    }
    pub fn count(&self) -> usize {
        self.tasks.len()
    }
    pub fn iter(&self) -> impl Iterator<Item = (Tid, &Task)> {
        self.tasks.iter().map(|(tid, task)| (*tid, task))
    }
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
            && self.slots.is_empty()
            && self.cookies.is_empty()
            && self.waiting.is_empty()
            && self.waiters.is_empty()
    }
    /// Whether the task has said hello and not goodbye.
    pub fn is_connected(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state == State::Connected)
    }
    /// Whether frames reach the task, now or when it enrols.
    pub fn takes_frames(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state != State::Left)
    }

    /// Gives the task a number: the next one whose slot is free.
    fn add(&mut self, task: Task) -> Option<Tid> {
        if self.slots.len() >= TASKS_MAX {
            return None;
        }
        loop {
            self.last = self.last % LOCAL_MASK + 1;
            // Slot 0 means nobody in the port table.
            if self.last & SLOT_MASK != 0 && self.slots.insert(self.last & SLOT_MASK) {
                let tid = Tid(self.host.0 | self.last);
                self.forget_status(tid);
                self.tasks.insert(tid, task);
                return Some(tid);
            }
        }
    }

    fn remove(&mut self, tid: Tid) -> Option<Task> {
        let task = self.tasks.remove(&tid)?;
        self.slots.remove(&tid.slot());
        self.cookies.remove(&task.cookie);
        Some(task)
    }

    fn new_cookie(&mut self) -> u32 {
        loop {
            self.last_cookie = (self.last_cookie + 1) % COOKIES;
            let cookie = COOKIE_FIRST + self.last_cookie - 1;
            if !self.cookies.contains_key(&cookie) {
                return cookie;
            }
        }
    }

    /// Tasks of that host wait no more.
    pub fn forget_waiting_of(&mut self, host: Tid) {
        for (asker, of) in self.waiters.take_host(host) {
            self.waits_not_for(asker, of);
        }
    }
    /// The task waits no more.
    fn stop_waiting(&mut self, asker: Tid) {
        for of in self.waiters.take(asker) {
            self.waits_not_for(asker, of);
        }
    }
    fn waits_not_for(&mut self, asker: Tid, of: Tid) {
        let Some(waiting) = self.waiting.get_mut(&of) else { return };
        waiting.retain(|(other, _)| *other != asker);
        if waiting.is_empty() {
            self.waiting.remove(&of);
        }
    }
    /// Those who wait for how that task ends do not any more.
    fn take_waiting(&mut self, of: Tid) -> Vec<(Tid, u32)> {
        let waiting = self.waiting.remove(&of).unwrap_or_default();
        waiting.iter().for_each(|(asker, _)| _ = self.waiters.remove(*asker, of));
        waiting
    }

    /// How a task ended that this daemon started; 0 for others.
    pub fn status_of(&self, tid: Tid) -> i32 {
        let own = self.get(tid).is_some_and(|task| task.origin == Origin::Own);
        self.statuses.get(&tid).copied().filter(|_| !own).unwrap_or(0)
    }

    /// The number comes around again: how the task of that number ended before is of no interest.
    fn forget_status(&mut self, tid: Tid) {
        if self.statuses.remove(&tid).is_some() {
            self.ended.retain(|ended| *ended != tid);
        }
    }

    fn remember(&mut self, tid: Tid, status: i32) {
        if self.statuses.insert(tid, status).is_some() {
            return;
        }
        self.ended.push_back(tid);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front().map(|oldest| self.statuses.remove(&oldest));
        }
    }
}

impl Machine {
    /// Makes a place for a task that is about to be started; it claims the place by its cookie.
    pub(super) fn expect_task(&mut self, mut task: Task) -> Option<(Tid, u32)> {
        let cookie = self.tasks.new_cookie();
        task.cookie = cookie;
        let tid = self.tasks.add(task)?;
        self.tasks.cookies.insert(cookie, tid);
        self.actions.push_back(Action::Born { tid });
        Some((tid, cookie))
    }

    pub(super) fn enroll(&mut self, connection: Connection, process: i32, hello: &Hello) {
        let refusal = match hello.version {
            proto::VERSION if self.control.halting() => Some(Code::SysErr),
            proto::VERSION => None,
            _ => Some(Code::BadVersion),
        };
        if let Some(code) = refusal {
            return self.actions.push_back(Action::Refuse { connection, code });
        }
        let claimed = hello.cookie.and_then(|cookie| self.tasks.cookies.remove(&cookie));
        let Some(tid) = claimed.or_else(|| self.add_own_task(hello)) else {
            return self.actions.push_back(Action::Refuse { connection, code: Code::OutOfRes });
        };
        let manager = self.servers.manager.unwrap_or(Tid::NONE);
        let task = self.tasks.get_mut(tid).expect("found or made just now");
        task.state = State::Connected;
        // A number that the task says itself may be another process's here.
        task.process = process.max(0);
        task.manager = manager;
        let welcome = Welcome {
            tid,
            parent: task.parent,
            dsig: self.settings.host.dsig,
            own: task.own.clone(),
            resource_manager: manager,
        };
        self.actions.push_back(Action::Welcome { connection, tid, welcome });
        self.answer_direct_asks(tid);
        if claimed.is_none() {
            self.trace_arrival(tid);
            self.announce_arrival(tid);
            self.tell_manager_of_new(tid);
        }
    }

    fn add_own_task(&mut self, hello: &Hello) -> Option<Tid> {
        let mut own = TraceSettings::default();
        self.traces.settle(&mut own);
        let task = Task::new(Origin::Own, 0, hello.name.to_vec(), own);
        let tid = self.tasks.add(task)?;
        self.actions.push_back(Action::Born { tid });
        Some(tid)
    }

    /// Whether the host belongs to the machine, as far as this one has heard.
    pub fn knows_host(&self, host: Tid) -> bool {
        self.hosts.is_here(host)
    }

    /// The process of a task that has enrolled.
    pub fn process_of(&self, task: Tid) -> Option<i32> {
        Some(self.tasks.get(task).filter(|task| task.state == State::Connected)?.process)
    }

    /// Whether messages reach the task, now or when it has come.
    pub fn takes_messages(&self, task: Tid) -> bool {
        self.tasks.takes_frames(task)
    }

    /// Introduces a task to a peer, once.
    pub(super) fn connect(&mut self, from: Tid, to: Tid) -> Result<Reply, Code> {
        let daemon = to == self.own_host();
        if !daemon && !self.tasks.takes_frames(to) {
            return Err(Code::NoTask);
        }
        let task = self.tasks.get_mut(from).ok_or(Code::SysErr)?;
        if task.peers.insert(to) {
            if daemon {
                self.actions.push_back(Action::Introduce { one: from, other: to });
                return Ok(Reply::Done);
            }
            self.tasks.get_mut(to).expect("takes frames").peers.insert(from);
            self.actions.push_back(Action::Introduce { one: from, other: to });
        }
        Ok(Reply::Done)
    }

    /// Two of whom one wanted to be introduced could not be ([`Action::Introduce`]): it may be tried again.
    pub fn handle_not_introduced(&mut self, one: Tid, other: Tid) {
        for (tid, peer) in [(one, other), (other, one)] {
            if let Some(task) = self.tasks.get_mut(tid) {
                task.peers.remove(&peer);
            }
        }
    }

    /// The connection of a task has closed.
    pub fn handle_disconnect(&mut self, tid: Tid) {
        self.left(tid);
    }

    /// The task has no connection any more, or says that it is about to have none.
    pub(super) fn left(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(tid) else { return };
        if task.state != State::Connected {
            return;
        }
        task.state = State::Left;
        let stays = match task.origin {
            Origin::Own => false,
            Origin::Spawned => task.started != 0,
            Origin::Tasker(tasker) => self.servers.tasker == Some(tasker),
        };
        self.tell_master_left(tid, false);
        self.detach(tid);
        if !stays {
            self.end(tid);
        }
    }

    /// Drops what only a connected task has.
    fn detach(&mut self, tid: Tid) {
        self.leave_all_groups(tid);
        self.show_no_more(tid);
        self.forget_directs_of(tid);
        self.collects_no_more(tid);
        let Some(task) = self.tasks.get_mut(tid) else { return };
        let peers = std::mem::take(&mut task.peers);
        for peer in peers.into_iter().filter(|peer| *peer != tid) {
            if let Some(other) = self.tasks.get_mut(peer) {
                other.peers.remove(&tid);
            }
            self.send(peer, ToTask::PeerGone(tid));
        }
        self.ask_no_more(tid);
        self.remote.withdraw(tid);
        self.waits.forget(tid);
        self.tasks.stop_waiting(tid);
        self.mailboxes.stop_waiting(tid);
        self.siblings_unwanted(tid);
        self.forget_server(tid);
    }

    /// The task is that process from now on; 0 for one that is not known.
    pub fn handle_process_changed(&mut self, tid: Tid, process: i32) {
        if let Some(task) = self.tasks.get_mut(tid).filter(|task| task.state == State::Connected) {
            task.process = process;
        }
    }

    /// A process that this daemon started has ended, with that wait status. What it had sent and
    /// printed was handed in before.
    pub fn handle_process_end(&mut self, tid: Tid, status: i32) {
        let Some(task) = self.tasks.get_mut(tid) else { return };
        let another = task.state == State::Connected && task.process != task.started;
        task.started = 0;
        if another {
            // Whoever started it has said what there is to say of it: the rest is seen here.
            task.origin = Origin::Spawned;
        }
        self.tasks.remember(tid, status);
        self.tell_manager_of_end(tid, status);
        // A script whose program is the task may end before it.
        match another {
            true => self.answer_exit_status(tid),
            false => self.end(tid),
        }
        self.stop_when_empty();
    }

    /// The task is no more.
    pub(super) fn end(&mut self, tid: Tid) {
        if !self.tasks.exists(tid) {
            return;
        }
        self.detach(tid);
        self.tell_master_left(tid, true);
        self.trace_end(tid);
        self.traces.forget(tid);
        self.end_output(tid);
        self.mailboxes.forget(tid);
        self.contexts.forget(tid);
        self.handle_input_taken(tid, false);
        let task = self.tasks.remove(tid).expect("checked above");
        self.spawns.forget(task.group);
        self.forget_wishes_of(tid, None);
        self.announce_exit(tid);
        self.answer_exit_status(tid);
        self.actions.push_back(Action::Forget { tid });
    }

    /// A task that never came to be: no notify, no output.
    pub(super) fn discard(&mut self, tid: Tid) {
        if self.tasks.remove(tid).is_some() {
            self.forget_directs_of(tid);
            self.actions.push_back(Action::Forget { tid });
        }
    }

    pub(super) fn task_status(&self, tid: Tid) -> Result<Reply, Code> {
        match (tid.is_task(), self.tasks.exists(tid)) {
            (false, _) => Err(Code::BadParam),
            (true, true) => Ok(Reply::Code(0)),
            (true, false) => Ok(Reply::Code(Code::NoTask.number())),
        }
    }

    pub(super) fn list_tasks(&self, place: Tid) -> Result<Reply, Code> {
        match place.host() == self.own_host() {
            true => Ok(Reply::Tasks(self.tasks_here(place))),
            false => Err(Code::NoHost),
        }
    }

    /// The tasks of this host, or that one of it.
    pub(super) fn tasks_here(&self, place: Tid) -> Vec<TaskInfo> {
        let list = self.tasks.iter().filter(|(tid, _)| place.is_host() || place == *tid);
        list.map(|(tid, task)| self.describe(tid, task)).collect()
    }

    fn describe(&self, tid: Tid, task: &Task) -> TaskInfo {
        let forked = if task.origin == Origin::Own { 0 } else { TASK_FORKED };
        let connected = if task.state == State::Connected { TASK_CONNECTED } else { 0 };
        TaskInfo {
            tid,
            parent: task.parent,
            host: tid.host(),
            flags: forked | connected | servers::flags(&self.servers, tid),
            name: ByteBuf::from(task.name.clone()),
            pid: task.process,
            output: (task.own.output_tid, task.own.output_ctx, task.own.output_tag),
        }
    }

    pub(super) fn exit_status(&mut self, from: Tid, wait: u32, tid: Tid) {
        if let Some(status) = self.tasks.statuses.get(&tid) {
            return self.reply(from, wait, Ok(Reply::Int(*status)));
        }
        match self.tasks.get(tid) {
            _ if tid.host() != self.own_host() => self.reply(from, wait, Err(Code::HostFail)),
            Some(task) if task.origin != Origin::Own => {
                self.tasks.waiters.insert(from, tid);
                self.tasks.waiting.entry(tid).or_default().push((from, wait));
            }
            _ => self.reply(from, wait, Err(Code::NoTask)),
        }
    }

    /// Something for the standard input of a task.
    pub(super) fn input(&mut self, from: Tid, wait: u32, tid: Tid, data: ByteBuf) {
        let Some(task) = self.tasks.get_mut(tid).filter(|task| task.has_input) else {
            let lost = tid.host() != self.own_host();
            return self.reply(from, wait, Err(if lost { Code::HostFail } else { Code::NoTask }));
        };
        if data.len() > proto::INPUT_BYTES_MAX {
            return self.reply(from, wait, Err(Code::BadParam));
        }
        if task.input_of.is_some() {
            return self.reply(from, wait, Err(Code::Already));
        }
        task.has_input = !data.is_empty();
        task.input_of = Some((from, wait));
        self.actions.push_back(Action::Input { tid, data });
    }

    /// The standard input of the task has taken all of [`Action::Input`], or takes no more.
    pub fn handle_input_taken(&mut self, tid: Tid, taken: bool) {
        let Some(task) = self.tasks.get_mut(tid) else { return };
        task.has_input &= taken;
        if let Some((asker, wait)) = task.input_of.take() {
            self.reply(asker, wait, if taken { Ok(Reply::Done) } else { Err(Code::NoTask) });
        }
    }

    fn answer_exit_status(&mut self, tid: Tid) {
        for (asker, wait) in self.tasks.take_waiting(tid) {
            self.exit_status(asker, wait, tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_around_again_has_no_old_status() {
        let mut tasks = Tasks::new(Tid::host_number(1));
        let task = || Task::new(Origin::Spawned, 0, Vec::new(), TraceSettings::default());
        let tid = tasks.add(task()).expect("a number");
        tasks.remember(tid, 7);
        tasks.remove(tid);
        assert_eq!(tasks.status_of(tid), 7);
        // After all the others.
        tasks.last = LOCAL_MASK;
        assert_eq!(tasks.add(task()), Some(tid));
        assert_eq!(tasks.status_of(tid), 0);
        tasks.remember(tid, 9);
        assert_eq!((tasks.status_of(tid), tasks.ended.len()), (9, 1));
    }
}
