//! Turns perf records into spool rows: filters processes, unwinds stacks and interns them.

use std::collections::BTreeMap;
use std::io::Write;

use super::code_names::{CodeNames, method_row};
use super::event_sessions::EventSessions;
use super::not_running;
use super::rundown_sessions::RundownSessions;
use super::starting_processes::StartingProcesses;
use super::target::{Filter, Target};
use crate::dotnet::{MethodRange, tells_of_runtime};
use crate::machine::{self, Machine, Maps, ProcError, RowUpdate};
use crate::perf::{self, Clock, Record, SampleRecord};
use crate::trace::spool::{KsymbolRow, SpoolEnd, SpoolRow};
use crate::trace::{
    Callers, CaptureInfo, CodeAddress, Cpu, Header, Losses, MAX_WEIGHT_NS, Nanos, Notice, Pid,
    ProcessId, Recorder, Sample, Tid,
};
use crate::unwind::{SampledProcess, Unwinder, WalkOutcome};

/// CPU time that a sample represents, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// The period of the sample.
    Period,
    /// The time between two samples at the requested rate.
    ///
    /// Cycles are no measure of time, as the CPU's frequency changes.
    Nominal(Nanos),
}

impl Weight {
    pub(super) fn new(clock: Clock, info: &CaptureInfo) -> Self {
        match clock {
            Clock::CpuClock => Self::Period,
            Clock::Cycles => Self::Nominal(Nanos(info.period_ns)),
        }
    }

    fn weigh(self, sample: &SampleRecord<'_>) -> Nanos {
        match self {
            Self::Period => Nanos(sample.period.min(MAX_WEIGHT_NS)),
            Self::Nominal(weight) => weight,
        }
    }
}

pub(super) struct Engine<'a, W> {
    target: &'a Target,
    weight: Weight,
    callers: Callers,
    filter: Filter,
    machine: Machine,
    unwinder: Unwinder,
    names: CodeNames,
    recorder: Recorder<W>,
    methods: RundownSessions,
    starting: StartingProcesses,
    events: EventSessions,
    losses: Losses,
    /// Stack of the current sample, kept to avoid an allocation per sample.
    leaf_first: Vec<CodeAddress>,
    /// Mappings of a process without known mappings: none.
    no_maps: Maps,
}

impl<'a, W: Write> Engine<'a, W> {
    pub(super) fn new(target: &'a Target, weight: Weight, spool: W, header: &Header) -> Self {
        Self::for_machine(Machine::default(), target, weight, spool, header)
    }

    /// Creates an engine for processes that may belong to another host.
    pub(super) fn for_machine(
        machine: Machine,
        target: &'a Target,
        weight: Weight,
        spool: W,
        header: &Header,
    ) -> Self {
        Self {
            target,
            weight,
            callers: header.info.callers,
            filter: Filter::new(target),
            machine,
            unwinder: Unwinder::default(),
            names: CodeNames::default(),
            recorder: Recorder::new(spool, header),
            methods: RundownSessions::default(),
            starting: StartingProcesses::default(),
            events: EventSessions::default(),
            losses: Losses::default(),
            leaf_first: Vec::new(),
            no_maps: Maps::default(),
        }
    }

    /// Adds event sessions.
    pub(super) fn with_events(self, events: EventSessions) -> Self {
        Self { events, ..self }
    }

    /// Starts the sessions of the running runtimes.
    pub(super) fn start_events(&mut self) {
        match self.filter.pids() {
            Some(pids) => self.events.start_all(pids),
            None => self.events.start_all(machine::pids().unwrap_or_default()),
        }
        for pid in self.events.pids() {
            self.machine.ensure_process_row(pid);
        }
    }

    /// Adds the running processes. Call after tracking has started, so that none is missed.
    pub(super) fn start(&mut self, command: Option<Pid>) -> Result<(), ProcError> {
        self.filter.start(self.target, command)?;
        if command.is_some() {
            self.starting.expect(perf::now());
        }
        match self.filter.pids() {
            Some(pids) => self.machine.read_running(pids),
            None => self.machine.read_running(machine::pids()?),
        }
        Ok(())
    }

