//! What was kept, what was lost and how good it is. Every loss in the product ends in one of these counters.

use serde::{Deserialize, Serialize};

use super::{Callers, Cpu, FunctionKind, Nanos, Pauses};

/// Counts of one kind of frame over all kept samples: a frame counts once per sample it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameCount {
    /// Frames with a function name.
    pub named: u64,
    /// Frames shown as module and offset, or as an address.
    pub unnamed: u64,
}

impl NameCount {
    /// Counts a frame that is in this many samples.
    pub fn count(&mut self, named: bool, samples: u64) {
        *if named {
            &mut self.named
        } else {
            &mut self.unnamed
        } += samples;
    }
}

/// Why a stack ends before the root of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// The caller lies beyond the bytes of stack that were copied, and the frame pointers do not lead to the root either.
    StackCopyEnded,
    /// The stack is deeper than the frame limit.
    TooDeep,
    /// The next frame could not be found: no usable unwind information, or a damaged stack.
    UnwindFailed,
    /// No user registers came with the sample (a 32-bit process, or the kernel withheld them).
    NoRegisters,
}

impl Truncation {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 4] = [
        Self::StackCopyEnded,
        Self::TooDeep,
        Self::UnwindFailed,
        Self::NoRegisters,
    ];
}

/// How complete the stacks are; every kept sample is in exactly one counter, and may be in `guessed` besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackQuality {
    /// Samples whose stack reaches the root of its thread (or the kernel entry for a kernel thread).
    pub rooted: u64,
    /// See [`Truncation::StackCopyEnded`].
    pub stack_copy_ended: u64,
    /// See [`Truncation::TooDeep`].
    pub too_deep: u64,
    /// See [`Truncation::UnwindFailed`].
    pub lost_track: u64,
    /// See [`Truncation::NoRegisters`].
    pub no_registers: u64,
    /// Samples with a caller that was found by the frame pointer alone, where code need not keep one: callers may be
    /// missing and others wrong.
    #[serde(default, rename = "guessed")]
    pub fp_fallback: u64,
    /// Samples with an address whose callers were not all recorded, see [`Callers`].
    #[serde(default)]
    pub as_recorded: u64,
    /// Samples without any address.
    #[serde(default)]
    pub empty: u64,
}

impl StackQuality {
    /// Counts one sample that has an address.
    pub fn count(&mut self, truncation: Option<Truncation>, callers: Callers) {
        *match truncation {
            None if callers == Callers::All => &mut self.rooted,
            None => &mut self.as_recorded,
            Some(Truncation::StackCopyEnded) => &mut self.stack_copy_ended,
            Some(Truncation::TooDeep) => &mut self.too_deep,
            Some(Truncation::UnwindFailed) => &mut self.lost_track,
            Some(Truncation::NoRegisters) => &mut self.no_registers,
        } += 1;
    }

    /// All kept samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.rooted + self.truncated() + self.as_recorded + self.empty
    }

    /// Samples whose stack was cut.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.stack_copy_ended + self.too_deep + self.lost_track + self.no_registers
    }
}

/// What one CPU lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLosses {
    /// Its number.
    pub cpu: u32,
    /// Records the kernel dropped there because the ring was full.
    pub records: u64,
    /// Samples it dropped there for other reasons.
    #[serde(default)]
    pub samples: u64,
    /// When the first and the last loss was reported, nanoseconds on CLOCK_MONOTONIC; zeros if only the final count
    /// tells of any.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
}

