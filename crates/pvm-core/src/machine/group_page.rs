//! The actions and reports that the rules and the daemon exchange about the page of a group. The page is shared memory
//! in which the group's tasks on one host find each other and synchronize in barriers.
use crate::tid::Tid;

/// An action on the page of a group on this host. Actions are executed in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum GroupAction {
    /// Make the page; answer by `Machine::handle_group_made`.
    Make,
    /// Record in the page that the task is the member with that instance number.
    Joined { instance: u32, tid: Tid },
    /// Remove that member; wake the members that wait in the barrier.
    Gone { instance: u32 },
    /// Freeze the group: no task joins any more.
    Freeze,
    /// A member of the frozen group has gone: refuse the group's barriers from now on.
    Break,
    /// Close the page; the group is gone.
    Close,
    /// Send the membership page to a task; if the task is a member, also the barrier page.
    Show { to: Tid, member: bool },
    /// Read the barrier; answer by `Machine::handle_barrier`.
    Look,
    /// Take the arrivals at the barrier, if any, out of the page; from now on members arrive by way of the daemon.
    /// Answer by `Machine::handle_barrier_taken`.
    Take,
    /// Release the members whose arrivals were taken: the barrier has opened, or has failed.
    Release { opened: bool },
    /// Let members synchronize in the page again.
    Give,
    /// Make the barrier fail; answer by `Machine::handle_barrier_failed`. If a member has arrived since the barrier was
    /// read, answer by `Machine::handle_barrier_changed` instead.
    Fail(Barrier),
}

/// The state of a barrier, as the daemon read it in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// The number of this barrier; the barriers of a group are counted.
    pub generation: u32,
    /// How many members must arrive; 0 before the first arrival.
    pub need: u16,
    /// How many members have arrived.
    pub arrived: u16,
    /// How many members have certainly not arrived; those in `arriving` are not counted here.
    pub absent: u32,
    /// How many members may have arrived or are about to arrive.
    pub arriving: u32,
}

/// The receiver of a list of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Listing {
    /// The task `to`, which sent its request in the context `ctx`.
    Task { to: Tid, ctx: i32 },
    /// The log, because the task `from` asked to write the list there.
    Log { from: Tid },
    /// The master, which sent the query with that number.
    Master { number: u32 },
}
