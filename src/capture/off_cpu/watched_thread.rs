//! A thread that is looked at again and again: its counters, and where it waits.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

use crate::machine::{self, Blocked, NotBlocked, ThreadCounters};
use crate::perf;
use crate::trace::{Nanos, Pid, Tid};

/// Maximum size of the files, in bytes.
const MAX_BYTES: usize = 512;
/// Least time without a CPU for which it matters why, in nanoseconds.
const MIN_WAITED_NS: u64 = 100_000;

/// A thread whose files in /proc stay open, and what was found at the last look.
#[derive(Debug)]
pub(super) struct WatchedThread {
    pub(super) pid: Pid,
    counters_file: File,
    /// `None` if it may not be read.
    system_call: Option<File>,
    /// Counters and time of the last look, or else of its start or that of the capture.
    pub(super) counters: ThreadCounters,
    pub(super) last: Nanos,
    /// How often the scheduler had taken its CPU, and given it one, when it was last asked.
    preemptions: Option<(u64, u64)>,
    /// Whether the next look reports it, even if it has not run.
    pub(super) is_due: bool,
    pub(super) has_reported: bool,
}

impl WatchedThread {
    /// Opens the files of a thread. One that is new counts from its start.
    ///
    /// Returns `None` if it has ended.
    pub(super) fn open(pid: Pid, tid: Tid, capture_start: Nanos) -> Option<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{tid}/{name}"));
        let counters_file = open("schedstat").ok()?;
        let counters = counters(&counters_file)?;
        let now = perf::now();
        let start = started(tid, now).filter(|start| *start > capture_start);
        let (counters, last) = match start {
            Some(start) => (ThreadCounters::default(), start),
            None => (counters, now),
        };
        Some(Self {
            pid,
            counters_file,
            system_call: open("syscall").ok(),
            counters,
            last,
            preemptions: None,
            is_due: true,
            has_reported: false,
        })
    }

    /// Reads its counters. Returns `None` if it has ended.
    pub(super) fn read_counters(&self) -> Option<ThreadCounters> {
        counters(&self.counters_file)
    }

    /// Returns how often the scheduler has taken its CPU and given it one since it last waited for one, if it
    /// has waited for one since the last look, with these counters now.
    pub(super) fn preemptions(&mut self, tid: Tid, now: ThreadCounters) -> Option<(u64, u64)> {
        let waited = now.waited_ns.saturating_sub(self.counters.waited_ns);
        if waited < MIN_WAITED_NS {
            return None;
        }
        let counts = machine::preemptions(tid).map(|count| (count, now.slices));
        let last = std::mem::replace(&mut self.preemptions, counts);
        let ((count, slices), (last_count, last_slices)) = counts.zip(last)?;
        Some((
            count.saturating_sub(last_count),
            slices.saturating_sub(last_slices),
        ))
    }

    /// Reads where it waits.
    ///
    /// # Errors
    /// It does not wait, or cannot be read.
    pub(super) fn blocked(&self) -> Result<Blocked, NotBlocked> {
        let mut buffer = [0; MAX_BYTES];
        let Some(file) = &self.system_call else {
            return Err(NotBlocked::Unreadable(
                std::io::ErrorKind::PermissionDenied.into(),
            ));
        };
        let length = file
            .read_at(&mut buffer, 0)
            .map_err(NotBlocked::Unreadable)?;
        Blocked::of_line(buffer.get(..length).unwrap_or_default())
    }
}

fn counters(file: &File) -> Option<ThreadCounters> {
    let mut buffer = [0; MAX_BYTES];
    let length = file.read_at(&mut buffer, 0).ok()?;
    ThreadCounters::parse(std::str::from_utf8(buffer.get(..length)?).ok()?)
}

/// Returns when a thread started, to 10 ms.
fn started(tid: Tid, now: Nanos) -> Option<Nanos> {
    let ticks = machine::start_ticks(Pid(tid.0))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let boot = clock_gettime(ClockId::Boottime);
    let since_boot = boot.tv_sec as u128 * 1_000_000_000 + boot.tv_nsec as u128;
    let started = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
    let age = u64::try_from(since_boot.checked_sub(started)?).ok()?;
    Some(Nanos(now.0.saturating_sub(age)))
}
