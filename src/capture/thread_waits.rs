//! How long the threads of the target waited for a CPU.
//!
//! The kernel counts per thread, and its counters end with the thread. So they are read once a second:
//! what a thread does after its last read is not counted, nor is a thread that lives between two.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::machine::{self, ThreadTimes};
use crate::output::summary::MAX_WAITING;
use crate::trace::{Pid, ProcessWaits, Tid};

/// Maximum number of threads that are read.
const MAX_THREADS: usize = 4096;
/// Maximum number of processes that are counted.
const MAX_PROCESSES: usize = 4096;
/// Minimum interval of reads, and as a multiple of the time that one takes.
const INTERVAL: Duration = Duration::from_secs(1);
const MIN_INTERVAL_TIMES: u32 = 500;

type Counters = FxHashMap<(Pid, Tid), ThreadTimes>;

/// The waits of the target's threads since the start of a capture.
#[derive(Debug)]
pub(super) struct ThreadWaits {
    threads: FxHashMap<(Pid, Tid), Thread>,
    ended: BTreeMap<Pid, Waits>,
    /// Number of threads that could not be read or were beyond the limit, at most at a time.
    omitted: u64,
    next_read: Instant,
}

/// The counters of a thread when it was first and last read.
#[derive(Clone, Copy, Debug)]
struct Thread {
    start: ThreadTimes,
    last: ThreadTimes,
}

/// Sums of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    waited_ns: u64,
    ran_ns: u64,
    threads: u64,
}

impl Waits {
    fn add(&mut self, thread: Thread) {
        let Thread { start, last } = thread;
        let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns);
        let waited_ns = last.waited_ns.saturating_sub(start.waited_ns);
        add(&mut self.waited_ns, waited_ns);
        add(&mut self.ran_ns, last.ran_ns.saturating_sub(start.ran_ns));
        self.threads += 1;
    }

    fn row(self, pid: Pid) -> ProcessWaits {
        ProcessWaits {
            pid: pid.0,
            waited_ms: self.waited_ns as f64 / 1e6,
            ran_ms: self.ran_ns as f64 / 1e6,
            threads: self.threads,
        }
    }
}

impl ThreadWaits {
    /// Starts with the threads that run already.
    pub(super) fn start(pids: &[Pid]) -> Self {
        let (counters, omitted) = read(pids);
        let threads = counters.into_iter().map(|(id, times)| {
            let (start, last) = (times, times);
            (id, Thread { start, last })
        });
        Self {
            threads: threads.collect(),
            ended: BTreeMap::new(),
            omitted,
            next_read: Instant::now() + INTERVAL,
        }
    }

    /// Reads the counters again if it is time to.
    pub(super) fn follow(&mut self, pids: impl FnOnce() -> Vec<Pid>) {
        let start = Instant::now();
        if start < self.next_read {
            return;
        }
        self.read(&pids());
        let end = Instant::now();
        let pause = (end - start).saturating_mul(MIN_INTERVAL_TIMES);
        self.next_read = end + pause.max(INTERVAL);
    }

    /// Returns the waits of each process, most first, and the number of threads that are not counted.
    pub(super) fn end(mut self, pids: &[Pid]) -> (Vec<ProcessWaits>, u64) {
        self.read(pids);
        self.finish()
    }

    fn read(&mut self, pids: &[Pid]) {
        let (counters, omitted) = read(pids);
        self.update(counters, omitted);
    }

    fn update(&mut self, now: Counters, omitted: u64) {
        self.omitted = self.omitted.max(omitted);
        // A thread that was beyond the limit may be an old one.
        let is_new = self.omitted == 0;
        let mut before = std::mem::take(&mut self.threads);
        for (id, last) in now {
            let known = before.remove(&id);
            // Another thread has the id if its counter is lower.
            let same = known.filter(|known| known.last.ran_ns <= last.ran_ns);
            if let (None, Some(other)) = (same, known) {
                self.add(id.0, other);
            }
            let start = match (same, is_new) {
                (Some(same), _) => same.start,
                (None, true) => ThreadTimes::default(),
                (None, false) => last,
            };
            self.threads.insert(id, Thread { start, last });
        }
        for ((pid, _), ended) in before {
            self.add(pid, ended);
        }
    }

