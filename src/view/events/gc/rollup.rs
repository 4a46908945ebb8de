//! The collections of a process summed up, all and by generation.

use super::row::GcRow;
use super::sum;

/// Reasons of collections that the program asked for.
pub(super) const INDUCED: u64 = 1;
pub(super) const INDUCED_NOT_FORCED: u64 = 7;

/// Collections summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rollup {
    pub(super) count: usize,
    pub(super) pause_ns: u64,
    pub(super) max_pause_ns: u64,
    pub(super) max_peak: u64,
    /// Megabytes a second.
    pub(super) max_rate: f64,
    /// Bytes.
    pub(super) allocated: i64,
    /// Bytes.
    pub(super) promoted: u64,
    pub(super) induced: usize,
    /// 0 where there are no samples.
    pub(super) cpu_ns: u64,
}

impl Rollup {
    /// Of these collections, those that are complete.
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a GcRow<'a>>) -> Self {
        let mut all = Self::default();
        for row in rows.filter(|row| row.collection.is_complete) {
            let collection = row.collection;
            let promoted = collection.left.map_or(0, |left| left.promoted);
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
