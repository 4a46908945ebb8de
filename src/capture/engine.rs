//! Records in, recording out: where the stack bytes of a sample die.

use super::target::{Filter, Target};
use crate::machine::{self, Machine, ProcError};
use crate::perf::{Record, SampleRecord};
use crate::trace::{
    CodeAddress, Losses, Nanos, Notice, Pid, Recorder, Recording, Sample, Truncation,
};
use crate::unwind::{SampledProcess, Unwinder, Walked};

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
            Record::Sample(sample) if self.filter.wants(sample.pid) => self.sample(sample),
            Record::Sample(_) => {}
            Record::Lost { records } => self.losses.lost_records += records,
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
        let (thread, process) = self.machine.sampled(sample.pid, sample.tid);
        let walked = match self.machine.maps(sample.pid) {
            Some(maps) => {
                let host = SampledProcess {
                    process,
                    pid: sample.pid,
                    time: sample.time,
                    maps,
                    files: self.machine.files(),
                };
                self.unwinder.walk(sample, host, &mut self.leaf_first)
            }
            None => Walked {
                cut: Some(Truncation::LostTrack),
                guessed: false,
            },
        };
        if self
            .leaf_first
            .iter()
            .any(|code| matches!(code, CodeAddress::Jit(..)))
        {
            self.machine.runs_jit_code(process);
        }
        if walked.guessed {
            self.recorder.count_guess();
        }
        let stack = self.recorder.stack(&self.leaf_first, walked.cut);
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
        self.losses.lost_records + self.losses.lost_samples
    }

    /// Whether nobody of the target is left.
    pub(super) fn target_gone(&self) -> bool {
        self.filter
            .pids()
            .is_some_and(|mut pids| pids.all(|pid| !machine::exists(pid)))
    }

    /// What the user should know.
    pub(super) fn notices(&self) -> Vec<Notice> {
        self.unwinder.notices().collect()
    }

    pub(super) fn finish(self) -> (Recording, Machine, Losses) {
        (self.recorder.finish(), self.machine, self.losses)
    }
}
