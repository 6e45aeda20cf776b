//! All chance comes from here, and from the seed.
use crate::queue::Nanos;

/// Numbers that look random, the same ones for the same seed.
pub struct Dice(fastrand::Rng);

impl Dice {
    /// `stream` tells apart those that share a seed.
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut mix = fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Dice(fastrand::Rng::with_seed(mix.u64(..)))
    }
    /// 0 to `sides` - 1; 0 when there are no sides.
    pub fn roll(&mut self, sides: usize) -> usize {
        if sides == 0 { 0 } else { self.0.usize(..sides) }
    }
    /// Whether something happens that happens so often in a thousand times.
    pub fn chance(&mut self, per_mille: usize) -> bool {
        self.roll(1000) < per_mille
    }
    /// A span between the two, both possible.
    pub fn span(&mut self, least: Nanos, most: Nanos) -> Nanos {
        self.0.u64(least..=most.max(least))
    }
    /// A number whose magnitude is as random as itself, below `limit`.
    pub fn size(&mut self, limit: usize) -> usize {
        let magnitude = self.roll(usize::BITS as usize - limit.leading_zeros() as usize + 1);
        self.roll((1 << magnitude).min(limit))
    }
    /// One of them.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.roll(all.len()))
    }
    /// Which of the kinds with these weights.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.roll(weights.iter().sum::<u32>() as usize) as u32;
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
            let mut dice = Dice::new(seed, stream);
            (0..20).map(move |_| dice.roll(1000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7, 1), rolls(7, 1));
        assert_ne!(rolls(7, 1), rolls(7, 2));
        assert_ne!(rolls(7, 1), rolls(8, 1));
    }

    #[test]
    fn weights_are_kept() {
        let mut dice = Dice::new(1, 1);
        let mut counts = [0; 3];
        (0..4000).for_each(|_| counts[dice.weighted(&[1, 0, 3])] += 1);
        assert!(counts[1] == 0 && counts[0] > 800 && counts[2] > 2700, "{counts:?}");
        assert!((0..1000).all(|_| dice.size(100) < 100));
    }
}
