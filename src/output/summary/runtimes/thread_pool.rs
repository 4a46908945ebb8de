//! The thread pool of a process.

use serde::{Deserialize, Serialize};

use super::Context;
use crate::history::ThreadPool;

/// What the events of a thread pool report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadPoolSummary {
    /// Threads that started.
    pub started: u64,
    /// Threads that stopped.
    pub stopped: u64,
    /// First reported number of threads, if there is one.
    pub first_threads: Option<u32>,
    /// Largest reported number of threads.
    pub max_threads: u32,
    /// Minimum number of threads that the program set, or else the number of CPUs, if reported.
    pub min_limit: Option<u16>,
    /// Maximum number of threads, if reported.
    pub max_limit: Option<u16>,
    /// Changes of the number of threads.
    pub adjustments: u64,
    /// How often threads were added because no work was done for long: starvation.
    pub starvations: u64,
    /// Milliseconds from the start of the capture to the first and the last one of these.
    pub starved_ms: Option<(f64, f64)>,
    /// How often threads were added because threads of the pool wait for tasks: sync over async.
    pub blocking: u64,
    /// Largest reported number of work items per second.
    pub max_throughput: f64,
    /// Work items that were queued, and the largest number that waited at once. `None` if the
    /// capture did not request them: they are events of the framework's event source.
    pub queued: Option<(u64, u64)>,
}

pub(super) fn summary(context: &Context<'_>, pool: &ThreadPool) -> Option<ThreadPoolSummary> {
    pool.is_seen.then(|| ThreadPoolSummary {
        started: pool.started,
        stopped: pool.stopped,
        first_threads: pool.first_threads,
        max_threads: pool.max_threads,
        min_limit: pool.limits.map(|(min, _)| min),
        max_limit: pool.limits.map(|(_, max)| max),
        adjustments: pool.adjustments,
        starvations: pool.starvations,
        starved_ms: pool
            .starved
            .map(|(first, last)| (context.ms_at(first), context.ms_at(last))),
        blocking: pool.blocking,
        max_throughput: pool.max_throughput,
        queued: (pool.queued > 0).then_some((pool.queued, pool.max_waiting)),
    })
}
