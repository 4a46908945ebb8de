//! Time limits of communication with a runtime.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

/// Time limits of an operation of several steps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The limit of each step.
    step: Duration,
    /// The deadline of the operation.
    end: Instant,
}

impl Limits {
    /// Limits each step to `step`, and the operation to `total` from now on.
    #[must_use]
    pub fn new(step: Duration, total: Duration) -> Self {
        Self {
            step,
            end: Instant::now() + total,
        }
    }

    /// Returns the limit of the next step, or `None` after the deadline.
    pub(super) fn next_step(&self) -> Option<Duration> {
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
