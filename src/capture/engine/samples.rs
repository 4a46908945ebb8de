//! Stacks of samples: of the CPU, page faults and wake-ups, in order or early.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use super::looks::Place;
use super::{Engine, has_runtime};
use crate::capture::early_stacks::EarlyStack;
use crate::capture::stack_walker::Walked;
use crate::dotnet::tells_of_runtime;
use crate::perf::{self, CpuMode, Record, SampleRecord};
use crate::trace::{
    Blocked, Callers, CodeAddress, Nanos, Pid, ProcessId, Sample, StackId, ThreadId, Tid,
    Truncation, Waker,
};
use crate::unwind::WalkOutcome;

impl<W: Write> Engine<'_, W> {
    pub(super) fn sample(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
        let sample = self.walked(record, true)?;
        let sample = Sample {
            weight: self.weight.weigh(record),
            ..sample
        };
        if self.lives_since.is_some() {
            let tid = tid_of(record);
            self.timeline.sample(tid, record.time, sample.weight.0);
        }
        if let Some(starts) = self.events.starts() {
            let machine = &self.walker.machine;
            starts.sampled(record.pid, record.time, sample.weight, || {
                has_runtime(machine, record.pid)
            });
        }
        self.recorder.sample_writer(&mut self.walker).push(sample);
        ControlFlow::Continue(())
    }

    pub(super) fn faults(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
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
    pub(super) fn wakeup(&mut self, record: &SampleRecord<'_>) -> ControlFlow<()> {
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
                        registers: (0, 0),
                        has_stack: true,
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
    pub(super) fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: ProcessId,
        is_preview: bool,
    ) -> Walked {
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
    pub(super) fn stack(&mut self, thread: ThreadId, truncation: Option<Truncation>) -> StackId {
        let mut writer = self.recorder.sample_writer(&mut self.walker);
        writer.stack(thread, &self.leaf_first, truncation)
    }

    /// Processes a record before the records are in order, if its process starts or frees code.
    ///
    /// A runtime should get the request for events before it compiles a method. When the record is
    /// in order, its process or its code may be gone. So a sample is walked early.
    pub(in crate::capture) fn preview(&mut self, record: &Record<'_>) {
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
