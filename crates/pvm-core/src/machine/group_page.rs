//! What the rules and the daemon exchange about the page of a group: the memory in which its tasks on one host find
//! each other and synchronize in barriers.
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// An action on the page of a group on this host. Actions are executed in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum GroupAction {
    /// Make the page; answer by `Machine::handle_group_made`.
    Make,
    /// Enter the task as the member of that instance number.
    Joined { instance: u32, tid: Tid },
    /// Remove that member; wake the members that wait.
    Gone { instance: u32 },
    /// Freeze the group: no task joins any more.
    Freeze,
    /// A member of the frozen group has gone: refuse its barriers from now on.
    Break,
    /// Close the page; the group is gone.
    Close,
    /// Send the page to a task, to a member with the barrier page.
    Show { to: Tid, member: bool },
    /// Read the barrier; answer by `Machine::handle_barrier`.
    Look,
    /// Take out the arrivals at the barrier, if any; from now on members arrive by the daemon. Answer by
    /// `Machine::handle_barrier_taken`.
    Take,
    /// Release the members whose arrivals were taken: the barrier has opened, or has failed.
    Release { opened: bool },
    /// Let members synchronize in the page again.
    Give,
    /// Fail the barrier; answer by `Machine::handle_barrier_failed`, or, if somebody has arrived since it was read,
    /// by `Machine::handle_barrier_changed`.
    Fail(Barrier),
}

/// A barrier as the daemon saw it in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// Counts the barriers of the group.
    pub generation: u32,
    /// How many members must arrive; 0 while none has.
    pub need: u16,
    /// How many members have arrived.
    pub arrived: u16,
    /// How many members have not arrived.
    pub absent: u32,
    /// How many members may have arrived or are about to.
    pub arriving: u32,
}

/// The arrivals taken out of the page of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// How many members must arrive; 0 if none had arrived.
    pub need: u16,
    /// How many members had arrived.
    pub arrived: u16,
    /// The members that had arrived.
    pub here: Vec<Tid>,
    /// The members that had arrived or, if not, will arrive by their daemon.
    pub doubtful: Vec<Tid>,
}

/// For whom the groups are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Listing {
    /// A task that asked in that context.
    Task { to: Tid, ctx: i32 },
    /// The log, at the request of that task.
    Log { from: Tid },
    /// The master, which asked under that number.
    Master { number: u32 },
}

/// Who waits in the barrier of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// How many members must arrive; 0 while none has.
    pub need: u16,
    /// The members that have arrived.
    pub tids: Vec<Tid>,
}
