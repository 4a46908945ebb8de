//! Threads wait for locks: which methods, and for how long.

use std::collections::BTreeMap;

use super::scene::{Scene, named, percent, process_name, short_method};
use crate::output::summary::{Finding, MethodPair, PlaceTime, TRACE};
use crate::trace::Symptom;

/// Waiting time per time of the capture, of all threads together, below which it is not
/// remarkable.
const MIN_WAITING: f64 = 0.05;

/// Start of the methods by which a program sends events.
const TRACING: &str = "System.Diagnostics.Tracing.";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = with_events(scene);
    // Else the finding about the time without a CPU has them.
    if scene.is_for(Symptom::LockContention) {
        let without = without_events(scene);
        let is_known = |pid| findings.iter().any(|finding| finding.pid == pid);
        let others: Vec<Finding> = without.filter(|finding| !is_known(finding.pid)).collect();
        findings.extend(others);
    }
    findings
}

/// Finds processes whose threads had no CPU because of locks.
fn without_events(scene: &Scene<'_>) -> impl Iterator<Item = Finding> {
    let times = scene.summary.thread_time.iter();
    let locks = times.flat_map(|times| &times.places);
    let mut by_process: BTreeMap<i32, Vec<&PlaceTime>> = BTreeMap::new();
    for place in locks.filter(|place| place.reason == "lock") {
        by_process.entry(place.pid).or_default().push(place);
    }
    by_process.into_iter().filter_map(|(pid, places)| {
        let ms: f64 = places.iter().map(|place| place.ms).sum();
        let waiting = ms / 1e3 / scene.seconds;
        let longest = places.iter().max_by(|a, b| a.ms.total_cmp(&b.ms))?;
        if waiting < MIN_WAITING || !waiting.is_finite() {
            return None;
        }
        let program = scene.program_of(pid);
        let mut text = format!(
            "threads of {} wait for locks: {:.1} s together",
            process_name(program, pid),
            ms / 1e3
        );
        if !longest.method.is_empty() {
            let (part, method) = (percent(longest.ms / ms), short_method(&longest.method));
            text += &format!("; {part} of it in {method}");
        }
        Some(
            Finding::new("lock-contention", text)
                .about(pid, program)
                .from("thread_time.places")
                .more(&["report", TRACE, "-kind", "threadtime"])
                .figure("waiting_ms", ms)
                .costing(waiting),
        )
    })
}

fn with_events(scene: &Scene<'_>) -> Vec<Finding> {
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
