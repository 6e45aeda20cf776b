//! What happens inside the machine that concerns several sub-machines.
use super::action::SpawnId;
use super::task_table::Task;
use crate::proto::{Request, Role};
use crate::tid::Tid;

/// Something that has happened. Events are delivered to all sub-machines, in the order in which they were raised.
pub(super) enum Event {
    /// A task of this host has enrolled. `arrived`: no daemon has started it.
    TaskEnrolled { tid: Tid, arrived: bool },
    /// A task of this host has no connection any more, though its process may live; these were its spawn and the
    /// tasks to which it was introduced.
    TaskLeft { tid: Tid, spawn: Option<SpawnId>, peers: Vec<Tid> },
    /// A task of this host has ended. Its number is free.
    TaskGone { tid: Tid, task: Box<Task> },
    /// At the master: a task of another host for which something was kept here has left PVM, or has `ended`.
    ClientLeft { tid: Tid, ended: bool },
    /// The host has gone that had a task of this host started, before it had told of it.
    SpawnerLost(Tid),
    /// A host has been removed from the machine, and so have its tasks.
    HostGone(Tid),
    /// New hosts can be used.
    HostsJoined(Vec<Tid>),
    /// The master does not answer, or has spoken nonsense: why.
    MasterLost(String),
    /// At the master: a task holds a role from now on.
    RoleTaken { role: Role, tid: Tid },
    /// At the master: a task does not hold a role any more.
    RoleLeft { role: Role, tid: Tid },
    /// The hoster has gone while it was starting daemons.
    HosterGone,
    /// That tasker has gone.
    TaskerGone(Tid),
    /// That resource manager has gone.
    ManagerGone(Tid),
    /// A manager that had a request to answer has gone: it is decided here.
    Undecided { from: Tid, wait: u32, request: Request },
    /// What a manager had started for a parent: its request's wait id and context, and the tids or codes.
    ManagerSpawned { manager: Tid, wid: i32, ctx: i32, parent: i32, results: Vec<i32> },
}
