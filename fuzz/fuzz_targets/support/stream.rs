//! An event stream on disk with a valid preamble.

use std::io::Write;

use perfcollect::trace::{EventStream, Pid, StreamName};

/// The preamble of version 4, to the start of the object `Trace`.
const OBJECTS: &[u8] =
    b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06";

/// Returns a stream with `data` after the preamble.
pub fn stream(process: i32, data: &[u8]) -> EventStream {
    let mut file = tempfile::tempfile().expect("a temporary file can be created");
    let mut info = vec![0; 24];
    info.extend(1_000_000_000_u64.to_le_bytes());
    info.extend(8_u64.to_le_bytes());
    for part in [OBJECTS, &info, &[0; 8], b"\x06", data] {
        file.write_all(part).expect("the disk is not full");
    }
    EventStream::open(StreamName::first(Pid(process)), file)
}
