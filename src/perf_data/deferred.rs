//! Samples that wait for the user part of their callchain, which the kernel records when their thread returns to user space.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::perf::DeferredKey;
use crate::trace::{Nanos, Tid};

/// Samples that wait.
#[derive(Default)]
pub(super) struct Deferred {
    waiting: FxHashMap<DeferredKey, Vec<Waiting>>,
    /// How many wait by time.
    times: BTreeMap<Nanos, u32>,
    bytes: usize,
    /// Samples whose user part never came.
    pub(super) missing: u64,
}

/// A sample that waits.
pub(super) struct Waiting {
    pub(super) time: Nanos,
    pub(super) event: u32,
    pub(super) record: Vec<u8>,
}

impl Deferred {
    /// Bytes of the records that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest sample was taken that waits: nothing newer may be handed out.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.times.first_key_value().map(|(time, _)| *time)
    }

    pub(super) fn push(&mut self, key: DeferredKey, waiting: Waiting) {
        *self.times.entry(waiting.time).or_default() += 1;
        self.bytes += waiting.record.len();
        self.waiting.entry(key).or_default().push(waiting);
    }

    /// The samples that wait for this user part.
    pub(super) fn take(&mut self, key: DeferredKey) -> Vec<Waiting> {
        let taken = self.waiting.remove(&key).unwrap_or_default();
        for waiting in &taken {
            self.bytes -= waiting.record.len();
            if let Some(count) = self.times.get_mut(&waiting.time) {
                *count -= 1;
                if *count == 0 {
                    self.times.remove(&waiting.time);
                }
            }
        }
        taken
    }

    /// The samples of a thread that has ended, or of all threads: nothing comes any more.
    pub(super) fn give_up(&mut self, thread: Option<Tid>) -> Vec<Waiting> {
        let keys = self.waiting.keys().copied();
        let keys: Vec<_> = keys
            .filter(|(tid, _)| thread.is_none_or(|thread| thread == *tid))
            .collect();
        let given_up: Vec<_> = keys.into_iter().flat_map(|key| self.take(key)).collect();
        self.missing += given_up.len() as u64;
        given_up
    }
}
