//! The CPU time of collections, from the samples of the threads that work at them.

use rustc_hash::FxHashMap;

use super::heap::{BACKGROUND, Collection, Heap};
use super::sum;
use crate::trace::{Nanos, Tid};
use crate::view::events::CpuSample;

/// A thread works at a collection.
#[derive(Clone, Copy, Debug)]
struct Work {
    begin: Nanos,
    end: Nanos,
    row: usize,
}

/// Where the CPU time of a process goes, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct CpuTime {
    /// Of each thread, in order.
    work: FxHashMap<Tid, Vec<Work>>,
    /// Of each collection.
    collections: Vec<u64>,
    /// When it was told what a collection has left, in order, and the time of the process before each and after the last.
    told: Vec<Nanos>,
    between: Vec<u64>,
}

impl CpuTime {
    /// Of a process with these collections; none yet.
    pub(super) fn new(heap: &Heap) -> Self {
        let mut work: FxHashMap<Tid, Vec<Work>> = FxHashMap::default();
        for (row, collection) in heap.rows.iter().enumerate() {
            let begin = collection.start;
            let end = match collection.kind {
                BACKGROUND => collection.told,
                _ => Nanos(sum([collection.pause_start.0, collection.pause_ns])),
            };
            for &thread in &collection.workers {
                let of = work.entry(thread).or_default();
                of.push(Work { begin, end, row });
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
    pub(super) fn since_last(&self, collection: &Collection) -> u64 {
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
