//! The tasks of this host: their tids, their states, and the wait statuses of tasks that ended recently.
use super::action::{Company, SpawnId};
use crate::proto::{TaskEnd, TaskKind, TraceSettings};
use crate::tid::{LOCAL_MASK, SLOT_MASK, Tid};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// The first cookie. PVM's taskers receive cookies in place of process ids, so cookies are numbers that are too high
/// for process ids.
const COOKIE_FIRST: u32 = 10_000_000;
/// The number of different cookies; after this many, cookies repeat.
const COOKIES: u32 = 1 << 30;
/// Tasks of this host at a time: as many as the port table has slots.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: `PVM_MAX_TASKS`, for tasks that are spawned
/// * Reached: `pvm_spawn` returns `PvmOutOfRes` in place of tids; a task that is started by hand is refused
/// * Test: `the_tasks_of_a_host_are_limited`
pub const TASKS_MAX: usize = SLOT_MASK as usize;
/// Ended tasks whose wait status is remembered: enough for all tasks of the largest spawn.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: none, since a host cannot have more tasks than this at a time
/// * Reached: the oldest wait status is forgotten
/// * Test: `how_a_task_ended_is_remembered_for_a_while`
pub const ENDED_MAX: usize = SLOT_MASK as usize;

/// How a task was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The task was started by hand and enrolled.
    Arrived,
    /// This daemon started the task's process.
    Spawned,
    /// That tasker started the task's process.
    Tasker(Tid),
}

/// The state of a task's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Started, but not enrolled. Frames for it are queued.
    Expected,
    /// Enrolled.
    Connected,
    /// Disconnected; its process continues.
    Left,
}

/// A task of this host.
pub(super) struct Task {
    pub origin: Origin,
    pub state: State,
    pub kind: TaskKind,
    /// The process to which signals are sent, or 0.
    pub process: i32,
    /// The process that this daemon started, while it lives; else 0.
    pub started: i32,
    /// Whether this daemon starts the process just now.
    pub is_starting: bool,
    /// The signals that the process gets as soon as it is started, a bit for each.
    pub early_signals: u64,
    pub cookie: u32,
    /// The tid of the task's parent, 0 if there is none, or the code `ParentNotSet`.
    pub parent: i32,
    pub name: Vec<u8>,
    /// Where its traces and output go.
    pub trace_settings: TraceSettings,
    /// The tasks to which it was introduced.
    pub peers: BTreeSet<Tid>,
    /// The spawn that started the task.
    pub spawn: Option<SpawnId>,
    /// The beginning of a line of output whose end has not arrived yet.
    pub line: Vec<u8>,
    /// Whether the collector has been told that the output has ended.
    pub output_ended: bool,
    /// The resource manager at the time when the task enrolled; this manager decides the requests of the task.
    pub manager: Tid,
    /// Whether the task has sent a request to the master on another host. If so, the master may keep state of the task.
    pub known_to_master: bool,
    /// Whether it was started as the leader of a process group.
    pub leads: bool,
    /// Whether requests can write to the task's standard input.
    pub has_input: bool,
    /// The request in progress to write to the standard input: the task that asked, and the wait id.
    pub input_of: Option<(Tid, u32)>,
}

impl Task {
    pub fn new(origin: Origin, parent: i32, name: Vec<u8>, trace_settings: TraceSettings) -> Task {
        Task {
            origin,
            state: State::Expected,
            kind: TaskKind::Program,
            process: 0,
            started: 0,
            is_starting: false,
            early_signals: 0,
            cookie: 0,
            parent,
            name,
            trace_settings,
            peers: BTreeSet::new(),
            spawn: None,
            line: Vec::new(),
            output_ended: false,
            manager: Tid::NONE,
            known_to_master: false,
            leads: false,
            has_input: false,
            input_of: None,
        }
    }

    /// Returns whether the task has left PVM, though its process may live.
    pub fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// Keeps a signal until the process is started. Returns whether it is being started.
    pub fn keep_signal(&mut self, signal: i32) -> bool {
        if self.is_starting && (1..=64).contains(&signal) {
            self.early_signals |= 1 << (signal - 1);
        }
        self.is_starting
    }

    /// Takes the signals that were kept.
    pub fn take_signals(&mut self) -> impl Iterator<Item = i32> + use<> {
        let signals = std::mem::take(&mut self.early_signals);
        (1..=64).filter(move |signal| signals & 1 << (signal - 1) != 0)
    }

    /// Returns whether the task may send messages to tasks, now or once it has enrolled.
    fn may_send(&self) -> bool {
        self.kind == TaskKind::Program && self.state != State::Left
    }
}

