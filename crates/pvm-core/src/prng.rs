//! Pseudo-random numbers for tests with random steps. The same seed always results in the same numbers.

/// A pseudo-random number generator (xorshift). The seed must not be 0.
pub(crate) struct Prng(pub u64);

impl Prng {
    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
