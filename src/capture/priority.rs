//! Priority of the thread that reads the ring buffers, which must be read however busy the system is.

use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

use crate::{machine, perf};

/// Interval in which the CPU time is compared with the limits.
const INTERVAL: Duration = Duration::from_millis(200);
/// Share of a CPU above which the thread gives its real-time priority up, and share below which it
/// takes it again. Usually it needs a few percent.
const MAX_SHARE: f64 = 0.5;
const LOW_SHARE: f64 = 0.25;

/// A high priority of the calling thread. Dropping it restores the priority before.
#[derive(Debug)]
pub(super) struct Priority {
    niceness_before: i32,
    /// Whether the thread may have a real-time priority.
    is_permitted: bool,
    is_real_time: bool,
    last_check: Instant,
    /// CPU time of the thread at the last check.
    cpu_time: Duration,
}

impl Priority {
    /// Raises the priority as far as permitted.
    pub(super) fn raise() -> Self {
        let niceness_before = getpriority_process(None).unwrap_or(0);
        // It counts if the real-time priority is refused.
        machine::raise_thread_priority();
        let is_permitted = perf::run_first().is_ok();
        Self {
            niceness_before,
            is_permitted,
            is_real_time: is_permitted,
            last_check: Instant::now(),
            cpu_time: thread_cpu_time(),
        }
    }

    /// Gives the real-time priority up while the thread needs much CPU time, so that others run.
    pub(super) fn follow(&mut self) {
        let elapsed = self.last_check.elapsed();
        if !self.is_permitted || elapsed < INTERVAL {
            return;
        }
        let before = std::mem::replace(&mut self.cpu_time, thread_cpu_time());
        self.last_check = Instant::now();
        let used = self.cpu_time.saturating_sub(before);
        let share = used.as_secs_f64() / elapsed.as_secs_f64();
        if self.is_real_time && share > MAX_SHARE {
            perf::run_as_usual();
            self.is_real_time = false;
        } else if !self.is_real_time && share < LOW_SHARE {
            self.is_real_time = perf::run_first().is_ok();
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if self.is_real_time {
            perf::run_as_usual();
        }
        let _ = setpriority_process(None, self.niceness_before);
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