    pub(super) fn record(&mut self, time: Nanos, record: &Record<'_>) {
        match record {
            Record::Sample(sample) => {
                self.losses.samples_seen += 1;
                if sample.pid.0 <= 0 {
                    self.losses.unattributed += 1;
                } else if self.filter.includes(sample.pid) {
                    self.sample(sample);
                }
            }
            Record::Lost { records, cpu } => self.losses.count(*cpu, *records, time),
            Record::LostSamples { samples, cpu } => {
                self.losses.count_samples(*cpu, *samples, time);
            }
            Record::Throttle(cpu) => self.losses.pauses.start(*cpu, time),
            Record::Unthrottle(cpu) => self.losses.pauses.end(*cpu, time),
            Record::Ksymbol(code) => {
                // Otherwise frames sampled before would represent the code that follows.
                self.recorder.forget();
                self.recorder.put(&SpoolRow::Ksymbol(KsymbolRow {
                    start: code.start,
                    size: code.len.into(),
                    unregistered: code.unregistered,
                    name: code.name.into(),
                    module: code.module().as_bytes().into(),
                }));
            }
            _ => {
                if self.filter.follow(time, record) {
                    self.machine.apply(time, record);
                    self.starting.follow(record, &self.machine);
                    if let Record::Mapping(mapping) = record
                        && tells_of_runtime(mapping.path)
                    {
                        self.events.on_runtime_loaded(mapping.pid);
                        if self.events.are_requested() {
                            self.machine.ensure_process_row(mapping.pid);
                        }
                    }
                }
            }
        }
    }

    fn sample(&mut self, sample: &SampleRecord<'_>) {
        // The kernel has no ids any more (-1) for a thread that is being reaped. The process id
        // replaces them, as no reader of the trace accepts a negative id.
        let tid = if sample.tid.0 < 0 {
            Tid(sample.pid.0)
        } else {
            sample.tid
        };
        let (thread, process) = self.machine.sampled(sample.pid, tid);
        let walked = self.walk(sample, process, false);
        if self
            .leaf_first
            .iter()
            .any(|code| matches!(code, CodeAddress::Jit(..)))
        {
            self.machine.mark_jit_process(process);
        }
        // Callers that were not recorded are missing from all stacks, so one notice reports them.
        let truncation = walked.cut.filter(|_| self.callers == Callers::All);
        self.losses.fp_fallback_stacks += u64::from(walked.fp_fallback);
        self.record_changes();
        self.names.write_rows(&mut self.recorder);
        let stack = self
            .recorder
            .stack(thread, &self.leaf_first, truncation, self.machine.files());
        self.recorder.push(Sample {
            time: sample.time,
            weight: self.weight.weigh(sample),
            thread,
            cpu: sample.cpu,
            stack,
        });
    }

