//! The tasks of this host: their tids, what is known of each, and how the last ones ended.
use super::action::SpawnId;
use crate::proto::TraceSettings;
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
    pub peers: BTreeSet<Tid>,
    /// The spawn that made it.
    pub spawn: Option<SpawnId>,
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
            spawn: None,
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
pub(super) struct TaskTable {
    host: Tid,
    last: u32,
    tasks: BTreeMap<Tid, Task>,
    slots: HashSet<u32>,
    cookies: HashMap<u32, Tid>,
    last_cookie: u32,
    /// How the last tasks ended, and in what order.
    statuses: HashMap<Tid, i32>,
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
            statuses: HashMap::new(),
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
    pub fn iter(&self) -> impl Iterator<Item = (Tid, &Task)> {
        self.tasks.iter().map(|(tid, task)| (*tid, task))
    }
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.slots.is_empty() && self.cookies.is_empty()
    }
    /// Whether the task has said hello and not goodbye.
    pub fn is_connected(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state == State::Connected)
    }
    /// Whether frames reach the task, now or when it enrols.
    pub fn takes_frames(&self, tid: Tid) -> bool {
        self.get(tid).is_some_and(|task| task.state != State::Left)
    }

    /// Adds a task; returns its number: the next one whose slot is free.
    pub fn add(&mut self, task: Task) -> Option<Tid> {
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

    /// Makes a place for a task that is about to be started. It claims the place by the cookie, which is returned.
    pub fn add_expected(&mut self, mut task: Task) -> Option<(Tid, u32)> {
        let cookie = self.new_cookie();
        task.cookie = cookie;
        let tid = self.add(task)?;
        self.cookies.insert(cookie, tid);
        Some((tid, cookie))
    }

    /// The task that is expected with that cookie, once.
    pub fn claim(&mut self, cookie: u32) -> Option<Tid> {
        self.cookies.remove(&cookie)
    }

    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
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

    /// How that task ended, if it is remembered.
    pub fn ended_with(&self, tid: Tid) -> Option<i32> {
        self.statuses.get(&tid).copied()
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

    /// Remembers how a task ended, in the place of the oldest one if there are many.
    pub fn remember(&mut self, tid: Tid, status: i32) {
        if self.statuses.insert(tid, status).is_some() {
            return;
        }
        self.ended.push_back(tid);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front().map(|oldest| self.statuses.remove(&oldest));
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