/// What became of everything the kernel produced: `samples_seen` + lost = produced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Samples that reached the collector, those of processes outside the target included.
    pub samples_seen: u64,
    /// Records the kernel dropped because a ring was full, as its own count at the end has it (PERF_FORMAT_LOST) or,
    /// before Linux 6.0, as the rings report (PERF_RECORD_LOST).
    pub lost_records: u64,
    /// The same by CPU, where there are any.
    pub by_cpu: Vec<CpuLosses>,
    /// Samples the kernel dropped for other reasons (PERF_RECORD_LOST_SAMPLES).
    pub lost_samples: u64,
    /// Samples that were seen but belong to nobody: their process is being reaped, or is outside the collector's pid
    /// namespace, so that the kernel tells no id.
    pub unattributed: u64,
    /// Stacks with a caller found by the frame pointer: [`StackQuality::fp_fallback`], which is made of it.
    #[serde(skip)]
    pub fp_fallback_stacks: u64,
    /// When the kernel throttled sampling, by CPU: what ran there meanwhile is missing, and counted nowhere.
    #[serde(default)]
    pub pauses: Pauses,
    /// Records that could not be parsed.
    pub malformed_records: u64,
    /// Records that came later than the merge waits; they were used, but out of order.
    pub late_records: u64,
}

/// Lost records per thousand produced from which a warning is due.
const WARN_PER_MILLE: u64 = 10;
/// Lost records per thousand produced from which every output says that the trace is incomplete.
const INCOMPLETE_PER_MILLE: u64 = 100;

impl Losses {
    /// All that was dropped. Any record can be lost, so some of these may have been no samples.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_records.saturating_add(self.lost_samples)
    }

    fn exceeds(&self, per_mille: u64) -> bool {
        let produced = u128::from(self.samples_seen) + u128::from(self.lost());
        u128::from(self.lost()) * 1000 > produced * u128::from(per_mille)
    }

    /// Over 1 % lost.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.exceeds(WARN_PER_MILLE)
    }

    /// Over 1 % of what was seen belongs to nobody.
    #[must_use]
    pub fn misses_processes(&self) -> bool {
        u128::from(self.unattributed) * 1000
            > u128::from(self.samples_seen) * u128::from(WARN_PER_MILLE)
    }

    /// Over 10 % lost: what the trace shows may be far from what happened.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.exceeds(INCOMPLETE_PER_MILLE)
    }

    /// What marks every output of an incomplete trace.
    #[must_use]
    pub fn mark(&self) -> Option<String> {
        let lost = self.lost();
        let produced = lost.saturating_add(self.samples_seen);
        self.is_incomplete()
            .then(|| format!("INCOMPLETE: the kernel dropped {lost} of {produced} records"))
    }

    /// From the first to the last report of a loss.
    #[must_use]
    pub fn range(&self) -> Option<(Nanos, Nanos)> {
        let reported = || self.by_cpu.iter().filter(|on| on.last_ns > 0);
        let first = reported().map(|on| on.first_ns).min()?;
        let last = reported().map(|on| on.last_ns).max()?;
        Some((Nanos(first), Nanos(last)))
    }

    /// Counts records dropped on a CPU, reported at a time.
    pub fn count(&mut self, cpu: Cpu, records: u64, time: Nanos) {
        self.lost_records = self.lost_records.saturating_add(records);
        let on = self.on(cpu, time);
        on.records = on.records.saturating_add(records);
    }

    /// Counts samples dropped on a CPU for other reasons than a full ring.
    pub fn count_samples(&mut self, cpu: Cpu, samples: u64, time: Nanos) {
        self.lost_samples = self.lost_samples.saturating_add(samples);
        let on = self.on(cpu, time);
        on.samples = on.samples.saturating_add(samples);
    }

    /// The counters of a CPU, for a report at this time.
    fn on(&mut self, Cpu(cpu): Cpu, time: Nanos) -> &mut CpuLosses {
        let at = self.by_cpu.iter().position(|losses| losses.cpu == cpu);
        let at = at.unwrap_or_else(|| {
            self.by_cpu.push(CpuLosses {
                cpu,
                first_ns: time.0,
                ..CpuLosses::default()
            });
            self.by_cpu.len() - 1
        });
        let losses = &mut self.by_cpu[at];
        losses.last_ns = time.0;
        losses
    }

    /// Takes the kernel's own count for a CPU, which includes what no ring had room to report.
    pub fn reconcile(&mut self, cpu: Cpu, records: u64) {
        let reported = self.by_cpu.iter().find(|losses| losses.cpu == cpu.0);
        let unreported = records.saturating_sub(reported.map_or(0, |losses| losses.records));
        if unreported > 0 {
            let last = reported.map_or(Nanos(0), |losses| Nanos(losses.last_ns));
            self.count(cpu, unreported, last);
        }
    }
}

