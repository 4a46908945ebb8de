//! Priority of the thread that reads the ring buffers, which must be read however busy the system is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

use crate::{machine, perf};

/// Interval in which the time that the thread waits for a CPU is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time that the thread waits for a CPU since it was last read beyond which it takes a real-time priority. The ring
/// buffers hold ten times as much.
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
    /// Statistics of the thread, see `sched-stats.rst` of the kernel; `None` on a kernel without them.
    statistics: Option<File>,
    /// Time that the thread had waited for a CPU when it was last read.
    waited: Duration,
    last_look: Instant,
    last_check: Instant,
    /// CPU time of the thread at the last check.
    cpu_time: Duration,
}

impl Priority {
    /// Raises the niceness, if permitted.
    pub(super) fn raise() -> Self {
        let niceness_before = getpriority_process(None).unwrap_or(0);
        machine::raise_thread_priority();
        let statistics = File::open("/proc/thread-self/schedstat").ok();
        Self {
            niceness_before,
            is_real_time: false,
            waited: statistics.as_ref().and_then(waited).unwrap_or_default(),
            statistics,
            last_look: Instant::now(),
            last_check: Instant::now(),
            cpu_time: thread_cpu_time(),
        }
    }

    /// Takes a real-time priority, if permitted, when the thread has just waited long for a CPU. Gives it
    /// up when the thread needs much CPU time, so that others run.
    ///
    /// Call this often: a round of the thread takes seconds if it must wait for each of its time slices.
    pub(super) fn follow(&mut self) {
        if self.last_look.elapsed() < LOOK_INTERVAL {
            return;
        }
        self.last_look = Instant::now();
        let waited = self.statistics.as_ref().and_then(waited);
        let waited = waited.unwrap_or(self.waited);
        let delay = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
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

/// Returns how long a thread was ready to run and had no CPU, from its statistics.
fn waited(statistics: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let read = statistics.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..read)?).ok()?;
    let nanoseconds = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
