//! Stacks by stack id.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::bytes::Bytes;

/// Limits on the stacks between two sequence points.
///
/// The runtime writes a sequence point at least with every 10 MB of events.
const MAX_BYTES: usize = 8 << 20;
const MAX_STACKS: usize = 1 << 16;

/// Code addresses, innermost first. The addresses of callers are return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<'a>(&'a Arc<[u64]>);

impl<'a> Stack<'a> {
    /// Iterates over the addresses.
    pub fn addresses(self) -> impl Iterator<Item = u64> + 'a {
        self.0.iter().copied()
    }

    /// Returns a shared reference for long-term storage. Most stacks occur in several events.
    #[must_use]
    pub fn shared(self) -> Arc<[u64]> {
        Arc::clone(self.0)
    }
}

#[derive(Debug)]
pub(super) struct Stacks {
    pointer_bytes: u8,
    by_id: HashMap<u32, Arc<[u64]>>,
    /// The stack of events without one.
    empty: Arc<[u64]>,
    /// Size of the stacks in the stream.
    bytes: usize,
    /// Number of stacks beyond the limits.
    pub(super) forgotten: u64,
}

impl Stacks {
    /// Creates an empty table for addresses of `pointer_bytes` bytes.
    pub(super) fn new(pointer_bytes: u8) -> Self {
        Self {
            pointer_bytes,
            by_id: HashMap::default(),
            empty: Arc::default(),
            bytes: 0,
            forgotten: 0,
        }
    }

    /// Adds the stacks of a block. Returns `None` if the block is corrupt.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<()> {
        for stack in stacks(payload)? {
            let (id, stack) = stack?;
            if stack.is_empty() {
                continue;
            }
            if self.by_id.len() >= MAX_STACKS || self.bytes + stack.len() > MAX_BYTES {
                self.forgotten += 1;
                continue;
            }
            self.bytes += stack.len();
            let addresses = addresses(stack, self.pointer_bytes).collect();
            self.by_id.insert(id, addresses);
        }
        Some(())
    }

    /// Returns a stack, or the empty stack for an unknown id.
    pub(super) fn get(&self, id: u32) -> Stack<'_> {
        Stack(self.by_id.get(&id).unwrap_or(&self.empty))
    }

    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.by_id.clear();
    }
}

/// Iterates over the stacks of a block: id and encoded addresses. Returns `None`, or an item that is
/// `None`, if the block is corrupt.
pub(super) fn stacks(payload: &[u8]) -> Option<impl Iterator<Item = Option<(u32, &[u8])>>> {
    let mut bytes = Bytes(payload);
    let (first, count) = (bytes.u32()?, bytes.u32()?);
    let mut stack = move |index| {
        let length = bytes.u32()?;
        Some((first.checked_add(index)?, bytes.take(length as usize)?))
    };
    let mut is_corrupt = false;
    Some((0..count).map_while(move |index| {
        let stack = (!is_corrupt).then(|| stack(index))?;
        is_corrupt = stack.is_none();
        Some(stack)
    }))
}

/// Decodes the addresses of a stack, innermost first.
pub(super) fn addresses(stack: &[u8], pointer_bytes: u8) -> impl Iterator<Item = u64> {
    stack.chunks_exact(pointer_bytes.into()).map(address)
}

fn address(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |address, &byte| address << 8 | u64::from(byte))
}
