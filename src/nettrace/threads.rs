//! Threads of version 6, whose events refer to them by index.

use hashbrown::HashMap;

use super::trace_info::string;
use crate::bytes::Bytes;

/// Limits on the tracked threads, and on the names kept of them.
const MAX_THREADS: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 4 << 20;

/// Ids of a thread in the pid namespace of the process that wrote the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The thread id, or `None` if the stream does not contain it.
    pub id: Option<u64>,
    /// The process id, if the stream has several processes.
    pub process: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Threads {
    by_index: HashMap<u64, (Thread, Box<str>)>,
    name_bytes: usize,
}

impl Threads {
    /// Adds the threads of a block. Returns `None` if the block is corrupt.
    pub(super) fn add(&mut self, payload: &[u8]) -> Option<()> {
        let mut block = Bytes(payload);
        while !block.0.is_empty() {
            let size = block.u16()?;
            let mut row = Bytes(block.take(size.into())?);
            let index = row.varuint()?;
            self.remove(index);
            if self.by_index.len() < MAX_THREADS {
                let (thread, name) = parse(&mut row);
                let name = String::from_utf8_lossy(name);
                let fits = self.name_bytes + name.len() <= MAX_NAME_BYTES;
                let name: Box<str> = if fits { name.into() } else { Box::default() };
                self.name_bytes += name.len();
                self.by_index.insert(index, (thread, name));
            }
        }
        Some(())
    }

    /// Returns the ids and the name of a thread. The name is empty if it is unknown.
    pub(super) fn get(&self, index: u64) -> (Thread, &str) {
        match self.by_index.get(&index) {
            Some((thread, name)) => (*thread, name),
            None => Default::default(),
        }
    }

    pub(super) fn remove(&mut self, index: u64) {
        if let Some((_, name)) = self.by_index.remove(&index) {
            self.name_bytes -= name.len();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Parses ids and name in the rest of a row up to the first unknown option.
///
/// An option has no length, so an unknown one cannot be skipped.
fn parse<'a>(row: &mut Bytes<'a>) -> (Thread, &'a [u8]) {
    let mut thread = Thread::default();
    let mut name = &[][..];
    while let Some(kind) = row.u8() {
        let option = match kind {
            1 => string(row).map(|text| name = text),
            2 => row.varuint().map(|id| thread.process = Some(id)),
            3 => row.varuint().map(|id| thread.id = Some(id)),
            4 => string(row).and_then(|_| string(row)).map(|_| ()),
            _ => None,
        };
        if option.is_none() {
            break;
        }
    }
    (thread, name)
}
