//! Quality counters of a trace: samples kept, records lost, frames symbolized. Every loss is
//! counted here.

use serde::{Deserialize, Serialize};

use super::{Callers, Cpu, DoubtfulCode, Doubts, FunctionKind, Nanos, Notice, Pauses};

/// Frames of one kind over all kept samples. A frame counts once per sample that contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameCount {
    /// Symbolized frames.
    pub named: u64,
    /// Unresolved frames, shown as module and offset, or as an address.
    #[serde(rename = "unnamed")]
    pub unresolved: u64,
}

impl NameCount {
    /// Counts a frame that `samples` samples contain.
    pub fn count(&mut self, named: bool, samples: u64) {
        *if named {
            &mut self.named
        } else {
            &mut self.unresolved
        } += samples;
    }
}

/// Reason why a stack ends before the root of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// The caller is beyond the user stack copy, and the frame pointers do not reach the root.
    StackCopyEnded,
    /// The stack is deeper than the frame limit.
    TooDeep,
    /// The next frame was not found: no usable unwind information, or a corrupt stack.
    UnwindFailed,
    /// No user registers came with the sample (a 32-bit process, or the kernel withheld them).
    NoRegisters,
    /// The user stack copy ends at a page that was not in memory, below the caller.
    AbsentPage,
    /// A function has changed to another stack, and the frame pointers there do not reach the root.
    OtherStack,
}

impl Truncation {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 6] = [
        Self::StackCopyEnded,
        Self::TooDeep,
        Self::UnwindFailed,
        Self::NoRegisters,
        Self::AbsentPage,
        Self::OtherStack,
    ];

    /// Returns the name of the marker at the root of such a stack.
    #[must_use]
    pub fn marker(self) -> &'static str {
        match self {
            Self::StackCopyEnded => "[truncated: stack copy ended]",
            Self::TooDeep => "[truncated: too deep]",
            Self::UnwindFailed => "[truncated: lost track]",
            Self::NoRegisters => "[truncated: no registers]",
            Self::AbsentPage => "[truncated: stack page not in memory]",
            Self::OtherStack => "[truncated: other stack]",
        }
    }
}

