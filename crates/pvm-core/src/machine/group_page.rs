//! What the rules and the daemon say to each other about the page of a group: the memory in which its tasks of one
//! host find each other and meet in barriers.
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// What is to be done with the memory of a group. Actions are to be done in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum GroupAction {
    /// Make it; answer by [`Machine::handle_group_made`].
    Make,
    /// The task is the member of that number now.
    Joined { instance: u32, tid: Tid },
    /// There is no member of that number any more; wake those who wait for others.
    Gone { instance: u32 },
    /// Nobody joins any more.
    Freeze,
    /// A member of the frozen group has gone: its barriers are refused from now on.
    Break,
    /// The group is no more.
    Close,
    /// Send it to a task, to a member with the board.
    Show { to: Tid, member: bool },
    /// Look at the barrier; answer by [`Machine::handle_barrier`].
    Look,
    /// Take the arrivals at the barrier away, if there is one: from now on members arrive by the
    /// daemon. Answer by [`Machine::handle_barrier_taken`].
    Take,
    /// Let those go on whose arrivals were taken, or tell them that the barrier has failed.
    Release { opened: bool },
    /// Members meet in the memory again.
    Give,
    /// Make the barrier fail; answer by [`Machine::handle_barrier_failed`], or, when somebody has
    /// arrived since it was looked at, by [`Machine::handle_barrier_changed`].
    Fail(Barrier),
}

/// A barrier as the edge saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// Which barrier of the group it is.
    pub generation: u32,
    /// How many must arrive; 0 while nobody has.
    pub need: u16,
    /// How many have.
    pub arrived: u16,
    /// Members that have not.
    pub absent: u32,
    /// Members that may have arrived, or are just about to.
    pub arriving: u32,
}

/// What was taken out of the memory of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// How many must arrive; 0 if nobody had.
    pub need: u16,
    /// How many had.
    pub arrived: u16,
    /// Members that had.
    pub here: Vec<Tid>,
    /// Members that had, or will find that they cannot.
    pub doubtful: Vec<Tid>,
}

/// For whom the groups are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Listing {
    /// A task that has asked in that context.
    Task { to: Tid, ctx: i32 },
    /// The log, because that task has asked.
    Log { from: Tid },
    /// The master, which has asked under that number.
    Master { number: u32 },
}

/// Who waits in a group's barrier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// How many must arrive; 0 while nobody has.
    pub need: u16,
    /// The members that have.
    pub tids: Vec<Tid>,
}
