//! How long a runtime is waited for.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

/// Limits on the waits of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For each step.
    step: Duration,
    /// When all must be over.
    end: Instant,
}

impl Limits {
    /// So long for each step, and for all of them from now on.
    #[must_use]
    pub fn new(step: Duration, whole: Duration) -> Self {
        Self {
            step,
            end: Instant::now() + whole,
        }
    }

    /// How long the next step may take; `None`: the time is over.
    pub(super) fn for_step(&self) -> Option<Duration> {
        let left = self.end.checked_duration_since(Instant::now())?;
        Some(left.min(self.step)).filter(|left| !left.is_zero())
    }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
