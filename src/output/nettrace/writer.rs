//! Samples and events of a trace as events of the stream.

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
/// Readers intern stacks by recursion.
const MAX_FRAMES: usize = 1000;
/// Modules whose functions readers take for the root of a thread; else it must be one that is named like the process.
const ROOT_MODULES: [&str; 3] = ["libc.", "libc-", "ld-musl-"];

pub(super) struct Writer<'a, W> {
    trace: &'a Trace,
    zero: TimeZero,
    stream: Stream<W>,
    processes: Processes,
    code: SyntheticLayout,
    /// Numbers of the records' kinds.
    records: [u32; Record::ALL.len()],
    /// What a runtime says of its process.
    infos: EventMetadata,
    /// By address of the kind, which is held so that no other gets it.
    kinds: FxHashMap<*const EventMetadata, (Arc<EventMetadata>, u32)>,
    threads: FxHashMap<(Pid, Tid), u32>,
    /// Of the last life of an id.
    thread_names: FxHashMap<(Pid, Tid), &'a str>,
    /// What was told of the code of each life of a process.
    mappings: FxHashMap<(usize, ModuleRow), u64>,
    symbols: FxHashSet<(usize, FunctionRow)>,
    /// Stacks of samples in this chunk, by the life of a process.
    stacks: FxHashMap<(usize, StackId), u32>,
    stacks_chunk: u32,
    /// Time of each thread that is not told yet, or was told too early.
    untold: FxHashMap<u32, i64>,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes what the trace is, and who was there.
    pub(super) fn begin(trace: &'a Trace, out: W) -> io::Result<Self> {
        let zero = TimeZero::of(trace);
        let cpus = trace
            .samples
            .iter()
            .map(|sample| sample.cpu.0.saturating_add(1))
            .max();
        let cpus = cpus.unwrap_or(1).max(trace.info.cpus);
        let notes = [
            // Readers have a byte for the number of a CPU.
            ("HardwareThreadCount", cpus.min(256).to_string()),
            ("SystemPageSize", rustix::param::page_size().to_string()),
        ];
        let beginning = StreamHeader {
            system_time: zero.system_time(),
            time: zero.monotonic(),
            notes: &notes,
        };
        let mut stream = Stream::begin(out, beginning)?;
        let processes = Processes::of(trace);
        let code = SyntheticLayout::new(trace);
        let records = Record::ALL.map(|record| stream.kind(&record.kind()));
        let mut writer = Self {
            trace,
            zero,
            stream,
            processes,
            code,
            records,
            infos: Record::ProcessInfo.kind(),
            kinds: FxHashMap::default(),
            threads: FxHashMap::default(),
            thread_names: thread_names(trace),
            mappings: FxHashMap::default(),
            symbols: FxHashSet::default(),
            stacks: FxHashMap::default(),
            stacks_chunk: 0,
            untold: FxHashMap::default(),
        };
        for life in writer.processes.first_lives() {
            writer.begin_life(life, Record::ExistingProcess, zero.monotonic())?;
        }
        Ok(writer)
    }

    fn begin_life(&mut self, life: usize, how: Record, time: u64) -> io::Result<()> {
        self.processes.begin(life);
        let process = &self.processes.lives[life];
        let pid = process.pid;
        let created = records::process(pid, &process.name);
        let machine = &self.trace.info.arch;
        let arguments = process.arguments.as_ref();
        let info = arguments.map(|all| records::process_info(&process.name, all, machine));
        let thread = self.thread(pid, Tid(pid.0));
        self.record(how, thread, time, &created)?;
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
        let stated = self.threads.entry((pid, tid));
        *stated.or_insert_with(|| {
            let name = names.get(&(pid, tid)).copied().unwrap_or_default();
            stream.thread(name, Some((pid, tid)))
        })
    }

    pub(super) fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let time = self.zero.moved(sample.time);
        let thread = &self.trace.threads[sample.thread.index()];
        let life = thread.process.index();
        if !self.processes.lives[life].has_begun {
            self.begin_life(life, Record::ProcessCreate, time)?;
        }
        let pid = self.processes.lives[life].pid;
        let thread = self.thread(pid, thread.tid);
        let stack = self.sample_stack(life, sample.stack, thread, time)?;
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

    /// The whole milliseconds that are to be told of a thread, its next sample included.
    fn milliseconds(&mut self, thread: u32, weight: Nanos) -> u64 {
        let untold = self.untold.entry(thread).or_default();
        *untold = untold.saturating_add_unsigned(weight.0);
        let told = (*untold + NANOS_PER_MS / 2).div_euclid(NANOS_PER_MS).max(0);
        *untold -= told * NANOS_PER_MS;
        told.cast_unsigned()
    }

    fn sample_stack(
        &mut self,
        life: usize,
        stack: StackId,
        thread: u32,
        time: u64,
    ) -> io::Result<u32> {
        if stack == StackId::EMPTY {
            return Ok(0);
        }
        if self.stacks_chunk == self.stream.chunk()
            && let Some(&id) = self.stacks.get(&(life, stack))
        {
            return Ok(id);
        }
        let trace = self.trace;
        let mut functions = Vec::new();
        for frame in trace.stacks.leaf_first(stack) {
            functions.extend(self.code.of_frame(trace, frame));
            if functions.len() > MAX_FRAMES {
                functions.truncate(MAX_FRAMES - 1);
                functions.push(self.code.cut());
                break;
            }
        }
        if functions
            .last()
            .is_some_and(|&root| !self.is_root(life, root))
        {
            functions.push(self.code.root(&self.processes.lives[life].name));
        }
        for &function in &functions {
            self.tell_symbol(life, function, thread, time)?;
        }
        let addresses: Vec<u64> = functions
            .iter()
            .map(|&function| self.code.functions[function].address())
            .collect();
        // What was told may have ended the chunk.
        if self.stacks_chunk != self.stream.chunk() {
            self.stacks.clear();
            self.stacks_chunk = self.stream.chunk();
        }
        let id = self.stream.stack(&addresses);
        self.stacks.insert((life, stack), id);
        Ok(id)
    }

    /// Whether readers take a stack that ends in this function for whole, or must not.
    fn is_root(&self, life: usize, function: FunctionRow) -> bool {
        let function = &self.code.functions[function];
        let module = &self.code.modules[function.module].name;
        function.realm == CodeOwner::Marker
            || *module == self.processes.lives[life].name
            || module == "libc"
            || ROOT_MODULES.iter().any(|root| module.starts_with(root))
    }

    /// Tells of a function, and of its module, before the first stack of a process it is in.
    fn tell_symbol(
        &mut self,
        life: usize,
        function: FunctionRow,
        thread: u32,
        time: u64,
    ) -> io::Result<()> {
        if !self.symbols.insert((life, function)) {
            return Ok(());
        }
        let module = self.code.functions[function].module;
        let next = self.mappings.len() as u64 + 1;
        let mapping = *self.mappings.entry((life, module)).or_insert(next);
        if mapping == next {
            let payload = records::mapping(mapping, &self.code.modules[module]);
            self.record(Record::ProcessMapping, thread, time, &payload)?;
        }
        let id = self.symbols.len() as u64;
        let payload = records::symbol(id, mapping, &self.code.functions[function]);
        self.record(Record::ProcessSymbol, thread, time, &payload)
    }

    pub(super) fn event(&mut self, event: &RuntimeEvent) -> io::Result<()> {
        let info = &self.infos;
        if event.kind.id == info.id
            && event.kind.provider == info.provider
            && let Some(command_line) = Bytes(&event.payload).utf16z()
            && !self.processes.told(event.process, &command_line)
        {
            return Ok(());
        }
        let time = self.zero.moved(event.time).max(self.zero.monotonic());
        let thread = self.thread(event.process, event.thread);
        let mut addresses = event.stack.to_vec();
        addresses.truncate(MAX_FRAMES);
        if let Some(life) = self.processes.current(event.process)
            && !addresses.is_empty()
        {
            let root = self.code.root(&self.processes.lives[life].name);
            self.tell_symbol(life, root, thread, time)?;
            addresses.push(self.code.functions[root].address());
        }
        let stream = &mut self.stream;
        let (_, kind) = *self
            .kinds
            .entry(Arc::as_ptr(&event.kind))
            .or_insert_with(|| (Arc::clone(&event.kind), stream.kind(&event.kind)));
        let header = EventHeader {
            kind,
            thread,
            stack: self.stream.stack(&addresses),
            labels: self.stream.labels(event.activity),
            // Runtimes on Linux do not tell it.
            cpu: 0,
            time,
        };
        self.stream.event(header, &event.payload)
    }

    /// Ends the stream, with the number of the events that are missing.
    pub(super) fn finish(mut self) -> io::Result<()> {
        for stream in self.trace.events.streams() {
            let losses = stream.counts.losses;
            self.stream.miss(losses.dropped_events);
            self.stream.miss(losses.unknown_events);
        }
        self.stream.finish()
    }
}

fn thread_names(trace: &Trace) -> FxHashMap<(Pid, Tid), &str> {
    let named = trace.threads.iter().map(|thread| {
        let pid = trace.processes[thread.process.index()].pid;
        ((pid, thread.tid), &*thread.name)
    });
    named.collect()
}
