//! Chooses the period at which one kind of occurrences on one CPU is sampled.
//!
//! Programs have between none and a million page faults a second, and as many wake-ups. The kernel can adjust a period to a
//! frequency, but not for these events: it applies each period one sample late, so that a few quick faults
//! lead to periods of 300 000 faults, and a sample does not show the period before it.

use crate::ids::Nanos;

/// Number of periods of a kind.
pub(super) const PERIODS: usize = 3;

/// Minimum time between two choices.
const INTERVAL_NS: u64 = 20_000_000;
/// Time of a low rate after which the period is shorter.
const CALM_NS: u64 = 200_000_000;

/// Choice for one CPU.
#[derive(Debug)]
pub(super) struct OccurrencePeriod {
    /// The periods, the smallest first.
    periods: [u64; PERIODS],
    /// Row of `periods`.
    current: usize,
    /// Occurrences since a time.
    count: u64,
    since: Nanos,
    /// Time of the start or the last high rate.
    busy_at: Nanos,
}

impl OccurrencePeriod {
    /// Starts with the row `first` of the periods.
    pub(super) fn new(periods: [u64; PERIODS], first: usize, now: Nanos) -> Self {
        Self {
            periods,
            current: first,
            count: 0,
            since: now,
            busy_at: now,
        }
    }

    /// Returns the row of the period.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// Notes the occurrences since the last call. The period should give about `frequency_hz` samples a second
    /// at most. Returns whether it changes.
    pub(super) fn note(&mut self, count: u64, frequency_hz: u32, now: Nanos) -> bool {
        self.count = self.count.saturating_add(count);
        let elapsed = now.0.saturating_sub(self.since.0);
        if elapsed < INTERVAL_NS {
            return false;
        }
        let rate = (u128::from(self.count) * 1_000_000_000 / u128::from(elapsed)) as u64;
        (self.count, self.since) = (0, now);
        let periods = self.periods;
        let most = |period: u64| period.saturating_mul(frequency_hz.into());
        let before = self.current;
        while self.current + 1 < periods.len() && rate > most(periods[self.current]) {
            self.current += 1;
            self.busy_at = now;
        }
        if let Some(shorter) = self.current.checked_sub(1) {
            if rate > most(periods[shorter]) / 2 {
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

    const OF_FAULTS: [u64; PERIODS] = [31, 499, 8009];

    /// Returns the period after each tenth of a second with these rates of page faults.
    fn periods(rates: &[u64]) -> Vec<u64> {
        let mut period = OccurrencePeriod::new(OF_FAULTS, 0, Nanos(0));
        let after = (1..).zip(rates).map(|(tenth, rate)| {
            period.note(rate / 10, 999, Nanos(tenth * 100_000_000));
            OF_FAULTS[period.current()]
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
        let mut period = OccurrencePeriod::new(OF_FAULTS, 0, Nanos(u64::MAX));
        assert!(!period.note(u64::MAX, 0, Nanos(0)));
        let mut period = OccurrencePeriod::new(OF_FAULTS, 0, Nanos(0));
        assert!(period.note(u64::MAX, u32::MAX, Nanos(INTERVAL_NS)));
    }
}
