//! Hash chains: they prove to hosts that a release of a barrier comes from the master, or from
//! the coordinator that it has appointed.
//!
//! The master makes random bytes and applies a one-way function to them again and again. It tells the last value, the
//! anchor, to the hosts of the group over their control links. Each release discloses the value before the one that
//! was disclosed last. Everybody can check this value by applying the function once, but nobody can compute the next
//! one. So a release needs no key and no protection against replays, whatever way it takes.
use crate::machine::settings::OneWay;
use crate::release::{ChainValue, Release};

/// The values of a chain, without the anchor: the number of barriers until a new chain is needed.
const LINKS: u32 = 1024;
/// The master stores every 32nd value. It computes those between two stored ones when it needs them.
const STEP: u32 = 32;

/// A chain where the barriers meet.
pub(super) struct Chain {
    /// The release that was disclosed last, or the anchor.
    last: Release,
    /// Every [`STEP`]th value that has not been disclosed.
    stored: Vec<ChainValue>,
    /// The values up to the next stored one, the next one last.
    next: Vec<ChainValue>,
}

impl Chain {
    /// Makes the chain with that number. No two chains of a secret have the same number.
    pub fn new(one_way: &OneWay, number: u32) -> Chain {
        Chain::from_start(one_way, &start(one_way, number), number)
    }

    /// Makes the chain that begins with this secret value.
    pub fn from_start(one_way: &OneWay, start: &ChainValue, number: u32) -> Chain {
        let (mut value, mut stored) = (*start, Vec::new());
        for _ in 0..LINKS / STEP {
            stored.push(value);
            value = one_way.apply(&value, STEP);
        }
        Chain { last: Release { chain: number, index: 0, value }, stored, next: Vec::new() }
    }

    /// Returns the release that was disclosed last, or the anchor.
    pub fn last(&self) -> &Release {
        &self.last
    }

    /// Returns whether all releases were disclosed.
    pub fn is_used_up(&self) -> bool {
        self.last.index == LINKS
    }

    /// Discloses the next release, if there is one left.
    pub fn disclose(&mut self, one_way: &OneWay) -> Option<Release> {
        if self.next.is_empty() {
            let next = |value: &ChainValue| Some(one_way.apply(value, 1));
            self.next = std::iter::successors(Some(self.stored.pop()?), next).take(STEP as usize).collect();
        }
        self.last = Release { index: self.last.index + 1, value: self.next.pop()?, ..self.last };
        Some(self.last.clone())
    }
}

/// Returns the first value of the chain with that number, from which all others follow. It says nothing about other
/// chains.
pub(super) fn start(one_way: &OneWay, number: u32) -> ChainValue {
    let mut start = one_way.secret;
    let (head, _) = start.split_at_mut(size_of::<u32>());
    head.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, mask)| *byte ^= mask);
    one_way.apply(&start, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram_error::DatagramError;
    use crate::machine::tests::fleet::mix;
    use crate::release::{CHAIN_VALUE_BYTES, MISSED_RELEASES_MAX};

    fn test_one_way(secret: u8) -> OneWay {
        OneWay { secret: [secret; CHAIN_VALUE_BYTES], function: mix }
    }

    #[test]
    fn each_release_is_accepted_once_and_in_order() {
        let one_way = test_one_way(1);
        let mut chain = Chain::new(&one_way, 5);
        let mut known = chain.last().clone();
        let mut before = None;
        for index in 1..=LINKS {
            let release = chain.disclose(&one_way).expect("not used up");
            assert_eq!((release.chain, release.index), (5, index));
            let forged = Release { value: [7; CHAIN_VALUE_BYTES], ..release.clone() };
            let of_another_chain = Release { chain: 6, ..release.clone() };
            let (false_one, unexpected) = (Err(DatagramError::Forged), Err(DatagramError::Unexpected));
            assert_eq!(known.accept(&forged, mix), false_one);
            assert_eq!(known.accept(&of_another_chain, mix), unexpected);
            assert_eq!(known.accept(&release, mix), Ok(()), "{index}");
            assert_eq!(known.accept(&release, mix), unexpected, "a replay");
            if let Some(older) = before.replace(release.clone()) {
                assert_eq!(known.accept(&older, mix), unexpected);
            }
            let ahead = Release { index: index + 1, ..release };
            assert_eq!(known.accept(&ahead, mix), false_one, "with a value that is known");
        }
        assert_eq!(chain.disclose(&one_way), None);
    }

    #[test]
    fn a_host_may_miss_some_releases() {
        let one_way = test_one_way(2);
        let mut chain = Chain::new(&one_way, 1);
        let mut known = chain.last().clone();
        let mut releases = std::iter::from_fn(|| chain.disclose(&one_way));
        let near = releases.nth(MISSED_RELEASES_MAX as usize).expect("long enough");
        assert_eq!(known.accept(&near, mix), Ok(()));
        let far = releases.nth(MISSED_RELEASES_MAX as usize + 1).expect("long enough");
        assert_eq!(known.accept(&far, mix), Err(DatagramError::Unexpected));
        assert!(known.told(&far) && !known.told(&far) && !known.told(&near));
        assert_eq!(known.accept(&releases.next().expect("long enough"), mix), Ok(()));
    }

    #[test]
    fn chains_of_other_numbers_and_secrets_are_different() {
        let anchor = |secret, number| {
            let one_way = test_one_way(secret);
            Chain::new(&one_way, number).last().value
        };
        assert_ne!(anchor(1, 1), anchor(1, 2));
        assert_ne!(anchor(1, 1), anchor(2, 1));
    }
}
