//! The limit the kernel sets to the rate of samples, and lowers by itself where they take too much time
//! (kernel.perf_cpu_time_max_percent). Events that are open already go on at their rate and are throttled.

use crate::perf;
use crate::trace::{Nanos, Notice};

/// Time between two looks.
const INTERVAL_NS: u64 = 1_000_000_000;

/// How far the limit has come down below the rate of a capture.
pub(super) struct SampleRate {
    wanted_hz: u32,
    /// Since when it is below, and the lowest it was.
    below: Option<(Nanos, u32)>,
    next_look: Nanos,
}

impl SampleRate {
    pub(super) fn new(wanted_hz: u32) -> Self {
        Self {
            wanted_hz,
            below: None,
            next_look: Nanos(0),
        }
    }

    /// Looks at the limit, once a second at most.
    pub(super) fn follow(&mut self, now: Nanos) {
        if now < self.next_look {
            return;
        }
        self.next_look = Nanos(now.0 + INTERVAL_NS);
        self.see(now, perf::max_sample_rate());
    }

    fn see(&mut self, now: Nanos, allowed_hz: u32) {
        if allowed_hz < self.wanted_hz {
            let (since, lowest) = self.below.unwrap_or((now, allowed_hz));
            self.below = Some((since, lowest.min(allowed_hz)));
        }
    }

    /// What the user should know.
    pub(super) fn notice(&self, start: Nanos) -> Option<Notice> {
        let (since, lowest) = self.below?;
        let wanted = self.wanted_hz;
        Some(Notice::new(
            format!(
                "the kernel lowered kernel.perf_event_max_sample_rate to {lowest} at +{:.1} s: from then on the {wanted} \
                 samples a second that were asked for are throttled",
                since.0.saturating_sub(start.0) as f64 / 1e9
            ),
            format!("use -freq {lowest}, or raise kernel.perf_event_max_sample_rate"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_and_the_lowest_limit_are_told() {
        let mut rate = SampleRate::new(999);
        rate.see(Nanos(1_000_000_000), 999);
        assert_eq!(rate.notice(Nanos(0)), None);
        for (second, allowed) in [(2, 500), (3, 250), (4, 1000)] {
            rate.see(Nanos(second * 1_000_000_000), allowed);
        }
        let notice = rate.notice(Nanos(500_000_000)).unwrap();
        assert!(notice.what.contains("to 250 at +1.5 s"), "{}", notice.what);
        assert!(notice.remedy.contains("-freq 250"), "{}", notice.remedy);
    }
}
