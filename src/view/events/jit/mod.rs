//! Methods that the JIT compiler compiled: PerfView's JITStats tables.

mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Processes;
use crate::history::jit::{Compilation, Compilations};
use crate::trace::{Pid, RuntimeEvent};

/// Maximum number of listed compilations of a process.
const MAX_METHODS: usize = 1 << 20;

/// The compilations of a process.
#[derive(Debug, Default)]
struct JitHistory {
    compilations: Compilations,
    methods: Vec<Compilation>,
}

impl JitHistory {
    fn take(&mut self, event: &RuntimeEvent) {
        let method = self.compilations.take(event);
        if self.methods.len() < MAX_METHODS {
            self.methods.extend(method);
        }
    }

    fn module<'a>(&'a self, method: &'a Compilation) -> &'a str {
        self.compilations.module(method)
    }
}

pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    processes: &Processes,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut histories: BTreeMap<Pid, JitHistory> = BTreeMap::new();
    for event in events {
        histories.entry(event.process).or_default().take(&event);
    }
    for (pid, history) in &mut histories {
        history.methods.sort_by_key(|method| method.start);
        processes.heading(*pid, out)?;
        if history.methods.is_empty() {
            writeln!(
                out,
                "no methods compiled, or their events were not requested (keyword jit, level verbose)"
            )?;
        } else {
            tables::print(history, processes, processes.cpu_ms(*pid), top, out)?;
        }
    }
    Ok(())
}
