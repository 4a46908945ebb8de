//! The kernel's limit for the sampling rate.
//!
//! The kernel lowers the limit when samples take too much time (kernel.perf_cpu_time_max_percent).
//! Open events keep their rate and are throttled.

use crate::perf;
use crate::trace::{Nanos, Notice, NoticeKind};

/// Interval between two checks of the limit.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Tracks whether the limit falls below the rate of a capture.
pub(super) struct SampleRate {
    requested_hz: u32,
    /// Time at which the limit fell below the rate, and its lowest value.
    below: Option<(Nanos, u32)>,
    next_check: Nanos,
}

impl SampleRate {
    pub(super) fn new(requested_hz: u32) -> Self {
        Self {
            requested_hz,
            below: None,
            next_check: Nanos(0),
        }
    }

    /// Checks the limit, at most once a second.
    pub(super) fn follow(&mut self, now: Nanos) {
        if now < self.next_check {
            return;
        }
        self.next_check = Nanos(now.0 + INTERVAL_NS);
        self.check(now, perf::max_sample_rate());
    }

    fn check(&mut self, now: Nanos, allowed_hz: u32) {
        if allowed_hz < self.requested_hz {
            let (since, lowest) = self.below.unwrap_or((now, allowed_hz));
            self.below = Some((since, lowest.min(allowed_hz)));
        }
    }

    /// Returns the notice about a lowered limit.
    pub(super) fn notice(&self, start: Nanos) -> Option<Notice> {
        let (since, lowest) = self.below?;
        let requested = self.requested_hz;
        Some(Notice::new(
NoticeKind::SampleRateLowered,
            format!(
                "the kernel lowered kernel.perf_event_max_sample_rate to {lowest} at +{:.1} s: it throttles the requested \
                 {requested} samples per second from then on",
                since.0.saturating_sub(start.0) as f64 / 1e9
            ),
            format!("use -freq {lowest}, or raise kernel.perf_event_max_sample_rate"),
        )
        .counting(lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_first_time_and_lowest_limit() {
        let mut rate = SampleRate::new(999);
        rate.check(Nanos(1_000_000_000), 999);
        assert_eq!(rate.notice(Nanos(0)), None);
        for (second, allowed) in [(2, 500), (3, 250), (4, 1000)] {
            rate.check(Nanos(second * 1_000_000_000), allowed);
        }
        let notice = rate.notice(Nanos(500_000_000)).unwrap();
        assert!(notice.what.contains("to 250 at +1.5 s"), "{}", notice.what);
        assert!(notice.remedy.contains("-freq 250"), "{}", notice.remedy);
    }
}
