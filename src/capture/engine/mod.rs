//! Turns perf records into spool rows: filters processes, counts losses, follows processes and runtimes.
//! [`samples`] has the stacks of samples, [`looks`] those of threads without a CPU.

mod looks;
mod samples;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use perfcollect_symbols::symbolizer::Symbolizer;

use self::looks::Place;
use super::doubtful_code::DoubtfulCallers;
use super::early_stacks::EarlyStacks;
use super::event_code::EventCode;
use super::event_sessions::EventSessions;
use super::not_running;
use super::off_cpu::Timeline;
use super::patience::Patience;
use super::rundown_sessions::RundownSessions;
use super::stack_walker::StackWalker;
use super::starting_processes::StartingProcesses;
use super::target::{Filter, Target};
use super::wakeups::Wakeups;
use super::weight::Weight;
use crate::dotnet::{RuntimeSessionError, StreamSize, maps_runtime, tells_of_runtime};
use crate::machine::{self, Machine, ProcError};
use crate::perf::{self, Occurrence, Record};
use crate::trace::spool::{KsymbolRow, SpoolEnd, SpoolRow};
use crate::trace::{
    Callers, CodeAddress, Cpu, Header, Losses, MORE_DESCRIPTORS, Nanos, Notice, NoticeKind, Pid,
    Recorder, RowSource, Tid,
};

/// Maximum time of one turn of lookups for events. The ring buffers must be read meanwhile.
const LOOKUP_LIMIT: Duration = Duration::from_millis(5);
/// The same when the ring buffers are not read any more.
const LAST_LOOKUP_LIMIT: Duration = Duration::from_secs(1);

