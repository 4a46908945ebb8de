//! Records in, recording out: where the stack bytes of a sample die.

use super::target::{Filter, Target};
use crate::machine::{self, Machine, ProcError};
use crate::perf::{Record, SampleRecord};
use crate::trace::{CodeAddress, Losses, Nanos, Pid, Recorder, Recording, Sample, Tid, Truncation};
use crate::unwind::Unwinder;

pub(super) struct Engine<'a> {
    target: &'a Target,
    filter: Filter,
    machine: Machine,
    unwinder: Unwinder,
    recorder: Recorder,
    losses: Losses,
    /// The stack at hand, kept to spare an allocation a sample.
    leaf_first: Vec<CodeAddress>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(target: &'a Target) -> Self {
        Self {
            target,
            filter: Filter::new(target),
            machine: Machine::default(),
            unwinder: Unwinder::default(),
            recorder: Recorder::default(),
            losses: Losses::default(),
            leaf_first: Vec::new(),
        }
    }

    /// Takes in what runs already. Recording has begun, so nothing falls between.
    pub(super) fn begin(&mut self, command: Option<Pid>) -> Result<(), ProcError> {
        self.filter.begin(self.target, command)?;
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
            Record::LostSamples { samples } => self.losses.lost_samples += samples,
            Record::Throttle => self.losses.throttled += 1,
            _ => {
                if self.filter.follow(record) {
                    self.machine.apply(time, record);
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
        let cut = match self.machine.maps(sample.pid) {
            Some(maps) => self.unwinder.walk(
                sample,
                process,
                maps,
                self.machine.files(),
                &mut self.leaf_first,
            ),
            None => Some(Truncation::LostTrack),
        };
        if self
            .leaf_first
            .iter()
            .any(|code| matches!(code, CodeAddress::Jit(..)))
        {
            self.machine.runs_jit_code(process);
        }
        let stack = self.recorder.stack(&self.leaf_first, cut);
        self.recorder.push(Sample {
            time: sample.time,
            weight: Nanos(sample.period),
            thread,
            cpu: sample.cpu,
            stack,
        });
    }

    pub(super) fn samples(&self) -> u64 {
        self.recorder.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.recorder.bytes()
    }

    pub(super) fn lost(&self) -> u64 {
        self.losses.lost()
    }

    /// Whether nobody of the target is left.
    pub(super) fn target_gone(&self) -> bool {
        self.filter
            .pids()
            .is_some_and(|mut pids| pids.all(|pid| !machine::exists(pid)))
    }

    pub(super) fn finish(self) -> (Recording, Machine, Losses) {
        (self.recorder.finish(), self.machine, self.losses)
    }
}
