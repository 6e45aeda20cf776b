//! The number of open requests: requests of tasks that this daemon has not answered yet.
use super::index::TidCounts;
use super::limits::Limits;
use crate::tid::Tid;

/// Counters of open requests.
#[derive(Default)]
pub(super) struct OpenRequests {
    /// The number of open requests, by the task that asked.
    tasks: TidCounts,
    /// The number of open requests, by the host of the task that asked.
    hosts: TidCounts,
}

impl OpenRequests {
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.hosts.is_empty()
    }
    /// Counts a request of a task of this host (`own`) or of another host. If too many are open, does not count it and
    /// returns false.
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
    /// Subtracts an answered request from the counters. (The requests of a task that has gone are subtracted already.)
    pub fn end(&mut self, asker: Tid) {
        if self.tasks.of(asker) > 0 {
            self.tasks.subtract(asker, 1);
            self.hosts.subtract(asker.host(), 1);
        }
    }
    /// Subtracts all requests of a task from the counters.
    pub fn forget(&mut self, asker: Tid) {
        let count = self.tasks.take(asker);
        self.hosts.subtract(asker.host(), count);
    }
    /// Removes all requests of a host's tasks from the counters.
    pub fn forget_host(&mut self, host: Tid) {
        self.tasks.take_tasks_of(host);
        self.hosts.take(host);
    }
}
