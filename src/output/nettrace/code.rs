//! The code of a trace in the stream: mappings, symbols, and the stacks that refer to them.

use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use super::record_stream::RecordStream;
use super::records::{self, Record};
use crate::output::synthetic_layout::{CodeOwner, FunctionRow, ModuleRow, SyntheticLayout};
use crate::trace::{StackId, Trace};

/// Maximum number of frames of a stack. Readers intern stacks recursively.
pub(super) const MAX_FRAMES: usize = 1000;
/// Modules whose functions readers accept as the root of a thread.
///
/// Readers otherwise expect a module with the name of the process.
const ROOT_MODULES: [&str; 3] = ["libc.", "libc-", "ld-musl-"];

/// Thread and time of the event that refers to code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    /// Process instance, a number that is not reused.
    pub(super) instance: usize,
    /// Name of the process instance.
    pub(super) process: &'a str,
    /// Id of the thread in the stream.
    pub(super) thread: u32,
    pub(super) time: u64,
}

pub(super) struct Code<'a> {
    trace: &'a Trace,
    layout: SyntheticLayout,
    /// Written mappings of each process instance.
    mappings: FxHashMap<(usize, ModuleRow), u64>,
    /// Written symbols of each process instance.
    symbols: FxHashSet<(usize, FunctionRow)>,
    /// Stacks of samples in the current chunk, by process instance.
    stacks: FxHashMap<(usize, StackId), u32>,
    stacks_chunk: u32,
}

impl<'a> Code<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            layout: SyntheticLayout::new(trace),
            mappings: FxHashMap::default(),
            symbols: FxHashSet::default(),
            stacks: FxHashMap::default(),
            stacks_chunk: 0,
        }
    }

    /// Returns the id of a sample's stack. Writes the symbols that it needs first.
    pub(super) fn sample_stack<W: Write>(
        &mut self,
        out: &mut RecordStream<W>,
        origin: Origin<'_>,
        stack: StackId,
    ) -> io::Result<u32> {
        if stack == StackId::EMPTY {
            return Ok(0);
        }
        let key = (origin.instance, stack);
        if self.stacks_chunk == out.stream.chunk()
            && let Some(&id) = self.stacks.get(&key)
        {
            return Ok(id);
        }
        let functions = self.functions(origin.process, stack);
        for &function in &functions {
            self.write_symbol(out, origin, function)?;
        }
        let addresses: Vec<u64> = functions
            .iter()
            .map(|&function| self.layout.functions[function].address())
            .collect();
        // The records for symbols may have ended the chunk.
        if self.stacks_chunk != out.stream.chunk() {
            self.stacks.clear();
            self.stacks_chunk = out.stream.chunk();
        }
        let id = out.stream.stack(&addresses);
        self.stacks.insert(key, id);
        Ok(id)
    }

    /// Returns the functions of a stack in a process with this name, innermost first.
    fn functions(&mut self, process: &str, stack: StackId) -> Vec<FunctionRow> {
        let trace = self.trace;
        let mut functions = Vec::new();
        for frame in trace.stacks.leaf_first(stack) {
            functions.extend(self.layout.frame_functions(trace, frame));
            if functions.len() > MAX_FRAMES {
                functions.truncate(MAX_FRAMES - 1);
                functions.push(self.layout.truncated());
                break;
            }
        }
        if functions
            .last()
            .is_some_and(|&root| !self.is_root(process, root))
        {
            functions.push(self.layout.root(process));
        }
        functions
    }

    /// Returns the address of the root function of a process, which ends the stacks of its events.
    pub(super) fn root<W: Write>(
        &mut self,
        out: &mut RecordStream<W>,
        origin: Origin<'_>,
    ) -> io::Result<u64> {
        let root = self.layout.root(origin.process);
        self.write_symbol(out, origin, root)?;
        Ok(self.layout.functions[root].address())
    }

    /// Returns whether a stack that ends in this function needs no synthetic root.
    ///
    /// Readers accept such a stack as complete, or the stack is truncated.
    fn is_root(&self, process: &str, function: FunctionRow) -> bool {
        let function = &self.layout.functions[function];
        let module = &self.layout.modules[function.module].name;
        function.owner == CodeOwner::Marker
            || module == process
            || module == "libc"
            || ROOT_MODULES.iter().any(|root| module.starts_with(root))
    }

    /// Writes the symbol of a function and the mapping of its module, once per process instance.
    ///
    /// They precede the first stack with the function.
    fn write_symbol<W: Write>(
        &mut self,
        out: &mut RecordStream<W>,
        origin: Origin<'_>,
        function: FunctionRow,
    ) -> io::Result<()> {
        let Origin {
            instance,
            thread,
            time,
            ..
        } = origin;
        if !self.symbols.insert((instance, function)) {
            return Ok(());
        }
        let function = &self.layout.functions[function];
        let next = self.mappings.len() as u64 + 1;
        let key = (instance, function.module);
        let mapping = *self.mappings.entry(key).or_insert(next);
        if mapping == next {
            let payload = records::mapping(mapping, &self.layout.modules[function.module]);
            out.record(Record::ProcessMapping, thread, time, &payload)?;
        }
        let id = self.symbols.len() as u64;
        let payload = records::symbol(id, mapping, function);
        out.record(Record::ProcessSymbol, thread, time, &payload)
    }
}