/// Names by kind of frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolCounts {
    /// Kernel code.
    pub kernel: NameCount,
    /// Machine code of ELF files.
    pub native: NameCount,
    /// Code compiled while the process runs.
    pub jit: NameCount,
    /// Precompiled .NET code.
    pub ready_to_run: NameCount,
    /// Addresses in no known mapping.
    pub unmapped: NameCount,
}

impl SymbolCounts {
    /// The counter of a kind; markers have none.
    pub fn of_kind(&mut self, kind: FunctionKind) -> Option<&mut NameCount> {
        Some(match kind {
            FunctionKind::Kernel => &mut self.kernel,
            FunctionKind::Native => &mut self.native,
            FunctionKind::Jit => &mut self.jit,
            FunctionKind::ReadyToRun => &mut self.ready_to_run,
            FunctionKind::Unmapped => &mut self.unmapped,
            FunctionKind::Marker => return None,
        })
    }
}

/// Something the user should know: what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What was asked and not granted, or what is missing, with its reason.
    pub what: String,
    /// What to do about it; empty when there is nothing to do.
    pub remedy: String,
}

impl Notice {
    /// A notice with a remedy (which may be empty).
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// What one runtime sent of its events, and what it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEvents {
    /// The process.
    pub pid: i32,
    /// Events that came.
    pub events: u64,
    /// Events the runtime dropped because its buffer was full, by the gaps in its numbers.
    pub dropped: u64,
    /// Events that came but could not be read.
    pub unknown: u64,
    /// Events whose stack was not kept.
    pub without_stack: u64,
    /// Why its stream ends early; empty if it does not.
    pub cut: String,
    /// Its threads: the id in its own pid namespace, which is that in its stream, and in the collector's. Empty where that
    /// is one namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<(i32, i32)>,
}

/// The quality report of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quality {
    /// Stacks.
    pub stacks: StackQuality,
    /// Names.
    pub names: SymbolCounts,
    /// Losses.
    pub losses: Losses,
    /// Runtimes that were asked for their events; a row for each life of a process.
    #[serde(default)]
    pub events: Vec<ProcessEvents>,
    /// Degradations and their remedies.
    pub notices: Vec<Notice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_and_lost_is_produced() {
        let mut losses = Losses {
            samples_seen: 880,
            ..Default::default()
        };
        losses.count(Cpu(3), 10, Nanos(5));
        losses.count(Cpu(3), 20, Nanos(9));
        losses.reconcile(Cpu(3), 100);
        losses.reconcile(Cpu(1), 20);
        losses.reconcile(Cpu(0), 0);
        assert_eq!(losses.lost(), 120);
        assert_eq!((losses.by_cpu[0].cpu, losses.by_cpu[0].records), (3, 100));
        assert_eq!(
            (losses.by_cpu[0].first_ns, losses.by_cpu[0].last_ns),
            (5, 9)
        );
        assert_eq!((losses.by_cpu[1].cpu, losses.by_cpu[1].records), (1, 20));
        losses.count_samples(Cpu(1), 5, Nanos(7));
        assert_eq!((losses.lost(), losses.by_cpu[1].samples), (125, 5));
        assert_eq!(losses.range(), Some((Nanos(0), Nanos(9))));
        let mark = "INCOMPLETE: the kernel dropped 125 of 1005 records";
        assert_eq!(losses.mark().as_deref(), Some(mark));
    }

    #[test]
    fn a_warning_is_due_above_one_percent() {
        let losses = |lost_records| Losses {
            samples_seen: 1000 - lost_records,
            lost_records,
            ..Default::default()
        };
        assert!(!losses(0).is_notable() && !losses(10).is_notable());
        assert!(losses(11).is_notable() && !losses(100).is_incomplete());
        assert!(losses(101).is_incomplete());
        assert!(!Losses::default().is_notable());
    }
}
