//! The code of a trace in the stream: mappings, symbols, and the stacks that refer to them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::record_stream::RecordStream;
use super::records::{self, Record};
use crate::output::synthetic_layout::{CodeOwner, FunctionRow, ModuleRow, SyntheticLayout};
use crate::trace::{FrameId, FunctionKind, Nanos, ProcessId, StackId, Trace};

/// Maximum number of frames of a stack. Readers intern stacks recursively.
pub(super) const MAX_FRAMES: usize = 1000;
/// Maximum number of symbols of all process instances that are known to be in the stream.
///
/// Beyond it the instances whose first symbol is oldest are forgotten. Their symbols are written
/// again if they are needed again. Most instances have ended by then.
const MAX_SYMBOLS: usize = 1 << 19;
/// Maximum number of event stacks that are kept to be recognized.
const MAX_EVENT_STACKS: usize = 1 << 14;
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

/// Functions of stacks, and those whose symbols the stream contains.
struct Symbols {
    layout: SyntheticLayout,
    /// Ids of the last mapping and of the last symbol.
    last_mapping: u64,
    last_symbol: u64,
    written: FxHashMap<usize, WrittenSymbols>,
    /// Process instances in `written`, in the order of their first symbols.
    order: VecDeque<usize>,
    /// Number of symbols in `written`.
    count: usize,
}

/// What the stream contains of one process instance.
#[derive(Default)]
struct WrittenSymbols {
    /// Ids by module.
    mappings: FxHashMap<ModuleRow, u64>,
    functions: FxHashSet<FunctionRow>,
}

pub(super) struct Code<'a> {
    trace: &'a Trace,
    samples: Symbols,
    /// Functions in the stacks of events. They are separate, so that they stay when a trace is
    /// symbolized again.
    events: Symbols,
    /// Stacks of samples in the current chunk, by process instance.
    stacks: FxHashMap<(usize, StackId), u32>,
    stacks_chunk: u32,
    /// Stacks of events in the current chunk, by process instance and address in memory.
    event_stacks: FxHashMap<(usize, usize), EventStack>,
    event_stacks_chunk: u32,
}

/// A stack of events, which is kept so that no other one has its address.
struct EventStack {
    _addresses: Arc<[u64]>,
    id: u32,
}

