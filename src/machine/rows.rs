//! Rows of the trace: processes and threads that have samples or events.
//!
//! A row is kept only until it is in the spool, so that memory does not grow with the processes that
//! have ended.

use std::collections::BTreeMap;
use std::io;

use super::jit_process::JitProcess;
use crate::trace::spool::SpoolRow;
use crate::trace::{Nanos, Pid, ProcessId, ThreadId, Tid};

/// Files with symbols of JIT code, or why they cannot be read, by process.
pub type JitProcesses = BTreeMap<ProcessId, io::Result<JitProcess>>;

/// A new or changed row.
#[derive(Debug)]
enum RowUpdate {
    Process(ProcessRow),
    Thread(ThreadRow),
    /// The name of a process changed.
    ProcessName(ProcessId, Box<[u8]>),
    /// The name of a thread changed.
    ThreadName(ThreadId, Box<[u8]>),
    /// A process ended.
    ProcessEnd(ProcessId, Nanos),
    /// The first JIT code of a process was sampled.
    JitProcess(ProcessId),
}

/// A process with samples or events.
#[derive(Debug)]
pub(super) struct ProcessRow {
    pub(super) pid: Pid,
    /// Name of its main thread.
    pub(super) name: Box<[u8]>,
    /// Arguments, joined by spaces. Empty if they could not be read.
    pub(super) command_line: Box<[u8]>,
}

/// A thread with samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadRow {
    /// Process of the thread.
    pub(super) process: ProcessId,
    pub(super) tid: Tid,
    pub(super) name: Box<[u8]>,
}

/// The rows that are not in the spool yet, in order of creation.
#[derive(Debug, Default)]
pub(super) struct Rows {
    processes: u32,
    threads: u32,
    updates: Vec<RowUpdate>,
    jit_processes: JitProcesses,
}

impl Rows {
    pub(super) fn of_jit_processes(jit_processes: JitProcesses) -> Self {
        Self {
            jit_processes,
            ..Self::default()
        }
    }

    pub(super) fn jit_processes(&self) -> &JitProcesses {
        &self.jit_processes
    }

    pub(super) fn into_jit_processes(self) -> JitProcesses {
        self.jit_processes
    }

    /// Passes on the rows that are new or changed since the last call, in order.
    pub(super) fn take_new(&mut self, mut put: impl FnMut(&SpoolRow<'_>)) {
        for update in std::mem::take(&mut self.updates) {
            if let Some(row) = self.row(&update) {
                put(&row);
            }
        }
    }

    /// Returns the row of an update. Returns `None` if a recovery could not use it.
    fn row<'a>(&'a self, update: &'a RowUpdate) -> Option<SpoolRow<'a>> {
        Some(match update {
            RowUpdate::Process(process) => SpoolRow::Process {
                pid: process.pid,
                name: &process.name,
                command_line: &process.command_line,
            },
            RowUpdate::Thread(thread) => SpoolRow::Thread {
                process: thread.process,
                tid: thread.tid,
                name: &thread.name,
            },
            RowUpdate::ProcessName(id, name) => SpoolRow::ProcessName(*id, name),
            RowUpdate::ThreadName(id, name) => SpoolRow::ThreadName(*id, name),
            RowUpdate::ProcessEnd(id, time) => SpoolRow::ProcessEnd(*id, *time),
            RowUpdate::JitProcess(id) => {
                let jit_process = self.jit_processes.get(id)?.as_ref().ok()?;
                SpoolRow::JitProcess(*id, jit_process.describe()?)
            }
        })
    }

    pub(super) fn add_process(&mut self, row: ProcessRow) -> ProcessId {
        let id = ProcessId(self.processes);
        self.processes += 1;
        self.updates.push(RowUpdate::Process(row));
        id
    }

    pub(super) fn add_thread(&mut self, row: ThreadRow) -> ThreadId {
        let id = ThreadId(self.threads);
        self.threads += 1;
        self.updates.push(RowUpdate::Thread(row));
        id
    }

    pub(super) fn name_process(&mut self, id: ProcessId, name: &[u8]) {
        self.updates.push(RowUpdate::ProcessName(id, name.into()));
    }

    pub(super) fn name_thread(&mut self, id: ThreadId, name: &[u8]) {
        self.updates.push(RowUpdate::ThreadName(id, name.into()));
    }

    pub(super) fn end_process(&mut self, id: ProcessId, time: Nanos) {
        self.updates.push(RowUpdate::ProcessEnd(id, time));
    }

    pub(super) fn set_jit_process(&mut self, id: ProcessId, process: io::Result<JitProcess>) {
        self.jit_processes.insert(id, process);
        self.updates.push(RowUpdate::JitProcess(id));
    }
}
