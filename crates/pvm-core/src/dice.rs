//! Numbers for tests with random steps, the same ones for the same seed.

/// A small generator of numbers that look random (xorshift). The seed must not be 0.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
