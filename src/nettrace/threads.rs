//! Threads of version 6, where events name them by an index.

use rustc_hash::FxHashMap;

use super::trace_info::text;
use crate::bytes::Bytes;

/// Most threads that are known at a time.
const MAX_THREADS: usize = 1 << 16;

/// A thread as the operating system numbers it, in the pid namespace of whoever wrote the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its id; `None`: the stream does not tell.
    pub id: Option<u64>,
    /// Its process, where the stream is of several.
    pub process: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Threads(FxHashMap<u64, Thread>);

impl Threads {
    /// Takes a block in. `None`: it is damaged.
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

/// The rest of a row, as far as it is understood: what a later version adds has no length that could be skipped.
fn parse(row: &mut Bytes<'_>) -> Thread {
    let mut thread = Thread::default();
    while let Some(kind) = row.u8() {
        let understood = match kind {
            1 => text(row).map(|_| ()),
            2 => row.varuint().map(|id| thread.process = Some(id)),
            3 => row.varuint().map(|id| thread.id = Some(id)),
            4 => text(row).and_then(|_| text(row)).map(|_| ()),
            _ => None,
        };
        if understood.is_none() {
            break;
        }
    }
    thread
}
