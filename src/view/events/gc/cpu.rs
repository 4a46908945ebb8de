//! The CPU time of collections, from the samples of the threads that work at them.

use rustc_hash::FxHashMap;

use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use super::sum;
use crate::trace::{Nanos, Tid};
use crate::view::events::CpuSample;

/// A thread works at a collection.
#[derive(Clone, Copy, Debug)]
struct GcThreadSpan {
    begin: Nanos,
    end: Nanos,
    row: usize,
}

/// Where the CPU time of a process goes, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct CpuTime {
    /// Of each thread, in order.
    work: FxHashMap<Tid, Vec<GcThreadSpan>>,
    /// Of each collection.
    collections: Vec<u64>,
    /// When it was told what a collection has left, in order, and the time of the process before each and after the last.
    told: Vec<Nanos>,
    between: Vec<u64>,
}

impl CpuTime {
    /// Of a process with these collections; none yet.
    pub(super) fn new(heap: &GcHistory) -> Self {
        let mut work: FxHashMap<Tid, Vec<GcThreadSpan>> = FxHashMap::default();
        for (row, collection) in heap.rows.iter().enumerate() {
            let begin = collection.start;
            let end = match collection.kind {
                BACKGROUND => collection.told,
                _ => Nanos(sum([collection.pause_start.0, collection.pause_ns])),
            };
            for &thread in &collection.workers {
                let of = work.entry(thread).or_default();
                of.push(GcThreadSpan { begin, end, row });
            }
        }
        work.values_mut()
            .for_each(|of| of.sort_by_key(|work| work.begin));
        let mut told: Vec<Nanos> = heap.complete().map(|row| row.told).collect();
        told.sort_unstable();
        Self {
            work,
            collections: vec![0; heap.rows.len()],
            between: vec![0; told.len() + 1],
            told,
        }
    }

    /// Counts a sample of the process.
    pub(super) fn add(&mut self, sample: &CpuSample) {
        let between = &mut self.between[self.told.partition_point(|told| *told <= sample.time)];
        *between = sum([*between, sample.ns]);
        let Some(work) = self.work.get(&sample.thread) else {
            return;
        };
        let begun = work.partition_point(|work| work.begin <= sample.time);
        let last = begun.checked_sub(1).map(|last| work[last]);
        if let Some(last) = last.filter(|last| sample.time <= last.end) {
            let of = &mut self.collections[last.row];
            *of = sum([*of, sample.ns]);
        }
    }

    /// Of the process.
    pub(super) fn all(&self) -> u64 {
        sum(self.between.iter().copied())
    }

    /// Of a collection.
    pub(super) fn of(&self, row: usize) -> u64 {
        self.collections[row]
    }

    /// Of the process from the end of the last collection before this one to its own end.
    pub(super) fn since_last(&self, collection: &GarbageCollection) -> u64 {
        let before = |time| self.told.partition_point(|told| *told < time);
        let (from, to) = (before(collection.start), before(collection.told));
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
        told: u64,
        workers: &[i32],
    ) -> GarbageCollection {
        GarbageCollection {
            kind,
            start: Nanos(start),
            pause_start: Nanos(start),
            pause_ns,
            told: Nanos(told),
            is_complete: true,
            workers: workers.iter().copied().map(Tid).collect(),
            ..GarbageCollection::default()
        }
    }

    /// One in the background, with another while it goes on, and one later.
    #[test]
    fn time_is_that_of_whoever_works_at_it() {
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
        assert_eq!([0, 1, 2].map(|row| cpu.of(row)), [2 + 8 + 64, 4, 256]);
        assert_eq!(cpu.all(), 1023);
        let since = [0, 1, 2].map(|row| cpu.since_last(&heap.rows[row]));
        assert_eq!(since, [31 + 32, 31, 64 + 128]);
    }
}
