//! Compilations of methods by the JIT compiler, as PerfView's JITStats counts them.

mod compilation;
mod counts;

use std::sync::Arc;

use rustc_hash::FxHashMap;

pub(crate) use compilation::{Compilation, Memory, Trigger};
pub(crate) use counts::{JitCounts, JitTotal};

use super::fields::{number, prefix};
use super::is_from_runtime;
use crate::dotnet::{CodeEvent, decode};
use crate::trace::{Nanos, RuntimeEvent, Tid};

/// Ids of the events at the start of a compilation and at the allocation of memory for its code.
const JITTING: u32 = 145;
const ALLOCATED: u32 = 146;
/// Limits per process: unfinished compilations, modules.
const MAX_PENDING: usize = 1 << 16;
const MAX_MODULES: usize = 1 << 14;
/// Maximum length of a module's file name, in bytes, as of any file.
const MAX_FILE_BYTES: usize = 255;

/// A compilation that has not finished.
#[derive(Debug)]
struct PendingCompilation {
    time: Nanos,
    il_bytes: u64,
    memory: Option<Memory>,
}

/// The compilations of a process that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Compilations {
    pending: FxHashMap<(Tid, u64), PendingCompilation>,
    /// File names of modules, by the runtime's module id.
    modules: FxHashMap<u64, Arc<str>>,
}

impl Compilations {
    /// Takes an event. Returns the compilation that it ends.
    pub(crate) fn take(&mut self, event: &RuntimeEvent) -> Option<Compilation> {
        if is_from_runtime(event) && matches!(event.metadata.id, JITTING | ALLOCATED) {
            self.start(event);
            return None;
        }
        match CodeEvent::parse(&event.metadata, &event.payload) {
            Ok(Some(CodeEvent::Module { id, path })) if self.modules.len() < MAX_MODULES => {
                let file = path.rsplit('/').next().unwrap_or_default();
                self.modules.insert(id, prefix(file, MAX_FILE_BYTES).into());
                None
            }
            Ok(Some(CodeEvent::Loaded(method))) if method.is_jitted => {
                // Code that is generated at once, such as a stub, has no start event.
                let started = self.pending.remove(&(event.thread, method.id))?;
                let module = self.modules.get(&method.module).cloned();
                Some(Compilation {
                    start: started.time,
                    ns: event.time.0.saturating_sub(started.time.0),
                    il_bytes: started.il_bytes,
                    memory: started.memory,
                    module: module.ok_or(method.module),
                    ..Compilation::new(&method)
                })
            }
            _ => None,
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
    pub(crate) fn module<'a>(&'a self, method: &'a Compilation) -> &'a str {
        self.known_module(method).unwrap_or("<UNKNOWN>")
    }

    fn known_module<'a>(&'a self, method: &'a Compilation) -> Option<&'a str> {
        match &method.module {
            Ok(file) => Some(file),
            Err(id) => self.modules.get(id).map(|file| &**file),
        }
    }
}
