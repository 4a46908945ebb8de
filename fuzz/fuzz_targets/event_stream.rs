//! Three event streams on disk: merged, written as CTF, and printed by each view.
//!
//! The input follows the preamble of a stream.
#![no_main]

#[path = "support/stream.rs"]
mod stream;

use std::io::sink;

use libfuzzer_sys::fuzz_target;
use perfcollect::output::ctf;
use perfcollect::output::summary::Summary;
use perfcollect::trace::{EventStreams, Nanos, Trace};
use perfcollect::view::events::{CpuSample, EventSelection, EventView, Viewer, print};
use stream::stream;

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
    let names = ctf::write_channel(&trace, &mut sink()).expect("a sink accepts all writes");
    ctf::write_metadata(&trace, &names, &mut sink()).expect("a sink accepts all writes");
    let mut summary = Summary::new(&trace);
    summary.samples = 1;
    for viewer in [Viewer::Events, Viewer::Gc, Viewer::Jit] {
        let samples = |take: &mut dyn FnMut(CpuSample)| {
            for event in &trace.events {
                take(CpuSample {
                    process: event.process,
                    thread: event.thread,
                    time: event.time,
                    ns: u64::MAX,
                });
            }
            Ok(())
        };
        let wanted = EventView {
            viewer,
            process: None,
            selection: &EventSelection::default(),
        };
        print(&trace.events, &summary, wanted, samples, &mut sink())
            .expect("a sink accepts all writes");
    }
});
