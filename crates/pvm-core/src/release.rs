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
