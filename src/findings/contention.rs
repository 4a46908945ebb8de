//! Threads wait for locks: which methods, and for how long.

use super::scene::{Scene, named, percent};
use crate::output::summary::{Finding, MethodPair, TRACE};

/// Waiting time per time of the capture, of all threads together, below which it is not
/// remarkable.
const MIN_WAITING: f64 = 0.05;

/// Start of the methods by which a program sends events.
const TRACING: &str = "System.Diagnostics.Tracing.";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().filter_map(|runtime| {
        let waits = runtime.summary.contention.as_ref()?;
        let name = runtime.name();
        let ms = waits.ms + waits.unended_ms;
        let waiting = ms / 1e3 / scene.seconds;
        let of_tracing = waits.rows.iter().filter(|row| is_of_tracing(&row.methods));
        let of_tracing: f64 = of_tracing.map(|row| row.ms + row.unended_ms).sum();
        let of_program = (ms - of_tracing) / 1e3 / scene.seconds;
        if of_program < MIN_WAITING || !waiting.is_finite() {
            return None;
        }
        let count = waits.count.saturating_add(waits.unended);
        let mut text = format!(
            "threads of {name} wait for locks: {count} {}, {:.1} s together, {:.0} ms at most",
            if count == 1 { "wait" } else { "waits" },
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

/// Returns whether threads waited because events were requested.
fn is_of_tracing(methods: &MethodPair) -> bool {
    let leaf = methods.leaf.as_ref().filter(|_| methods.own.is_none());
    leaf.is_some_and(|leaf| leaf.name.starts_with(TRACING))
}
