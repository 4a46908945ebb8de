//! Methods that the JIT compiler has made: the tables that PerfView calls JITStats.

mod method;
mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Processes, is_of_runtime, number};
use crate::dotnet::{CodeEvent, decode};
use crate::trace::{Nanos, Pid, RuntimeEvent, Tid};
use method::{Memory, Method};

/// The events with which a compilation begins, and with which its code gets its memory.
const JITTING: u32 = 145;
const ALLOCATED: u32 = 146;
/// Most compilations that are kept of a process, most of them that are going on, and most modules.
const MAX_METHODS: usize = 1 << 20;
const MAX_GOING_ON: usize = 1 << 16;
const MAX_MODULES: usize = 1 << 16;

/// A compilation that goes on.
#[derive(Debug)]
struct PendingCompilation {
    time: Nanos,
    il_bytes: u64,
    memory: Option<Memory>,
}

/// The compilations of a process.
#[derive(Debug, Default)]
struct JitHistory {
    going_on: FxHashMap<(Tid, u64), PendingCompilation>,
    methods: Vec<Method>,
    /// Files of modules by the runtime's number.
    modules: FxHashMap<u64, Arc<str>>,
}

impl JitHistory {
    fn take(&mut self, event: &RuntimeEvent) {
        if is_of_runtime(event) && matches!(event.kind.id, JITTING | ALLOCATED) {
            self.begin(event);
            return;
        }
        match CodeEvent::parse(&event.kind, &event.payload) {
            Ok(Some(CodeEvent::Module { id, path })) if self.modules.len() < MAX_MODULES => {
                let file = path.rsplit('/').next().unwrap_or_default();
                self.modules.insert(id, file.into());
            }
            Ok(Some(CodeEvent::Loaded(method)))
                if method.is_jitted && self.methods.len() < MAX_METHODS =>
            {
                // One that was made at once, such as a stub, has no beginning.
                let Some(begun) = self.going_on.remove(&(event.thread, method.id)) else {
                    return;
                };
                let module = self.modules.get(&method.module).cloned();
                self.methods.push(Method {
                    begin: begun.time,
                    ns: event.time.0.saturating_sub(begun.time.0),
                    il_bytes: begun.il_bytes,
                    memory: begun.memory,
                    module: module.ok_or(method.module),
                    ..Method::of(&method)
                });
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &RuntimeEvent) {
        let (_, fields) = decode(&event.kind, &event.payload);
        let field = |name| number(&fields, name).unwrap_or(0);
        let key = (event.thread, field("MethodID"));
        if event.kind.id == ALLOCATED {
            if let Some(begun) = self.going_on.get_mut(&key) {
                begun.memory.get_or_insert(Memory {
                    hot_code: field("JitHotCodeRequestSize"),
                    read_only: field("JitRODataRequestSize"),
                    allocated: field("AllocatedSizeForJitCode"),
                    flags: field("JitAllocFlag"),
                });
            }
        } else if self.going_on.len() < MAX_GOING_ON {
            let begun = PendingCompilation {
                time: event.time,
                il_bytes: field("MethodILSize"),
                memory: None,
            };
            self.going_on.insert(key, begun);
        }
    }

    /// The file of the module that a method is of; one that was loaded before the events began is told of last.
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
    let mut compilers: BTreeMap<Pid, JitHistory> = BTreeMap::new();
    for event in events {
        compilers.entry(event.process).or_default().take(&event);
    }
    for (pid, compiler) in &mut compilers {
        compiler.methods.sort_by_key(|method| method.begin);
        processes.heading(*pid, out)?;
        if compiler.methods.is_empty() {
            writeln!(
                out,
                "no methods compiled, or their events were not asked for (keyword jit, level verbose)"
            )?;
        } else {
            tables::print(compiler, processes, processes.cpu_ms(*pid), out)?;
        }
    }
    Ok(())
}
