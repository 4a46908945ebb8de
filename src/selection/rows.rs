//! The processes and threads of a selection.

use super::Selection;
use crate::trace::{Process, ProcessId, Thread, ThreadId, Trace};

/// The threads that count, and the rows of those with samples.
pub(super) struct Rows<'a> {
    trace: &'a Trace,
    /// Bits of the include patterns that the name of a thread or its process matches; `None` if the
    /// thread does not count.
    included: Vec<Option<u64>>,
    of_thread: Vec<Option<ThreadId>>,
    of_process: Vec<Option<ProcessId>>,
    selected: SelectedRows,
}

/// The rows of processes and threads with samples.
#[derive(Default)]
pub(super) struct SelectedRows {
    processes: Vec<Process>,
    threads: Vec<Thread>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(selection: &Selection, trace: &'a Trace) -> Self {
        let included = trace.threads.iter().map(|thread| {
            let process = &trace.processes[thread.process.index()];
            included(selection, process, thread)
        });
        Self {
            trace,
            included: included.collect(),
            of_thread: vec![None; trace.threads.len()],
            of_process: vec![None; trace.processes.len()],
            selected: SelectedRows::default(),
        }
    }

    /// Returns the bits of the include patterns that match a thread, or `None` if it does not count.
    pub(super) fn included(&self, thread: ThreadId) -> Option<u64> {
        self.included.get(thread.index()).copied().flatten()
    }

    /// Returns the row of a thread with a sample.
    pub(super) fn select(&mut self, id: ThreadId) -> ThreadId {
        let Self {
            trace,
            of_thread,
            of_process,
            selected,
            ..
        } = self;
        *of_thread[id.index()].get_or_insert_with(|| {
            let thread = &trace.threads[id.index()];
            let process = thread.process.index();
            let process = *of_process[process].get_or_insert_with(|| {
                selected.processes.push(trace.processes[process].clone());
                ProcessId(selected.processes.len() as u32 - 1)
            });
            selected.threads.push(Thread {
                process,
                ..thread.clone()
            });
            ThreadId(selected.threads.len() as u32 - 1)
        })
    }

    pub(super) fn finish(self) -> SelectedRows {
        self.selected
    }
}

impl SelectedRows {
    /// Replaces the processes and threads of the trace.
    pub(super) fn apply(self, trace: &mut Trace) {
        trace.processes = self.processes;
        trace.threads = self.threads;
    }
}

/// Returns the bits of the include patterns that match a thread and its process, or `None` if it
/// does not count.
fn included(selection: &Selection, process: &Process, thread: &Thread) -> Option<u64> {
    let is_thread = |selector: &String| match selector.parse::<i32>() {
        Ok(id) => thread.tid.0 == id,
        Err(_) => is_called(&thread.name, selector),
    };
    let counts = selection.selects_process(process.pid.0, &process.name, &process.command_line)
        && selection.thread.as_ref().is_none_or(is_thread);
    let patterns = &selection.patterns;
    // PerfView's outermost frames.
    let names = [
        format!("Process64 {} ({})", process.name, process.pid.0),
        format!("Thread ({})", thread.tid.0),
    ];
    let is_excluded = names.iter().any(|name| patterns.exclude.any(name));
    let bits = names.iter().map(|name| patterns.include.matches(name));
    (counts && !is_excluded).then(|| bits.fold(0, |all, bits| all | bits))
}

/// Returns whether a thread has this name, with or without the number at its end.
fn is_called(name: &str, selector: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    [name, stem, stem.trim_end()]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(selector.trim_end_matches('*')))
}
