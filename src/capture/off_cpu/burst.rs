//! The CPU time of the thread that looks, with pauses.

use std::time::Duration;

use crate::capture::usage::thread_cpu_time;

/// Longest time without a pause: other threads wait for the CPU meanwhile.
const MAX_BURST: Duration = Duration::from_millis(1);
/// Lengths of a pause.
const MIN_PAUSE: Duration = Duration::from_micros(100);
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// CPU time since the last pause.
pub(super) struct Burst {
    start: Duration,
    /// Length of a pause.
    pause: Duration,
    /// CPU time before the last pause that no interval counts yet.
    before: Duration,
}

impl Burst {
    /// Starts to count for a part of a CPU, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        let pause = MAX_BURST.mul_f64(1.0 / share - 1.0);
        Self {
            start: Duration::ZERO,
            pause: pause.clamp(MIN_PAUSE, MAX_PAUSE),
            before: Duration::ZERO,
        }
    }

    /// Pauses if it is time.
    pub(super) fn pause(&mut self) {
        let now = thread_cpu_time();
        let length = now.saturating_sub(self.start);
        if length > MAX_BURST {
            self.before += length;
            std::thread::sleep(self.pause);
            self.start = thread_cpu_time();
        }
    }

    /// Returns the CPU time since the last call.
    pub(super) fn take(&mut self) -> Duration {
        let now = thread_cpu_time();
        let all = self.before + now.saturating_sub(self.start);
        (self.before, self.start) = (Duration::ZERO, now);
        all
    }
}
