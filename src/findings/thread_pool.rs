//! The thread pool has too few threads: work waits, because its threads block.

use super::scene::Scene;
use crate::output::summary::{Finding, TRACE};

/// Number of threads added because no work was done, or because threads block, below which it is
/// not remarkable.
const MIN_ADDED: u64 = 3;

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
            "the thread pool of {name} added {added} threads, up to {}, because {why}{waiting}",
            pool.max_threads
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
