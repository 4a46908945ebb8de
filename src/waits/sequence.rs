//! Times without a CPU in order: joined and split per thread, then sorted by their ends. Memory does not grow
//! with their number: they are sorted in runs, which are merged from a temporary file.
//!
//! ```text
//! Trace.blocked ── by thread and start ──> joined ─┐
//!                                                  ├──> split ── by end ──> in order
//! Trace.samples ── by thread and time  ────────────┤
//! Trace.events  ── by thread and time  ────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use rustc_hash::FxHashMap;

use crate::trace::{Nanos, Pid, Sample, Samples, ThreadId, Tid, Trace};

/// Minimum number of samples of a run, which is sorted in memory: 16 MiB.
const RUN_ROWS: usize = 512 << 10;
/// Maximum number of runs. Each has a part in memory while they are merged.
const MAX_RUNS: usize = 128;

/// Returns the times without a CPU of a trace, with the stacks that `named` returns, in order of their ends.
pub(super) fn in_order(trace: &Trace, named: impl Fn(&Sample) -> Sample) -> Samples {
    in_runs(trace, named, RUN_ROWS)
}

fn in_runs(trace: &Trace, named: impl Fn(&Sample) -> Sample, rows: usize) -> Samples {
    let mut has_waits = vec![false; trace.threads.len()];
    for wait in trace.blocked.iter() {
        has_waits[wait.thread.index()] = true;
    }
    let waits = trace.blocked.iter().map(|wait| named(&wait));
    let count = trace.blocked.len();
    let waits = Runs::new(&trace.blocked, count, waits, rows, |wait| {
        // All of it: how times are joined must not depend on the runs.
        let place = (wait.thread, start(wait), wait.time);
        (place, wait.stack, wait.weight)
    });
    let samples = trace.samples.iter().chain(activities(trace));
    let samples = samples.filter(|sample| has_waits[sample.thread.index()]);
    let most = trace
        .samples
        .len()
        .saturating_add(trace.events.count() as usize);
    let samples = Runs::new(&trace.samples, most, samples, rows, |sample| {
        (sample.thread, sample.time)
    });
    let split = split(joined(waits.merged()), samples.merged());
    let by_end = |wait: &Sample| (wait.time, wait.thread, wait.weight);
    let split = Runs::new(&trace.blocked, count, split, rows, by_end);
    let mut all = trace.blocked.in_same_file(1);
    all.extend(split.merged());
    all
}

/// Returns the events at which PerfView looks for what a thread works for, as samples: the runtime's own are none.
fn activities(trace: &Trace) -> impl Iterator<Item = Sample> {
    let threads = trace.threads.iter().enumerate();
    let threads = threads.filter_map(|(row, thread)| {
        let process = trace.processes.get(thread.process.index())?;
        Some(((process.pid, thread.tid), ThreadId(row as u32)))
    });
    let threads: FxHashMap<(Pid, Tid), ThreadId> = threads.collect();
    let events = trace.events.iter_of(|kind| {
        !kind.provider.starts_with("Microsoft-Windows-DotNETRuntime")
            && !kind.provider.starts_with("Microsoft-DotNETCore-")
    });
    events.filter_map(move |event| {
        let thread = *threads.get(&(event.process, event.thread))?;
        Some(Sample {
            time: event.time,
            thread,
            ..Sample::default()
        })
    })
}

/// Sorted lists of samples in a temporary file.
struct Runs<F> {
    lists: Vec<Samples>,
    key: F,
}

impl<K: Ord, F: Fn(&Sample) -> K> Runs<F> {
    /// Sorts about `len` samples, in the file of `like`.
    fn new(
        like: &Samples,
        len: usize,
        samples: impl Iterator<Item = Sample>,
        rows: usize,
        key: F,
    ) -> Self {
        let rows = rows.max(len.div_ceil(MAX_RUNS));
        let count = len.div_ceil(rows);
        let mut lists = Vec::new();
        let mut run: Vec<Sample> = Vec::new();
        let mut samples = samples.peekable();
        while samples.peek().is_some() {
            run.extend(samples.by_ref().take(rows));
            run.sort_unstable_by_key(&key);
            let mut list = like.in_same_file(count);
            list.extend(run.drain(..));
            lists.push(list);
        }
        Self { lists, key }
    }

    fn merged(&self) -> impl Iterator<Item = Sample> {
        let lists = self.lists.iter().map(|list| list.iter().peekable());
        let mut lists: Vec<_> = lists.collect();
        let first = |(at, list): (usize, &mut Peekable<_>)| self.first(at, list);
        let mut firsts: BinaryHeap<_> = lists.iter_mut().enumerate().filter_map(first).collect();
        std::iter::from_fn(move || {
            let Reverse((_, at)) = firsts.pop()?;
            let sample = lists[at].next();
            firsts.extend(self.first(at, &mut lists[at]));
            sample
        })
    }

    /// Returns the key of the next sample of a list.
    fn first<I: Iterator<Item = Sample>>(
        &self,
        at: usize,
        list: &mut Peekable<I>,
    ) -> Option<Reverse<(K, usize)>> {
        list.peek().map(|sample| Reverse(((self.key)(sample), at)))
    }
}

