//! A collection as the tables show it: with what follows from the ones before.

use super::cpu::CpuTime;
use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use super::sizes::Allocated;
use crate::view::events::Processes;

/// A collection, and what follows from the ones before.
#[derive(Clone, Copy, Debug)]
pub(super) struct GcRow<'a> {
    pub(super) collection: &'a GarbageCollection,
    /// Since the one before.
    pub(super) allocated: Allocated,
    /// Bytes of the heap before it.
    pub(super) peak: u64,
    /// Milliseconds from what the one before has left, or from time zero, to the pause; of one in the background, to its end.
    since_ms: f64,
    /// The pause, in percent of the time since the one before.
    pub(super) pause_percent: f64,
    /// Nanoseconds of CPU time: its own, and of the process since the one before; `None`: there are no samples.
    pub(super) cpu: Option<(u64, u64)>,
}

impl GcRow<'_> {
    /// Milliseconds of the pause.
    pub(super) fn pause_ms(&self) -> f64 {
        self.collection.pause_ns as f64 / 1e6
    }

    /// Megabytes a second of so many bytes that were allocated since the one before; not a number where no time was.
    pub(super) fn rate(&self, bytes: i64) -> f64 {
        match self.since_ms > 0.0 {
            true => bytes as f64 / 1e3 / self.since_ms,
            false => f64::NAN,
        }
    }

    /// Its own CPU time in percent of that of the process since the one before.
    pub(super) fn cpu_percent(&self) -> Option<f64> {
        let (own, all) = self.cpu?;
        Some(100.0 * own as f64 / all as f64)
    }

    /// Bytes of the heap before it for each byte after it.
    pub(super) fn ratio(&self) -> f64 {
        match self.collection.left.map_or(0, |left| left.size()) {
            0 => 0.0,
            after => self.peak as f64 / after as f64,
        }
    }
}

/// All collections of a process in order.
pub(super) fn rows<'a>(
    heap: &'a GcHistory,
    cpu: Option<&CpuTime>,
    processes: &Processes,
) -> Vec<GcRow<'a>> {
    let row = |(at, peak): (usize, u64)| {
        let collection = &heap.rows[at];
        let told_before = collection
            .told_before
            .map_or(0.0, |time| processes.ms(time));
        let pause_ms = collection.pause_ns as f64 / 1e6;
        let (since_ms, all_ms) = if collection.kind == BACKGROUND {
            let before = at.checked_sub(1).map(|before| &heap.rows[before]);
            let end = |row: &GarbageCollection| {
                processes.ms(row.start) + row.duration_ns.unwrap_or(0) as f64 / 1e6
            };
            // PerfView counts the suspension of the first to the pause, and not to the time that it is a part of.
            let from = before.map_or_else(|| processes.ms(collection.pause_start), end);
            let since_ms = processes.ms(collection.told) - told_before;
            (since_ms, end(collection) - from)
        } else {
            // The threads may be about to stand still before what the last one has left is told: PerfView has less than no time there.
            let since_ms = (processes.ms(collection.pause_start) - told_before).max(0.0);
            (since_ms, since_ms + pause_ms)
        };
        GcRow {
            collection,
            allocated: heap.allocated(at),
            peak,
            since_ms,
            pause_percent: 100.0 * pause_ms / all_ms,
            cpu: cpu.map(|cpu| (cpu.of(at), cpu.since_last(collection))),
        }
    };
    heap.peaks().into_iter().enumerate().map(row).collect()
}
