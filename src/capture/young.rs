//! .NET processes that have just begun. They may end as soon, and with them the memory that tells what their code is.

use rustc_hash::FxHashMap;

use crate::dotnet::tells_of_runtime;
use crate::machine::Machine;
use crate::perf::Record;
use crate::trace::{Nanos, Pid};

/// For how long a process is young.
const YOUTH_NS: u64 = 2_000_000_000;

/// Until when processes are young.
#[derive(Debug, Default)]
pub(super) struct Young(FxHashMap<Pid, Nanos>);

impl Young {
    /// Follows a record that the machine has followed.
    pub(super) fn follow(&mut self, record: &Record<'_>, machine: &Machine) {
        match *record {
            Record::Mapping(ref mapping) if tells_of_runtime(mapping.path) => {
                if let Some(born) = machine.born(mapping.pid) {
                    let until = Nanos(born.0.saturating_add(YOUTH_NS));
                    self.0.insert(mapping.pid, until);
                }
            }
            Record::Exit { pid, tid } if pid.0 == tid.0 => {
                self.0.remove(&pid);
            }
            _ => {}
        }
    }

    /// Whether any is young.
    pub(super) fn any(&mut self, now: Nanos) -> bool {
        self.0.retain(|_, until| now < *until);
        !self.0.is_empty()
    }

    /// Whether this one is.
    pub(super) fn has(&self, pid: Pid) -> bool {
        self.0.contains_key(&pid)
    }
}
