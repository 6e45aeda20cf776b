//! Events inside the machine that concern several sub-machines.
use super::action::SpawnId;
use super::task_table::Task;
use crate::proto::{Request, Role};
use crate::tid::Tid;

/// Something that has happened. Events are delivered to all sub-machines, in the order in which they were raised.
pub(super) enum Event {
    /// A task of this host has enrolled. `arrived`: the task was started by hand, not by a daemon.
    TaskEnrolled { tid: Tid, arrived: bool },
    /// A task of this host has lost or closed its connection, though its process may live. `spawn`: the spawn that
    /// started the task; `peers`: the tasks to which it was introduced.
    TaskLeft { tid: Tid, spawn: Option<SpawnId>, peers: Vec<Tid> },
    /// A task of this host has ended. Its tid is free.
    TaskGone { tid: Tid, task: Box<Task> },
    /// At the master: a task of another host has left PVM, and the master keeps state for this task. `ended`: the task
    /// has ended, too.
    ClientLeft { tid: Tid, ended: bool },
    /// The host that distributed the spawn of this task was lost before it could announce the task to the collector.
    SpawnerLost(Tid),
    /// A host has been removed from the machine, together with its tasks.
    HostGone(Tid),
    /// New hosts are usable.
    HostsJoined(Vec<Tid>),
    /// The master is lost or has violated the protocol, and nobody takes its place; the text is the reason.
    MasterLost(String),
    /// The master is lost, and this host knows its deputy.
    MasterGone(Loss),
    /// At the master: most of the council does not answer any more, so the deputy may have become the master.
    MajorityLost,
    /// At the master: a task has taken a role.
    RoleTaken { role: Role, tid: Tid },
    /// At the master: a task has given up a role.
    RoleLeft { role: Role, tid: Tid },
    /// The hoster has gone while it was starting daemons.
    HosterGone,
    /// The tasker has gone.
    TaskerGone(Tid),
    /// The resource manager has gone.
    ManagerGone(Tid),
    /// A manager has gone without answering this request: this daemon decides the request.
    RequestReturned { from: Tid, wait: u32, request: Request },
    /// A spawn that the manager ordered on behalf of `parent` has ended. `wid`, `ctx`: wait id and context of the
    /// manager's message; `results`: tids or codes.
    ManagerSpawned { manager: Tid, wid: i32, ctx: i32, parent: i32, results: Vec<i32> },
}

/// How the master was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its daemon has provably ended.
    Proven,
    /// It may live, and cannot be heard; the text says why.
    Silent(String),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Proven => f.write_str("its daemon has ended"),
            Loss::Silent(why) => f.write_str(why),
        }
    }
}
