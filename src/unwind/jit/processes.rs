//! The memory of processes with JIT code.

use rustc_hash::FxHashMap;

use perfcollect_symbols::process::{Root, file_owner};

use crate::dotnet::ProcessMemory;
use crate::machine::Owner;
use crate::trace::{Nanos, Pid, ProcessId};
use crate::unwind::managed::SampledProcess;

/// Maximum number of open processes. When there are more, one is closed and opened again later.
const MAX_PROCESSES: usize = 256;
/// Time until perfcollect retries a process whose memory cannot be opened, or read.
const RETRY_NS: u64 = 1_000_000_000;

pub(super) struct OpenProcess {
    pub(super) memory: ProcessMemory,
    /// Owner whose code is read for a bounded time.
    pub(super) owner: Option<Owner>,
    /// When it may be opened again: after an exec, this is the memory of the former program.
    retry_at: Nanos,
}

#[derive(Default)]
pub(super) struct Processes(FxHashMap<ProcessId, Result<OpenProcess, Nanos>>);

impl Processes {
    /// Returns the memory of a process, unless it cannot be opened.
    pub(super) fn memory(&mut self, process: &SampledProcess<'_>) -> Option<&OpenProcess> {
        let id = process.process;
        let retry = match self.0.get(&id) {
            Some(Ok(_)) => false,
            Some(Err(retry_at)) => process.time >= *retry_at,
            None => true,
        };
        if retry {
            if self.0.len() >= MAX_PROCESSES
                && let Some(&any) = self.0.keys().next()
            {
                self.forget(any);
            }
            let retry_at = Nanos(process.time.0.saturating_add(RETRY_NS));
            let opened = open(process.pid, retry_at).ok_or(retry_at);
            self.0.insert(id, opened);
        }
        self.0.get(&id)?.as_ref().ok()
    }

    /// Opens the memory again when it is needed, unless that has just been done.
    pub(super) fn reopen(&mut self, process: &SampledProcess<'_>) {
        let opened = self.0.get(&process.process);
        let retry_at = opened.and_then(|opened| Some(opened.as_ref().ok()?.retry_at));
        if retry_at.is_some_and(|retry_at| process.time >= retry_at) {
            self.forget(process.process);
        }
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.0.remove(&process);
    }
}

fn open(pid: Pid, retry_at: Nanos) -> Option<OpenProcess> {
    let memory = ProcessMemory::open(pid).ok()?;
    let root = Root::of(pid.0).ok()?;
    let owner = Owner::bounded(file_owner(pid.0)?, &root, None);
    Some(OpenProcess {
        memory,
        owner,
        retry_at,
    })
}
