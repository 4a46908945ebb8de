//! How long the threads of the target waited for a CPU.
//!
//! The kernel counts per thread and drops the counters when a thread ends. So this counts threads that
//! run at the end, since the start of the capture or of the thread. It does not see those that ended.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::machine::{self, ThreadTimes};
use crate::output::summary::MAX_WAITING;
use crate::trace::{Pid, ProcessWaits, Tid};

/// Maximum number of threads that are read.
const MAX_THREADS: usize = 4096;

/// The counters of the threads at one moment.
#[derive(Debug, Default)]
struct Counters {
    threads: FxHashMap<(Pid, Tid), ThreadTimes>,
    /// Number of threads beyond the limit.
    omitted: u64,
}

/// The counters of the target's threads at the start of a capture.
#[derive(Debug)]
pub(super) struct ThreadWaits {
    start: Counters,
}

impl ThreadWaits {
    /// Reads the counters of processes and their descendants.
    pub(super) fn start(pids: &[Pid]) -> Self {
        Self {
            start: Counters::read(pids),
        }
    }

    /// Returns the waits of each process since then, and the number of threads that are not counted.
    pub(super) fn end(&self, pids: &[Pid]) -> (Vec<ProcessWaits>, u64) {
        self.until(&Counters::read(pids))
    }

    fn until(&self, end: &Counters) -> (Vec<ProcessWaits>, u64) {
        let mut omitted = end.omitted;
        let mut rows: BTreeMap<Pid, [u64; 3]> = BTreeMap::new();
        for (&(pid, tid), now) in &end.threads {
            let known = self.start.threads.get(&(pid, tid)).copied();
            // Another thread has the id if its counter is lower.
            let known = known.filter(|start| start.ran_ns <= now.ran_ns);
            if known.is_none() && self.start.omitted > 0 {
                omitted += 1;
                continue;
            }
            let start = known.unwrap_or_default();
            let [waited, ran, threads] = rows.entry(pid).or_default();
            let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns);
            add(waited, now.waited_ns.saturating_sub(start.waited_ns));
            add(ran, now.ran_ns.saturating_sub(start.ran_ns));
            *threads += 1;
        }
        let rows = rows
            .into_iter()
            .map(|(pid, [waited, ran, threads])| ProcessWaits {
                pid: pid.0,
                waited_ms: waited as f64 / 1e6,
                ran_ms: ran as f64 / 1e6,
                threads,
            });
        let mut rows: Vec<ProcessWaits> = rows.collect();
        rows.sort_by_key(|row| Reverse(row.waited_ms as u64));
        rows.truncate(MAX_WAITING);
        (rows, omitted)
    }
}

impl Counters {
    fn read(pids: &[Pid]) -> Self {
        let mut counters = Self::default();
        if pids.is_empty() {
            return counters;
        }
        let family = machine::with_descendants(pids).unwrap_or_else(|_| pids.to_vec());
        for pid in family {
            for tid in machine::threads([pid]) {
                if counters.threads.len() >= MAX_THREADS {
                    counters.omitted += 1;
                } else if let Some(times) = ThreadTimes::of(pid, tid) {
                    counters.threads.insert((pid, tid), times);
                }
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(threads: &[(i32, i32, u64, u64)], omitted: u64) -> Counters {
        let threads = threads.iter().map(|&(pid, tid, ran, waited)| {
            let times = ThreadTimes {
                ran_ns: ran * 1_000_000,
                waited_ns: waited * 1_000_000,
            };
            ((Pid(pid), Tid(tid)), times)
        });
        Counters {
            threads: threads.collect(),
            omitted,
        }
    }

    #[test]
    fn threads_count_from_the_start_of_the_capture_or_their_own() {
        let start = counters(&[(1, 1, 100, 50), (1, 2, 10, 5), (3, 3, 9, 9)], 0);
        let waits = ThreadWaits { start };
        // Thread 2 of process 1 is another one, and 4 is new. Process 3 has ended.
        let end = counters(
            &[(1, 1, 110, 80), (1, 2, 1, 2), (1, 4, 3, 4), (5, 5, 0, 90)],
            0,
        );
        let (rows, omitted) = waits.until(&end);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.pid, row.waited_ms, row.ran_ms, row.threads))
            .collect();
        assert_eq!(rows, [(5, 90.0, 0.0, 1), (1, 36.0, 14.0, 3)]);
        assert_eq!(omitted, 0);
    }

    #[test]
    fn threads_that_may_be_old_are_omitted() {
        let start = counters(&[(1, 1, 100, 50)], 7);
        let waits = ThreadWaits { start };
        let (rows, omitted) = waits.until(&counters(&[(1, 1, 110, 80), (1, 9, 500, 500)], 3));
        assert_eq!((rows[0].waited_ms, rows[0].threads, omitted), (30.0, 1, 4));
    }
}
