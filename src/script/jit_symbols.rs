//! JIT functions from the perf maps and jitdump files of processes.

use std::collections::BTreeMap;

use perfcollect_symbols::symbolizer::JitSymbols;
use perfcollect_symbols::table::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::machine::Machine;
use crate::symbolize::unresolved::{self, Unresolved};
use crate::symbolize::{self, JitSymbolError};
use crate::trace::{Notice, Pid};

/// Maximum number of processes with cached symbols.
const MAX_PROCESSES: usize = 64;
/// Maximum number of processes reported without symbols.
const MAX_GAPS: usize = 1 << 12;

/// Symbols by process.
#[derive(Default)]
pub(super) struct Made {
    processes: FxHashMap<Pid, (JitSymbols, JitSymbolError)>,
    /// Processes with at least one resolved function.
    named: FxHashSet<Pid>,
    /// Reasons for processes without symbols.
    gaps: BTreeMap<Pid, Unresolved>,
}

impl Made {
    /// Returns the function at an address of a process.
    pub(super) fn lookup(&mut self, machine: &Machine, pid: Pid, ip: u64) -> Option<Symbol<'_>> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            self.forget();
        }
        let process = self.processes.entry(pid);
        let (written, _) = process.or_insert_with(|| symbolize::read_all(machine.jit_process(pid)));
        let symbol = written.lookup_as_perf(ip)?;
        self.named.insert(pid);
        Some(symbol)
    }

    fn forget(&mut self) {
        for (pid, (_, fault)) in self.processes.drain() {
            if self.gaps.len() < MAX_GAPS {
                self.gaps.insert(pid, fault.gap(pid));
            }
        }
    }

    /// Returns why processes have no symbols.
    pub(super) fn into_notices(mut self) -> Vec<Notice> {
        self.processes.retain(|pid, _| !self.named.contains(pid));
        self.forget();
        self.gaps.retain(|pid, _| !self.named.contains(pid));
        unresolved::notices(self.gaps.into_values())
    }
}
