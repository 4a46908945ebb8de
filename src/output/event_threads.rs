//! Thread ids of a process with a separate pid namespace.
//!
//! The runtime reports thread ids of its pid namespace. perfcollect records the ids of both
//! namespaces in a file next to the stream, because the threads may have ended when the stream is
//! read.
//!
//! ```text
//! id in the process's namespace | id in perfcollect's        each 4 bytes, little-endian
//! ```
//! A truncated row at the end is ignored.

use std::fs::File;
use std::io::{Read, Write};

use rustc_hash::FxHashMap;

use crate::machine;
use crate::trace::{Pid, Tid};

/// Maximum number of bytes to read: 8 bytes for each of the threads that perfcollect distinguishes.
const MAX_BYTES: u64 = 1 << 19;
const ROW_BYTES: u64 = 8;

/// The threads of one process that were seen so far.
#[derive(Debug)]
pub(super) struct EventThreads {
    /// Ids in perfcollect's pid namespace, by ids in the namespace of the process.
    seen: FxHashMap<Tid, Tid>,
    /// Ends with a whole row. `None` after an error.
    file: Option<File>,
    /// Number of streams that have not ended: an id may be reused, or a process may run another
    /// program.
    pub(super) streams: u32,
}

impl EventThreads {
    /// Creates an empty list of a process with one stream. Its file may have rows of an earlier one.
    pub(super) fn new(file: File) -> Self {
        let length = file.metadata().map_or(0, |file| file.len());
        let whole = file.set_len(length - length % ROW_BYTES);
        Self {
            seen: FxHashMap::default(),
            file: whole.is_ok().then_some(file),
            streams: 1,
        }
    }

    /// Adds the current threads of the process.
    pub(super) fn look(&mut self, process: Pid) -> &FxHashMap<Tid, Tid> {
        let new = machine::new_namespace_threads(process, &self.seen);
        let ids = new.iter().flat_map(|(inside, tid)| [inside.0, tid.0]);
        let bytes: Vec<u8> = ids.flat_map(i32::to_le_bytes).collect();
        // If no space is left, the stream also ends, which perfcollect reports.
        self.file = self
            .file
            .take()
            .filter(|mut file| file.write_all(&bytes).is_ok());
        self.seen.extend(new);
        &self.seen
    }
}

/// Reads the threads that an earlier capture recorded.
pub(super) fn read(file: impl Read) -> FxHashMap<Tid, Tid> {
    let mut bytes = Vec::new();
    // The rows before a read error are valid.
    let _ = file.take(MAX_BYTES).read_to_end(&mut bytes);
    let (rows, _) = bytes.as_chunks::<8>();
    let thread = |row: &[u8; 8]| {
        let [a, b, c, d, e, f, g, h] = *row;
        let ids = [[a, b, c, d], [e, f, g, h]].map(i32::from_le_bytes);
        (Tid(ids[0]), Tid(ids[1]))
    };
    rows.iter().map(thread).collect()
}
