//! Hash chains: they prove to hosts that a release of a barrier comes from the master.
//!
//! The master makes random bytes and applies a one-way function to them again and again. It tells the last value, the
//! anchor, to the hosts of the group over their control links. Each release discloses the value before the one that
//! was disclosed last. Everybody can check this value by applying the function once, but nobody can compute the next
//! one. So a release needs no key and no protection against replays, whatever way it takes.
use crate::datagram_error::DatagramError;
use crate::machine::settings::OneWay;
use crate::release::{ChainValue, Release};

/// The values of a chain, without the anchor: the number of barriers until a new chain is needed.
const LINKS: u32 = 1024;
/// The master stores every 32nd value. It computes those between two stored ones when it needs them.
const STEP: u32 = 32;

/// A chain at the master.
pub(super) struct Chain {
    number: u32,
    /// The index of the value that was disclosed last; 0 is the anchor.
    disclosed: u32,
    /// Every [`STEP`]th value, the anchor last.
    stored: Vec<ChainValue>,
    /// The values from the stored one with that position up to the next.
    computed: (usize, Vec<ChainValue>),
}

impl Chain {
    /// Makes the chain with that number. No two chains of a secret have the same number.
    pub fn new(one_way: &OneWay, number: u32) -> Chain {
        Chain::from_start(one_way, &start(one_way, number), number)
    }

    /// Makes the chain that begins with this secret value.
    pub fn from_start(one_way: &OneWay, start: &ChainValue, number: u32) -> Chain {
        let next = |value: &ChainValue| Some(one_way.apply(value, STEP));
        let stored: Vec<ChainValue> =
            std::iter::successors(Some(*start), next).take((LINKS / STEP) as usize + 1).collect();
        Chain { number, disclosed: 0, stored, computed: (0, Vec::new()) }
    }

    /// Returns the number of the chain.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether all releases were disclosed.
    pub fn is_used_up(&self) -> bool {
        self.disclosed == LINKS
    }

    /// Returns the release that was disclosed last, or the anchor.
    pub fn last(&mut self, one_way: &OneWay) -> Release {
        Release { chain: self.number, index: self.disclosed, value: self.value(one_way, self.disclosed) }
    }

    /// Discloses the next release, if there is one left.
    pub fn disclose(&mut self, one_way: &OneWay) -> Option<Release> {
        if self.is_used_up() {
            return None;
        }
        self.disclosed += 1;
        Some(self.last(one_way))
    }

    fn value(&mut self, one_way: &OneWay, index: u32) -> ChainValue {
        let place = LINKS - index;
        let (part, rest) = ((place / STEP) as usize, (place % STEP) as usize);
        if rest == 0 {
            return self.stored[part];
        }
        if self.computed.0 != part || self.computed.1.is_empty() {
            let next = |value: &ChainValue| Some(one_way.apply(value, 1));
            let values = std::iter::successors(Some(self.stored[part]), next).take(STEP as usize).collect();
            self.computed = (part, values);
        }
        self.computed.1[rest]
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

/// A chain as another host knows it: the release that it knows last.
pub(super) struct KnownChain(Release);

impl KnownChain {
    /// Starts with what the master has told: this release, or the anchor of the chain.
    pub fn new(told: Release) -> KnownChain {
        KnownChain(told)
    }

    /// Returns the number of the chain.
    pub fn number(&self) -> u32 {
        self.0.chain
    }

    /// Returns the release that is known last, or the anchor.
    pub fn last(&self) -> &Release {
        &self.0
    }

    /// Returns the place of the release that is known last: the number of barriers that this chain has released.
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Accepts a release that anybody may have sent, if it is the master's and newer than the one that is known.
    pub fn accept(&mut self, one_way: &OneWay, release: &Release) -> Result<(), DatagramError> {
        release.check(&self.0, one_way.function)?;
        self.0 = release.clone();
        Ok(())
    }

    /// Notes a release that the master itself has told. Returns whether it is new.
    pub fn told(&mut self, release: &Release) -> bool {
        let is_new = release.chain == self.0.chain && release.index > self.0.index;
        if is_new {
            self.0 = release.clone();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::fleet::mix;
    use crate::release::{CHAIN_VALUE_BYTES, MISSED_RELEASES_MAX};

    fn test_one_way(secret: u8) -> OneWay {
        OneWay { secret: [secret; CHAIN_VALUE_BYTES], function: mix }
    }

    #[test]
    fn each_release_is_accepted_once_and_in_order() {
        let one_way = test_one_way(1);
        let mut chain = Chain::new(&one_way, 5);
        let mut known = KnownChain::new(chain.last(&one_way));
        let mut before = None;
        for index in 1..=LINKS {
            let release = chain.disclose(&one_way).expect("not used up");
            assert_eq!((release.chain, release.index), (5, index));
            let forged = Release { value: [7; CHAIN_VALUE_BYTES], ..release.clone() };
            let of_another_chain = Release { chain: 6, ..release.clone() };
            let (false_one, unexpected) = (Err(DatagramError::Forged), Err(DatagramError::Unexpected));
            assert_eq!(known.accept(&one_way, &forged), false_one);
            assert_eq!(known.accept(&one_way, &of_another_chain), unexpected);
            assert_eq!(known.accept(&one_way, &release), Ok(()), "{index}");
            assert_eq!(known.accept(&one_way, &release), unexpected, "a replay");
            if let Some(older) = before.replace(release.clone()) {
                assert_eq!(known.accept(&one_way, &older), unexpected);
            }
            let ahead = Release { index: index + 1, ..release };
            assert_eq!(known.accept(&one_way, &ahead), false_one, "with a value that is known");
        }
        assert_eq!(chain.disclose(&one_way), None);
    }

    #[test]
    fn a_host_may_miss_some_releases() {
        let one_way = test_one_way(2);
        let mut chain = Chain::new(&one_way, 1);
        let mut known = KnownChain::new(chain.last(&one_way));
        let mut releases = std::iter::from_fn(|| chain.disclose(&one_way));
        let near = releases.nth(MISSED_RELEASES_MAX as usize).expect("long enough");
        assert_eq!(known.accept(&one_way, &near), Ok(()));
        let far = releases.nth(MISSED_RELEASES_MAX as usize + 1).expect("long enough");
        assert_eq!(known.accept(&one_way, &far), Err(DatagramError::Unexpected));
        assert!(known.told(&far) && !known.told(&far) && !known.told(&near));
        assert_eq!(known.accept(&one_way, &releases.next().expect("long enough")), Ok(()));
    }

    #[test]
    fn chains_of_other_numbers_and_secrets_are_different() {
        let anchor = |secret, number| {
            let one_way = test_one_way(secret);
            Chain::new(&one_way, number).last(&one_way).value
        };
        assert_ne!(anchor(1, 1), anchor(1, 2));
        assert_ne!(anchor(1, 1), anchor(2, 1));
    }
}