    fn add(&mut self, pid: Pid, thread: Thread) {
        if self.ended.len() < MAX_PROCESSES || self.ended.contains_key(&pid) {
            self.ended.entry(pid).or_default().add(thread);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }

    fn finish(mut self) -> (Vec<ProcessWaits>, u64) {
        for ((pid, _), thread) in std::mem::take(&mut self.threads) {
            self.add(pid, thread);
        }
        let mut all: Vec<(Pid, Waits)> = self.ended.into_iter().collect();
        all.sort_by_key(|(_, waits)| Reverse(waits.waited_ns));
        all.truncate(MAX_WAITING);
        let rows = all.into_iter().map(|(pid, waits)| waits.row(pid));
        (rows.collect(), self.omitted)
    }
}

/// Returns the counters of the threads of processes, and the number of threads that cannot be read or are beyond the
/// limit. The threads of a process that cannot be listed count as one.
fn read(pids: &[Pid]) -> (Counters, u64) {
    let mut counters = Counters::default();
    let mut omitted = 0;
    for &pid in pids {
        let tids = machine::tids(pid).unwrap_or_else(|error| {
            omitted += u64::from(!error.has_ended());
            Vec::new()
        });
        for tid in tids {
            if counters.len() >= MAX_THREADS {
                omitted += 1;
                continue;
            }
            match ThreadTimes::of(pid, tid) {
                Ok(times) => drop(counters.insert((pid, tid), times)),
                Err(error) => omitted += u64::from(!error.has_ended()),
            }
        }
    }
    (counters, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process, thread, milliseconds on a CPU, milliseconds without one.
    fn counters(threads: &[(i32, i32, u64, u64)]) -> Counters {
        let threads = threads.iter().map(|&(pid, tid, ran, waited)| {
            let times = ThreadTimes {
                ran_ns: ran * 1_000_000,
                waited_ns: waited * 1_000_000,
            };
            ((Pid(pid), Tid(tid)), times)
        });
        threads.collect()
    }

    #[test]
    fn ended_processes_are_not_omitted() {
        let me = Pid(std::process::id() as i32);
        let (counters, omitted) = read(&[me, Pid(i32::MAX)]);
        assert!(counters.keys().any(|(_, tid)| tid.0 == me.0));
        // The other process has ended.
        assert_eq!(omitted, 0);
    }

    fn started(threads: &[(i32, i32, u64, u64)], omitted: u64) -> ThreadWaits {
        let mut waits = ThreadWaits::start(&[]);
        waits.omitted = omitted;
        waits.threads = counters(threads)
            .into_iter()
            .map(|(id, times)| {
                let (start, last) = (times, times);
                (id, Thread { start, last })
            })
            .collect();
        waits
    }

    fn rows(waits: ThreadWaits) -> Vec<(i32, f64, f64, u64)> {
        let (rows, _) = waits.finish();
        rows.iter()
            .map(|row| (row.pid, row.waited_ms, row.ran_ms, row.threads))
            .collect()
    }

    #[test]
    fn threads_count_from_the_start_of_the_capture_or_their_own() {
        let mut waits = started(&[(1, 1, 100, 50), (1, 2, 10, 5), (3, 3, 9, 9)], 0);
        waits.update(
            counters(&[(1, 1, 105, 60), (1, 2, 11, 6), (3, 3, 10, 11)]),
            0,
        );
        // Thread 2 of process 1 is another one, and 4 is new. Process 3 has ended.
        let last = [(1, 1, 110, 80), (1, 2, 1, 2), (1, 4, 3, 4), (5, 5, 0, 90)];
        waits.update(counters(&last), 0);
        assert_eq!(
            rows(waits),
            [(5, 90.0, 0.0, 1), (1, 37.0, 15.0, 4), (3, 2.0, 1.0, 1)]
        );
    }

    #[test]
    fn threads_that_may_be_old_count_from_their_first_read() {
        let mut waits = started(&[(1, 1, 100, 50)], 7);
        waits.update(counters(&[(1, 1, 110, 80), (1, 9, 500, 500)]), 3);
        waits.update(counters(&[(1, 1, 110, 80), (1, 9, 501, 502)]), 3);
        assert_eq!(waits.omitted, 7);
        assert_eq!(rows(waits), [(1, 32.0, 11.0, 2)]);
    }
}
