//! CPU time that samples represent.

use crate::perf::{Clock, PerfSession, SampleRecord};
use crate::trace::{CaptureInfo, MAX_WEIGHT_NS, Nanos};

/// CPU time that a sample represents, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// The period of the sample.
    Period,
    /// The time between two samples at the requested rate.
    ///
    /// Cycles are no measure of time, as the CPU's frequency changes. The period of other samples may not be
    /// recorded.
    Nominal(Nanos),
}

impl Weight {
    pub(super) fn new(session: &PerfSession, info: &CaptureInfo) -> Self {
        match (session.clock(), session.has_periods()) {
            (Clock::CpuClock, true) => Self::Period,
            (Clock::Cycles, _) | (_, false) => Self::Nominal(Nanos(info.period_ns)),
        }
    }

    pub(super) fn weigh(self, sample: &SampleRecord<'_>) -> Nanos {
        match self {
            Self::Period => Nanos(sample.period.min(MAX_WEIGHT_NS)),
            Self::Nominal(weight) => weight,
        }
    }
}