pub(super) struct Engine<'a, W> {
    target: &'a Target,
    weight: Weight,
    callers: Callers,
    filter: Filter,
    walker: StackWalker,
    recorder: Recorder<W>,
    rundowns: RundownSessions,
    starting: StartingProcesses,
    early: EarlyStacks,
    events: EventSessions,
    event_code: EventCode,
    wakeups: Option<Wakeups>,
    may_wait: bool,
    patience: Patience,
    losses: Losses,
    doubtful: DoubtfulCallers,
    /// Size of the deepest stack of each CPU since the last call of [`Engine::take_deepest`].
    deepest: BTreeMap<Cpu, u64>,
    /// Where the threads of the target were without a CPU.
    timeline: Timeline<Place>,
    /// Since when it follows the lives of threads, if looks at them need that.
    lives_since: Option<Nanos>,
    /// Where they last ran, by samples.
    last_runs: FxHashMap<Tid, Place>,
    /// Threads that have started since they were taken, with their processes.
    new_threads: Vec<(Pid, Tid)>,
    /// Stack of the current sample, kept to avoid an allocation per sample.
    leaf_first: Vec<CodeAddress>,
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
            walker: StackWalker::new(machine),
            recorder: Recorder::new(spool, header),
            rundowns: RundownSessions::default(),
            starting: StartingProcesses::default(),
            early: EarlyStacks::default(),
            events: EventSessions::default(),
            event_code: EventCode::default(),
            wakeups: None,
            may_wait: false,
            patience: Patience::default(),
            losses: Losses::default(),
            doubtful: DoubtfulCallers::default(),
            deepest: BTreeMap::new(),
            timeline: Timeline::default(),
            lives_since: None,
            last_runs: FxHashMap::default(),
            new_threads: Vec::new(),
            leaf_first: Vec::new(),
        }
    }

    /// Adds event sessions.
    pub(super) fn with_events(self, events: EventSessions) -> Self {
        Self { events, ..self }
    }

    /// Adds samples of wake-ups.
    pub(super) fn with_wakeups(self, wakeups: Option<Wakeups>) -> Self {
        Self { wakeups, ..self }
    }

    /// Changes where the unwinder searches debug files.
    pub(super) fn with_symbolizer(mut self, symbolizer: &Arc<Symbolizer>) -> Self {
        self.walker.set_symbolizer(symbolizer);
        self
    }

    /// Chooses among the running runtimes, and starts their sessions.
    pub(super) fn start_events(&mut self) {
        let Some(starts) = self.events.starts() else {
            return;
        };
        let machine = &self.walker.machine;
        let add = |pid| {
            // Kernel threads have no mappings.
            let maps = machine.maps(pid);
            if maps.is_some_and(|maps| maps.iter().next().is_some()) {
                starts.running(pid, has_runtime(machine, pid));
            }
        };
        match self.filter.pids() {
            Some(pids) => pids.for_each(add),
            None => machine.known_pids().for_each(add),
        }
        self.start_due_sessions(perf::now());
    }

    fn start_due_sessions(&mut self, now: Nanos) {
        for pid in self.events.start_due(now) {
            self.walker.machine.ensure_process_row(pid);
        }
    }

    /// Adds the running processes. Call after tracking has started, so that none is missed.
    pub(super) fn start(&mut self, command: Option<Pid>) -> Result<(), ProcError> {
        self.filter.start(self.target, command)?;
        if command.is_some() {
            self.starting.expect(perf::now());
        }
        match self.filter.pids() {
            Some(pids) => self.walker.machine.read_running(pids),
            None => self.walker.machine.read_running(machine::pids()?),
        }
        Ok(())
    }

    /// Follows the lives of threads that start after a time: looks at them begin.
    pub(super) fn follow_lives(&mut self, since: Nanos) {
        self.lives_since = Some(since);
    }

    /// Sets whether records may wait for the analysis of code.
    pub(super) fn set_may_wait(&mut self, may_wait: bool) {
        self.may_wait = may_wait;
    }

    /// Returns whether a record waits for the analysis of code.
    pub(super) fn is_waiting(&self) -> bool {
        self.patience.is_waiting()
    }

    /// Processes a record that may not wait.
    pub(super) fn record(&mut self, time: Nanos, record: &Record<'_>) {
        self.may_wait = false;
        let _ = self.record_or_wait(time, record);
    }

    /// Processes a record. Returns [`ControlFlow::Break`] if it shall wait, and all that follow.
    pub(super) fn record_or_wait(&mut self, time: Nanos, record: &Record<'_>) -> ControlFlow<()> {
        match record {
            Record::Occurrences(Occurrence::Wakeup, sample) => {
                self.wakeup(sample)?;
                self.losses.samples_seen += 1;
            }
            Record::Sample(sample) | Record::Occurrences(Occurrence::Fault, sample) => {
                if sample.pid.0 > 0 && self.filter.includes(sample.pid) {
                    match record {
                        Record::Occurrences(..) => self.faults(sample)?,
                        _ => self.sample(sample)?,
                    }
                }
                self.losses.samples_seen += 1;
                if sample.pid.0 <= 0 {
                    // 0 is outside of the pid namespace, so it is not the target (perf_event_pid).
                    if sample.pid.0 < 0 || self.filter.pids().is_none() {
                        self.losses.unattributed += 1;
                    }
                }
            }
            Record::Lost { records, cpu, .. } => self.losses.count(*cpu, *records, time),
            Record::LostSamples { samples, cpu } => {
                self.losses.count_samples(*cpu, *samples, time);
            }
            Record::Throttle { cpu, .. } => self.losses.pauses.start(*cpu, time),
            Record::Unthrottle { cpu, .. } => self.losses.pauses.end(*cpu, time),
            Record::Ksymbol(code) => {
                self.recorder.replace_kernel_code(KsymbolRow {
                    start: code.start,
                    size: code.len.into(),
                    unregistered: code.unregistered,
                    name: code.name.into(),
                    module: code.module().as_bytes().into(),
                });
            }
            _ => {
                if let Some(wakeups) = &mut self.wakeups {
                    wakeups.follow(record);
                }
                if self.filter.follow(time, record) {
                    self.walker.machine.apply(time, record);
                    self.starting.follow(record, &self.walker.machine);
                    if self.lives_since.is_some_and(|since| time >= since) {
                        self.follow_life(time, record);
                    }
                    self.follow_runtimes(time, record);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Follows a record of a process that may get a session.
    fn follow_runtimes(&mut self, time: Nanos, record: &Record<'_>) {
        let Some(starts) = self.events.starts() else {
            return;
        };
        match *record {
            Record::Mapping(ref mapping) if tells_of_runtime(mapping.path) => {
                if starts.loaded(mapping.pid, time) {
                    self.events.start_due(time);
                }
                self.walker.machine.ensure_process_row(mapping.pid);
            }
            Record::Comm {
                pid, exec: true, ..
            } => starts.executed(pid, time),
            Record::Exit { pid, tid } if pid.0 == tid.0 => starts.ended(pid),
            _ => {}
        }
    }

    /// Returns whether to preview records, at short intervals.
    pub(super) fn needs_previews(&mut self, now: Nanos) -> bool {
        self.starting.any(now) || self.walker.any_may_free_code(now)
    }

    /// Starts no more event sessions, and waits longer for analyses of code: no record arrives.
    pub(super) fn end_recording(&mut self) {
        self.events.end_starts();
        self.walker.wait_for_analyses();
    }

    /// Waits for analyses of code as long as a snapshot may take: no records arrive.
    pub(super) fn wait_for_snapshot(&mut self) {
        self.walker.wait_for_snapshot();
    }

    /// Ends the rundown and event sessions.
    ///
    /// Waits for the rest of the event streams until `enough` returns true.
    pub(super) fn finish_sessions(&mut self, enough: impl FnMut() -> bool) {
        // Early rundown requests lose fewer names, as code disappears with its process.
        self.rundowns.finish(&mut self.recorder);
        self.events.finish(enough);
        self.look_up_event_code(perf::now(), LAST_LOOKUP_LIMIT);
    }

    /// Looks up the code that the events refer to which have arrived, for at most `limit`.
    fn look_up_event_code(&mut self, now: Nanos, limit: Duration) {
        for (pid, item) in self.events.take() {
            if let Err(error) = self.event_code.take(pid, item, now, &mut self.walker) {
                self.events.fail(pid, RuntimeSessionError::Keep(error));
            }
        }
        let deadline = Instant::now() + limit;
        let Self {
            walker, recorder, ..
        } = self;
        self.event_code
            .look_up_waiting(now, deadline, walker, recorder);
    }

    /// Adds the kernel's own counts of losses, by CPU.
    pub(super) fn reconcile(&mut self, lost: &BTreeMap<u32, u64>) {
        for (&cpu, &records) in lost {
            self.losses.reconcile(Cpu(cpu), records);
        }
    }

    /// Returns whether the mappings of a process show a .NET runtime.
    pub(super) fn has_runtime(&self, pid: Pid) -> bool {
        has_runtime(&self.walker.machine, pid)
    }

    /// Returns whether a process belongs to the target.
    pub(super) fn includes(&self, pid: Pid) -> bool {
        pid.0 > 0 && self.filter.includes(pid)
    }

    /// Returns the current threads of the target.
    pub(super) fn threads(&self) -> Vec<Tid> {
        machine::threads(self.processes())
    }

    /// Returns the current processes of the target, or none if these are all processes.
    pub(super) fn processes(&self) -> Vec<Pid> {
        self.filter.pids().into_iter().flatten().collect()
    }

    /// Passes on the time that the records have reached, and the losses of the session.
    pub(super) fn tick(&mut self, now: Nanos, malformed: u64, late: u64) {
        self.losses.malformed_records = malformed;
        self.losses.late_records = late;
        self.walker.write_rows(&mut self.recorder);
        self.rundowns.write_rows(&mut self.recorder);
        self.rundowns.request_rundown(self.walker.take_unreadable());
        self.early.forget_before(now);
        for ended in self.walker.forget_ended() {
            self.event_code.forget(ended);
            self.rundowns.forget(ended);
        }
        self.walker.start_batch();
        self.start_due_sessions(now);
        self.look_up_event_code(now, LOOKUP_LIMIT);
        self.recorder.tick(now, &self.losses);
    }

    /// Returns the number of stack bytes that the deepest stack of each CPU had since the last call.
    pub(super) fn take_deepest(&mut self) -> BTreeMap<Cpu, u64> {
        std::mem::take(&mut self.deepest)
    }

    pub(super) fn samples(&self) -> u64 {
        self.recorder.samples()
    }

    pub(super) fn waits(&self) -> u64 {
        self.recorder.waits()
    }

    /// Returns the number of samples of page faults and wake-ups.
    pub(super) fn other_samples(&self) -> u64 {
        self.recorder.other_samples()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.recorder.bytes()
    }

    pub(super) fn event_size(&self) -> StreamSize {
        self.events.size()
    }

    /// Returns the number of processes that wait for their event sessions.
    pub(super) fn waiting_processes(&self) -> usize {
        self.events.held_back()
    }

    /// Returns the first process whose runtime lists its methods because its memory is not readable.
    pub(super) fn first_denied(&self) -> Option<Pid> {
        self.events
            .first_denied()
            .or_else(|| self.rundowns.first_denied())
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
        let unread = self.walker.machine.without_descriptors();
        let unread = (unread > 0).then(|| {
            let what = format!(
                "too many files were open to read {unread} processes: their code may have no names, and those \
                 of .NET may have no events"
            );
            Notice::new(NoticeKind::TooManyOpenFiles, what, MORE_DESCRIPTORS).counting(unread)
        });
        unread
            .into_iter()
            .chain(self.walker.notices())
            .chain(self.rundowns.notices())
            .chain(self.events.notices())
            .chain(self.wakeups.as_ref().and_then(Wakeups::notice))
            .chain(not_running::notices(
                self.filter.pids().into_iter().flatten(),
            ))
            .collect()
    }

    /// Adds the results of the capture, so that `recover` has them if the trace cannot be written.
    pub(super) fn put_results(&mut self, results: &Header) {
        if let Some(row) = SpoolRow::results(results) {
            self.recorder.put(&row);
        }
    }

    /// Ends the spool. Returns its end and the sources of symbols.
    pub(super) fn finish(mut self, now: Nanos) -> (SpoolEnd, Machine) {
        self.walker.write_rows(&mut self.recorder);
        self.losses.pauses.end_all(now);
        let (spool, files) = self.recorder.finish(now, &self.losses);
        (spool, self.walker.machine.into_symbol_sources(&files))
    }
}

/// Returns whether the mappings of a process show a runtime.
fn has_runtime(machine: &Machine, pid: Pid) -> bool {
    let maps = machine.maps(pid);
    maps.is_some_and(|maps| maps_runtime(maps, machine.files()))
}
