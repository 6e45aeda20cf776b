//! How barriers are released and end, as hosts tell each other.
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// The length of a value of a chain of releases, in bytes.
pub const CHAIN_VALUE_BYTES: usize = 32;

/// A value of a chain of releases.
pub type ChainValue = [u8; CHAIN_VALUE_BYTES];

/// The release of a barrier that all members of a group have reached. Only the master can make it; everybody who knows
/// an earlier one of the same chain can check it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The number of the chain. A chain ends with every change of the group's members.
    pub chain: u32,
    /// The place in the chain; 0 is its anchor, which releases nothing.
    pub index: u32,
    /// The value at this place.
    pub value: ChainValue,
}

/// Releases in a row that a host may miss before it no longer accepts a release that it has not got from the master
/// itself. This bounds the work for a forged release.
pub(crate) const MISSED_RELEASES_MAX: u32 = 8;

impl Release {
    /// Replaces this release, the last that is known, by one that anybody may have sent, if that is the master's or the
    /// coordinator's, and newer.
    ///
    /// # Errors
    ///
    /// `Unexpected`: of another chain, not newer, or much newer. `Forged`: its value is false.
    pub fn accept(
        &mut self,
        release: &Release,
        one_way: impl Fn(&ChainValue) -> ChainValue,
    ) -> Result<(), DatagramError> {
        let newer = release.index.checked_sub(self.index);
        let newer = newer.filter(|newer| (1..=1 + MISSED_RELEASES_MAX).contains(newer) && release.chain == self.chain);
        let newer = newer.ok_or(DatagramError::Unexpected)?;
        if (0..newer).fold(release.value, |value, _| one_way(&value)) != self.value {
            return Err(DatagramError::Forged);
        }
        *self = release.clone();
        Ok(())
    }

    /// Replaces this release, the last that is known, by one that is certainly true, if that is newer. Returns whether it
    /// is.
    pub fn told(&mut self, release: &Release) -> bool {
        let is_newer = release.chain == self.chain && release.index > self.index;
        if is_newer {
            *self = release.clone();
        }
        is_newer
    }
}

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