/// Completeness of the stacks.
///
/// Every kept sample is in exactly one counter. `likely` and `guessed` count some in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackQuality {
    /// Samples whose stack reaches the root of its thread (or the kernel entry of a kernel thread).
    pub rooted: u64,
    /// See [`Truncation::StackCopyEnded`].
    pub stack_copy_ended: u64,
    /// See [`Truncation::TooDeep`].
    pub too_deep: u64,
    /// See [`Truncation::UnwindFailed`].
    #[serde(rename = "lost_track")]
    pub unwind_failed: u64,
    /// See [`Truncation::NoRegisters`].
    pub no_registers: u64,
    /// See [`Truncation::OtherStack`].
    #[serde(default)]
    pub other_stack: u64,
    /// Samples with a caller that an analysis of instructions found, but could not check. See
    /// [`super::Doubt::Likely`].
    #[serde(default)]
    pub likely: u64,
    /// See [`Truncation::AbsentPage`].
    #[serde(default)]
    pub absent_page: u64,
    /// Samples with a caller found by frame pointer only, in code that may not keep one.
    ///
    /// Such a stack may miss callers or contain wrong ones.
    #[serde(default)]
    pub guessed: u64,
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
            Some(Truncation::UnwindFailed) => &mut self.unwind_failed,
            Some(Truncation::NoRegisters) => &mut self.no_registers,
            Some(Truncation::AbsentPage) => &mut self.absent_page,
            Some(Truncation::OtherStack) => &mut self.other_stack,
        } += 1;
    }

    /// Returns the number of kept samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        let counts = [self.rooted, self.truncated(), self.as_recorded, self.empty];
        // The summary of a trace is untrusted.
        counts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the number of samples whose stack is truncated.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        let counts = [
            self.stack_copy_ended,
            self.absent_page,
            self.other_stack,
            self.too_deep,
            self.unwind_failed,
            self.no_registers,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Losses of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLosses {
    /// CPU id.
    pub cpu: u32,
    /// Records that the kernel dropped because the ring buffer was full.
    pub records: u64,
    /// Samples that the kernel dropped for other reasons.
    #[serde(default)]
    pub samples: u64,
    /// Time of the first reported loss, nanoseconds on CLOCK_MONOTONIC.
    ///
    /// Zero if only the final count contains losses.
    pub first_ns: u64,
    /// Time of the last reported loss, see `first_ns`.
    pub last_ns: u64,
}

/// Losses between the kernel and the trace: `samples_seen` + lost = produced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Samples that reached perfcollect, including those of processes outside the target.
    pub samples_seen: u64,
    /// Records that the kernel dropped because a ring buffer was full.
    ///
    /// The kernel's final count (PERF_FORMAT_LOST) or, before Linux 6.0, the sum of its reports
    /// (PERF_RECORD_LOST).
    pub lost_records: u64,
    /// Losses of each CPU that has any.
    pub by_cpu: Vec<CpuLosses>,
    /// Samples that the kernel dropped for other reasons (PERF_RECORD_LOST_SAMPLES).
    pub lost_samples: u64,
    /// Samples without a process id.
    ///
    /// The process is being reaped, or is outside perfcollect's pid namespace.
    pub unattributed: u64,
    /// Stacks with doubtful callers: the source of [`StackQuality::likely`] and
    /// [`StackQuality::guessed`].
    #[serde(skip)]
    pub doubts: Doubts,
    /// Times at which the kernel throttled sampling, by CPU. The skipped samples are not counted.
    #[serde(default)]
    pub pauses: Pauses,
    /// Records that could not be parsed.
    pub malformed_records: u64,
    /// Records that arrived after the reorder window. They were used, but out of order.
    pub late_records: u64,
}

/// Lost records per thousand produced above which perfcollect warns.
const WARN_PER_MILLE: u64 = 10;
/// Lost records per thousand produced above which every output declares the trace incomplete.
const INCOMPLETE_PER_MILLE: u64 = 100;

impl Losses {
    /// Returns the number of dropped records and samples.
    ///
    /// The kernel can drop any record, so some of the records may not have been samples.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_records.saturating_add(self.lost_samples)
    }

    fn exceeds(&self, per_mille: u64) -> bool {
        let produced = u128::from(self.samples_seen) + u128::from(self.lost());
        u128::from(self.lost()) * 1000 > produced * u128::from(per_mille)
    }

    /// Returns whether more than 1 % was lost.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.exceeds(WARN_PER_MILLE)
    }

    /// Returns whether more than 1 % of the seen samples have no process id.
    #[must_use]
    pub fn misses_processes(&self) -> bool {
        u128::from(self.unattributed) * 1000
            > u128::from(self.samples_seen) * u128::from(WARN_PER_MILLE)
    }

    /// Returns whether more than 10 % was lost: the trace may differ widely from what happened.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.exceeds(INCOMPLETE_PER_MILLE)
    }

    /// Returns the warning that every output of an incomplete trace contains.
    #[must_use]
    pub fn incomplete_warning(&self) -> Option<String> {
        let lost = self.lost();
        let produced = lost.saturating_add(self.samples_seen);
        self.is_incomplete()
            .then(|| format!("INCOMPLETE: the kernel dropped {lost} of {produced} records"))
    }

    /// Returns the time range from the first to the last reported loss.
    #[must_use]
    pub fn range(&self) -> Option<(Nanos, Nanos)> {
        let reported = || self.by_cpu.iter().filter(|on| on.last_ns > 0);
        let first = reported().map(|on| on.first_ns).min()?;
        let last = reported().map(|on| on.last_ns).max()?;
        Some((Nanos(first), Nanos(last)))
    }

    /// Counts records dropped on a CPU.
    pub fn count(&mut self, cpu: Cpu, records: u64, time: Nanos) {
        self.lost_records = self.lost_records.saturating_add(records);
        let on = self.on(cpu, time);
        on.records = on.records.saturating_add(records);
    }

    /// Counts samples dropped on a CPU for another reason than a full ring buffer.
    pub fn count_samples(&mut self, cpu: Cpu, samples: u64, time: Nanos) {
        self.lost_samples = self.lost_samples.saturating_add(samples);
        let on = self.on(cpu, time);
        on.samples = on.samples.saturating_add(samples);
    }

    /// Returns the counters of a CPU, and records the time of the report.
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

    /// Adds the kernel's own count for a CPU.
    ///
    /// The count includes losses that no ring buffer had room to report.
    pub fn reconcile(&mut self, cpu: Cpu, records: u64) {
        let reported = self.by_cpu.iter().find(|losses| losses.cpu == cpu.0);
        let unreported = records.saturating_sub(reported.map_or(0, |losses| losses.records));
        if unreported > 0 {
            let last = reported.map_or(Nanos(0), |losses| Nanos(losses.last_ns));
            self.count(cpu, unreported, last);
        }
    }
}

