//! The threads of a process in a pid namespace of its own, where its runtime numbers them otherwise than we do: as they are
//! seen, in a file beside its stream, for whoever reads the stream when they are gone.
//!
//! ```text
//! id in its namespace | id in ours        each 4 bytes, little-endian; what is cut off at the end counts for nothing
//! ```

use std::fs::File;
use std::io::{Read, Write};

use rustc_hash::FxHashMap;

use crate::machine;
use crate::trace::{Pid, Tid};

/// Most bytes of a file that are read, for as many threads as are told apart.
const MAX_BYTES: u64 = 1 << 19;

/// Those that were seen so far.
#[derive(Debug)]
pub(super) struct EventThreads {
    /// Ids in our pid namespace by those in that of the process.
    seen: FxHashMap<Tid, Tid>,
    file: File,
}

impl EventThreads {
    /// None yet, in an empty file.
    pub(super) fn new(file: File) -> Self {
        Self {
            seen: FxHashMap::default(),
            file,
        }
    }

    /// Adds those that the process has now.
    pub(super) fn look(&mut self, process: Pid) -> &FxHashMap<Tid, Tid> {
        let new = machine::new_namespace_threads(process, &self.seen);
        let numbers = new.iter().flat_map(|(inside, tid)| [inside.0, tid.0]);
        let bytes: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
        // Where there is no room the stream ends, too, which is told.
        let _ = self.file.write_all(&bytes);
        self.seen.extend(new);
        &self.seen
    }
}

/// What a file of a capture that is gone tells.
pub(super) fn read(file: impl Read) -> FxHashMap<Tid, Tid> {
    let mut bytes = Vec::new();
    // What was read before an error is as good.
    let _ = file.take(MAX_BYTES).read_to_end(&mut bytes);
    let (rows, _) = bytes.as_chunks::<8>();
    let thread = |row: &[u8; 8]| {
        let [a, b, c, d, e, f, g, h] = *row;
        let ids = [[a, b, c, d], [e, f, g, h]].map(i32::from_le_bytes);
        (Tid(ids[0]), Tid(ids[1]))
    };
    rows.iter().map(thread).collect()
}