/// The tasks of this host.
pub(super) struct TaskTable {
    host: Tid,
    /// The local part of the tid assigned last.
    last: u32,
    tasks: BTreeMap<Tid, Task>,
    /// The slots of the port table that are in use.
    slots: HashSet<u32>,
    /// Expected tasks by cookie.
    cookies: HashMap<u32, Tid>,
    last_cookie: u32,
    /// How tasks have ended, and the order in which the tasks ended.
    ends: HashMap<Tid, TaskEnd>,
    ended: VecDeque<Tid>,
}

impl TaskTable {
    pub fn new(host: Tid) -> TaskTable {
        TaskTable {
            host,
            last: 0,
            tasks: BTreeMap::new(),
            slots: HashSet::new(),
            cookies: HashMap::new(),
            last_cookie: 0,
            ends: HashMap::new(),
            ended: VecDeque::new(),
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
    /// Notes that the master may keep state of all tasks of this host.
    pub fn set_known_to_master(&mut self) {
        self.tasks.values_mut().for_each(|task| task.known_to_master = true);
    }
    pub fn iter(&self) -> impl Iterator<Item = (Tid, &Task)> {
        self.tasks.iter().map(|(tid, task)| (*tid, task))
    }
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.slots.is_empty() && self.cookies.is_empty()
    }
    /// Returns whether the task is enrolled.
    pub fn is_connected(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state == State::Connected)
    }
    /// Returns whether frames reach the task, now or once it enrolls.
    pub fn takes_frames(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state != State::Left)
    }
    /// Returns whether there are several tasks that may send messages.
    pub fn company(&self) -> Company {
        let mut senders = self.tasks.values().filter(|task| task.may_send());
        if senders.nth(1).is_some() { Company::Several } else { Company::Alone }
    }
    /// Returns whether no other task of this host may send messages.
    pub fn is_alone(&self, tid: Tid) -> bool {
        !self.iter().any(|(other, task)| other != tid && task.may_send())
    }

    /// Adds a task; returns its tid: the next tid whose slot is free.
    pub fn add(&mut self, task: Task) -> Option<Tid> {
        if self.slots.len() >= TASKS_MAX {
            return None;
        }
        loop {
            self.last = self.last % LOCAL_MASK + 1;
            // Slot 0 means "no task" in the port table.
            if self.last & SLOT_MASK != 0 && self.slots.insert(self.last & SLOT_MASK) {
                let tid = Tid(self.host.0 | self.last);
                self.forget_end(tid);
                self.tasks.insert(tid, task);
                return Some(tid);
            }
        }
    }

    /// Adds a task that is about to be started. The task claims its entry by the returned cookie.
    pub fn add_expected(&mut self, mut task: Task) -> Option<(Tid, u32)> {
        let cookie = self.new_cookie();
        task.cookie = cookie;
        let tid = self.add(task)?;
        self.cookies.insert(cookie, tid);
        Some((tid, cookie))
    }

    /// Takes the expected task that has that cookie.
    pub fn claim(&mut self, cookie: u32) -> Option<Tid> {
        self.cookies.remove(&cookie)
    }

    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
        let task = self.tasks.remove(&tid)?;
        self.slots.remove(&tid.slot());
        self.cookies.remove(&task.cookie);
        Some(task)
    }

    /// Returns a cookie that no expected task has.
    fn new_cookie(&mut self) -> u32 {
        loop {
            self.last_cookie = (self.last_cookie + 1) % COOKIES;
            let cookie = COOKIE_FIRST + self.last_cookie - 1;
            if !self.cookies.contains_key(&cookie) {
                return cookie;
            }
        }
    }

    /// Returns how a task has ended, if that is remembered.
    pub fn end_of(&self, tid: Tid) -> Option<TaskEnd> {
        self.ends.get(&tid).copied()
    }

    /// Forgets the end of an earlier task with the same tid.
    fn forget_end(&mut self, tid: Tid) {
        if self.ends.remove(&tid).is_some() {
            self.ended.retain(|ended| *ended != tid);
        }
    }

    /// Remembers how a task has ended; drops the oldest if there are too many.
    pub fn remember(&mut self, tid: Tid, end: TaskEnd) {
        if self.ends.insert(tid, end).is_some() {
            return;
        }
        self.ended.push_back(tid);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front().map(|oldest| self.ends.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_around_again_has_no_old_status() {
        let mut tasks = TaskTable::new(Tid::host_number(1));
        let task = || Task::new(Origin::Spawned, 0, Vec::new(), TraceSettings::default());
        let tid = tasks.add(task()).expect("a number");
        let end = |status| TaskEnd { status, ..TaskEnd::default() };
        tasks.remember(tid, end(7));
        tasks.remove(tid);
        assert_eq!(tasks.end_of(tid), Some(end(7)));
        // The test skips all other numbers, as if they had been assigned.
        tasks.last = LOCAL_MASK;
        assert_eq!(tasks.add(task()), Some(tid));
        assert_eq!(tasks.end_of(tid), None);
        tasks.remember(tid, end(9));
        assert_eq!((tasks.end_of(tid), tasks.ended.len()), (Some(end(9)), 1));
    }
}
