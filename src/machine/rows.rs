//! Rows of the trace: processes and threads that have samples or events.

use std::io;

use super::jit_process::JitProcess;
use crate::trace::spool::SpoolRow;
use crate::trace::{Pid, ProcessId, ThreadId, Tid};

/// A new or changed row.
#[derive(Clone, Copy, Debug)]
enum RowUpdate {
    /// A process row was added.
    Process(ProcessId),
    /// A thread row was added.
    Thread(ThreadId),
    /// The name of a process changed.
    ProcessName(ProcessId),
    /// The name of a thread changed.
    ThreadName(ThreadId),
    /// The first JIT code of a process was sampled.
    JitProcess(ProcessId),
}

/// A process with samples or events.
#[derive(Debug)]
pub struct ProcessRow {
    /// Process id.
    pub pid: Pid,
    /// Name of its main thread.
    pub name: Box<[u8]>,
    /// Arguments, joined by spaces. Empty if they could not be read.
    pub command_line: Box<[u8]>,
    /// Set at the first sample in JIT code, and kept open, so that it outlives the process.
    pub jit_process: Option<io::Result<JitProcess>>,
}

/// A thread with samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Process of the thread.
    pub process: ProcessId,
    /// Thread id.
    pub tid: Tid,
    /// Thread name.
    pub name: Box<[u8]>,
}

/// All rows in order of creation.
#[derive(Debug, Default)]
pub(super) struct Rows {
    processes: Vec<ProcessRow>,
    threads: Vec<ThreadRow>,
    updates: Vec<RowUpdate>,
}

impl Rows {
    pub(super) fn of_processes(processes: Vec<ProcessRow>) -> Self {
        Self {
            processes,
            ..Self::default()
        }
    }

    pub(super) fn processes(&self) -> &[ProcessRow] {
        &self.processes
    }

    pub(super) fn threads(&self) -> &[ThreadRow] {
        &self.threads
    }

    pub(super) fn into_processes(self) -> Vec<ProcessRow> {
        self.processes
    }

    /// Passes on the rows that are new or changed since the last call, in order.
    pub(super) fn take_new(&mut self, mut put: impl FnMut(&SpoolRow<'_>)) {
        for update in std::mem::take(&mut self.updates) {
            if let Some(row) = self.row(update) {
                put(&row);
            }
        }
    }

    /// Returns the row of an update. Returns `None` if a recovery could not use it.
    fn row(&self, update: RowUpdate) -> Option<SpoolRow<'_>> {
        let process = |id: ProcessId| &self.processes[id.index()];
        let thread = |id: ThreadId| &self.threads[id.index()];
        Some(match update {
            RowUpdate::Process(id) => {
                let process = process(id);
                SpoolRow::Process {
                    pid: process.pid,
                    name: &process.name,
                    command_line: &process.command_line,
                }
            }
            RowUpdate::Thread(id) => {
                let thread = thread(id);
                SpoolRow::Thread {
                    process: thread.process,
                    tid: thread.tid,
                    name: &thread.name,
                }
            }
            RowUpdate::ProcessName(id) => SpoolRow::ProcessName(id, &process(id).name),
            RowUpdate::ThreadName(id) => SpoolRow::ThreadName(id, &thread(id).name),
            RowUpdate::JitProcess(id) => {
                let jit_process = process(id).jit_process.as_ref()?.as_ref().ok()?;
                SpoolRow::JitProcess(id, jit_process.describe()?)
            }
        })
    }

    pub(super) fn add_process(&mut self, row: ProcessRow) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        self.processes.push(row);
        self.updates.push(RowUpdate::Process(id));
        id
    }

    pub(super) fn add_thread(&mut self, row: ThreadRow) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(row);
        self.updates.push(RowUpdate::Thread(id));
        id
    }

    pub(super) fn name_process(&mut self, id: ProcessId, name: &[u8]) {
        self.processes[id.index()].name = name.into();
        self.updates.push(RowUpdate::ProcessName(id));
    }

    pub(super) fn name_thread(&mut self, id: ThreadId, name: &[u8]) {
        self.threads[id.index()].name = name.into();
        self.updates.push(RowUpdate::ThreadName(id));
    }

    pub(super) fn set_jit_process(&mut self, id: ProcessId, process: io::Result<JitProcess>) {
        self.processes[id.index()].jit_process = Some(process);
        self.updates.push(RowUpdate::JitProcess(id));
    }
}