/// Symbolized and unresolved frames by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolCounts {
    /// Kernel code.
    pub kernel: NameCount,
    /// Machine code of ELF files.
    pub native: NameCount,
    /// Code compiled while the process runs (JIT code).
    pub jit: NameCount,
    /// ReadyToRun code.
    pub ready_to_run: NameCount,
    /// Addresses in no known mapping.
    pub unmapped: NameCount,
}

impl SymbolCounts {
    /// Returns the counter of a kind; markers have none.
    pub fn of_kind(&mut self, kind: FunctionKind) -> Option<&mut NameCount> {
        Some(match kind {
            FunctionKind::Kernel => &mut self.kernel,
            FunctionKind::Native => &mut self.native,
            FunctionKind::Jit => &mut self.jit,
            FunctionKind::ReadyToRun => &mut self.ready_to_run,
            FunctionKind::Unmapped => &mut self.unmapped,
            FunctionKind::Marker | FunctionKind::Blocked | FunctionKind::Group => return None,
        })
    }
}

/// Counts of one runtime's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEvents {
    /// Process id.
    pub pid: i32,
    /// Events received.
    pub events: u64,
    /// Events that the runtime dropped because its buffer was full, by gaps in sequence numbers.
    pub dropped: u64,
    /// Events received but not readable.
    pub unknown: u64,
    /// Events whose stack was not kept.
    pub without_stack: u64,
    /// Reason why the stream ends early; empty if the stream is complete.
    #[serde(rename = "cut")]
    pub truncated: String,
    /// Thread ids in the process's pid namespace (as in the stream) and in perfcollect's.
    ///
    /// Empty if both namespaces are the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<(i32, i32)>,
}

/// The quality report of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quality {
    /// Completeness of the stacks.
    pub stacks: StackQuality,
    /// Code whose callers are not certain, that with the most stacks first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubtful: Vec<DoubtfulCode>,
    /// Symbolized and unresolved frames.
    pub names: SymbolCounts,
    /// Lost records.
    pub losses: Losses,
    /// Event counts, one row per process instance whose events were requested.
    #[serde(default)]
    pub events: Vec<ProcessEvents>,
    /// Degradations and their remedies.
    pub notices: Vec<Notice>,
}

impl Quality {
    /// Returns whether the trace lacks what was asked for: a part of the samples, or their time.
    #[must_use]
    pub fn is_poorer_than_asked(&self) -> bool {
        use super::NoticeKind::{DiskSpace, SpoolFull};
        let lacks = |notice: &Notice| matches!(notice.kind, DiskSpace | SpoolFull);
        self.losses.is_incomplete() || self.notices.iter().any(lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_kept_and_lost_to_produced() {
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
        let warning = "INCOMPLETE: the kernel dropped 125 of 1005 records";
        assert_eq!(losses.incomplete_warning().as_deref(), Some(warning));
    }

    #[test]
    fn warns_above_one_percent() {
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
