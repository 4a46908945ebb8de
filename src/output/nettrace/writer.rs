//! Converts samples and events of a trace to events of the stream.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::code::{Code, Origin};
use super::event_rows::EventHeader;
use super::processes::Processes;
use super::record_stream::RecordStream;
use super::records::{self, Record};
use super::stream::StreamHeader;
use crate::bytes::Bytes;
use crate::nettrace::EventMetadata;
use crate::output::time_zero::TimeZero;
use crate::trace::{Nanos, Pid, RuntimeEvent, Sample, Tid, Trace};

/// Maximum number of CPUs: readers store the number of one in a byte.
const MAX_CPUS: u32 = 256;
const NANOS_PER_MS: i64 = 1_000_000;

pub(super) struct Writer<'a, W> {
    trace: &'a Trace,
    zero: TimeZero,
    out: RecordStream<W>,
    processes: Processes,
    code: Code<'a>,
    /// Metadata of the event with which a runtime describes its process.
    process_info: EventMetadata,
    /// Thread names. If an id is reused, the name of its last thread.
    thread_names: FxHashMap<(Pid, Tid), &'a str>,
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
        let cpus = match trace.blocked.is_empty() {
            true => cpus.unwrap_or(1).max(trace.info.cpus),
            false => MAX_CPUS,
        };
        let properties = [
            ("HardwareThreadCount", cpus.min(MAX_CPUS) as usize),
            ("SystemPageSize", rustix::param::page_size()),
        ];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_string()));
        let header = StreamHeader {
            system_time: zero.system_time(),
            time: zero.monotonic(),
            properties: &properties,
        };
        let out = RecordStream::start(out, header)?;
        let mut writer = Self {
            trace,
            zero,
            out,
            processes: Processes::for_trace(trace),
            code: Code::new(trace),
            process_info: Record::ProcessInfo.kind(),
            thread_names: thread_names(trace),
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
        self.out.record(kind, thread, time, &created)?;
        info.map_or(Ok(()), |info| {
            self.out.record(Record::ProcessInfo, thread, time, &info)
        })
    }

    fn thread(&mut self, pid: Pid, tid: Tid) -> u32 {
        let name = self.thread_names.get(&(pid, tid)).copied();
        self.out.thread(pid, tid, name.unwrap_or_default())
    }

    pub(super) fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let (thread, stack) = self.thread_and_stack(sample)?;
        let milliseconds = self.milliseconds(thread, sample.weight);
        self.stacked(Record::Cpu, sample, (thread, stack), milliseconds)
    }

    /// Writes that a thread gets a CPU, after the time without one.
    pub(super) fn wait(&mut self, wait: &Sample) -> io::Result<()> {
        let of = self.thread_and_stack(wait)?;
        self.stacked(Record::Switch, wait, of, wait.weight.0)
    }

    /// Returns the ids of the thread and the stack of a sample.
    fn thread_and_stack(&mut self, sample: &Sample) -> io::Result<(u32, u32)> {
        let time = self.zero.shifted(sample.time);
        let thread = &self.trace.threads[sample.thread.index()];
        let instance = self.processes.of(thread.process);
        if !self.processes.instances[instance].is_started {
            self.start_process(instance, Record::ProcessCreate, time)?;
        }
        let pid = self.processes.instances[instance].pid;
        let thread = self.thread(pid, thread.tid);
        let origin = Origin {
            instance,
            process: &self.processes.instances[instance].name,
            thread,
            time,
        };
        let stack = self
            .code
            .sample_stack(&mut self.out, origin, sample.stack)?;
        Ok((thread, stack))
    }

    fn stacked(
        &mut self,
        record: Record,
        sample: &Sample,
        (thread, stack): (u32, u32),
        value: u64,
    ) -> io::Result<()> {
        let header = EventHeader {
            kind: self.out.kind(record),
            thread,
            stack,
            labels: 0,
            cpu: self.cpu(sample, thread),
            time: self.zero.shifted(sample.time),
        };
        self.out.stream.event(header, &records::value(value))
    }

    /// Returns the CPU of a sample.
    ///
    /// If the trace has times without a CPU, each thread has a separate CPU: PerfView would take the CPU from
    /// a thread when another one is on it, and what precedes the events of switches is not known to the
    /// nanosecond.
    fn cpu(&self, sample: &Sample, thread: u32) -> u8 {
        match self.trace.blocked.is_empty() {
            true => sample.cpu.0.min(u8::MAX.into()) as u8,
            false => (thread % MAX_CPUS) as u8,
        }
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
        let stack = match self.processes.current(event.process) {
            None => 0,
            Some(instance) => {
                let origin = Origin {
                    instance,
                    process: &self.processes.instances[instance].name,
                    thread,
                    time,
                };
                self.code
                    .event_stack(&mut self.out, origin, &event.stack, event.time)?
            }
        };
        let kind = self.out.event_kind(&event.metadata);
        let stream = &mut self.out.stream;
        let header = EventHeader {
            kind,
            thread,
            stack,
            labels: stream.labels(event.activity),
            // Runtimes on Linux do not report the CPU.
            cpu: 0,
            time,
        };
        stream.event(header, &event.payload)
    }

    /// Ends the stream, with a gap in the sequence for the missing events.
    pub(super) fn finish(mut self) -> io::Result<()> {
        for stream in self.trace.events.streams() {
            let losses = stream.counts.losses;
            self.out.stream.skip(losses.dropped_events);
            self.out.stream.skip(losses.unknown_events);
        }
        self.out.stream.finish()
    }
}

fn thread_names(trace: &Trace) -> FxHashMap<(Pid, Tid), &str> {
    let names = trace.threads.iter().map(|thread| {
        let pid = trace.processes[thread.process.index()].pid;
        ((pid, thread.tid), &*thread.name)
    });
    names.collect()
}
