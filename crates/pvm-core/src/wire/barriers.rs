//! What is needed to continue barriers over several hosts when their master has died.
use super::{Arrival, Taken};
use crate::release::Passed;
use serde::{Deserialize, Serialize};

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
