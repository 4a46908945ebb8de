//! A stream of events on the disk whose beginning is as it should be.

use std::io::Write;

use perfcollect::trace::{EventStream, Pid};

/// The object `Trace` of version 4, up to what it holds.
const OBJECTS: &[u8] =
    b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06";

/// What is given follows the beginning.
pub fn stream(process: i32, data: &[u8]) -> EventStream {
    let mut file = tempfile::tempfile().expect("a file");
    let mut info = vec![0; 24];
    info.extend(1_000_000_000_u64.to_le_bytes());
    info.extend(8_u64.to_le_bytes());
    for part in [OBJECTS, &info, &[0; 8], b"\x06", data] {
        file.write_all(part).expect("there is room");
    }
    EventStream::open(Pid(process), process.to_string(), file)
}
