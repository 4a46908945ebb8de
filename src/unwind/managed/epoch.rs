//! Validity of results that may change: rules and names of collectible code, and failed lookups.

use crate::trace::Nanos;

/// Lifetime of results that may change.
const TRANSIENT_TTL_NS: u64 = 100_000_000;

/// Time interval for which a result is valid; 0 never expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u16);

impl Epoch {
    /// Epoch of results that never expire.
    pub const ALWAYS: Self = Self(0);

    /// Returns the epoch that contains a time.
    #[must_use]
    pub fn of(time: Nanos) -> Self {
        Self((time.0 / TRANSIENT_TTL_NS % u64::from(u16::MAX) + 1) as u16)
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
    }
}
