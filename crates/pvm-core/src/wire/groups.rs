//! What hosts tell each other about groups.
use super::{Arrival, Taken};
use crate::proto::ByteBuf;
use crate::release::{ChainValue, Passed, Release};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// The state of a group, which the master sends to a host without a replica.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct GroupState {
    /// The number of the group.
    pub id: u64,
    /// The name of the group.
    pub name: ByteBuf,
    /// The members: instance and tid.
    pub members: Vec<(u32, Tid)>,
    /// Whether the group is frozen: no task can join.
    pub frozen: bool,
    /// Whether the group is frozen and has lost a member.
    pub broken: bool,
    /// Whether the group's barriers take place in the barrier page of the receiving host.
    pub meets_here: bool,
    /// How often the members have changed.
    pub version: u64,
    /// The newest release of the group's barriers, or the anchor, if there is a chain of releases.
    pub chain: Option<Release>,
}

/// A change of a group, or of its barrier page.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the comment of a variant names its fields
pub enum GroupChange {
    /// The task has joined as this instance.
    Joined { instance: u32, tid: Tid },
    /// That instance has left.
    Gone { instance: u32 },
    /// The group is frozen.
    Freeze,
    /// A member of the frozen group has left.
    Break,
    /// The group is dissolved.
    Close,
    /// Barriers no longer take place in the receiving host's barrier page: report which members have arrived there.
    Take,
    /// Barriers take place in the receiving host's barrier page again.
    Give,
    /// The barrier has opened or failed for the members that had arrived in the receiving host's barrier page.
    Release { opened: bool },
    /// The releases of the group's barriers are values of a new chain, which begins with this anchor.
    Chain(Release),
    /// The host `by` may become the coordinator: open the links for that.
    Prepare { by: Tid },
    /// Barriers of the whole group meet at the coordinator `by`, and are released by the chain with this anchor. The
    /// coordinator alone learns `start`, the first value of the chain. `passed` is the barrier that ends now.
    Coordinate { by: Tid, anchor: Release, start: Option<ChainValue>, passed: Passed },
    /// There is no coordinator any more: report who waits. The answer is `Recalled` with this number.
    Recall { number: u64 },
}

/// What a host knows about the barriers of a group, for the successor of a master that has died.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct GroupNews {
    /// The number of the group.
    pub id: u64,
    /// Whether members meet in the host's page.
    pub meets_here: bool,
    /// The last release that the host knows.
    pub passed: Passed,
    /// The arrivals after it that were not answered: those of the host's members, and those that the host has counted as the
    /// coordinator. Each count is that of the members if the caller has left it open.
    pub arrivals: Vec<Arrival>,
    /// The arrivals that were taken out of the host's page and were not released, and the number of that report.
    pub taken: Option<(u32, Taken)>,
}
