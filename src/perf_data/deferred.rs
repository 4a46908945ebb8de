//! Samples with a deferred callchain.
//!
//! The kernel records the user part when the thread returns to user space.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::perf::DeferredKey;
use crate::trace::{Nanos, Tid};

/// Estimated memory per sample, in addition to its record.
const ENTRY_BYTES: usize = 512;

/// Samples that wait for the user part of their callchain.
#[derive(Default)]
pub(super) struct DeferredSamples {
    /// By thread and cookie.
    samples: FxHashMap<Tid, FxHashMap<u64, Vec<DeferredSample>>>,
    /// Number of samples by time.
    times: BTreeMap<Nanos, u32>,
    bytes: usize,
    /// Number of samples whose user part was not recorded.
    pub(super) missing: u64,
}

/// A sample that waits for the user part of its callchain.
pub(super) struct DeferredSample {
    pub(super) time: Nanos,
    pub(super) event: u32,
    pub(super) record: Vec<u8>,
}

impl DeferredSamples {
    /// Returns the memory size of the samples.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the time of the oldest sample. Newer records must not be flushed.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.times.first_key_value().map(|(time, _)| *time)
    }

    pub(super) fn push(&mut self, (tid, cookie): DeferredKey, sample: DeferredSample) {
        *self.times.entry(sample.time).or_default() += 1;
        self.bytes += sample.record.len() + ENTRY_BYTES;
        let thread = self.samples.entry(tid).or_default();
        thread.entry(cookie).or_default().push(sample);
    }

    /// Removes and returns the samples that wait for a user part.
    pub(super) fn take(&mut self, (tid, cookie): DeferredKey) -> Vec<DeferredSample> {
        let thread = self.samples.get_mut(&tid);
        let taken = thread.and_then(|thread| thread.remove(&cookie));
        let taken = taken.unwrap_or_default();
        self.subtract(&taken);
        taken
    }

    /// Removes and returns the samples of a thread that has ended, and counts them as missing.
    pub(super) fn take_incomplete(&mut self, thread: Tid) -> Vec<DeferredSample> {
        let cookies = self.samples.remove(&thread).unwrap_or_default();
        let incomplete: Vec<_> = cookies.into_values().flatten().collect();
        self.subtract(&incomplete);
        self.missing += incomplete.len() as u64;
        incomplete
    }

    /// Removes and returns the samples of all threads, and counts them as missing.
    pub(super) fn take_all_incomplete(&mut self) -> Vec<DeferredSample> {
        let threads: Vec<_> = self.samples.keys().copied().collect();
        let incomplete = threads
            .into_iter()
            .flat_map(|thread| self.take_incomplete(thread));
        incomplete.collect()
    }

    /// Subtracts removed samples from the totals.
    fn subtract(&mut self, removed: &[DeferredSample]) {
        for sample in removed {
            self.bytes -= sample.record.len() + ENTRY_BYTES;
            if let Some(count) = self.times.get_mut(&sample.time) {
                *count -= 1;
                if *count == 0 {
                    self.times.remove(&sample.time);
                }
            }
        }
    }
}
