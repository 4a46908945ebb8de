//! Rows of the trace: processes and threads that were sampled, or whose events are kept.

use std::io;

use super::jit_process::JitProcess;
use crate::trace::{Pid, ProcessId, ThreadId, Tid};

/// What has become of the rows since they were asked for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowUpdate {
    /// The next process has a row.
    Process(ProcessId),
    /// The next thread has a row.
    Thread(ThreadId),
    /// A process has another name.
    ProcessName(ProcessId),
    /// A thread has another name.
    ThreadName(ThreadId),
    /// A process is found to run code made at run time.
    JitHost(ProcessId),
}

/// A process that was sampled.
#[derive(Debug)]
pub struct ProcessRow {
    /// Its id.
    pub pid: Pid,
    /// Name of its main thread.
    pub name: Box<[u8]>,
    /// Arguments joined by spaces; empty if they could not be read.
    pub command_line: Box<[u8]>,
    /// Set once a sample was in code made at run time; held from then on, so that it outlives the process.
    pub jit_host: Option<io::Result<JitProcess>>,
}

/// A thread that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Its process.
    pub process: ProcessId,
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub name: Box<[u8]>,
}

/// All rows, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Rows {
    processes: Vec<ProcessRow>,
    threads: Vec<ThreadRow>,
    changes: Vec<RowUpdate>,
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

    /// What has become of the rows since the last call, in order.
    pub(super) fn take_changes(&mut self) -> Vec<RowUpdate> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn add_process(&mut self, row: ProcessRow) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        self.processes.push(row);
        self.changes.push(RowUpdate::Process(id));
        id
    }

    pub(super) fn add_thread(&mut self, row: ThreadRow) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(row);
        self.changes.push(RowUpdate::Thread(id));
        id
    }

    pub(super) fn name_process(&mut self, id: ProcessId, name: &[u8]) {
        self.processes[id.index()].name = name.into();
        self.changes.push(RowUpdate::ProcessName(id));
    }

    pub(super) fn name_thread(&mut self, id: ThreadId, name: &[u8]) {
        self.threads[id.index()].name = name.into();
        self.changes.push(RowUpdate::ThreadName(id));
    }

    pub(super) fn set_jit_host(&mut self, id: ProcessId, jit_host: io::Result<JitProcess>) {
        self.processes[id.index()].jit_host = Some(jit_host);
        self.changes.push(RowUpdate::JitHost(id));
    }
}
