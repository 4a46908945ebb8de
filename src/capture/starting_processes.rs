//! .NET processes that started recently.
//!
//! They may end as early, and their memory with the names of their code is gone then.

use rustc_hash::FxHashMap;

use crate::dotnet::tells_of_runtime;
use crate::machine::Machine;
use crate::perf::Record;
use crate::trace::{Nanos, Pid};

/// Time for which a process counts as starting.
const STARTUP_WINDOW_NS: u64 = 2_000_000_000;

/// End of the startup window of each process.
#[derive(Debug, Default)]
pub(super) struct StartingProcesses {
    processes: FxHashMap<Pid, Nanos>,
    /// Time until which a new program may become a .NET process.
    expected: Nanos,
}

impl StartingProcesses {
    /// Records that a program starts now.
    pub(super) fn expect(&mut self, now: Nanos) {
        self.expected = Nanos(now.0.saturating_add(STARTUP_WINDOW_NS));
    }

    /// Follows a record that the machine has already followed.
    pub(super) fn follow(&mut self, record: &Record<'_>, machine: &Machine) {
        match *record {
            Record::Mapping(ref mapping) if tells_of_runtime(mapping.path) => {
                if let Some(started) = machine.started_at(mapping.pid) {
                    let until = Nanos(started.0.saturating_add(STARTUP_WINDOW_NS));
                    self.processes.insert(mapping.pid, until);
                }
            }
            Record::Exit { pid, tid } if pid.0 == tid.0 => {
                self.processes.remove(&pid);
            }
            _ => {}
        }
    }

    /// Returns whether a process is starting, or may become a .NET process.
    pub(super) fn any(&mut self, now: Nanos) -> bool {
        self.processes.retain(|_, until| now < *until);
        !self.processes.is_empty() || now < self.expected
    }

    /// Returns whether this process is starting.
    pub(super) fn has(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }
}
