//! What a sample counts.

use crate::trace::{Sample, Trace};

/// What the samples of a trace count: CPU time, or the event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) is_time: bool,
}

impl Weights {
    pub(super) fn new(trace: &Trace) -> Self {
        Self {
            is_time: trace.info.counts_time(),
        }
    }

    /// Returns the nanoseconds of CPU time that a sample represents, or 1.
    pub(super) fn of(self, sample: &Sample) -> u64 {
        match self.is_time {
            true => sample.weight.0,
            // Weights of other events are nominal.
            false => 1,
        }
    }
}
