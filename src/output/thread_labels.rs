//! Labels of threads in the views of stacks that tell them apart.
//!
//! Threads of a process with the same name share a label: `.NET TP Worker (12 threads)`.

use rustc_hash::FxHashMap;

use super::sanitize::folded;
use crate::trace::{ThreadId, Trace};

/// The label of each thread.
pub(super) struct ThreadLabels {
    texts: Vec<String>,
    /// Row of `texts`, by thread.
    rows: Vec<u32>,
}

impl ThreadLabels {
    /// Labels the threads with samples. `processes` has the row of the label of each process.
    pub(super) fn new(trace: &Trace, processes: &[u32]) -> Self {
        let mut has_samples = vec![false; trace.threads.len()];
        for sample in trace.samples.iter() {
            has_samples[sample.thread.index()] = true;
        }
        let mut by_name: FxHashMap<(u32, String), u32> = FxHashMap::default();
        // The first thread of each row, and their number.
        let mut labels: Vec<(ThreadId, u64)> = Vec::new();
        let rows = (0..).map(ThreadId).zip(&trace.threads).map(|(id, thread)| {
            if !has_samples[id.index()] {
                return 0;
            }
            let process = processes[thread.process.index()];
            let key = (process, folded(&thread.name));
            let row = *by_name.entry(key).or_insert_with(|| {
                labels.push((id, 0));
                labels.len() as u32 - 1
            });
            labels[row as usize].1 += 1;
            row
        });
        let rows = rows.collect();
        let text = |(first, count): (ThreadId, u64)| {
            let thread = &trace.threads[first.index()];
            folded(&match count {
                1 => format!("{} ({})", thread.name, thread.tid),
                _ => format!("{} ({count} threads)", thread.name),
            })
        };
        Self {
            texts: labels.into_iter().map(text).collect(),
            rows,
        }
    }

    /// Returns the row of a thread's label.
    pub(super) fn row(&self, thread: ThreadId) -> u32 {
        self.rows[thread.index()]
    }

    /// Returns the label of a row.
    pub(super) fn text(&self, row: u32) -> &str {
        &self.texts[row as usize]
    }
}