fn start(wait: &Sample) -> u64 {
    wait.time.0.saturating_sub(wait.weight.0)
}

/// Joins times that follow each other in one place. They must be in the order of their threads and starts.
///
/// When a thread waited for a CPU is known only roughly: such a time begins after what precedes it.
fn joined(waits: impl Iterator<Item = Sample>) -> impl Iterator<Item = Sample> {
    let mut last: (Option<ThreadId>, Nanos) = (None, Nanos(0));
    let waits = waits.map(move |mut wait| {
        if last.0 == Some(wait.thread) && start(&wait) < last.1.0 {
            wait.time.0 = last.1.0.saturating_add(wait.weight.0);
        }
        last = (Some(wait.thread), wait.time);
        wait
    });
    let mut waits = waits.peekable();
    std::iter::from_fn(move || {
        let mut wait = waits.next()?;
        let follows = |wait: &Sample, next: &Sample| {
            let is_same = next.thread == wait.thread && next.stack == wait.stack;
            is_same && start(next) <= wait.time.0
        };
        while let Some(next) = waits.next_if(|next| follows(&wait, next)) {
            wait.weight.0 = wait.weight.0.saturating_add(next.weight.0);
            wait.time = next.time;
        }
        Some(wait)
    })
}

/// Splits times at the samples and activities of their threads: a thread has a CPU then, and when exactly it got one is
/// not known. PerfView would compute a negative CPU time. Both must be in the order of their threads.
fn split(
    mut waits: impl Iterator<Item = Sample>,
    samples: impl Iterator<Item = Sample>,
) -> impl Iterator<Item = Sample> {
    let mut samples = samples.peekable();
    let mut rest: Option<Sample> = None;
    std::iter::from_fn(move || {
        let wait = rest.take().or_else(|| waits.next())?;
        let starts = (wait.thread, Nanos(start(&wait)));
        let precedes = |sample: &Sample| (sample.thread, sample.time) <= starts;
        while samples.next_if(precedes).is_some() {}
        let is_within = |sample: &Sample| sample.thread == wait.thread && sample.time < wait.time;
        let Some(sample) = samples.next_if(is_within) else {
            return Some(wait);
        };
        let before = sample.time.0 - starts.1.0;
        rest = Some(Sample {
            weight: Nanos(wait.weight.0 - before),
            ..wait
        });
        Some(Sample {
            time: sample.time,
            weight: Nanos(before),
            ..wait
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Cpu, ProcessId, StackId, Thread, Tid};
    use proptest::prelude::*;

    fn row(&(time, weight, thread, stack): &(u64, u64, u32, u32)) -> Sample {
        Sample {
            time: Nanos(time),
            weight: Nanos(weight),
            thread: ThreadId(thread),
            cpu: Cpu(0),
            stack: StackId(stack),
        }
    }

    fn trace(waits: &[(u64, u64, u32, u32)], samples: &[(u64, u64, u32, u32)]) -> Trace {
        let thread = |tid| Thread {
            process: ProcessId(0),
            tid: Tid(tid),
            name: "".into(),
        };
        Trace {
            threads: (0..5).map(thread).collect(),
            blocked: waits.iter().map(row).collect(),
            samples: samples.iter().map(row).collect(),
            ..Trace::default()
        }
    }

    fn rows(waits: &Samples) -> Vec<(u64, u64, u32, u32)> {
        let row = |wait: Sample| (wait.time.0, wait.weight.0, wait.thread.0, wait.stack.0);
        waits.iter().map(row).collect()
    }

    #[test]
    fn times_are_joined_split_and_in_order_of_their_ends() {
        let waits = [
            (20, 10, 0, 7),
            (30, 10, 0, 7),
            (40, 10, 0, 8),
            // It begins before the end of the one before.
            (45, 8, 0, 9),
            (35, 30, 3, 7),
        ];
        let trace = trace(&waits, &[(15, 1, 1, 0), (25, 1, 3, 0)]);
        let expected = [
            (25, 20, 3, 7),
            (30, 20, 0, 7),
            (35, 10, 3, 7),
            (40, 10, 0, 8),
            (48, 8, 0, 9),
        ];
        assert_eq!(rows(&in_order(&trace, |wait| *wait)), expected);
    }

    fn any_rows() -> impl Strategy<Value = Vec<(u64, u64, u32, u32)>> {
        let time = || prop_oneof![0..200_u64, any::<u64>()];
        proptest::collection::vec((time(), time(), 0..5_u32, 0..3_u32), 0..40)
    }

    proptest! {
        #[test]
        fn runs_change_nothing(waits in any_rows(), mut samples in any_rows(), size in 1..20_usize) {
            samples.sort_unstable();
            let trace = trace(&waits, &samples);
            let in_runs = |size| {
                let mut rows = rows(&in_runs(&trace, |wait| *wait, size));
                assert!(rows.is_sorted_by_key(|row| row.0));
                rows.sort_unstable();
                rows
            };
            prop_assert_eq!(in_runs(size), in_runs(usize::MAX));
        }
    }
}
