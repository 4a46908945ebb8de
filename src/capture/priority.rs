//! Priority of the thread that reads the ring buffers, which must be read however busy the system is.

use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

use crate::{machine, perf};

/// Delay of the thread beyond which it takes a real-time priority. The ring buffers hold ten times as
/// much.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// Interval in which the CPU time is compared with the limit.
const INTERVAL: Duration = Duration::from_millis(200);
/// Share of a CPU above which the thread gives its real-time priority up. Usually it needs a few
/// percent.
const MAX_SHARE: f64 = 0.5;

/// A high priority of the calling thread. Dropping it restores the priority before.
#[derive(Debug)]
pub(super) struct Priority {
    niceness_before: i32,
    is_real_time: bool,
    last_check: Instant,
    /// CPU time of the thread at the last check.
    cpu_time: Duration,
}

impl Priority {
    /// Raises the niceness, if permitted.
    pub(super) fn raise() -> Self {
        let niceness_before = getpriority_process(None).unwrap_or(0);
        machine::raise_thread_priority();
        Self {
            niceness_before,
            is_real_time: false,
            last_check: Instant::now(),
            cpu_time: thread_cpu_time(),
        }
    }

    /// Takes a real-time priority, if permitted, when the thread has run this much too late. Gives it
    /// up when the thread needs much CPU time, so that others run.
    pub(super) fn follow(&mut self, delay: Duration) {
        if !self.is_real_time && delay > MAX_DELAY {
            self.is_real_time = perf::run_first().is_ok();
            self.last_check = Instant::now();
            self.cpu_time = thread_cpu_time();
        }
        let elapsed = self.last_check.elapsed();
        if !self.is_real_time || elapsed < INTERVAL {
            return;
        }
        let before = std::mem::replace(&mut self.cpu_time, thread_cpu_time());
        self.last_check = Instant::now();
        let used = self.cpu_time.saturating_sub(before);
        if used.as_secs_f64() > elapsed.as_secs_f64() * MAX_SHARE {
            perf::run_as_usual();
            self.is_real_time = false;
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
