//! The threads of a trace.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::kept;
use crate::trace::{Thread, Trace};

/// Maximum number of threads.
pub(super) const MAX_THREADS: usize = 500;

/// A thread with samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSummary {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
}

/// Returns the threads with most samples.
pub(super) fn rows(trace: &Trace, by_thread: &[u64]) -> Vec<ThreadSummary> {
    let threads = trace.threads.iter().zip(by_thread.iter().copied());
    let mut threads: Vec<(&Thread, u64)> = threads.filter(|(_, samples)| *samples > 0).collect();
    threads.sort_by_key(|(thread, samples)| (Reverse(*samples), thread.tid));
    threads.truncate(MAX_THREADS);
    let row = |(thread, samples): (&Thread, u64)| ThreadSummary {
        pid: trace.processes[thread.process.index()].pid.0,
        tid: thread.tid.0,
        name: kept(&thread.name),
        samples,
    };
    threads.into_iter().map(row).collect()
}
