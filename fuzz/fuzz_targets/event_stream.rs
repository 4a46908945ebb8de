//! Two streams of events on the disk, merged, in CTF, and as each view prints them. What is given follows the beginning of a
//! stream.
#![no_main]

use std::io::{Write, sink};

use libfuzzer_sys::fuzz_target;
use perfcollect::output::ctf;
use perfcollect::output::summary::Summary;
use perfcollect::trace::{EventStream, EventStreams, Nanos, Pid, Trace};
use perfcollect::view::events::{Viewer, print};

/// The object `Trace` of version 4, up to what it holds.
const OBJECTS: &[u8] =
    b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06";

fn stream(process: i32, data: &[u8]) -> EventStream {
    let mut file = tempfile::tempfile().expect("a file");
    let mut info = vec![0; 24];
    info.extend(1_000_000_000_u64.to_le_bytes());
    info.extend(8_u64.to_le_bytes());
    for part in [OBJECTS, &info, &[0; 8], b"\x06", data] {
        file.write_all(part).expect("there is room");
    }
    EventStream::open(Pid(process), process.to_string(), file)
}

fuzz_target!(|data: &[u8]| {
    let (first, second) = data.split_at(data.len() / 2);
    let trace = Trace {
        events: EventStreams::new(vec![stream(1, data), stream(2, first), stream(3, second)]),
        ..Trace::default()
    };
    let mut last = Nanos(0);
    for event in &trace.events {
        assert!(event.time >= last);
        last = event.time;
    }
    let names = ctf::write_channel(&trace, &mut sink()).expect("nothing fails");
    ctf::write_metadata(&trace, &names, &mut sink()).expect("nothing fails");
    let summary = Summary::new(&trace);
    for viewer in [Viewer::Events, Viewer::Gc, Viewer::Jit] {
        print(&trace.events, &summary, viewer, None, &mut sink()).expect("nothing fails");
    }
});
