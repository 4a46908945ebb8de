//! Bytes of a heap between collections and before them, where the runtime tells of them and where it does not.

use super::generations::HeapStats;
use super::heap::{BACKGROUND, GarbageCollection, GcHistory};
use super::sum;

/// Most collections that are looked at for the peak of one.
const MAX_DURING: usize = 1 << 14;

/// Bytes that were allocated. Less than none where the runtime gave up allocated memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Allocated {
    /// Small objects.
    pub(super) small: i64,
    /// Large and pinned ones.
    pub(super) others: i64,
}

impl Allocated {
    /// All of it.
    pub(super) fn all(self) -> i64 {
        self.small.saturating_add(self.others)
    }
}

impl GcHistory {
    /// What was allocated between a collection and the one before: what the heaps tell, else the ticks.
    pub(super) fn allocated(&self, row: usize) -> Allocated {
        let now = &self.rows[row];
        let last = row.checked_sub(1).map(|row| &self.rows[row]);
        let by_ticks = now
            .ticks
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let last = last.filter(|last| !last.heaps.is_empty() && !now.heaps.is_empty());
        let mut allocated = last.map_or(by_ticks, |last| {
            let heaps = now.heaps.iter().enumerate();
            let of_heaps = heaps
                .map(|(at, heap)| heap.allocated_since(last.heaps.get(at), last.generation == 0));
            of_heaps.fold([0; 2], |all: [i64; 2], more| {
                [0, 1].map(|at| all[at].saturating_add(more[at]))
            })
        });
        // Small objects are allocated while it goes on, too.
        if now.kind == BACKGROUND {
            allocated[0] = by_ticks[0];
        }
        let [small, others] = allocated;
        Allocated { small, others }
    }

    /// Bytes of the heap before each collection, or before one of those that were while it went on.
    pub(super) fn peaks(&self) -> Vec<u64> {
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

    /// Bytes of the heap before each collection: what the heaps tell, else what the one before has left, if that is not the
    /// first, and what was allocated since.
    fn sizes_before(&self) -> Vec<u64> {
        let mut left = None;
        let rows = self.rows.iter().enumerate();
        let size = |(row, now): (usize, &GarbageCollection)| {
            let left_before: Option<HeapStats> = left;
            if row > 0 {
                left = now.left.or(left);
            }
            match left_before {
                _ if !now.heaps.is_empty() => now.totals.size_before,
                _ if row == 0 => now.ticks[0],
                None => 0,
                Some(left) => left.at_most_until(now.ticks[0], now.left),
            }
        };
        rows.map(size).collect()
    }
}
