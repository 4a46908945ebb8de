//! Totals of the collections of a process: of all, and by generation.

use super::row::GcRow;
use crate::history::fields::sum;

/// Reasons of induced collections, which the program requested.
pub(crate) const INDUCED: u64 = 1;
pub(crate) const INDUCED_NOT_FORCED: u64 = 7;

/// Totals of several collections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rollup {
    pub(crate) count: usize,
    pub(crate) pause_ns: u64,
    pub(crate) max_pause_ns: u64,
    pub(crate) max_peak: u64,
    /// Megabytes per second.
    pub(crate) max_rate: f64,
    /// Allocated bytes.
    pub(crate) allocated: i64,
    /// Promoted bytes.
    pub(crate) promoted: u64,
    pub(crate) induced: usize,
    /// CPU time; 0 without samples.
    pub(crate) cpu_ns: u64,
}

impl Rollup {
    /// Adds up the complete ones of these collections.
    pub(crate) fn new<'a>(rows: impl Iterator<Item = &'a GcRow<'a>>) -> Self {
        let mut all = Self::default();
        for row in rows.filter(|row| row.collection.is_complete) {
            let collection = row.collection;
            let promoted = collection.heap_stats.map_or(0, |stats| stats.promoted);
            let is_induced = matches!(collection.reason, INDUCED | INDUCED_NOT_FORCED);
            all.count += 1;
            all.pause_ns = sum([all.pause_ns, collection.pause_ns]);
            all.max_pause_ns = all.max_pause_ns.max(collection.pause_ns);
            all.max_peak = all.max_peak.max(row.peak);
            all.max_rate = all.max_rate.max(row.rate(row.allocated.all()));
            all.allocated = all.allocated.saturating_add(row.allocated.all());
            all.promoted = sum([all.promoted, promoted]);
            all.cpu_ns = sum([all.cpu_ns, row.cpu.map_or(0, |(own, _)| own)]);
            all.induced += usize::from(is_induced);
        }
        all
    }
}
