//! Priority of the thread that reads the ring buffers, which must be read however busy the system is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

use crate::{machine, perf};

/// Interval in which the time that the thread waits for a CPU is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time that the thread waits for a CPU between two looks beyond which it takes a real-time priority. The ring
/// buffers hold ten times as much.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// Interval in which the CPU time is compared with the limit.
const INTERVAL: Duration = Duration::from_millis(200);
/// Share of a CPU above which the thread gives its real-time priority up. Usually it needs a few
/// percent.
const MAX_SHARE: f64 = 0.5;
/// Time without a real-time priority after the thread needed too much CPU time, at first and at most: it
/// doubles each time.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Time after which the thread tries to do without, at first and at most: it doubles if it waited again
/// at once.
const TERMS: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(300)];
/// What "at once" is.
const SOON: Duration = Duration::from_secs(1);

/// A high priority of the calling thread. Dropping it restores the priority before.
#[derive(Debug)]
pub(super) struct Priority {
    niceness_before: i32,
    waiting: Waiting,
    policy: Policy,
    pause: Duration,
    term: Duration,
}

#[derive(Debug)]
enum Policy {
    Usual {
        /// End of the last real-time priority.
        since: Option<Instant>,
        /// Earliest time of the next one.
        until: Instant,
    },
    RealTime {
        since: Instant,
        last_check: Instant,
        /// CPU time of the thread at the last check.
        cpu_time: Duration,
    },
}

impl Priority {
    /// Raises the niceness, if permitted.
    pub(super) fn raise() -> Self {
        let niceness_before = getpriority_process(None).unwrap_or(0);
        machine::raise_thread_priority();
        Self {
            niceness_before,
            waiting: Waiting::new(),
            policy: Policy::Usual {
                since: None,
                until: Instant::now(),
            },
            pause: PAUSES[0],
            term: TERMS[0],
        }
    }

    /// Takes a real-time priority, if permitted, when the thread has just waited long for a CPU. Gives it
    /// up when the thread needs much CPU time, so that others run, and now and then to see whether it
    /// is still needed.
    ///
    /// Call this often: a round of the thread takes seconds if it must wait for each of its time slices.
    pub(super) fn follow(&mut self) {
        let now = Instant::now();
        let Some(waited) = self.waiting.look(now) else {
            return;
        };
        match &mut self.policy {
            Policy::Usual { since, until } => {
                let is_late = waited > MAX_DELAY && now >= *until;
                if !is_late || perf::run_first().is_err() {
                    return;
                }
                self.term = match since.is_some_and(|since| now < since + SOON) {
                    true => TERMS[1].min(self.term * 2),
                    false => TERMS[0],
                };
                self.policy = Policy::RealTime {
                    since: now,
                    last_check: now,
                    cpu_time: thread_cpu_time(),
                };
            }
            Policy::RealTime {
                since,
                last_check,
                cpu_time,
            } => {
                let elapsed = now - *last_check;
                if elapsed < INTERVAL {
                    return;
                }
                let before = std::mem::replace(cpu_time, thread_cpu_time());
                *last_check = now;
                let used = cpu_time.saturating_sub(before);
                if used.as_secs_f64() > elapsed.as_secs_f64() * MAX_SHARE {
                    self.give_up(now, now + self.pause);
                    self.pause = PAUSES[1].min(self.pause * 2);
                } else if now - *since > self.term {
                    self.give_up(now, now);
                    self.pause = PAUSES[0];
                }
            }
        }
    }

    fn give_up(&mut self, now: Instant, until: Instant) {
        perf::run_as_usual();
        self.policy = Policy::Usual {
            since: Some(now),
            until,
        };
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Policy::RealTime { .. } = self.policy {
            perf::run_as_usual();
        }
        let _ = setpriority_process(None, self.niceness_before);
    }
}

/// The time that the thread waits for a CPU.
#[derive(Debug)]
struct Waiting {
    /// Statistics of the thread, see `sched-stats.rst` of the kernel; `None` on a kernel without them.
    statistics: Option<File>,
    /// Time until the last look.
    waited: Duration,
    last_look: Instant,
}

impl Waiting {
    fn new() -> Self {
        let statistics = File::open("/proc/thread-self/schedstat").ok();
        Self {
            waited: statistics.as_ref().and_then(waited).unwrap_or_default(),
            statistics,
            last_look: Instant::now(),
        }
    }

    /// Returns how long the thread has waited since the last look, or `None` if that was just now.
    fn look(&mut self, now: Instant) -> Option<Duration> {
        if now - self.last_look < LOOK_INTERVAL {
            return None;
        }
        self.last_look = now;
        let waited = self.statistics.as_ref().and_then(waited);
        let waited = waited.unwrap_or(self.waited);
        Some(waited.saturating_sub(std::mem::replace(&mut self.waited, waited)))
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
