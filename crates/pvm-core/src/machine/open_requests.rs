//! How many requests of tasks wait for their answers here.
use super::index::Counts;
use super::limits::Limits;
use crate::tid::Tid;

/// How many requests wait for their answers.
#[derive(Default)]
pub(super) struct OpenRequests {
    /// By the task that asks.
    tasks: Counts,
    /// By the host of the task that asks.
    hosts: Counts,
}

impl OpenRequests {
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.hosts.is_empty()
    }
    /// Counts a request of a task of this host (`own`) or another; refuses it where too many wait.
    pub fn begin(&mut self, asker: Tid, own: Tid, limits: &Limits) -> bool {
        let has_room = match asker.host() == own {
            true => self.tasks.of(asker) < limits.task_requests,
            false => self.hosts.of(asker.host()) < limits.host_requests,
        };
        if has_room {
            self.add(asker);
        }
        has_room
    }
    fn add(&mut self, asker: Tid) {
        self.tasks.add(asker);
        self.hosts.add(asker.host());
    }
    /// One request of that task has its answer. A task that has gone waits for none.
    pub fn end(&mut self, asker: Tid) {
        if self.tasks.of(asker) > 0 {
            self.tasks.subtract(asker, 1);
            self.hosts.subtract(asker.host(), 1);
        }
    }
    /// The task waits for nothing any more.
    pub fn forget(&mut self, asker: Tid) {
        let count = self.tasks.take(asker);
        self.hosts.subtract(asker.host(), count);
    }
    /// No task of that host waits for anything any more.
    pub fn forget_host(&mut self, host: Tid) {
        self.tasks.take_tasks_of(host);
        self.hosts.take(host);
    }
}
