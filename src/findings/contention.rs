//! Threads wait for locks: which methods, and for how long.

use super::scene::{Scene, named, percent};
use crate::output::summary::{Finding, TRACE};

/// Waiting time per time of the capture, of all threads together, below which it is not
/// remarkable.
const MIN_WAITING: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().filter_map(|runtime| {
        let waits = runtime.summary.contention.as_ref()?;
        let name = runtime.name();
        let ms = waits.ms + waits.unended_ms;
        let waiting = ms / 1e3 / scene.seconds;
        if waiting < MIN_WAITING || !waiting.is_finite() {
            return None;
        }
        let count = waits.count.saturating_add(waits.unended);
        let mut text = format!(
            "threads of {name} wait for locks: {} waits, {:.1} s together, {:.0} ms at most",
            count,
            ms / 1e3,
            waits.max_ms
        );
        if let Some(row) = waits.rows.first()
            && let Some(method) = named(&row.methods)
        {
            let part = (row.ms + row.unended_ms) / ms;
            text += &format!("; {} of it in {method}", percent(part));
        }
        let finding = runtime.finding("lock-contention", text);
        Some(
            finding
                .from("runtimes.contention")
                .more(&["report", TRACE, "-kind", "contention"])
                .figure("waits", count as f64)
                .figure("waiting_ms", ms)
                .figure("max_ms", waits.max_ms)
                .costing(waiting),
        )
    });
    programs.collect()
}
