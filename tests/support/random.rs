//! Pseudo-random numbers.

#![allow(unreachable_pub)]

/// Xorshift: the same numbers for the same seed, which is not 0.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
