//! The thread pool has too few threads: work waits, because its threads block.

use super::scene::{Runtime, Scene, named, short_method};
use crate::output::summary::{Finding, PlaceTime, TRACE, ThreadPoolSummary, WorkKind};

/// How often threads are added because no work is done, or because threads block, below which it is
/// not remarkable.
const MIN_ADDED: u64 = 3;
/// Reasons of threads that do not wait for something.
const NO_WAITS: [&str; 5] = ["idle", "sleep", "stopped", "ready", "preempted"];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().filter_map(|runtime| {
        let pool = runtime.summary.thread_pool.as_ref()?;
        let name = runtime.name();
        let added = pool.starvations.saturating_add(pool.blocking);
        if added < MIN_ADDED {
            return None;
        }
        let why = match pool.blocking > pool.starvations {
            true => "its threads block on tasks (sync over async)",
            false => "work waits while its threads block (starvation)",
        };
        let waiting = pool.queued.map_or_else(String::new, |(_, waiting)| {
            format!(", {waiting} work items waited at once")
        });
        let text = format!(
            "the thread pool of {name} {}, because {why}{waiting}{}",
            growth(pool),
            blocked(scene, &runtime, pool)
        );
        let finding = runtime.finding("thread-pool", text);
        Some(
            finding
                .from("runtimes.thread_pool")
                .more(&["report", TRACE, "-kind", "thread-pool"])
                .figure("starvations", pool.starvations as f64)
                .figure("blocking", pool.blocking as f64)
                .figure("max_threads", pool.max_threads.into())
                // Requests wait for as long as the pool starves.
                .costing(1.0),
        )
    });
    programs.collect()
}

/// Returns how many threads the pool got.
fn growth(pool: &ThreadPoolSummary) -> String {
    let most = pool.max_threads;
    match pool.first_threads.filter(|first| *first < most) {
        Some(first) => format!("grew from {first} to {most} threads"),
        None => format!("has {most} threads"),
    }
}

/// Returns the place of the user's code in which threads had no CPU for longest, if the capture followed that.
fn longest_wait<'a>(scene: &Scene<'a>, pid: i32) -> Option<&'a PlaceTime> {
    let places = scene.summary.thread_time.iter();
    let places = places.flat_map(|times| &times.places);
    let is_wait = |place: &&PlaceTime| !NO_WAITS.contains(&&*place.reason);
    let places = places.filter(|place| place.pid == pid && place.own);
    let places = places.filter(is_wait);
    places.max_by(|a, b| a.ms.total_cmp(&b.ms))
}

/// Names the method whose threads block, or the options that record it.
fn blocked(scene: &Scene<'_>, runtime: &Runtime<'_>, pool: &ThreadPoolSummary) -> String {
    let summary = runtime.summary;
    let waits = summary.waits.iter().flat_map(|waits| &waits.rows);
    let mut waits = waits.filter(|row| row.methods.own.is_some());
    if let Some(row) = waits.next()
        && let Some(method) = named(&row.methods)
    {
        let seconds = (row.ms + row.unended_ms) / 1e3;
        return format!("; threads wait in {method} ({seconds:.1} s together)");
    }
    if pool.blocking > pool.starvations {
        let mut programs = scene.programs();
        let program = programs.find(|program| program.process.pid == summary.pid);
        return program.map_or_else(String::new, |it| it.behind(WorkKind::TaskWaits));
    }
    if let Some(place) = longest_wait(scene, summary.pid) {
        return format!(
            "; threads wait most in {} ({:.1} s together)",
            short_method(&place.method),
            place.ms / 1e3
        );
    }
    match summary.waits {
        Some(_) => String::new(),
        None => "; a capture with -for slow-requests shows where they block".to_owned(),
    }
}
