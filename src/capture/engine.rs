//! Records in, recording out: where the stack bytes of a sample die.

use std::collections::BTreeMap;
use std::io::Write;

use super::event_sessions::EventSessions;
use super::not_running;
use super::rundown_sessions::RundownSessions;
use super::starting_processes::StartingProcesses;
use super::target::{Filter, Target};
use crate::dotnet::{MethodName, MethodRange, tells_of_runtime};
use crate::machine::{self, Machine, Maps, ProcError, RowUpdate};
use crate::perf::{self, Clock, Record, SampleRecord};
use crate::trace::spool::{KsymbolRow, MethodRow, SpoolEnd, SpoolRow};
use crate::trace::{
    Callers, CaptureInfo, CodeAddress, Cpu, Header, Losses, MAX_WEIGHT_NS, Nanos, Notice, Pid,
    ProcessId, Recorder, Sample, Tid,
};
use crate::unwind::{SampledProcess, Unwinder, Walked};

/// What a sample stands for, in nanoseconds of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Its period.
    Period,
    /// The time between two samples at the rate that was asked for: cycles are no time, as the CPU's frequency changes.
    Nominal(Nanos),
}

impl Weight {
    pub(super) fn of(clock: Clock, info: &CaptureInfo) -> Self {
        match clock {
            Clock::CpuClock => Self::Period,
            Clock::Cycles => Self::Nominal(Nanos(info.period_ns)),
        }
    }

    fn of_sample(self, sample: &SampleRecord<'_>) -> Nanos {
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
    recorder: Recorder<W>,
    methods: RundownSessions,
    young: StartingProcesses,
    events: EventSessions,
    losses: Losses,
    /// The stack at hand, kept to spare an allocation a sample.
    leaf_first: Vec<CodeAddress>,
    /// What a process has mapped of which nothing is known.
    no_maps: Maps,
}

impl<'a, W: Write> Engine<'a, W> {
    pub(super) fn new(target: &'a Target, weight: Weight, spool: W, header: &Header) -> Self {
        Self::on(Machine::default(), target, weight, spool, header)
    }

    /// The same for a machine that may be another than this one.
    pub(super) fn on(
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
            recorder: Recorder::new(spool, header),
            methods: RundownSessions::default(),
            young: StartingProcesses::default(),
            events: EventSessions::default(),
            losses: Losses::default(),
            leaf_first: Vec::new(),
            no_maps: Maps::default(),
        }
    }

    /// With sessions of events.
    pub(super) fn with_events(self, events: EventSessions) -> Self {
        Self { events, ..self }
    }

    /// Begins the sessions of the runtimes that are there.
    pub(super) fn begin_events(&mut self) {
        match self.filter.pids() {
            Some(pids) => self.events.begin(pids),
            None => self.events.begin(machine::pids().unwrap_or_default()),
        }
        for pid in self.events.pids() {
            self.machine.ensure_process_row(pid);
        }
    }

