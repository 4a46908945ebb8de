//! Threads of version 6, whose events refer to them by index.

use rustc_hash::FxHashMap;

use super::trace_info::string;
use crate::bytes::Bytes;

/// Limit on the tracked threads.
const MAX_THREADS: usize = 1 << 16;

/// Ids of a thread in the pid namespace of the process that wrote the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The thread id, or `None` if the stream does not contain it.
    pub id: Option<u64>,
    /// The process id, if the stream has several processes.
    pub process: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Threads(FxHashMap<u64, Thread>);

impl Threads {
    /// Adds the threads of a block. Returns `None` if the block is corrupt.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<()> {
        let mut block = Bytes(payload);
        while !block.0.is_empty() {
            let size = block.u16()?;
            let mut row = Bytes(block.take(size.into())?);
            let index = row.varuint()?;
            if self.0.len() < MAX_THREADS || self.0.contains_key(&index) {
                self.0.insert(index, parse(&mut row));
            }
        }
        Some(())
    }

    pub(super) fn get(&self, index: u64) -> Thread {
        self.0.get(&index).copied().unwrap_or_default()
    }

    pub(super) fn remove(&mut self, index: u64) {
        self.0.remove(&index);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Parses the rest of a row up to the first unknown option.
///
/// An option has no length, so an unknown one cannot be skipped.
fn parse(row: &mut Bytes<'_>) -> Thread {
    let mut thread = Thread::default();
    while let Some(kind) = row.u8() {
        let option = match kind {
            1 => string(row).map(|_| ()),
            2 => row.varuint().map(|id| thread.process = Some(id)),
            3 => row.varuint().map(|id| thread.id = Some(id)),
            4 => string(row).and_then(|_| string(row)).map(|_| ()),
            _ => None,
        };
        if option.is_none() {
            break;
        }
    }
    thread
}
