//! Labels of processes in the views of stacks.
//!
//! A system that starts thousands of processes has more than anybody can look at. Beyond a limit,
//! those with fewest samples share one label per name: `cc1 (28123 processes)`.

use std::collections::HashMap;

use super::sanitize::{folded, perf_text_comm};
use super::summary::program_of;
use crate::trace::{ProcessId, Trace};

/// Maximum number of processes with a separate label.
const MAX_SEPARATE: usize = 250;

/// The processes that have a separate label, and the number of others by name.
pub(super) struct ProcessLabels<'a> {
    trace: &'a Trace,
    /// Number of processes without a separate label, by name as in the text of the samples.
    shared: HashMap<String, u64>,
    /// Whether each process has a separate label.
    is_separate: Vec<bool>,
}

impl<'a> ProcessLabels<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let all = trace.processes.len();
        let mut labels = Self {
            trace,
            shared: HashMap::new(),
            is_separate: vec![true; all],
        };
        if all > MAX_SEPARATE {
            labels.share();
        }
        labels
    }

    /// Lets the processes with fewest samples share labels.
    fn share(&mut self) {
        let trace = self.trace;
        let mut samples = vec![0_u64; trace.processes.len()];
        for sample in trace.samples.iter() {
            samples[trace.threads[sample.thread.index()].process.index()] += 1;
        }
        // Instances with the same name and process id have one label anyway.
        let mut rows: HashMap<(String, i32), (u64, Vec<usize>)> = HashMap::new();
        for (row, process) in trace.processes.iter().enumerate() {
            // The name in the text of the samples, from which the labels follow as well.
            let key = (perf_text_comm(&process.name), process.pid.0);
            let (total, instances) = rows.entry(key).or_default();
            *total += samples[row];
            instances.push(row);
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable_by(|(a, (samples_a, _)), (b, (samples_b, _))| {
            samples_b.cmp(samples_a).then(a.cmp(b))
        });
        for ((name, _), (_, instances)) in rows.into_iter().skip(MAX_SEPARATE) {
            *self.shared.entry(name).or_default() += 1;
            for row in instances {
                self.is_separate[row] = false;
            }
        }
    }

    /// Returns the label of a process.
    pub(super) fn label(&self, process: ProcessId) -> String {
        let row = &self.trace.processes[process.index()];
        let name = (!self.is_separate[process.index()]).then(|| perf_text_comm(&row.name));
        let shared = name.and_then(|name| Some((self.shared.get(&name).copied()?, name)));
        let text = match shared {
            Some((1, _)) | None => {
                let program = program_of(&row.name, &row.command_line);
                format!("{program} ({})", row.pid)
            }
            Some((count, name)) => format!("{name} ({count} processes)"),
        };
        folded(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Pid, Process, Sample, Thread, ThreadId, Tid};

    #[test]
    fn processes_with_fewest_samples_share_labels() {
        let mut trace = Trace::default();
        for row in 0..MAX_SEPARATE as u32 + 3 {
            let pid = row as i32 + 1;
            let name = if row < 2 { "cc1" } else { "sh" };
            trace.processes.push(Process {
                pid: Pid(pid),
                name: name.into(),
                command_line: "".into(),
                ended: None,
            });
            trace.threads.push(Thread {
                process: ProcessId(row),
                tid: Tid(pid),
                name: name.into(),
            });
            // The first two have fewest samples, then the third.
            for _ in 0..row.min(3) + 1 {
                trace.samples.push(Sample {
                    thread: ThreadId(row),
                    ..Sample::default()
                });
            }
        }
        let labels = ProcessLabels::new(&trace);
        let texts = [0, 1, 2, 3].map(|row| labels.label(ProcessId(row)));
        assert_eq!(
            texts,
            ["cc1 (2 processes)", "cc1 (2 processes)", "sh (3)", "sh (4)"]
        );
    }
}
