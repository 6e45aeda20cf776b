//! Releases of barriers, which hosts pass on to each other.
use crate::datagram_error::DatagramError;
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
    /// Checks that this release, which anybody may have sent, is the master's and newer than `known`.
    ///
    /// # Errors
    ///
    /// `Unexpected`: of another chain, not newer, or much newer. `Forged`: its value is false.
    pub fn check(&self, known: &Release, one_way: impl Fn(&ChainValue) -> ChainValue) -> Result<(), DatagramError> {
        let newer = self.index.checked_sub(known.index).filter(|newer| (1..=1 + MISSED_RELEASES_MAX).contains(newer));
        let newer = newer.filter(|_| self.chain == known.chain).ok_or(DatagramError::Unexpected)?;
        let value = (0..newer).fold(self.value, |value, _| one_way(&value));
        if value == known.value { Ok(()) } else { Err(DatagramError::Forged) }
    }
}