    /// Unwinds the stack of a sample into `leaf_first`, and names the JIT code it meets.
    fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: ProcessId,
        is_preview: bool,
    ) -> WalkOutcome {
        let process = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps: self.machine.maps(sample.pid).unwrap_or(&self.no_maps),
            files: self.machine.files(),
            is_preview,
        };
        let walked = self.unwinder.walk(sample, process, &mut self.leaf_first);
        self.unwinder.retain_met(process.process, |runtime, code| {
            self.names.name(&process, runtime, code)
        });
        if walked.unreadable_runtime {
            self.names.note_unreadable(process.process, process.pid);
        }
        walked
    }

    /// Returns whether to preview records, at short intervals.
    pub(super) fn has_starting(&mut self, now: Nanos) -> bool {
        self.starting.any(now)
    }

    /// Processes a record of a starting process before the records are in order.
    ///
    /// A runtime should get the request for events before it compiles a method. When the record is
    /// in order, its process may be gone. So a sample is unwound early, to read the process's rules
    /// and method names.
    pub(super) fn preview(&mut self, record: &Record<'_>) {
        match record {
            Record::Mapping(mapping) => {
                if self.filter.includes(mapping.pid) && tells_of_runtime(mapping.path) {
                    self.events.on_runtime_loaded(mapping.pid);
                }
                if self.starting.has(mapping.pid) {
                    self.machine.apply_mapping_early(mapping);
                }
            }
            Record::Sample(sample) if self.starting.has(sample.pid) => {
                if let Some(process) = self.machine.row_of(sample.pid) {
                    let _ = self.walk(sample, process, true);
                    self.names.write_rows(&mut self.recorder);
                }
            }
            _ => {}
        }
    }

    /// Writes the changes of processes and threads to the spool.
    fn record_changes(&mut self) {
        for change in self.machine.take_changes() {
            let process = |id: ProcessId| &self.machine.process_rows()[id.index()];
            let threads = self.machine.thread_rows();
            let row = match change {
                RowUpdate::Process(id) => {
                    let process = process(id);
                    SpoolRow::Process {
                        pid: process.pid,
                        name: &process.name,
                        command_line: &process.command_line,
                    }
                }
                RowUpdate::Thread(id) => {
                    let thread = &threads[id.index()];
                    SpoolRow::Thread {
                        process: thread.process,
                        tid: thread.tid,
                        name: &thread.name,
                    }
                }
                RowUpdate::ProcessName(id) => SpoolRow::ProcessName(id, &process(id).name),
                RowUpdate::ThreadName(id) => SpoolRow::ThreadName(id, &threads[id.index()].name),
                RowUpdate::JitProcess(id) => {
                    if self.machine.is_live() {
                        self.methods.on_jit_process(id, process(id).pid);
                    }
                    match &process(id).jit_process {
                        Some(Ok(jit)) => match jit.describe() {
                            Some(row) => SpoolRow::JitProcess(id, row),
                            None => continue,
                        },
                        _ => continue,
                    }
                }
            };
            self.recorder.put(&row);
        }
    }

    /// Ends the rundown and event sessions.
    ///
    /// Waits for the rest of the event streams until `enough` returns true.
    pub(super) fn finish_sessions(&mut self, enough: impl FnMut() -> bool) {
        let recorder = &mut self.recorder;
        // Early rundown requests lose fewer names, as code disappears with its process.
        self.methods
            .finish(|process, code| put_code(recorder, process, code));
        self.events.finish(enough);
    }

    /// Adds the kernel's own counts of losses, by CPU.
    pub(super) fn reconcile(&mut self, lost: &BTreeMap<u32, u64>) {
        for (&cpu, &records) in lost {
            self.losses.reconcile(Cpu(cpu), records);
        }
    }

    /// Returns the current threads of the target.
    pub(super) fn threads(&self) -> Vec<Tid> {
        machine::threads(self.filter.pids().into_iter().flatten())
    }

    /// Passes on the time that the records have reached, and the losses of the session.
    pub(super) fn tick(&mut self, now: Nanos, malformed: u64, late: u64) {
        self.losses.malformed_records = malformed;
        self.losses.late_records = late;
        self.record_changes();
        let recorder = &mut self.recorder;
        self.methods
            .take(|process, code| put_code(recorder, process, code));
        self.methods.request_rundown(self.names.take_unreadable());
        self.recorder.tick(now, &self.losses);
    }

    pub(super) fn samples(&self) -> u64 {
        self.recorder.samples()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.recorder.bytes()
    }

    pub(super) fn event_bytes(&self) -> u64 {
        self.events.bytes()
    }

    /// Returns the error that stopped the growth of the spool, if any.
    pub(super) fn spool_error(&self) -> Option<String> {
        self.recorder.error().map(ToString::to_string)
    }

    /// Returns whether the spool cannot grow further.
    pub(super) fn is_exhausted(&self) -> bool {
        self.recorder.is_exhausted()
    }

    /// Returns the error that stopped the writing of event streams, if any.
    pub(super) fn stream_error(&mut self) -> Option<String> {
        self.events.stream_error()
    }

    pub(super) fn lost(&self) -> u64 {
        self.losses.lost()
    }

    /// Returns whether no process of the target is left.
    pub(super) fn target_gone(&mut self) -> bool {
        self.filter.is_gone()
    }

    /// Returns the notices of all parts.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.unwinder
            .notices()
            .chain(self.names.notices())
            .chain(self.methods.notices())
            .chain(self.events.notices())
            .chain(not_running::notices(
                self.filter.pids().into_iter().flatten(),
            ))
            .collect()
    }

    /// Ends the spool. Returns its end and the sources of symbols.
    pub(super) fn finish(mut self, now: Nanos) -> (SpoolEnd, Machine) {
        self.record_changes();
        self.losses.pauses.end_all(now);
        let (spool, files) = self.recorder.finish(now, &self.losses);
        (spool, self.machine.into_symbol_sources(&files))
    }
}

fn put_code<W: Write>(recorder: &mut Recorder<W>, process: ProcessId, code: MethodRange) {
    let row = method_row(process, code.start, code.size, Some(code.name));
    recorder.put(&SpoolRow::Method(row));
}
