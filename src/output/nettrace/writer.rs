//! Converts samples and events of a trace to events of the stream.

use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::event_rows::EventHeader;
use super::processes::Processes;
use super::records::{self, Record};
use super::stream::{Stream, StreamHeader};
use crate::bytes::Bytes;
use crate::nettrace::EventMetadata;
use crate::output::synthetic_layout::{CodeOwner, FunctionRow, ModuleRow, SyntheticLayout};
use crate::output::time_zero::TimeZero;
use crate::trace::{Nanos, Pid, RuntimeEvent, Sample, StackId, Tid, Trace};

const NANOS_PER_MS: i64 = 1_000_000;
/// Maximum number of frames of a stack. Readers intern stacks recursively.
const MAX_FRAMES: usize = 1000;
/// Modules whose functions readers accept as the root of a thread.
///
/// Readers otherwise expect a module with the name of the process.
const ROOT_MODULES: [&str; 3] = ["libc.", "libc-", "ld-musl-"];

pub(super) struct Writer<'a, W> {
    trace: &'a Trace,
    zero: TimeZero,
    stream: Stream<W>,
    processes: Processes,
    code: SyntheticLayout,
    /// Ids of the records' kinds.
    records: [u32; Record::ALL.len()],
    /// Metadata of the event with which a runtime describes its process.
    process_info: EventMetadata,
    /// Ids of the event kinds, by address. The `Arc` keeps the address unique.
    kinds: FxHashMap<*const EventMetadata, (Arc<EventMetadata>, u32)>,
    threads: FxHashMap<(Pid, Tid), u32>,
    /// Thread names. If an id is reused, the name of its last thread.
    thread_names: FxHashMap<(Pid, Tid), &'a str>,
    /// Written mappings of each process instance.
    mappings: FxHashMap<(usize, ModuleRow), u64>,
    /// Written symbols of each process instance.
    symbols: FxHashSet<(usize, FunctionRow)>,
    /// Stacks of samples in the current chunk, by process instance.
    stacks: FxHashMap<(usize, StackId), u32>,
    stacks_chunk: u32,
    /// CPU time of each thread that is not yet written. Negative after rounding up.
    unwritten_ns: FxHashMap<u32, i64>,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the header of the stream and the processes that exist at its start.
    pub(super) fn start(trace: &'a Trace, out: W) -> io::Result<Self> {
        let zero = TimeZero::new(trace);
        let cpus = trace
            .samples
            .iter()
            .map(|sample| sample.cpu.0.saturating_add(1))
            .max();
        let cpus = cpus.unwrap_or(1).max(trace.info.cpus);
        let properties = [
            // Readers store a CPU number in one byte.
            ("HardwareThreadCount", cpus.min(256).to_string()),
            ("SystemPageSize", rustix::param::page_size().to_string()),
        ];
        let header = StreamHeader {
            system_time: zero.system_time(),
            time: zero.monotonic(),
            properties: &properties,
        };
        let mut stream = Stream::start(out, header)?;
        let processes = Processes::for_trace(trace);
        let code = SyntheticLayout::new(trace);
        let records = Record::ALL.map(|record| stream.kind(&record.kind()));
        let mut writer = Self {
            trace,
            zero,
            stream,
            processes,
            code,
            records,
            process_info: Record::ProcessInfo.kind(),
            kinds: FxHashMap::default(),
            threads: FxHashMap::default(),
            thread_names: thread_names(trace),
            mappings: FxHashMap::default(),
            symbols: FxHashSet::default(),
            stacks: FxHashMap::default(),
            stacks_chunk: 0,
            unwritten_ns: FxHashMap::default(),
        };
        for instance in writer.processes.first_instances() {
            writer.start_process(instance, Record::ExistingProcess, zero.monotonic())?;
        }
        Ok(writer)
    }

    fn start_process(&mut self, instance: usize, kind: Record, time: u64) -> io::Result<()> {
        self.processes.start(instance);
        let process = &self.processes.instances[instance];
        let pid = process.pid;
        let created = records::process(pid, &process.name);
        let arch = &self.trace.info.arch;
        let arguments = process.arguments.as_ref();
        let info = arguments.map(|all| records::process_info(&process.name, all, arch));
        let thread = self.thread(pid, Tid(pid.0));
        self.record(kind, thread, time, &created)?;
        info.map_or(Ok(()), |info| {
            self.record(Record::ProcessInfo, thread, time, &info)
        })
    }

    fn record(&mut self, record: Record, thread: u32, time: u64, payload: &[u8]) -> io::Result<()> {
        let header = EventHeader {
            kind: self.records[record as usize],
            thread,
            time,
            ..EventHeader::default()
        };
        self.stream.event(header, payload)
    }

    fn thread(&mut self, pid: Pid, tid: Tid) -> u32 {
        let (stream, names) = (&mut self.stream, &self.thread_names);
        let declared = self.threads.entry((pid, tid));
        *declared.or_insert_with(|| {
            let name = names.get(&(pid, tid)).copied().unwrap_or_default();
            stream.thread(name, Some((pid, tid)))
        })
    }

    pub(super) fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let time = self.zero.shifted(sample.time);
        let thread = &self.trace.threads[sample.thread.index()];
        let instance = thread.process.index();
        if !self.processes.instances[instance].is_started {
            self.start_process(instance, Record::ProcessCreate, time)?;
        }
        let pid = self.processes.instances[instance].pid;
        let thread = self.thread(pid, thread.tid);
        let stack = self.sample_stack(instance, sample.stack, thread, time)?;
        let milliseconds = self.milliseconds(thread, sample.weight);
        let header = EventHeader {
            kind: self.records[Record::Cpu as usize],
            thread,
            stack,
            labels: 0,
            cpu: sample.cpu.0.min(u8::MAX.into()) as u8,
            time,
        };
        self.stream.event(header, &records::cpu(milliseconds))
    }

    /// Adds the weight of a thread's next sample. Returns the milliseconds to write, and keeps the
    /// rest.
    fn milliseconds(&mut self, thread: u32, weight: Nanos) -> u64 {
        let rest = self.unwritten_ns.entry(thread).or_default();
        *rest = rest.saturating_add_unsigned(weight.0);
        let milliseconds = (*rest + NANOS_PER_MS / 2).div_euclid(NANOS_PER_MS).max(0);
        *rest -= milliseconds * NANOS_PER_MS;
        milliseconds.cast_unsigned()
    }

    fn sample_stack(
        &mut self,
        instance: usize,
        stack: StackId,
        thread: u32,
        time: u64,
    ) -> io::Result<u32> {
        if stack == StackId::EMPTY {
            return Ok(0);
        }
        if self.stacks_chunk == self.stream.chunk()
            && let Some(&id) = self.stacks.get(&(instance, stack))
        {
            return Ok(id);
        }
        let trace = self.trace;
        let mut functions = Vec::new();
        for frame in trace.stacks.leaf_first(stack) {
            functions.extend(self.code.frame_functions(trace, frame));
            if functions.len() > MAX_FRAMES {
                functions.truncate(MAX_FRAMES - 1);
                functions.push(self.code.truncated());
                break;
            }
        }
        if functions
            .last()
            .is_some_and(|&root| !self.is_root(instance, root))
        {
            functions.push(self.code.root(&self.processes.instances[instance].name));
        }
        for &function in &functions {
            self.write_symbol(instance, function, thread, time)?;
        }
        let addresses: Vec<u64> = functions
            .iter()
            .map(|&function| self.code.functions[function].address())
            .collect();
        // The records for symbols may have ended the chunk.
        if self.stacks_chunk != self.stream.chunk() {
            self.stacks.clear();
            self.stacks_chunk = self.stream.chunk();
        }
        let id = self.stream.stack(&addresses);
        self.stacks.insert((instance, stack), id);
        Ok(id)
    }

    /// Returns whether a stack that ends in this function needs no synthetic root.
    ///
    /// Readers accept such a stack as complete, or the stack is truncated.
    fn is_root(&self, instance: usize, function: FunctionRow) -> bool {
        let function = &self.code.functions[function];
        let module = &self.code.modules[function.module].name;
        function.owner == CodeOwner::Marker
            || *module == self.processes.instances[instance].name
            || module == "libc"
            || ROOT_MODULES.iter().any(|root| module.starts_with(root))
    }

    /// Writes the symbol of a function and the mapping of its module, once per process instance.
    ///
    /// They precede the first stack with the function.
    fn write_symbol(
        &mut self,
        instance: usize,
        function: FunctionRow,
        thread: u32,
        time: u64,
    ) -> io::Result<()> {
        if !self.symbols.insert((instance, function)) {
            return Ok(());
        }
        let module = self.code.functions[function].module;
        let next = self.mappings.len() as u64 + 1;
        let mapping = *self.mappings.entry((instance, module)).or_insert(next);
        if mapping == next {
            let payload = records::mapping(mapping, &self.code.modules[module]);
            self.record(Record::ProcessMapping, thread, time, &payload)?;
        }
        let id = self.symbols.len() as u64;
        let payload = records::symbol(id, mapping, &self.code.functions[function]);
        self.record(Record::ProcessSymbol, thread, time, &payload)
    }

    pub(super) fn event(&mut self, event: &RuntimeEvent) -> io::Result<()> {
        let info = &self.process_info;
        if event.metadata.id == info.id
            && event.metadata.provider == info.provider
            && let Some(command_line) = Bytes(&event.payload).utf16z()
            && !self
                .processes
                .set_command_line(event.process, &command_line)
        {
            return Ok(());
        }
        let time = self.zero.shifted(event.time).max(self.zero.monotonic());
        let thread = self.thread(event.process, event.thread);
        let mut addresses = event.stack.to_vec();
        addresses.truncate(MAX_FRAMES);
        if let Some(instance) = self.processes.current(event.process)
            && !addresses.is_empty()
        {
            let root = self.code.root(&self.processes.instances[instance].name);
            self.write_symbol(instance, root, thread, time)?;
            addresses.push(self.code.functions[root].address());
        }
        let stream = &mut self.stream;
        let (_, kind) = *self
            .kinds
            .entry(Arc::as_ptr(&event.metadata))
            .or_insert_with(|| (Arc::clone(&event.metadata), stream.kind(&event.metadata)));
        let header = EventHeader {
            kind,
            thread,
            stack: self.stream.stack(&addresses),
            labels: self.stream.labels(event.activity),
            // Runtimes on Linux do not report the CPU.
            cpu: 0,
            time,
        };
        self.stream.event(header, &event.payload)
    }

    /// Ends the stream, with a gap in the sequence for the missing events.
    pub(super) fn finish(mut self) -> io::Result<()> {
        for stream in self.trace.events.streams() {
            let losses = stream.counts.losses;
            self.stream.skip(losses.dropped_events);
            self.stream.skip(losses.unknown_events);
        }
        self.stream.finish()
    }
}

fn thread_names(trace: &Trace) -> FxHashMap<(Pid, Tid), &str> {
    let names = trace.threads.iter().map(|thread| {
        let pid = trace.processes[thread.process.index()].pid;
        ((pid, thread.tid), &*thread.name)
    });
    names.collect()
}
