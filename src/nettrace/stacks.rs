//! Stacks by the id that events give.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::bytes::Bytes;

/// Most bytes and most stacks that are kept from one sequence point to the next. The runtime sets one at least with every
/// 10 MB of events.
const MAX_BYTES: usize = 8 << 20;
const MAX_STACKS: usize = 1 << 16;

/// Code addresses, the innermost first. Those of callers are where they go on after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<'a>(&'a Arc<[u64]>);

impl<'a> Stack<'a> {
    /// The addresses.
    pub fn addresses(self) -> impl Iterator<Item = u64> + 'a {
        self.0.iter().copied()
    }

    /// The same for whoever keeps them: most events have a stack that others have too.
    #[must_use]
    pub fn shared(self) -> Arc<[u64]> {
        Arc::clone(self.0)
    }
}

#[derive(Debug)]
pub(super) struct Stacks {
    pointer_bytes: u8,
    by_id: FxHashMap<u32, Arc<[u64]>>,
    /// Of what has no stack.
    none: Arc<[u64]>,
    /// Bytes that the stacks had in the stream.
    bytes: usize,
    /// Stacks that were not kept.
    pub(super) forgotten: u64,
}

impl Stacks {
    /// None yet, of addresses that have so many bytes.
    pub(super) fn new(pointer_bytes: u8) -> Self {
        Self {
            pointer_bytes,
            by_id: FxHashMap::default(),
            none: Arc::default(),
            bytes: 0,
            forgotten: 0,
        }
    }

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
            if self.by_id.len() >= MAX_STACKS || self.bytes + stack.len() > MAX_BYTES {
                self.forgotten += 1;
                continue;
            }
            self.bytes += stack.len();
            let addresses = stack.chunks_exact(self.pointer_bytes.into());
            let addresses = addresses.map(address).collect();
            self.by_id.insert(first.checked_add(index)?, addresses);
        }
        Some(())
    }

    /// A stack; empty for what has none.
    pub(super) fn get(&self, id: u32) -> Stack<'_> {
        Stack(self.by_id.get(&id).unwrap_or(&self.none))
    }

    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.by_id.clear();
    }
}

fn address(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |address, &byte| address << 8 | u64::from(byte))
}
