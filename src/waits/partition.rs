//! Times without a CPU in order: joined and split per thread, then sorted by their ends. Memory does not grow
//! with their number, but with that of a single thread.
//!
//! ```text
//! Trace.blocked ──> groups of threads ─┐
//!                                      ├─ one group at a time: sort, join, split ──> runs ──> merged
//! Trace.samples ──> groups of threads ─┘
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::trace::{Nanos, Sample, Samples, ThreadId, Trace};

/// Number of times in a group: 16 MiB.
const GROUP_ROWS: usize = 512 << 10;
/// Maximum number of groups: each has several chunks in memory.
const MAX_GROUPS: usize = 64;

/// Returns the times without a CPU of a trace, with the stacks that `named` returns, in order of their ends.
pub(super) fn in_order(trace: &Trace, named: impl Fn(&Sample) -> Sample) -> Samples {
    in_groups(trace, named, GROUP_ROWS)
}

fn in_groups(trace: &Trace, named: impl Fn(&Sample) -> Sample, rows: usize) -> Samples {
    let groups = Groups::new(trace, rows);
    let mut runs = Vec::new();
    let mut add = |waits: Vec<Sample>, samples: &Samples| {
        let (mut rests, mut parts) = (groups.list(trace), groups.list(trace));
        let mut waits = joined(waits);
        split(&mut waits, samples, &mut parts);
        waits.sort_unstable_by_key(|wait| (wait.time, wait.thread, wait.weight));
        rests.extend(waits);
        runs.extend([rests, parts]);
    };
    if groups.count == 1 {
        let waits = trace.blocked.iter().map(|wait| named(&wait)).collect();
        add(waits, &trace.samples);
    } else {
        let lists = || (0..groups.count).map(|_| groups.list(trace));
        let (mut waits, mut samples): (Vec<_>, Vec<_>) = (lists().collect(), lists().collect());
        for wait in trace.blocked.iter() {
            if let Some(group) = groups.of(wait.thread) {
                waits[group].push(named(&wait));
            }
        }
        for sample in trace.samples.iter() {
            if let Some(group) = groups.of(sample.thread) {
                samples[group].push(sample);
            }
        }
        for (waits, samples) in waits.into_iter().zip(&samples) {
            add(waits.iter().collect(), samples);
        }
    }
    merged(&runs, trace.blocked.in_same_file(1))
}

/// Threads in groups, so that those of one group have a limited number of times without a CPU.
struct Groups {
    /// Group of each thread; `None` if it was never without a CPU.
    of_thread: Vec<Option<usize>>,
    count: usize,
}

impl Groups {
    fn new(trace: &Trace, rows: usize) -> Self {
        let rows = rows.max(trace.blocked.len().div_ceil(MAX_GROUPS));
        let mut by_thread = vec![0; trace.threads.len()];
        for wait in trace.blocked.iter() {
            by_thread[wait.thread.index()] += 1;
        }
        let (mut group, mut in_group) = (0, 0);
        let of_thread = by_thread.into_iter().map(|waits: usize| {
            if in_group > 0 && in_group + waits > rows {
                (group, in_group) = (group + 1, 0);
            }
            in_group += waits;
            (waits > 0).then_some(group)
        });
        Self {
            of_thread: of_thread.collect(),
            count: group + 1,
        }
    }

    fn of(&self, thread: ThreadId) -> Option<usize> {
        self.of_thread[thread.index()]
    }

    /// Returns an empty list of a group. Each has four: times, samples, and the two that are made of them.
    fn list(&self, trace: &Trace) -> Samples {
        trace.blocked.in_same_file(4 * self.count)
    }
}

fn start(wait: &Sample) -> u64 {
    wait.time.0.saturating_sub(wait.weight.0)
}

/// Joins times that follow each other in one place. They are then in the order of their threads.
///
/// When a thread waited for a CPU is known only roughly: such a time begins after what precedes it.
fn joined(mut waits: Vec<Sample>) -> Vec<Sample> {
    waits.sort_unstable_by_key(|wait| (wait.thread, start(wait), wait.time));
    let mut last = (None, Nanos(0));
    for wait in &mut waits {
        if last.0 == Some(wait.thread) && start(wait) < last.1.0 {
            wait.time.0 = last.1.0.saturating_add(wait.weight.0);
        }
        last = (Some(wait.thread), wait.time);
    }
    waits.dedup_by(|next, wait| {
        let is_same = next.thread == wait.thread && next.stack == wait.stack;
        let follows = is_same && start(next) <= wait.time.0;
        if follows {
            wait.weight.0 = wait.weight.0.saturating_add(next.weight.0);
            wait.time = next.time;
        }
        follows
    });
    waits
}

/// Splits times at the samples of their threads: a thread has a CPU then, and when exactly it got one is not
/// known. PerfView would compute a negative CPU time. `parts` receives the times that end at a sample.
fn split(waits: &mut [Sample], samples: &Samples, parts: &mut Samples) {
    let mut next: FxHashMap<ThreadId, usize> = FxHashMap::default();
    for (index, wait) in waits.iter().enumerate() {
        next.entry(wait.thread).or_insert(index);
    }
    for sample in samples.iter() {
        let Some(at) = next.get_mut(&sample.thread) else {
            continue;
        };
        let is_over = |wait: &Sample| wait.thread == sample.thread && wait.time <= sample.time;
        while waits.get(*at).is_some_and(is_over) {
            *at += 1;
        }
        let Some(wait) = waits.get_mut(*at) else {
            continue;
        };
        let before = sample.time.0.saturating_sub(start(wait));
        if wait.thread == sample.thread && before > 0 {
            wait.weight.0 -= before;
            parts.push(Sample {
                time: sample.time,
                weight: Nanos(before),
                ..*wait
            });
        }
    }
}

/// Merges lists that are in order of time.
fn merged(runs: &[Samples], mut out: Samples) -> Samples {
    let mut runs: Vec<_> = runs.iter().map(|run| run.iter().peekable()).collect();
    let firsts = runs.iter_mut().enumerate();
    let firsts = firsts.filter_map(|(at, run)| Some(Reverse((run.peek()?.time, at))));
    let mut firsts: BinaryHeap<_> = firsts.collect();
    while let Some(Reverse((_, at))) = firsts.pop() {
        out.extend(runs[at].next());
        firsts.extend(runs[at].peek().map(|next| Reverse((next.time, at))));
    }
    out
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
        fn groups_change_nothing(waits in any_rows(), mut samples in any_rows(), size in 1..20_usize) {
            samples.sort_unstable();
            let trace = trace(&waits, &samples);
            let in_groups = |size| {
                let mut rows = rows(&in_groups(&trace, |wait| *wait, size));
                assert!(rows.is_sorted_by_key(|row| row.0));
                rows.sort_unstable();
                rows
            };
            prop_assert_eq!(in_groups(size), in_groups(usize::MAX));
        }
    }
}