    /// Takes in what runs already. Recording has begun, so nothing falls between.
    pub(super) fn begin(&mut self, command: Option<Pid>) -> Result<(), ProcError> {
        self.filter.begin(self.target, command)?;
        if command.is_some() {
            self.young.expect(perf::now());
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
                } else if self.filter.wants(sample.pid) {
                    self.sample(sample);
                }
            }
            Record::Lost { records, cpu } => self.losses.count(*cpu, *records, time),
            Record::LostSamples { samples, cpu } => {
                self.losses.count_samples(*cpu, *samples, time);
            }
            Record::Throttle(cpu) => self.losses.pauses.begin(*cpu, time),
            Record::Unthrottle(cpu) => self.losses.pauses.end(*cpu, time),
            Record::KernelCode(code) => {
                // Else frames met before would stand for what comes after.
                self.recorder.forget();
                self.recorder.put(&SpoolRow::Ksymbol(KsymbolRow {
                    start: code.start,
                    size: code.len.into(),
                    gone: code.gone,
                    name: code.name.into(),
                    module: code.module().as_bytes().into(),
                }));
            }
            _ => {
                if self.filter.follow(time, record) {
                    self.machine.apply(time, record);
                    self.young.follow(record, &self.machine);
                    if let Record::Mapping(mapping) = record
                        && tells_of_runtime(mapping.path)
                    {
                        self.events.on_runtime_loaded(mapping.pid);
                        if self.events.are_wanted() {
                            self.machine.ensure_process_row(mapping.pid);
                        }
                    }
                }
            }
        }
    }

    fn sample(&mut self, sample: &SampleRecord<'_>) {
        // The kernel has no ids any more (-1) for a thread that is being reaped. Its process stands for it. No reader of
        // the trace takes a negative id.
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
        // Callers that were not recorded are not missing from one stack but from all, which is told once.
        let cut = walked.cut.filter(|_| self.callers == Callers::All);
        self.losses.fp_fallback_stacks += u64::from(walked.fp_fallback);
        self.record_changes();
        self.record_code();
        let stack = self
            .recorder
            .stack(thread, &self.leaf_first, cut, self.machine.files());
        self.recorder.push(Sample {
            time: sample.time,
            weight: self.weight.of_sample(sample),
            thread,
            cpu: sample.cpu,
            stack,
        });
    }

    /// Fills `leaf_first`.
    fn walk(&mut self, sample: &SampleRecord<'_>, process: ProcessId, comes_again: bool) -> Walked {
        let host = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps: self.machine.maps(sample.pid).unwrap_or(&self.no_maps),
            files: self.machine.files(),
            is_preview: comes_again,
        };
        self.unwinder.walk(sample, host, &mut self.leaf_first)
    }

    /// Whether records should be looked at as they come, and often.
    pub(super) fn has_starting(&mut self, now: Nanos) -> bool {
        self.young.any(now)
    }

    /// Sees a record before its time: a runtime should be asked for its events before it compiles anything, and when the time
    /// of a sample comes, its process may be gone. So that of a young process is walked now, for what that finds out.
    pub(super) fn preview(&mut self, record: &Record<'_>) {
        match record {
            Record::Mapping(mapping) => {
                if self.filter.wants(mapping.pid) && tells_of_runtime(mapping.path) {
                    self.events.on_runtime_loaded(mapping.pid);
                }
                if self.young.has(mapping.pid) {
                    self.machine.apply_mapping_early(mapping);
                }
            }
            Record::Sample(sample) if self.young.has(sample.pid) => {
                if let Some(process) = self.machine.row_of(sample.pid) {
                    let _ = self.walk(sample, process, true);
                    self.record_code();
                }
            }
            _ => {}
        }
    }

    /// Brings the rows of processes and threads in the spool up to date.
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
                RowUpdate::JitHost(id) => {
                    if self.machine.is_live() {
                        self.methods.on_jit_process(id, process(id).pid);
                    }
                    match &process(id).jit_host {
                        Some(Ok(host)) => match host.describe() {
                            Some(host) => SpoolRow::JitHost(id, host),
                            None => continue,
                        },
                        _ => continue,
                    }
                }
            };
            self.recorder.put(&row);
        }
    }

    /// Tells what the code made at run time is that was met just now.
    fn record_code(&mut self) {
        for met in self.unwinder.take_discovered() {
            // Else frames met before would keep their names.
            if met.replaces {
                self.recorder.forget();
            }
            let size = met.end.saturating_sub(met.start);
            put_method(
                &mut self.recorder,
                met.process,
                (met.start, size),
                met.name.as_ref(),
            );
        }
    }

    /// Ends the sessions of events, those that tell names and those that are wanted for themselves, for which is waited
    /// until it is `enough`.
    pub(super) fn finish_sessions(&mut self, enough: impl FnMut() -> bool) {
        let recorder = &mut self.recorder;
        // The sooner names are asked for, the fewer are gone with their code.
        self.methods
            .finish(|process, code| put_code(recorder, process, &code));
        self.events.finish(enough);
    }

    /// Takes the kernel's own counts of what was lost, by CPU.
    pub(super) fn reconcile(&mut self, lost: &BTreeMap<u32, u64>) {
        for (&cpu, &records) in lost {
            self.losses.reconcile(Cpu(cpu), records);
        }
    }

    /// The threads the target has now.
    pub(super) fn threads(&self) -> Vec<Tid> {
        machine::threads(self.filter.pids().into_iter().flatten())
    }

    /// Tells how far the records have come, and what the session has lost.
    pub(super) fn tick(&mut self, now: Nanos, malformed: u64, late: u64) {
        self.losses.malformed_records = malformed;
        self.losses.late_records = late;
        self.record_changes();
        let recorder = &mut self.recorder;
        self.methods
            .take(|process, code| put_code(recorder, process, &code));
        self.methods
            .request_rundown(self.unwinder.take_unreadable());
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

    /// Why the spool does not grow, if it does not.
    pub(super) fn spool_error(&self) -> Option<String> {
        self.recorder.error().map(ToString::to_string)
    }

    /// Whether nothing more can be kept.
    pub(super) fn is_exhausted(&self) -> bool {
        self.recorder.is_exhausted()
    }

    /// Why no more events can be kept, if that is so.
    pub(super) fn stream_error(&mut self) -> Option<String> {
        self.events.stuck()
    }

    pub(super) fn lost(&self) -> u64 {
        self.losses.lost()
    }

    /// Whether nobody of the target is left.
    pub(super) fn target_gone(&mut self) -> bool {
        self.filter.is_gone()
    }

    /// What the user should know.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.unwinder
            .notices()
            .chain(self.methods.notices())
            .chain(self.events.notices())
            .chain(not_running::notices(
                self.filter.pids().into_iter().flatten(),
            ))
            .collect()
    }

    /// The end of the spool, and what the names of its content come from.
    pub(super) fn finish(mut self, now: Nanos) -> (SpoolEnd, Machine) {
        self.record_changes();
        self.losses.pauses.end_all(now);
        let (spool, files) = self.recorder.finish(now, &self.losses);
        (spool, self.machine.into_symbol_sources(&files))
    }
}

fn put_code<W: Write>(recorder: &mut Recorder<W>, process: ProcessId, code: &MethodRange) {
    put_method(recorder, process, (code.start, code.size), Some(&code.name));
}

/// Notes what code is, by start and size. No name: other than it was.
fn put_method<W: Write>(
    recorder: &mut Recorder<W>,
    process: ProcessId,
    (start, size): (u64, u64),
    name: Option<&MethodName>,
) {
    let text = |text: Option<&str>| text.unwrap_or_default().as_bytes().to_vec().into();
    recorder.put(&SpoolRow::Method(MethodRow {
        process,
        start,
        size,
        name: text(name.map(|name| name.method.as_str())),
        module: text(name.map(|name| name.module.as_str())),
        tier: text(name.and_then(|name| name.tier)),
    }));
}
