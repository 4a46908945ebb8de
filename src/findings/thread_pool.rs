//! The thread pool has too few threads: work waits, because its threads block.

use super::scene::{Runtime, Scene, named, percent, short_method};
use crate::output::summary::{Finding, PlaceTime, TRACE, ThreadPoolSummary, WorkKind};

/// How often threads are added because no work is done, or because threads block, below which it is
/// not remarkable.
const MIN_ADDED: u64 = 3;
/// Part of the time in which the threads of a pool that grew wait in the user's code, below which it is not
/// remarkable.
const MIN_BUSY: f64 = 0.5;
/// Reasons of threads that wait for nothing but work, or for a CPU.
const NO_WAITS: [&str; 5] = ["idle", "stopped", "ready", "preempted", "throttled"];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.runtimes().filter_map(|runtime| {
        let pool = runtime.summary.thread_pool.as_ref()?;
        let name = runtime.name();
        let added = pool.starvations.saturating_add(pool.blocking);
        if added < MIN_ADDED {
            return busy(scene, &runtime, pool);
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

/// Returns a finding about a pool that grew and whose threads wait in the user's code most of the time: then work
/// waits for a thread, even if the pool adds one now and then.
fn busy(scene: &Scene<'_>, runtime: &Runtime<'_>, pool: &ThreadPoolSummary) -> Option<Finding> {
    pool.first_threads
        .filter(|first| *first < pool.max_threads)?;
    let waits = waits_of_pool(scene, runtime.summary.pid);
    let (longest, _) = longest(waits.clone())?;
    let waiting_ms: f64 = waits.map(|(_, ms)| ms).sum();
    let part = waiting_ms / 1e3 / scene.seconds / f64::from(pool.max_threads);
    if part < MIN_BUSY || !part.is_finite() {
        return None;
    }
    let text = format!(
        "the thread pool of {} {}, which wait {} of the time, most in {}: work waits for a free thread, which is in no \
         request's time",
        runtime.name(),
        growth(pool),
        percent(part),
        short_method(&longest.method),
    );
    Some(
        runtime
            .finding("thread-pool", text)
            .from("runtimes.thread_pool")
            .from("thread_time.places")
            .more(&["report", TRACE, "-kind", "threadtime"])
            .figure("max_threads", pool.max_threads.into())
            .figure("waiting_percent", part * 100.0)
            .costing(part),
    )
}

/// Returns the places of the user's code in which threads of the pool wait or sleep, with their time.
fn waits_of_pool<'a>(
    scene: &Scene<'a>,
    pid: i32,
) -> impl Iterator<Item = (&'a PlaceTime, f64)> + Clone {
    let places = scene.summary.thread_time.iter();
    let places = places.flat_map(|times| &times.places);
    let places = places
        .filter(move |place| place.pid == pid && place.own && !NO_WAITS.contains(&&*place.reason));
    places.map(|place| {
        let part = place.pool_threads as f64 / place.threads.max(1) as f64;
        (place, place.ms * part)
    })
}

/// Returns the place with most time.
fn longest<'a>(places: impl Iterator<Item = (&'a PlaceTime, f64)>) -> Option<(&'a PlaceTime, f64)> {
    let longest = places.max_by(|a, b| a.1.total_cmp(&b.1));
    longest.filter(|(_, ms)| *ms > 0.0)
}

/// Returns how many threads the pool got.
fn growth(pool: &ThreadPoolSummary) -> String {
    let most = pool.max_threads;
    match pool.first_threads.filter(|first| *first < most) {
        Some(first) => format!("grew from {first} to {most} threads"),
        None => format!("has {most} threads"),
    }
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
    if let Some((place, ms)) = longest(waits_of_pool(scene, summary.pid)) {
        return format!(
            "; its threads wait most in {} ({:.1} s together)",
            short_method(&place.method),
            ms / 1e3
        );
    }
    match summary.waits {
        Some(_) => String::new(),
        None => "; a capture with -for slow-requests shows where they block".to_owned(),
    }
}
