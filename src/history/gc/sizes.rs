//! Heap sizes before collections, and bytes allocated between them.
//!
//! They come from the runtime's per-heap events, or are estimated without them.

use super::generations::HeapStats;
use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use crate::history::fields::sum;

/// Maximum number of concurrent collections considered for the peak of a background collection.
const MAX_DURING: usize = 1 << 14;

/// Allocated bytes. Negative if the runtime returned allocated memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Allocated {
    /// Small objects.
    pub(crate) small: i64,
    /// Large and pinned objects.
    pub(crate) others: i64,
}

impl Allocated {
    /// Returns the total.
    pub(crate) fn all(self) -> i64 {
        self.small.saturating_add(self.others)
    }
}

impl GcHistory {
    /// Returns the bytes allocated between the previous collection and this one.
    ///
    /// The source is the per-heap events, or the allocation ticks without them.
    pub(crate) fn allocated(&self, row: usize) -> Allocated {
        let now = &self.rows[row];
        let last = row.checked_sub(1).map(|row| &self.rows[row]);
        let by_ticks = now
            .ticks
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let last = last.filter(|last| !last.heaps.is_empty() && !now.heaps.is_empty());
        let mut allocated = last.map_or(by_ticks, |last| {
            let heaps = now.heaps.iter().enumerate();
            let by_heap = heaps
                .map(|(at, heap)| heap.allocated_since(last.heaps.get(at), last.generation == 0));
            by_heap.fold([0; 2], |all: [i64; 2], more| {
                [0, 1].map(|at| all[at].saturating_add(more[at]))
            })
        });
        // Small objects are also allocated during a background collection.
        if now.kind == BACKGROUND {
            allocated[0] = by_ticks[0];
        }
        let [small, others] = allocated;
        Allocated { small, others }
    }

    /// Returns the heap size before each collection, or before a collection during a background
    /// one.
    pub(crate) fn peaks(&self) -> Vec<u64> {
        let before = self.sizes_before();
        let rows = self.rows.iter().enumerate();
        let peak = |(row, now): (usize, &GarbageCollection)| {
            if now.kind != BACKGROUND {
                return before[row];
            }
            let end = sum([now.pause_start.0, now.duration_ns.unwrap_or(0)]);
            let during = (row + 1..self.rows.len()).take(MAX_DURING);
            let during = during.take_while(|&later| self.rows[later].pause_start.0 <= end);
            during.fold(before[row], |peak, later| peak.max(before[later]))
        };
        rows.map(peak).collect()
    }

    /// Returns the heap size before each collection.
    ///
    /// The source is the per-heap events. Without them, the size is estimated from the heap after
    /// the previous collection, if that is not the first one, and the bytes allocated since.
    fn sizes_before(&self) -> Vec<u64> {
        let mut previous = None;
        let rows = self.rows.iter().enumerate();
        let size = |(row, now): (usize, &GarbageCollection)| {
            let before: Option<HeapStats> = previous;
            if row > 0 {
                previous = now.heap_stats.or(previous);
            }
            match before {
                _ if !now.heaps.is_empty() => now.totals.size_before,
                _ if row == 0 => now.ticks[0],
                None => 0,
                Some(stats) => stats.estimate_before(now.ticks[0], now.heap_stats),
            }
        };
        rows.map(size).collect()
    }
}
