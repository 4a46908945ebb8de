//! Samples that wait for the user part of their callchain, which the kernel records when their thread returns to user space.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::perf::DeferredKey;
use crate::trace::{Nanos, Tid};

/// What it takes to keep a sample, besides its record.
const ENTRY_BYTES: usize = 512;

/// Samples that wait.
#[derive(Default)]
pub(super) struct Deferred {
    /// By thread and cookie.
    waiting: FxHashMap<Tid, FxHashMap<u64, Vec<Waiting>>>,
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

    pub(super) fn push(&mut self, (tid, cookie): DeferredKey, waiting: Waiting) {
        *self.times.entry(waiting.time).or_default() += 1;
        self.bytes += waiting.record.len() + ENTRY_BYTES;
        let thread = self.waiting.entry(tid).or_default();
        thread.entry(cookie).or_default().push(waiting);
    }

    /// The samples that wait for this user part.
    pub(super) fn take(&mut self, (tid, cookie): DeferredKey) -> Vec<Waiting> {
        let thread = self.waiting.get_mut(&tid);
        let taken = thread.and_then(|thread| thread.remove(&cookie));
        let taken = taken.unwrap_or_default();
        self.forget(&taken);
        taken
    }

    /// The samples of a thread that has ended: nothing comes any more.
    pub(super) fn give_up(&mut self, thread: Tid) -> Vec<Waiting> {
        let cookies = self.waiting.remove(&thread).unwrap_or_default();
        let given_up: Vec<_> = cookies.into_values().flatten().collect();
        self.forget(&given_up);
        self.missing += given_up.len() as u64;
        given_up
    }

    /// The same of all threads.
    pub(super) fn give_up_all(&mut self) -> Vec<Waiting> {
        let threads: Vec<_> = self.waiting.keys().copied().collect();
        let given_up = threads.into_iter().flat_map(|thread| self.give_up(thread));
        given_up.collect()
    }

    fn forget(&mut self, taken: &[Waiting]) {
        for waiting in taken {
            self.bytes -= waiting.record.len() + ENTRY_BYTES;
            if let Some(count) = self.times.get_mut(&waiting.time) {
                *count -= 1;
                if *count == 0 {
                    self.times.remove(&waiting.time);
                }
            }
        }
    }
}
