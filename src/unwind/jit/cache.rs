//! Cache of what is known about addresses in JIT code.

use super::JitFrame;
use crate::trace::ProcessId;
use crate::unwind::Epoch;

/// Number of slots. Stacks of a Java server contain some ten thousand distinct instructions.
const ENTRIES: usize = 1 << 16;

/// An address of a process.
type Key = (ProcessId, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) frame: JitFrame,
    /// Hash of the code around the address. Other code may replace it.
    pub(super) signature: u32,
    /// When the code was last compared.
    pub(super) epoch: Epoch,
}

/// Direct-mapped cache, which occupies memory when it is first used.
#[derive(Default)]
pub(super) struct Cache(Vec<Option<(Key, Entry)>>);

impl Cache {
    fn index((process, address): Key) -> usize {
        let mixed = (address ^ u64::from(process.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    pub(super) fn get(&self, key: Key) -> Option<Entry> {
        let (cached, entry) = (*self.0.get(Self::index(key))?)?;
        (cached == key).then_some(entry)
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        if self.0.is_empty() {
            self.0.resize(ENTRIES, None);
        }
        if let Some(slot) = self.0.get_mut(Self::index(key)) {
            *slot = Some((key, entry));
        }
    }
}
