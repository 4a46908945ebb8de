//! CPU time that samples represent.

use crate::perf::{Clock, SampleRecord};
use crate::trace::{CaptureInfo, MAX_WEIGHT_NS, Nanos};

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

    pub(super) fn weigh(self, sample: &SampleRecord<'_>) -> Nanos {
        match self {
            Self::Period => Nanos(sample.period.min(MAX_WEIGHT_NS)),
            Self::Nominal(weight) => weight,
        }
    }
}
