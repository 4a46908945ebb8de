//! Validity of results that may change: rules and names of collectible code, and failed lookups.

use crate::trace::Nanos;

/// Lifetime of results that may change.
const TRANSIENT_TTL_NS: u64 = 100_000_000;

/// Number that marks the epochs of batches.
const BATCHES: u16 = 1 << 15;

/// Time interval or batch of samples for which a result is valid; 0 never expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u16);

impl Epoch {
    /// Epoch of results that never expire.
    pub const ALWAYS: Self = Self(0);

    /// Returns the epoch that contains a time.
    #[must_use]
    pub fn of(time: Nanos) -> Self {
        Self((time.0 / TRANSIENT_TTL_NS % u64::from(BATCHES - 1) + 1) as u16)
    }

    /// Returns the epoch of a batch of samples, such as the third one.
    #[must_use]
    pub fn of_batch(number: u64) -> Self {
        Self((number % u64::from(BATCHES)) as u16 | BATCHES)
    }

    /// Returns whether a result of this epoch is valid at `now`.
    #[must_use]
    pub fn holds(self, now: Self) -> bool {
        self == Self::ALWAYS || self == now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_after_its_interval() {
        let (now, later) = (Epoch::of(Nanos(0)), Epoch::of(Nanos(TRANSIENT_TTL_NS)));
        assert!(now.holds(now) && !now.holds(later));
        assert!(Epoch::ALWAYS.holds(now) && Epoch::ALWAYS.holds(later));
        assert!(!Epoch::of(Nanos(u64::MAX)).holds(Epoch::of(Nanos(0))));
        let batch = Epoch::of_batch(7);
        assert!(batch.holds(batch) && !batch.holds(Epoch::of_batch(8)));
        for number in [0, 1, 0x7fff, 0x8000, u64::MAX] {
            let interval = Epoch::of(Nanos(number.saturating_mul(TRANSIENT_TTL_NS)));
            let batch = Epoch::of_batch(number);
            assert!(!batch.holds(interval) && !interval.holds(batch));
            assert!(![interval, batch].contains(&Epoch::ALWAYS));
        }
    }
}