impl<'a> Code<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            samples: Symbols::new(SyntheticLayout::new(trace), 0),
            events: Symbols::new(SyntheticLayout::of_events(trace), records::FIRST_EVENT_ID),
            stacks: FxHashMap::default(),
            stacks_chunk: 0,
            event_stacks: FxHashMap::default(),
            event_stacks_chunk: 0,
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
            self.samples.write(out, origin, function)?;
        }
        let addresses: Vec<u64> = functions
            .iter()
            .map(|&function| self.samples.layout.functions[function].address())
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

    /// Returns the id of an event's stack. Writes the symbols that it needs first.
    ///
    /// Addresses whose code is not known stay as they are.
    pub(super) fn event_stack<W: Write>(
        &mut self,
        out: &mut RecordStream<W>,
        origin: Origin<'_>,
        stack: &Arc<[u64]>,
        time: Nanos,
    ) -> io::Result<u32> {
        if stack.is_empty() {
            return Ok(0);
        }
        let root = self.samples.layout.root(origin.process);
        let key = (origin.instance, Arc::as_ptr(stack).addr());
        if self.event_stacks_chunk == out.stream.chunk()
            && let Some(stack) = self.event_stacks.get(&key)
            // If not, the root follows the symbols of the stack, as when the stream is written again.
            && self.samples.has(origin.instance, root)
        {
            return Ok(stack.id);
        }
        let mut addresses = Vec::with_capacity(stack.len() + 1);
        for &address in stack.iter().take(MAX_FRAMES) {
            let process = ProcessId(origin.instance as u32);
            let frame = self.trace.event_code.frame(process, address, time);
            let Some(frame) = frame.filter(|frame| !self.is_unnamed_jit(*frame)) else {
                addresses.push(address);
                continue;
            };
            let layout = &self.events.layout;
            let functions: Vec<_> = layout.frame_functions(self.trace, frame).collect();
            for function in functions {
                self.events.write(out, origin, function)?;
                addresses.push(self.events.layout.functions[function].address());
            }
        }
        addresses.truncate(MAX_FRAMES);
        addresses.push(self.root(out, origin)?);
        // The records for symbols may have ended the chunk.
        if self.event_stacks_chunk != out.stream.chunk()
            || self.event_stacks.len() >= MAX_EVENT_STACKS
        {
            self.event_stacks.clear();
            self.event_stacks_chunk = out.stream.chunk();
        }
        let id = out.stream.stack(&addresses);
        let _addresses = Arc::clone(stack);
        self.event_stacks.insert(key, EventStack { _addresses, id });
        Ok(id)
    }

    /// Returns whether a frame is JIT code without a name. The events themselves may have one.
    fn is_unnamed_jit(&self, frame: FrameId) -> bool {
        let mut functions = self.trace.functions_leaf_first(frame);
        functions.all(|function| {
            let function = &self.trace.functions[function.index()];
            function.kind == FunctionKind::Jit && function.name.is_none()
        })
    }

    /// Returns the functions of a stack in a process with this name, innermost first.
    fn functions(&mut self, process: &str, stack: StackId) -> Vec<FunctionRow> {
        let trace = self.trace;
        let mut functions = Vec::new();
        for frame in trace.stacks.leaf_first(stack) {
            functions.extend(self.samples.layout.frame_functions(trace, frame));
            if functions.len() > MAX_FRAMES {
                functions.truncate(MAX_FRAMES - 1);
                functions.push(self.samples.layout.truncated());
                break;
            }
        }
        if functions
            .last()
            .is_some_and(|&root| !self.is_root(process, root))
        {
            functions.push(self.samples.layout.root(process));
        }
        functions
    }

    /// Returns the address of the root function of a process, which ends the stacks of its events.
    pub(super) fn root<W: Write>(
        &mut self,
        out: &mut RecordStream<W>,
        origin: Origin<'_>,
    ) -> io::Result<u64> {
        let root = self.samples.layout.root(origin.process);
        self.samples.write(out, origin, root)?;
        Ok(self.samples.layout.functions[root].address())
    }

    /// Returns whether a stack that ends in this function needs no synthetic root.
    ///
    /// Readers accept such a stack as complete, or the stack is truncated.
    fn is_root(&self, process: &str, function: FunctionRow) -> bool {
        let layout = &self.samples.layout;
        let function = &layout.functions[function];
        let module = &layout.modules[function.module].name;
        function.owner == CodeOwner::Marker
            || module == process
            || module == "libc"
            || ROOT_MODULES.iter().any(|root| module.starts_with(root))
    }
}

impl Symbols {
    fn new(layout: SyntheticLayout, first_id: u64) -> Self {
        Self {
            layout,
            last_mapping: first_id,
            last_symbol: first_id,
            written: FxHashMap::default(),
            order: VecDeque::new(),
            count: 0,
        }
    }

    /// Returns whether the stream is known to contain the symbol of a function.
    fn has(&self, instance: usize, function: FunctionRow) -> bool {
        let written = self.written.get(&instance);
        written.is_some_and(|written| written.functions.contains(&function))
    }

    /// Forgets the oldest process instances if there are too many symbols.
    fn make_room(&mut self) {
        while self.count >= MAX_SYMBOLS
            && let Some(oldest) = self.order.pop_front()
        {
            let forgotten = self.written.remove(&oldest).unwrap_or_default();
            self.count -= forgotten.functions.len();
        }
    }

    /// Writes the symbol of a function and the mapping of its module, unless the stream is known to
    /// contain them for the process instance.
    ///
    /// They precede the first stack with the function.
    fn write<W: Write>(
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
        if self.has(instance, function) {
            return Ok(());
        }
        self.make_room();
        let written = self.written.entry(instance).or_insert_with(|| {
            self.order.push_back(instance);
            WrittenSymbols::default()
        });
        written.functions.insert(function);
        self.count += 1;
        let function = &self.layout.functions[function];
        let next = self.last_mapping + 1;
        let mapping = *written.mappings.entry(function.module).or_insert(next);
        if mapping == next {
            self.last_mapping = next;
            let payload = records::mapping(mapping, &self.layout.modules[function.module]);
            out.record(Record::ProcessMapping, thread, time, &payload)?;
        }
        self.last_symbol += 1;
        let payload = records::symbol(self.last_symbol, mapping, function);
        out.record(Record::ProcessSymbol, thread, time, &payload)
    }
}
