//! Texts of whole stacks, each made once: most samples of a recording have a stack that was there before.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::perf::SampleRecord;
use crate::trace::Pid;

/// Callchains and texts that are kept, in bytes; when there are more, all are made anew.
const MAX_BYTES: usize = 32 << 20;

/// Texts by process and callchain.
#[derive(Default)]
pub(super) struct Stacks {
    table: HashTable<Stack>,
    bytes: Vec<u8>,
    /// How often the mappings of a process have changed.
    generations: FxHashMap<Pid, u32>,
}

/// Callchain and text, one behind the other in the bytes.
#[derive(Clone, Copy)]
struct Stack {
    hash: u64,
    pid: Pid,
    generation: u32,
    at: u32,
    chain: u32,
    text: u32,
}

impl Stacks {
    /// A process has changed: its callchains mean something else.
    pub(super) fn forget(&mut self, pid: Pid) {
        *self.generations.entry(pid).or_default() += 1;
    }

    /// The kernel has changed: all callchains may mean something else.
    pub(super) fn forget_all(&mut self) {
        self.bytes.clear();
        self.table.clear();
    }

    /// Appends the text of a sample's stack, if it is known.
    pub(super) fn print(&self, sample: &SampleRecord<'_>, out: &mut Vec<u8>) -> bool {
        let (hash, generation) = (hash(sample), self.generation(sample.pid));
        let chain = sample.callchain.bytes();
        let found = self.table.find(hash, |stack| {
            let at = stack.at as usize;
            (stack.hash, stack.pid, stack.generation) == (hash, sample.pid, generation)
                && self.bytes[at..at + stack.chain as usize] == *chain
        });
        let Some(stack) = found else {
            return false;
        };
        let text = stack.at as usize + stack.chain as usize;
        out.extend_from_slice(&self.bytes[text..text + stack.text as usize]);
        true
    }

    /// Keeps the text of a sample's stack.
    pub(super) fn keep(&mut self, sample: &SampleRecord<'_>, text: &[u8]) {
        if self.bytes.len() >= MAX_BYTES {
            self.forget_all();
        }
        let chain = sample.callchain.bytes();
        let stack = Stack {
            hash: hash(sample),
            pid: sample.pid,
            generation: self.generation(sample.pid),
            at: self.bytes.len() as u32,
            chain: chain.len() as u32,
            text: text.len() as u32,
        };
        self.bytes.extend_from_slice(chain);
        self.bytes.extend_from_slice(text);
        self.table
            .insert_unique(stack.hash, stack, |stack| stack.hash);
    }

    fn generation(&self, pid: Pid) -> u32 {
        self.generations.get(&pid).copied().unwrap_or(0)
    }
}

fn hash(sample: &SampleRecord<'_>) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    hasher.write_i32(sample.pid.0);
    hasher.write(sample.callchain.bytes());
    hasher.finish()
}
