//! Chooses the period at which one kind of occurrences on one CPU is sampled.
//!
//! Programs have between none and a million page faults a second, and as many wake-ups. The kernel can adjust a period to a
//! frequency, but not for these events: it applies each period one sample late, so that a few quick faults
//! lead to periods of 300 000 faults, and a sample does not show the period before it.

use crate::ids::Nanos;

/// Number of periods of a kind.
pub(super) const PERIODS: usize = 3;

/// Minimum time between two choices of a longer period.
const INTERVAL_NS: u64 = 20_000_000;
/// Time of a low rate after which the period is shorter. In the interval above, one sample of a long period is a
/// high rate.
const CALM_NS: u64 = 200_000_000;
/// Maximum of it, where short periods have filled the ring buffer.
const MAX_CALM_NS: u64 = 20_000_000_000;

/// Choice for one CPU.
#[derive(Debug)]
pub(super) struct OccurrencePeriod {
    /// The periods, the smallest first.
    periods: [u64; PERIODS],
    /// Row of `periods`.
    current: usize,
    /// Occurrences since the last choice of a longer period.
    recent: Counted,
    /// Occurrences since the last choice of a shorter one.
    calm: Counted,
    /// Time of a low rate after which the period is shorter.
    calm_ns: u64,
}

/// Occurrences since a time.
#[derive(Debug)]
struct Counted {
    count: u64,
    since: Nanos,
}

impl Counted {
    fn new(since: Nanos) -> Self {
        Self { count: 0, since }
    }

    fn add(&mut self, count: u64) {
        self.count = self.count.saturating_add(count);
    }

    /// Returns the rate per second, if the time since the start is long enough.
    fn rate(&self, now: Nanos, least_ns: u64) -> Option<u64> {
        let elapsed = now.0.saturating_sub(self.since.0);
        let per_second = u128::from(self.count) * 1_000_000_000;
        (elapsed >= least_ns).then(|| (per_second / u128::from(elapsed)) as u64)
    }
}

impl OccurrencePeriod {
    /// Starts with the row `first` of the periods.
    pub(super) fn new(periods: [u64; PERIODS], first: usize, now: Nanos) -> Self {
        Self {
            periods,
            current: first,
            recent: Counted::new(now),
            calm: Counted::new(now),
            calm_ns: CALM_NS,
        }
    }

    /// Returns the row of the period.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// Returns whether the next note may change the period.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.recent.rate(now, INTERVAL_NS).is_some()
    }

    /// Notes the occurrences since the last call. The period should give about `frequency_hz` samples a second
    /// at most. Returns whether it changes.
    pub(super) fn note(&mut self, count: u64, frequency_hz: u32, now: Nanos) -> bool {
        self.recent.add(count);
        self.calm.add(count);
        let Some(rate) = self.recent.rate(now, INTERVAL_NS) else {
            return false;
        };
        self.recent = Counted::new(now);
        let periods = self.periods;
        let most = |period: u64| period.saturating_mul(frequency_hz.into());
        let before = self.current;
        while self.current + 1 < periods.len() && rate > most(periods[self.current]) {
            self.current += 1;
        }
        if self.current != before {
            self.calm = Counted::new(now);
        } else if let Some(rate) = self.calm.rate(now, self.calm_ns) {
            self.calm = Counted::new(now);
            let shorter = self.current.checked_sub(1);
            if let Some(shorter) = shorter.filter(|row| rate <= most(periods[*row]) / 2) {
                self.current = shorter;
            }
        }
        self.current != before
    }

    /// Notes the occurrences since the last call, and that the ring buffer was full: the period is longer,
    /// for longer each time. Returns whether it changes.
    pub(super) fn note_lost(&mut self, count: u64, frequency_hz: u32, now: Nanos) -> bool {
        let before = self.current;
        self.note(count, frequency_hz, now);
        self.current = self.current.max(before + 1).min(PERIODS - 1);
        if before != self.current {
            self.calm_ns = (self.calm_ns * 4).min(MAX_CALM_NS);
        }
        (self.recent, self.calm) = (Counted::new(now), Counted::new(now));
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
    fn one_sample_of_a_long_period_is_no_high_rate() {
        // 3000 a second: one sample of 499 in some of the intervals of 25 ms.
        let mut period = OccurrencePeriod::new([1, 31, 499], 2, Nanos(0));
        let (mut left, mut changes) = (0, Vec::new());
        for at in 1..40_u64 {
            left += 75;
            let length = [1, 31, 499][period.current()];
            let samples = left / length;
            left -= samples * length;
            if period.note(samples * length, 999, Nanos(at * 25_000_000)) {
                changes.push((at * 25, period.current()));
            }
        }
        assert_eq!(changes, [(200, 1)]);
    }

    #[test]
    fn a_full_ring_buffer_leads_to_a_longer_period_for_longer_each_time() {
        let mut period = OccurrencePeriod::new([1, 31, 499], 0, Nanos(0));
        let mut now = 0;
        let mut calm_after = || {
            assert!(period.note_lost(10, 999, Nanos(now)));
            assert_eq!(period.current(), 1);
            let lost = now;
            while !period.note(0, 999, Nanos(now)) {
                now += 100_000_000;
            }
            (now - lost) / 1_000_000
        };
        assert_eq!(
            [calm_after(), calm_after(), calm_after()],
            [800, 3200, 12_800]
        );
        assert_eq!([calm_after(), calm_after()], [20_000, 20_000]);
        // What was read of the burst may show that it takes an even longer one.
        let mut period = OccurrencePeriod::new([1, 31, 499], 0, Nanos(0));
        assert!(period.note_lost(10_000, 999, Nanos(100_000_000)));
        assert_eq!(period.current(), 2);
        assert!(!period.note_lost(10_000, 999, Nanos(200_000_000)));
    }

    #[test]
    fn any_count_and_time_are_accepted() {
        let mut period = OccurrencePeriod::new(OF_FAULTS, 0, Nanos(u64::MAX));
        assert!(!period.note(u64::MAX, 0, Nanos(0)));
        let mut period = OccurrencePeriod::new(OF_FAULTS, 0, Nanos(0));
        assert!(period.note(u64::MAX, u32::MAX, Nanos(INTERVAL_NS)));
    }
}
