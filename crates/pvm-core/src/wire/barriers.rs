//! What is needed to continue barriers over several hosts when their master has died.
use super::{Arrival, Taken};
use crate::codes::Code;
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// Which barrier of the whole group was released last, as far as a host knows. All members must have arrived again before the next
/// one is released, so a host with members knows the last one or the one before.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passed {
    /// How often the members had changed.
    pub version: u64,
    /// How many such barriers were released after that change.
    pub number: u32,
}

impl Passed {
    /// Returns the barrier that is released `count` such barriers later, when the members have changed `version` times.
    pub fn later(self, version: u64, count: u32) -> Passed {
        let before = if self.version == version { self.number } else { 0 };
        Passed { version, number: before.saturating_add(count) }
    }
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

/// How a barrier has ended for an arrival.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct EndedArrival {
    /// The member.
    pub tid: Tid,
    /// The number of the arrival.
    pub turn: u64,
    /// Why the barrier has failed, if it has.
    pub failure: Option<Code>,
}

/// How a barrier has ended for the arrivals that were taken out of a page.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedPage {
    /// The host of the page.
    pub host: Tid,
    /// The number of the host's report.
    pub number: u32,
    /// Whether the barrier has opened.
    pub opened: bool,
}
