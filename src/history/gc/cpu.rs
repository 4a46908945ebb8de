//! The CPU time of collections, from the samples of the threads that work on them.

use rustc_hash::FxHashMap;

use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use crate::history::CpuSample;
use crate::history::fields::sum;
use crate::trace::{Nanos, Tid};

/// Time in which a thread works on a collection.
#[derive(Clone, Copy, Debug)]
struct GcThreadSpan {
    start: Nanos,
    end: Nanos,
    row: usize,
}

/// Distribution of a process's CPU time, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct CpuTime {
    /// Spans of each thread, in order of time.
    work: FxHashMap<Tid, Vec<GcThreadSpan>>,
    /// CPU time of each collection.
    collections: Vec<u64>,
    /// Times of the heap stats events, in order, and the CPU time before each and after the last.
    heap_stats_at: Vec<Nanos>,
    between: Vec<u64>,
}

impl CpuTime {
    /// Prepares the counters for a process with these collections.
    pub(crate) fn new(heap: &GcHistory) -> Self {
        let mut work: FxHashMap<Tid, Vec<GcThreadSpan>> = FxHashMap::default();
        for (row, collection) in heap.rows.iter().enumerate() {
            let start = collection.start;
            let end = match collection.kind {
                BACKGROUND => collection.heap_stats_at,
                _ => Nanos(sum([collection.pause_start.0, collection.pause_ns])),
            };
            for &thread in &collection.workers {
                let spans = work.entry(thread).or_default();
                spans.push(GcThreadSpan { start, end, row });
            }
        }
        work.values_mut()
            .for_each(|spans| spans.sort_by_key(|span| span.start));
        let mut heap_stats_at: Vec<Nanos> = heap.complete().map(|row| row.heap_stats_at).collect();
        heap_stats_at.sort_unstable();
        Self {
            work,
            collections: vec![0; heap.rows.len()],
            between: vec![0; heap_stats_at.len() + 1],
            heap_stats_at,
        }
    }

    /// Adds a sample of the process.
    pub(crate) fn add(&mut self, sample: &CpuSample) {
        let between = &mut self.between[self
            .heap_stats_at
            .partition_point(|time| *time <= sample.time)];
        *between = sum([*between, sample.ns]);
        let Some(work) = self.work.get(&sample.thread) else {
            return;
        };
        let started = work.partition_point(|span| span.start <= sample.time);
        let last = started.checked_sub(1).map(|last| work[last]);
        if let Some(last) = last.filter(|last| sample.time <= last.end) {
            let total = &mut self.collections[last.row];
            *total = sum([*total, sample.ns]);
        }
    }

    /// Returns the CPU time of the process.
    pub(crate) fn total(&self) -> u64 {
        sum(self.between.iter().copied())
    }

    /// Returns the CPU time of a collection.
    pub(crate) fn collection(&self, row: usize) -> u64 {
        self.collections[row]
    }

    /// Returns the CPU time of the process between the ends of the previous collection and of this
    /// one.
    pub(crate) fn since_last(&self, collection: &GarbageCollection) -> u64 {
        let before = |time| {
            self.heap_stats_at
                .partition_point(|stats_at| *stats_at < time)
        };
        let (from, to) = (before(collection.start), before(collection.heap_stats_at));
        sum(self
            .between
            .get(from..=to)
            .unwrap_or_default()
            .iter()
            .copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Pid;

    const BLOCKING: u64 = 0;

    fn collection(
        kind: u64,
        start: u64,
        pause_ns: u64,
        heap_stats_at: u64,
        workers: &[i32],
    ) -> GarbageCollection {
        GarbageCollection {
            kind,
            start: Nanos(start),
            pause_start: Nanos(start),
            pause_ns,
            heap_stats_at: Nanos(heap_stats_at),
            is_complete: true,
            workers: workers.iter().copied().map(Tid).collect(),
            ..GarbageCollection::default()
        }
    }

    /// Tests a background collection, another one during it, and a later one.
    #[test]
    fn charges_samples_of_working_threads_to_their_collection() {
        let mut heap = GcHistory::default();
        heap.rows = vec![
            collection(BACKGROUND, 100, 5, 900, &[7, 8]),
            collection(BLOCKING, 200, 50, 240, &[1]),
            collection(BLOCKING, 1000, 50, 1040, &[1]),
        ];
        let mut cpu = CpuTime::new(&heap);
        for (thread, time, ns) in [
            (1, 150, 1),
            (7, 150, 2),
            (1, 220, 4),
            (8, 230, 8),
            (2, 230, 16),
            (1, 300, 32),
            (7, 900, 64),
            (8, 950, 128),
            (1, 1050, 256),
            (1, 1051, 512),
        ] {
            cpu.add(&CpuSample {
                process: Pid(1),
                thread: Tid(thread),
                time: Nanos(time),
                ns,
            });
        }
        assert_eq!(
            [0, 1, 2].map(|row| cpu.collection(row)),
            [2 + 8 + 64, 4, 256]
        );
        assert_eq!(cpu.total(), 1023);
        let since = [0, 1, 2].map(|row| cpu.since_last(&heap.rows[row]));
        assert_eq!(since, [31 + 32, 31, 64 + 128]);
    }
}
