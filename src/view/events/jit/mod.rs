//! Methods that the JIT compiler compiled: PerfView's JITStats tables.

mod method;
mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Processes, is_from_runtime, number};
use crate::dotnet::{CodeEvent, decode};
use crate::trace::{Nanos, Pid, RuntimeEvent, Tid};
use method::{Memory, Method};

/// Ids of the events at the start of a compilation and at the allocation of memory for its code.
const JITTING: u32 = 145;
const ALLOCATED: u32 = 146;
/// Limits per process: compilations, unfinished compilations, modules.
const MAX_METHODS: usize = 1 << 20;
const MAX_PENDING: usize = 1 << 16;
const MAX_MODULES: usize = 1 << 16;

/// A compilation that has not finished.
#[derive(Debug)]
struct PendingCompilation {
    time: Nanos,
    il_bytes: u64,
    memory: Option<Memory>,
}

/// The compilations of a process.
#[derive(Debug, Default)]
struct JitHistory {
    pending: FxHashMap<(Tid, u64), PendingCompilation>,
    methods: Vec<Method>,
    /// File names of modules, by the runtime's module id.
    modules: FxHashMap<u64, Arc<str>>,
}

impl JitHistory {
    fn take(&mut self, event: &RuntimeEvent) {
        if is_from_runtime(event) && matches!(event.metadata.id, JITTING | ALLOCATED) {
            self.start(event);
            return;
        }
        match CodeEvent::parse(&event.metadata, &event.payload) {
            Ok(Some(CodeEvent::Module { id, path })) if self.modules.len() < MAX_MODULES => {
                let file = path.rsplit('/').next().unwrap_or_default();
                self.modules.insert(id, file.into());
            }
            Ok(Some(CodeEvent::Loaded(method)))
                if method.is_jitted && self.methods.len() < MAX_METHODS =>
            {
                // Code that is generated at once, such as a stub, has no start event.
                let Some(compilation) = self.pending.remove(&(event.thread, method.id)) else {
                    return;
                };
                let module = self.modules.get(&method.module).cloned();
                self.methods.push(Method {
                    start: compilation.time,
                    ns: event.time.0.saturating_sub(compilation.time.0),
                    il_bytes: compilation.il_bytes,
                    memory: compilation.memory,
                    module: module.ok_or(method.module),
                    ..Method::new(&method)
                });
            }
            _ => {}
        }
    }

    fn start(&mut self, event: &RuntimeEvent) {
        let (_, fields) = decode(&event.metadata, &event.payload);
        let field = |name| number(&fields, name).unwrap_or(0);
        let key = (event.thread, field("MethodID"));
        if event.metadata.id == ALLOCATED {
            if let Some(compilation) = self.pending.get_mut(&key) {
                compilation.memory.get_or_insert(Memory {
                    hot_code: field("JitHotCodeRequestSize"),
                    read_only: field("JitRODataRequestSize"),
                    allocated: field("AllocatedSizeForJitCode"),
                    flags: field("JitAllocFlag"),
                });
            }
        } else if self.pending.len() < MAX_PENDING {
            let compilation = PendingCompilation {
                time: event.time,
                il_bytes: field("MethodILSize"),
                memory: None,
            };
            self.pending.insert(key, compilation);
        }
    }

    /// Returns the file name of a method's module.
    ///
    /// A module that was loaded before the events started is reported last.
    fn module<'a>(&'a self, method: &'a Method) -> &'a str {
        match &method.module {
            Ok(file) => file,
            Err(id) => self.modules.get(id).map_or("<UNKNOWN>", |file| file),
        }
    }
}

pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    processes: &Processes,
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
            tables::print(history, processes, processes.cpu_ms(*pid), out)?;
        }
    }
    Ok(())
}
