//! What was kept, what was lost and how good it is. Every loss in the product ends in one of these counters.

use serde::{Deserialize, Serialize};

use super::FunctionKind;

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
    /// The caller lies beyond the bytes of stack that were copied.
    StackCopyEnded,
    /// The stack is deeper than the frame limit.
    TooDeep,
    /// The next frame could not be found: no usable unwind information, or a damaged stack.
    LostTrack,
    /// No user registers came with the sample (a 32-bit process, or the kernel withheld them).
    NoRegisters,
}

impl Truncation {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 4] = [
        Self::StackCopyEnded,
        Self::TooDeep,
        Self::LostTrack,
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
    /// See [`Truncation::LostTrack`].
    pub lost_track: u64,
    /// See [`Truncation::NoRegisters`].
    pub no_registers: u64,
    /// Samples with a caller that was found by the frame pointer alone, in code that need not keep one: callers may be
    /// missing and others wrong.
    #[serde(default)]
    pub guessed: u64,
}

impl StackQuality {
    /// Counts one sample.
    pub fn count(&mut self, truncation: Option<Truncation>) {
        *match truncation {
            None => &mut self.rooted,
            Some(Truncation::StackCopyEnded) => &mut self.stack_copy_ended,
            Some(Truncation::TooDeep) => &mut self.too_deep,
            Some(Truncation::LostTrack) => &mut self.lost_track,
            Some(Truncation::NoRegisters) => &mut self.no_registers,
        } += 1;
    }

    /// Samples whose stack was cut.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.stack_copy_ended + self.too_deep + self.lost_track + self.no_registers
    }
}

/// What became of everything the kernel produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Records the kernel dropped because a ring was full (PERF_RECORD_LOST).
    pub lost_records: u64,
    /// Samples the kernel dropped for any reason (PERF_RECORD_LOST_SAMPLES).
    pub lost_samples: u64,
    /// Times the kernel throttled sampling on a CPU.
    pub throttled: u64,
    /// Records that could not be parsed.
    pub malformed_records: u64,
    /// Records that came later than the merge waits; they were used, but out of order.
    pub late_records: u64,
}

/// Names by kind of frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
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

impl Names {
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

/// The quality report of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quality {
    /// Stacks.
    pub stacks: StackQuality,
    /// Names.
    pub names: Names,
    /// Losses.
    pub losses: Losses,
    /// Degradations and their remedies.
    pub notices: Vec<Notice>,
}
