//! .NET processes that have just begun. They may end as soon, and with them the memory that tells what their code is.

use rustc_hash::FxHashMap;

use crate::dotnet::tells_of_runtime;
use crate::machine::Machine;
use crate::perf::Record;
use crate::trace::{Nanos, Pid};

/// For how long a process is young.
const STARTUP_WINDOW_NS: u64 = 2_000_000_000;

/// Until when processes are young.
#[derive(Debug, Default)]
pub(super) struct StartingProcesses {
    processes: FxHashMap<Pid, Nanos>,
    /// Until when a program may become a .NET process.
    expected: Nanos,
}

impl StartingProcesses {
    /// A program begins now.
    pub(super) fn expect(&mut self, now: Nanos) {
        self.expected = Nanos(now.0.saturating_add(STARTUP_WINDOW_NS));
    }

    /// Follows a record that the machine has followed.
    pub(super) fn follow(&mut self, record: &Record<'_>, machine: &Machine) {
        match *record {
            Record::Mapping(ref mapping) if tells_of_runtime(mapping.path) => {
                if let Some(born) = machine.started_at(mapping.pid) {
                    let until = Nanos(born.0.saturating_add(STARTUP_WINDOW_NS));
                    self.processes.insert(mapping.pid, until);
                }
            }
            Record::Exit { pid, tid } if pid.0 == tid.0 => {
                self.processes.remove(&pid);
            }
            _ => {}
        }
    }

    /// Whether any is young, or may come.
    pub(super) fn any(&mut self, now: Nanos) -> bool {
        self.processes.retain(|_, until| now < *until);
        !self.processes.is_empty() || now < self.expected
    }

    /// Whether this one is.
    pub(super) fn has(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }
}
