//! What tests and the simulator look at from outside.
use super::Machine;
use crate::proto::Host;
use crate::tid::Tid;

impl Machine {
    /// The hosts of the machine, as `pvm_config` tells of them.
    pub fn host_list(&self) -> Vec<Host> {
        self.hosts.list()
    }

    /// Whether the host of that tid is in the table, perhaps as one that is just joining.
    pub fn has_host(&self, tid: Tid) -> bool {
        self.hosts.is_here(tid)
    }

    /// What is remembered of tasks, by its kind; not what they put into mailboxes to outlive them. When no task
    /// lives, that is nothing.
    pub fn leftovers(&self) -> Vec<&'static str> {
        let parts = [
            ("tasks", self.tasks.is_idle()),
            ("spawns", self.spawns.is_idle()),
            ("notifies", self.notify.is_idle()),
            ("contexts", self.contexts.is_idle()),
            ("groups", self.groups.is_idle()),
            ("lists of groups", self.listings.is_idle()),
            ("servers", self.servers.is_idle()),
            ("traces", self.traces.is_idle()),
            ("output for other hosts", self.far_output.is_idle()),
            ("adds", self.joining.is_idle()),
            ("requests to other hosts", self.remote.is_idle()),
            ("direct links", self.directs.is_idle()),
            ("mailboxes", self.mailboxes.is_idle()),
            ("answers", self.waits.is_idle()),
        ];
        parts.into_iter().filter(|(_, idle)| !idle).map(|(name, _)| name).collect()
    }
}
