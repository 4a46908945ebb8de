//! Stacks by the id that events give.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::bytes::Bytes;

/// Most bytes and most stacks that are kept from one sequence point to the next. The runtime sets one at least with every
/// 10 MB of events.
const MAX_BYTES: usize = 8 << 20;
const MAX_STACKS: usize = 1 << 16;

/// Code addresses, the innermost first. Those of callers are where they go on after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) pointer_bytes: u8,
}

impl<'a> Stack<'a> {
    /// The addresses.
    pub fn addresses(self) -> impl Iterator<Item = u64> + 'a {
        let size = usize::from(self.pointer_bytes);
        self.bytes.chunks_exact(size).map(|pointer| {
            pointer
                .iter()
                .rev()
                .fold(0, |address, &byte| address << 8 | u64::from(byte))
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Stacks {
    bytes: Vec<u8>,
    by_id: FxHashMap<u32, Range<usize>>,
    /// Stacks that were not kept.
    pub(super) forgotten: u64,
}

impl Stacks {
    /// Takes a block in. `None`: it is damaged.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        let first = bytes.u32()?;
        for index in 0..bytes.u32()? {
            let length = bytes.u32()?;
            let stack = bytes.take(length as usize)?;
            if stack.is_empty() {
                continue;
            }
            if self.by_id.len() >= MAX_STACKS || self.bytes.len() + stack.len() > MAX_BYTES {
                self.forgotten += 1;
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(stack);
            self.by_id
                .insert(first.checked_add(index)?, start..self.bytes.len());
        }
        Some(())
    }

    /// Bytes of a stack; none for what has no stack.
    pub(super) fn get(&self, id: u32) -> &[u8] {
        let range = self.by_id.get(&id).cloned().unwrap_or_default();
        self.bytes.get(range).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.by_id.clear();
    }
}
