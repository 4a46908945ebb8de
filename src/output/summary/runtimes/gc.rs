//! Garbage collections of a process.

use serde::{Deserialize, Serialize};

use super::{Context, ms};
use crate::history::RuntimeHistory;
use crate::history::gc::{GcRow, Rollup, rows};
use crate::trace::Nanos;

/// Complete garbage collections of a process, counted as in PerfView.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GcSummary {
    /// Number of collections.
    pub count: u64,
    /// Number of collections of generation 0, 1 and 2.
    pub generations: [u64; 3],
    /// Number of collections that the program requested.
    pub induced: u64,
    /// Number of collections that ran beside the program.
    pub background: u64,
    /// Number of collections that had not ended when the events ended.
    pub unended: u64,
    /// Number of collections that are not counted, because there were too many.
    pub omitted: u64,
    /// Time for which the collections stopped the program.
    pub pause_ms: f64,
    /// Longest pause of a collection.
    pub max_pause_ms: f64,
    /// Generation of that collection.
    pub max_pause_generation: u64,
    /// Milliseconds from the start of the capture to that pause.
    pub max_pause_at_ms: f64,
    /// Pauses in percent of the capture.
    pub paused_percent: f64,
    /// CPU time of the collections by the samples; `None` without samples of the process.
    pub cpu_ms: Option<f64>,
    /// CPU time of the collections in percent of that of the process.
    pub cpu_percent: Option<f64>,
    /// Bytes allocated between collections.
    pub allocated_bytes: u64,
    /// Megabytes allocated per second.
    pub allocated_mb_per_second: f64,
    /// Bytes of these in the heaps of large and of pinned objects.
    pub large_bytes: u64,
    /// Whether the bytes are from allocation ticks; else they are from the sizes of the heaps.
    pub has_ticks: bool,
    /// Largest size of the heaps before a collection.
    pub max_heap_bytes: u64,
    /// Size of the heaps after the last collection.
    pub last_heap_bytes: u64,
    /// How the heaps grew; `None` with fewer than two collections that reported sizes.
    pub growth: Option<HeapGrowth>,
    /// Number of heaps, if reported.
    pub heaps: Option<u64>,
    /// Whether the runtime has server GC, if reported.
    pub is_server: Option<bool>,
}

/// Sizes of the heaps after the first and the last of some collections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapGrowth {
    /// Whether it is of full collections (generation 2), if there were two: others leave garbage.
    pub is_full: bool,
    /// Number of these collections.
    pub collections: u64,
    /// Size after the first.
    pub first_bytes: u64,
    /// Size after the last.
    pub last_bytes: u64,
    /// Time between the two, in seconds.
    pub seconds: f64,
}

impl HeapGrowth {
    /// Returns that of full collections, or else of all.
    fn of(rows: &[GcRow<'_>]) -> Option<Self> {
        let full = rows.iter().filter(|row| row.collection.generation == 2);
        Self::between(full, true).or_else(|| Self::between(rows.iter(), false))
    }

    fn between<'a>(rows: impl Iterator<Item = &'a GcRow<'a>>, is_full: bool) -> Option<Self> {
        let sizes = rows.filter_map(|row| {
            let size = row.collection.heap_stats?.size();
            Some((row.collection.heap_stats_at, size))
        });
        let sizes: Vec<(Nanos, u64)> = sizes.collect();
        let [(start, first_bytes), .., (end, last_bytes)] = sizes[..] else {
            return None;
        };
        Some(Self {
            is_full,
            collections: sizes.len() as u64,
            first_bytes,
            last_bytes,
            seconds: end.0.saturating_sub(start.0) as f64 / 1e9,
        })
    }
}

pub(super) fn summary(context: &Context<'_>, history: &RuntimeHistory) -> Option<GcSummary> {
    let (gc, cpu) = (&history.gc, &history.cpu);
    if gc.rows.is_empty() {
        return None;
    }
    let all_cpu_ns = Some(cpu.total()).filter(|ns| *ns > 0);
    let mut rows = rows(gc, all_cpu_ns.map(|_| cpu), |time| context.ms_at(time));
    rows.retain(|row| row.collection.is_complete);
    let all = Rollup::new(rows.iter());
    let count = |is_counted: fn(&GcRow<'_>) -> bool| {
        rows.iter().filter(|row| is_counted(row)).count() as u64
    };
    let longest = rows.iter().max_by_key(|row| row.collection.pause_ns);
    let last = rows.iter().rev().find_map(|row| row.collection.heap_stats);
    let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let large = rows.iter().map(|row| bytes(row.allocated.others));
    let pause_percent = context.per_second(all.pause_ns) / 1e7;
    Some(GcSummary {
        count: all.count as u64,
        generations: [
            count(|row| row.collection.generation == 0),
            count(|row| row.collection.generation == 1),
            count(|row| row.collection.generation == 2),
        ],
        induced: all.induced as u64,
        background: count(|row| row.collection.is_background()),
        unended: (gc.rows.len() - rows.len()) as u64,
        omitted: gc.omitted,
        pause_ms: ms(all.pause_ns),
        max_pause_ms: ms(all.max_pause_ns),
        max_pause_generation: longest.map_or(0, |row| row.collection.generation),
        max_pause_at_ms: longest.map_or(0.0, |row| context.ms_at(row.collection.pause_start)),
        paused_percent: pause_percent,
        cpu_ms: all_cpu_ns.map(|_| ms(all.cpu_ns)),
        cpu_percent: all_cpu_ns.map(|ns| 100.0 * all.cpu_ns as f64 / ns as f64),
        allocated_bytes: bytes(all.allocated),
        allocated_mb_per_second: context.per_second(bytes(all.allocated)) / 1e6,
        large_bytes: large.fold(0, u64::saturating_add),
        has_ticks: gc.has_ticks,
        max_heap_bytes: all.max_peak,
        last_heap_bytes: last.map_or(0, |stats| stats.size()),
        growth: HeapGrowth::of(&rows),
        heaps: gc.count,
        is_server: history.is_server_gc,
    })
}
