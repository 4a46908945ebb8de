//! A cache of callchains: most samples of a recording repeat one.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::batch::StackId;
use crate::perf::SampleRecord;
use crate::trace::Pid;

/// Size limit of the cached callchains, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Stack ids by process and callchain.
#[derive(Default)]
pub(super) struct Stacks {
    table: HashTable<CachedChain>,
    chains: Vec<u8>,
    /// The number of ids, and the size of all their callchains in bytes.
    count: u32,
    bytes: usize,
    /// How often the mappings of each process have changed.
    generations: FxHashMap<Pid, u32>,
}

/// Identifies a callchain of one process between two changes of its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    hash: u64,
    pid: Pid,
    generation: u32,
}

struct CachedChain {
    key: Key,
    /// The offset of the callchain.
    at: u32,
    len: u32,
    id: StackId,
}

impl Stacks {
    /// Invalidates the callchains of a process whose mappings have changed.
    pub(super) fn forget(&mut self, pid: Pid) {
        *self.generations.entry(pid).or_default() += 1;
    }

    /// Invalidates all callchains because the kernel has changed.
    pub(super) fn forget_all(&mut self) {
        self.table.clear();
        self.chains.clear();
    }

    /// Clears the cache and restarts ids from 0.
    pub(super) fn reset(&mut self) {
        self.forget_all();
        (self.count, self.bytes) = (0, 0);
    }

    /// Returns whether the cache must be reset.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    pub(super) fn key(&self, sample: &SampleRecord<'_>) -> Key {
        let mut hasher = FxBuildHasher.build_hasher();
        hasher.write_i32(sample.pid.0);
        hasher.write(sample.callchain.bytes());
        Key {
            hash: hasher.finish(),
            pid: sample.pid,
            generation: self.generations.get(&sample.pid).copied().unwrap_or(0),
        }
    }

    pub(super) fn find(&self, key: &Key, sample: &SampleRecord<'_>) -> Option<StackId> {
        let chain = sample.callchain.bytes();
        let known = self.table.find(key.hash, |known| {
            let at = known.at as usize;
            known.key == *key && self.chains[at..at + known.len as usize] == *chain
        });
        known.map(|known| known.id)
    }

    /// Assigns the next id to the stack of a sample.
    pub(super) fn keep(&mut self, key: Key, sample: &SampleRecord<'_>) {
        let chain = sample.callchain.bytes();
        let known = CachedChain {
            key,
            at: self.chains.len() as u32,
            len: chain.len() as u32,
            id: StackId(self.count),
        };
        self.count += 1;
        self.bytes += chain.len();
        self.chains.extend_from_slice(chain);
        self.table
            .insert_unique(key.hash, known, |known| known.key.hash);
    }
}
