//! The sub-machines together. Every event is delivered to all of them.
use super::core::{Core, SubMachine};
use super::event::Event;
use super::{
    contexts, control, deputy, direct, fabrics, groups, mailbox, membership, notify, output, remote, servers, spawn,
    tasks, traces,
};
use crate::codes::Code;
use crate::tid::Tid;

/// All sub-machines.
pub(super) struct Parts {
    pub remote: remote::Remote,
    pub groups: groups::Groups,
    pub directs: direct::Directs,
    pub fabrics: fabrics::Fabrics,
    pub traces: traces::Traces,
    pub output: output::Output,
    pub mailboxes: mailbox::Mailboxes,
    pub contexts: contexts::Contexts,
    pub spawns: spawn::Spawns,
    pub notify: notify::Notify,
    pub servers: servers::Servers,
    pub tasks: tasks::Tasks,
    pub control: control::Control,
    pub deputies: deputy::Deputies,
    pub membership: membership::Membership,
}

/// The number of sub-machines.
const COUNT: usize = 15;

/// The sub-machines as trait objects. The pattern is exhaustive: the compiler reports a sub-machine that is missing
/// here.
macro_rules! all {
    ($parts:expr) => {{
        let Parts {
            remote,
            groups,
            directs,
            fabrics,
            traces,
            output,
            mailboxes,
            contexts,
            spawns,
            notify,
            servers,
            tasks,
            control,
            deputies,
            membership,
        } = $parts;
        [
            remote, groups, directs, fabrics, traces, output, mailboxes, contexts, spawns, notify, servers, tasks,
            control, deputies, membership,
        ]
    }};
}

impl Parts {
    pub fn new(core: &Core) -> Parts {
        let own = core.own_host();
        Parts {
            mailboxes: mailbox::Mailboxes::new(core.settings.limits.mailbox_bytes),
            contexts: contexts::Contexts::new(own),
            spawns: spawn::Spawns::new(own),
            remote: remote::Remote::default(),
            groups: groups::Groups::default(),
            directs: direct::Directs::default(),
            fabrics: fabrics::Fabrics::default(),
            traces: traces::Traces::default(),
            output: output::Output::default(),
            notify: notify::Notify::default(),
            servers: servers::Servers::default(),
            tasks: tasks::Tasks::default(),
            control: control::Control::default(),
            deputies: deputy::Deputies::default(),
            membership: membership::Membership::default(),
        }
    }

    /// Returns all sub-machines in the order in which they receive an event.
    fn all_mut(&mut self) -> [&mut dyn SubMachine; COUNT] {
        all!(self)
    }
    fn all(&self) -> [&dyn SubMachine; COUNT] {
        all!(self)
    }

    /// Handles the goodbye or the end of a task.
    pub fn leave(&mut self, core: &mut Core, tid: Tid) {
        self.groups.task_leaves(core, tid);
        tasks::leave(core, tid);
    }

    /// Delivers events to all sub-machines until no event is left.
    pub fn settle(&mut self, core: &mut Core) {
        while let Some(event) = core.take_event() {
            self.all_mut().into_iter().for_each(|part| part.on_event(core, &event));
            if let Event::RequestReturned { from, wait, request } = event {
                self.handle_request(core, from, wait, request);
            } else if let Event::MasterGone(loss) = event {
                self.master_gone(core, loss);
            }
        }
        if core.halting {
            self.control.stop_when_empty(core);
        }
    }

    /// Returns the names of the sub-machines that hold state.
    pub fn busy(&self) -> impl Iterator<Item = &'static str> {
        self.all().into_iter().filter(|part| !part.is_idle()).map(|part| part.name())
    }

    /// At the master, halts the machine; on another host, halts that host. Answers the task that requested this.
    pub fn halt(&mut self, core: &mut Core, asker: Option<(Tid, u32)>) {
        if !core.halting && core.is_master() {
            self.membership.fail_add(core, Code::SysErr);
        }
        self.control.halt(core, asker, "");
    }
}
