//! Chooses the period at which the page faults of one CPU are sampled.
//!
//! Programs have between none and a million page faults a second. The kernel can adjust a period to a
//! frequency, but not for these events: it applies each period one sample late, so that a few quick faults
//! lead to periods of 300 000 faults, and a sample does not show the period before it.

use crate::ids::Nanos;

/// The periods, the smallest first. Primes do not fall in step with a loop over the pages of a block.
pub(super) const PERIODS: [u64; 3] = [31, 499, 8009];
/// Period of events that threads inherit, which cannot change.
pub(super) const THREAD_PERIOD: u64 = 61;

/// Minimum time between two choices.
const INTERVAL_NS: u64 = 20_000_000;
/// Time of a low rate after which the period is shorter.
const CALM_NS: u64 = 200_000_000;

/// Choice for one CPU. The period is the shortest at first.
#[derive(Debug)]
pub(super) struct FaultPeriod {
    /// Row of [`PERIODS`].
    current: usize,
    /// Page faults since a time.
    faults: u64,
    since: Nanos,
    /// Time of the start or the last high rate.
    busy_at: Nanos,
}

impl FaultPeriod {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            current: 0,
            faults: 0,
            since: now,
            busy_at: now,
        }
    }

    /// Returns the row of the period in [`PERIODS`].
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// Notes the page faults since the last call. The period should give about `frequency_hz` samples a second
    /// at most. Returns whether it changes.
    pub(super) fn note(&mut self, faults: u64, frequency_hz: u32, now: Nanos) -> bool {
        self.faults = self.faults.saturating_add(faults);
        let elapsed = now.0.saturating_sub(self.since.0);
        if elapsed < INTERVAL_NS {
            return false;
        }
        let rate = (u128::from(self.faults) * 1_000_000_000 / u128::from(elapsed)) as u64;
        (self.faults, self.since) = (0, now);
        let most = |period: u64| period.saturating_mul(frequency_hz.into());
        let before = self.current;
        while self.current + 1 < PERIODS.len() && rate > most(PERIODS[self.current]) {
            self.current += 1;
            self.busy_at = now;
        }
        if let Some(shorter) = self.current.checked_sub(1) {
            if rate > most(PERIODS[shorter]) / 2 {
                self.busy_at = now;
            } else if now.0.saturating_sub(self.busy_at.0) >= CALM_NS {
                (self.current, self.busy_at) = (shorter, now);
            }
        }
        self.current != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the period after each tenth of a second with these rates of page faults.
    fn periods(rates: &[u64]) -> Vec<u64> {
        let mut period = FaultPeriod::new(Nanos(0));
        let after = (1..).zip(rates).map(|(tenth, rate)| {
            period.note(rate / 10, 999, Nanos(tenth * 100_000_000));
            PERIODS[period.current()]
        });
        after.collect()
    }

    #[test]
    fn a_high_rate_has_a_long_period_at_once_and_a_low_one_after_a_while() {
        assert_eq!(periods(&[30_000, 40_000, 40_000]), [31, 499, 499]);
        assert_eq!(periods(&[1_000_000]), [8009]);
        let calm = [1_000_000, 100, 100, 100, 100, 100];
        assert_eq!(periods(&calm), [8009, 8009, 499, 499, 31, 31]);
        // Bursts in between keep the period.
        let bursts = [100_000, 0, 100_000, 0, 100_000, 0];
        assert_eq!(periods(&bursts), [499; 6]);
    }

    #[test]
    fn any_count_and_time_are_accepted() {
        let mut period = FaultPeriod::new(Nanos(u64::MAX));
        assert!(!period.note(u64::MAX, 0, Nanos(0)));
        let mut period = FaultPeriod::new(Nanos(0));
        assert!(period.note(u64::MAX, u32::MAX, Nanos(INTERVAL_NS)));
    }
}
