//! A row of the tables: a collection with the values derived from earlier collections.

use super::cpu::CpuTime;
use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use super::sizes::Allocated;
use crate::trace::Nanos;

/// A collection with the values derived from earlier collections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GcRow<'a> {
    pub(crate) collection: &'a GarbageCollection,
    /// Bytes allocated since the previous collection.
    pub(crate) allocated: Allocated,
    /// Heap size before the collection, in bytes.
    pub(crate) peak: u64,
    /// Milliseconds from the previous heap stats event, or from time zero, to the pause.
    ///
    /// For a background collection the time ends at its own heap stats event.
    since_ms: f64,
    /// Pause in percent of the time since the previous collection.
    pub(crate) pause_percent: f64,
    /// CPU time in nanoseconds: of the collection, and of the process since the previous one.
    ///
    /// This is `None` without samples.
    pub(crate) cpu: Option<(u64, u64)>,
}

impl GcRow<'_> {
    /// Returns the length of the pause in milliseconds.
    pub(crate) fn pause_ms(&self) -> f64 {
        self.collection.pause_ns as f64 / 1e6
    }

    /// Returns the rate in MB/s of `bytes` allocated since the previous collection.
    ///
    /// The rate is NaN if no time passed.
    pub(crate) fn rate(&self, bytes: i64) -> f64 {
        match self.since_ms > 0.0 {
            true => bytes as f64 / 1e3 / self.since_ms,
            false => f64::NAN,
        }
    }

    /// Returns the collection's CPU time in percent of the process's since the previous collection.
    pub(crate) fn cpu_percent(&self) -> Option<f64> {
        let (own, all) = self.cpu?;
        Some(100.0 * own as f64 / all as f64)
    }

    /// Returns the ratio of the heap sizes before and after the collection.
    pub(crate) fn ratio(&self) -> f64 {
        match self.collection.heap_stats.map_or(0, |stats| stats.size()) {
            0 => 0.0,
            after => self.peak as f64 / after as f64,
        }
    }
}

/// Returns the rows of all collections of a process, in order.
///
/// `ms_at` converts a time to milliseconds since time zero.
pub(crate) fn rows<'a>(
    heap: &'a GcHistory,
    cpu: Option<&CpuTime>,
    ms_at: impl Fn(Nanos) -> f64,
) -> Vec<GcRow<'a>> {
    let row = |(at, peak): (usize, u64)| {
        let collection = &heap.rows[at];
        let previous_stats_ms = collection.previous_stats_at.map_or(0.0, &ms_at);
        let pause_ms = collection.pause_ns as f64 / 1e6;
        let (since_ms, all_ms) = if collection.kind == BACKGROUND {
            let before = at.checked_sub(1).map(|before| &heap.rows[before]);
            let end = |row: &GarbageCollection| {
                ms_at(row.start) + row.duration_ns.unwrap_or(0) as f64 / 1e6
            };
            // PerfView adds the suspension of the first one to the pause, but not to the time that
            // contains it.
            let from = before.map_or_else(|| ms_at(collection.pause_start), end);
            let since_ms = ms_at(collection.heap_stats_at) - previous_stats_ms;
            (since_ms, end(collection) - from)
        } else {
            // A suspension may start before the heap stats event of the previous collection.
            // PerfView shows a negative time then.
            let since_ms = (ms_at(collection.pause_start) - previous_stats_ms).max(0.0);
            (since_ms, since_ms + pause_ms)
        };
        GcRow {
            collection,
            allocated: heap.allocated(at),
            peak,
            since_ms,
            pause_percent: 100.0 * pause_ms / all_ms,
            cpu: cpu.map(|cpu| (cpu.collection(at), cpu.since_last(collection))),
        }
    };
    heap.peaks().into_iter().enumerate().map(row).collect()
}
