//! The pseudo-random numbers of the simulator. They depend on the seed alone.
use crate::queue::Nanos;

/// A pseudo-random number generator.
pub struct Prng(fastrand::Rng);

impl Prng {
    /// Makes a generator; `stream` distinguishes generators with the same seed.
    pub fn new(seed: u64, stream: u64) -> Prng {
        let mut mix = fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Prng(fastrand::Rng::with_seed(mix.u64(..)))
    }
    /// Returns a number below `limit`, or 0 if the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { self.0.usize(..limit) }
    }
    /// Returns true with the given probability, in thousandths.
    pub fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }
    /// Returns a time between `least` and `most`, both included.
    pub fn span(&mut self, least: Nanos, most: Nanos) -> Nanos {
        self.0.u64(least..=most.max(least))
    }
    /// Returns a number below `limit`. First chooses the number of its bits at random, so small numbers are more
    /// frequent.
    pub fn size(&mut self, limit: usize) -> usize {
        let magnitude = self.below(usize::BITS as usize - limit.leading_zeros() as usize + 1);
        self.below((1 << magnitude).min(limit))
    }
    /// Returns an element.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
    /// Returns a random index into `weights`. The probability of an index is proportional to its weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().sum::<u32>() as usize) as u32;
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_rolls_the_same_numbers() {
        let rolls = |seed, stream| {
            let mut prng = Prng::new(seed, stream);
            (0..20).map(move |_| prng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7, 1), rolls(7, 1));
        assert_ne!(rolls(7, 1), rolls(7, 2));
        assert_ne!(rolls(7, 1), rolls(8, 1));
    }

    #[test]
    fn weights_are_kept() {
        let mut prng = Prng::new(1, 1);
        let mut counts = [0; 3];
        (0..4000).for_each(|_| counts[prng.weighted(&[1, 0, 3])] += 1);
        assert!(counts[1] == 0 && counts[0] > 800 && counts[2] > 2700, "{counts:?}");
        assert!((0..1000).all(|_| prng.size(100) < 100));
    }
}
