//! Turns perf records into spool rows: filters processes, counts losses, records stacks.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::io::Write;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxBuildHasher, FxHashMap};

use perfcollect_symbols::symbolizer::Symbolizer;

use super::doubtful_code::DoubtfulCallers;
use super::early_stacks::{EarlyStack, EarlyStacks};
use super::event_code::EventCode;
use super::event_sessions::EventSessions;
use super::not_running;
use super::off_cpu::{Found, State, Tick, Timeline, Wait};
use super::patience::Patience;
use super::rundown_sessions::RundownSessions;
use super::snapshot;
use super::stack_walker::{StackWalker, Walked};
use super::starting_processes::StartingProcesses;
use super::target::{Filter, Target};
use super::wakeups::Wakeups;
use super::weight::Weight;
use crate::dotnet::{RuntimeSessionError, StreamSize, maps_runtime, tells_of_runtime};
use crate::machine::{self, Machine, ProcError};
use crate::perf::{self, CpuMode, Occurrence, Record, SampleRecord};
use crate::trace::spool::{KsymbolRow, SpoolEnd, SpoolRow};
use crate::trace::{
    Blocked, Callers, CodeAddress, Cpu, Header, Losses, MORE_DESCRIPTORS, Nanos, Notice,
    NoticeKind, Pid, ProcessId, Recorder, RowSource, Sample, StackId, ThreadId, Tid, Truncation,
    Waker,
};
use crate::unwind::WalkOutcome;

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
    /// Where they last ran, by samples.
    last_runs: FxHashMap<Tid, Place>,
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
            last_runs: FxHashMap::default(),
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
            Record::Lost { records, cpu } => self.losses.count(*cpu, *records, time),
            Record::LostSamples { samples, cpu } => {
                self.losses.count_samples(*cpu, *samples, time);
            }
            Record::Throttle(cpu) => self.losses.pauses.start(*cpu, time),
            Record::Unthrottle(cpu) => self.losses.pauses.end(*cpu, time),
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

    fn sample(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
        let sample = self.walked(record, true)?;
        let sample = Sample {
            weight: self.weight.weigh(record),
            ..sample
        };
        if let Some(starts) = self.events.starts() {
            let machine = &self.walker.machine;
            starts.sampled(record.pid, record.time, sample.weight, || {
                has_runtime(machine, record.pid)
            });
        }
        self.recorder.sample_writer(&mut self.walker).push(sample);
        ControlFlow::Continue(())
    }

    fn faults(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
        let sample = self.walked(record, false)?;
        let sample = Sample {
            weight: Nanos(record.period),
            ..sample
        };
        let mut writer = self.recorder.sample_writer(&mut self.walker);
        writer.push_faults(sample);
        ControlFlow::Continue(())
    }

    /// Adds a sample of wake-ups, if a thread of the target was woken.
    fn wakeup(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
        let Some(wakeups) = &mut self.wakeups else {
            return ControlFlow::Continue(());
        };
        let is_interrupt = wakeups.is_interrupt(record);
        let woken = wakeups.woken(record);
        let Some((pid, tid)) = woken.filter(|(pid, _)| self.filter.includes(*pid)) else {
            return ControlFlow::Continue(());
        };
        let (woken, woken_process) = self.walker.machine.sampled(pid, tid);
        self.leaf_first.clear();
        let waker = match is_interrupt {
            true => {
                self.leaf_first.extend(kernel_code(record));
                Waker::Interrupt
            }
            // Only the kernel's code is known of other processes.
            false if !self.filter.includes(record.pid) => {
                let waker = wakeups.outsider(record.pid, &mut self.recorder);
                self.leaf_first.extend(kernel_code(record));
                Waker::Outsider(waker)
            }
            false => {
                let tid = tid_of(record);
                let (thread, process) = self.walker.machine.sampled(record.pid, tid);
                let walked = self.walk(record, process, false).outcome;
                if walked.is_pending && self.may_wait && self.patience.may_wait(Instant::now()) {
                    return ControlFlow::Break(());
                }
                self.leaf_first
                    .extend(walked.cut.map(CodeAddress::Truncated));
                match process == woken_process {
                    true => Waker::Thread(thread),
                    false => Waker::OfOther(thread),
                }
            }
        };
        if self.patience.is_waiting() {
            self.patience.end(Instant::now());
        }
        self.leaf_first.push(CodeAddress::Waker(waker));
        let stack = self.stack(woken, None);
        let mut writer = self.recorder.sample_writer(&mut self.walker);
        writer.push_wakeups(Sample {
            time: record.time,
            weight: Nanos(record.period),
            thread: woken,
            cpu: record.cpu,
            stack,
        });
        ControlFlow::Continue(())
    }

    /// Returns the sample of a record, with its stack and without its weight. `is_of_cpu`: the thread ran, for
    /// its weight.
    fn walked(&mut self, sample: &SampleRecord<'_>, is_of_cpu: bool) -> ControlFlow<(), Sample> {
        let tid = tid_of(sample);
        let (thread, process) = self.walker.machine.sampled(sample.pid, tid);
        let early = self.early.take(tid, sample.time, thread);
        // The recorder may have dropped its id since. Then the stack is walked again.
        let early = early.filter(|stack| self.recorder.has_stack(*stack));
        let stack = match early {
            Some(stack) => stack,
            None => {
                let walked = self.walk(sample, process, false).outcome;
                if walked.is_pending && self.may_wait && self.patience.may_wait(Instant::now()) {
                    return ControlFlow::Break(());
                }
                // Callers that were not recorded are missing from all stacks, so one notice reports
                // them.
                let truncation = walked.cut.filter(|_| self.callers == Callers::All);
                if let Some(doubt) = walked.doubt.filter(|_| is_of_cpu) {
                    let (doubts, machine) = (&mut self.losses.doubts, &self.walker.machine);
                    self.doubtful.count(doubts, doubt, sample.pid, machine);
                }
                if is_of_cpu && self.timeline.follows(tid) {
                    let last = Place {
                        leaf: Blocked::Preempted,
                        stack_hash: 0,
                        callers: self.leaf_first.as_slice().into(),
                        truncation,
                    };
                    self.last_runs.insert(tid, last);
                }
                self.stack(thread, truncation)
            }
        };
        if self.patience.is_waiting() {
            self.patience.end(Instant::now());
        }
        ControlFlow::Continue(Sample {
            time: sample.time,
            weight: Nanos(0),
            thread,
            cpu: sample.cpu,
            stack,
        })
    }

    /// Walks the stack of a sample into `leaf_first`.
    fn walk(&mut self, sample: &SampleRecord<'_>, process: ProcessId, is_preview: bool) -> Walked {
        let walker = &mut self.walker;
        let walked = walker.walk(sample, process, is_preview, &mut self.leaf_first);
        if walker.machine.is_live() {
            let deepest = self.deepest.entry(sample.cpu).or_default();
            *deepest = walked.stack_bytes.max(*deepest);
        }
        let is_jit = |code: &CodeAddress| matches!(code, CodeAddress::Jit(..));
        if self.leaf_first.iter().any(is_jit)
            && walker.machine.mark_jit_process(process, sample.pid)
            && walker.machine.is_live()
        {
            self.rundowns.on_jit_process(process, sample.pid);
            if has_runtime(&walker.machine, sample.pid) {
                self.rundowns.note_denied(sample.pid);
            }
        }
        walked
    }

    /// Interns the stack in `leaf_first`.
    fn stack(&mut self, thread: ThreadId, truncation: Option<Truncation>) -> StackId {
        let mut writer = self.recorder.sample_writer(&mut self.walker);
        writer.stack(thread, &self.leaf_first, truncation)
    }

    /// Returns whether to preview records, at short intervals.
    pub(super) fn needs_previews(&mut self, now: Nanos) -> bool {
        self.starting.any(now) || self.walker.any_may_free_code(now)
    }

    /// Processes a record before the records are in order, if its process starts or frees code.
    ///
    /// A runtime should get the request for events before it compiles a method. When the record is
    /// in order, its process or its code may be gone. So a sample is walked early.
    pub(super) fn preview(&mut self, record: &Record<'_>) {
        match record {
            Record::Mapping(mapping) => {
                if self.filter.includes(mapping.pid)
                    && tells_of_runtime(mapping.path)
                    && let Some(starts) = self.events.starts()
                    && starts.loaded(mapping.pid, perf::now())
                {
                    // The process gets its row in order.
                    self.events.start_due(perf::now());
                }
                if self.is_previewed(mapping.pid) {
                    self.walker.machine.apply_mapping_early(mapping);
                }
            }
            Record::Sample(sample) if self.is_previewed(sample.pid) => {
                if let Some(process) = self.walker.machine.row_of(sample.pid) {
                    self.preview_sample(sample, process);
                }
            }
            _ => {}
        }
    }

    fn is_previewed(&self, pid: Pid) -> bool {
        let may_free = |process| self.walker.may_free_code(process, perf::now());
        self.starting.has(pid) || self.walker.machine.row_of(pid).is_some_and(may_free)
    }

    /// Walks the stack of a sample early. A stack that is whole by unwind information need not be
    /// walked again.
    fn preview_sample(&mut self, sample: &SampleRecord<'_>, process: ProcessId) {
        let walked = self.walk(sample, process, true);
        let thread = self.walker.machine.sampled_early(sample.pid, sample.tid);
        if let Some((thread, _)) = thread.filter(|(_, of)| *of == process)
            && walked.is_named
            && walked.outcome == WalkOutcome::default()
        {
            let early = EarlyStack {
                thread,
                stack: self.stack(thread, None),
            };
            self.early.insert(sample.tid, sample.time, early);
        }
    }

    /// Adds a look at a thread: where it was without a CPU since the look before.
    pub(super) fn look(&mut self, tick: &Tick) {
        let (thread, process) = self.walker.machine.sampled(tick.pid, tick.tid);
        let place = tick.found.as_ref();
        let place = place.map(|found| self.place(tick, process, found));
        if let (Some(new), Some(known)) = (&place, self.timeline.place_mut(tick.tid))
            && new.stack_hash == known.stack_hash
            && known.truncation.is_some()
        {
            *known = new.clone();
        }
        let waits = self.timeline.tick(tick, place);
        for wait in waits {
            let Wait {
                state,
                start,
                length,
            } = wait;
            let last_run = || self.last_runs.get(&tick.tid).cloned();
            let (leaf, place) = match state {
                State::Waits(place) => {
                    let leaf = place.as_ref().map(|place| place.leaf);
                    (leaf.unwrap_or(Blocked::Unknown), place)
                }
                State::Ready(place) => (Blocked::Ready, place),
                State::Preempted => (Blocked::Preempted, last_run()),
                State::ReadyThrottled(place) => (Blocked::Throttled, place),
                State::Throttled => (Blocked::Throttled, last_run()),
            };
            self.leaf_first.clear();
            self.leaf_first.push(CodeAddress::Blocked(leaf));
            let mut truncation = None;
            if let Some(place) = place {
                self.leaf_first.extend_from_slice(&place.callers);
                truncation = place.truncation;
            }
            let stack = self.stack(thread, truncation);
            let mut writer = self.recorder.sample_writer(&mut self.walker);
            writer.push_blocked(Sample {
                time: Nanos(start.0.saturating_add(length)),
                weight: Nanos(length),
                thread,
                cpu: Cpu(0),
                stack,
            });
        }
        if !self.timeline.follows(tick.tid) {
            self.last_runs.remove(&tick.tid);
        }
    }

    /// Returns where a thread waits. Its stack is walked only if it differs from that of the last look, or
    /// if that one was incomplete: code may have been analyzed since.
    fn place(&mut self, tick: &Tick, process: ProcessId, found: &Found) -> Place {
        let Some(read) = &found.read else {
            return Place {
                leaf: found.place,
                stack_hash: 0,
                callers: Rc::default(),
                truncation: None,
            };
        };
        let (sp, ip) = (read.blocked.sp, read.blocked.ip);
        let stack_hash = FxBuildHasher.hash_one((sp, ip, &read.stack));
        if let Some(known) = self.timeline.place(tick.tid)
            && known.stack_hash == stack_hash
            && known.truncation != Some(Truncation::UnwindFailed)
        {
            let callers = Rc::clone(&known.callers);
            return Place {
                leaf: found.place,
                callers,
                ..*known
            };
        }
        let sample = snapshot::sample(tick.pid, tick.tid, read);
        let truncation = self.walk(&sample, process, false).outcome.cut;
        Place {
            leaf: found.place,
            stack_hash,
            callers: self.leaf_first.as_slice().into(),
            truncation,
        }
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

/// Returns the thread of a sample.
///
/// The kernel has no ids any more (-1) for a thread that is being reaped. The process id replaces them, as no
/// reader of the trace accepts a negative id.
fn tid_of(sample: &SampleRecord<'_>) -> Tid {
    match sample.tid.0 < 0 {
        true => Tid(sample.pid.0),
        false => sample.tid,
    }
}

/// Returns the kernel's part of the stack of a sample, leaf first.
fn kernel_code(sample: &SampleRecord<'_>) -> impl Iterator<Item = CodeAddress> {
    let code = sample.addresses();
    let code = code.filter(|(mode, _)| *mode == CpuMode::Kernel);
    code.map(|(_, address)| CodeAddress::Kernel(address))
}

/// Where a thread waits.
#[derive(Clone)]
struct Place {
    leaf: Blocked,
    /// Hash of the registers and the stack.
    stack_hash: u64,
    /// Functions of the stack, innermost first.
    callers: Rc<[CodeAddress]>,
    truncation: Option<Truncation>,
}

/// Returns whether the mappings of a process show a runtime.
fn has_runtime(machine: &Machine, pid: Pid) -> bool {
    let maps = machine.maps(pid);
    maps.is_some_and(|maps| maps_runtime(maps, machine.files()))
}
