//! A text as `perf script` prints it, or as somebody has changed it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::perf_data::EventGroup;
use perfcollect::perf_text::{events, import};

fuzz_target!(|data: &[u8]| {
    let Ok((about, _)) = events(data) else { return };
    let Some(first) = EventGroup::all(&about).into_iter().next() else {
        return;
    };
    let Ok(trace) = import(data, &about, &first) else {
        return;
    };
    for sample in trace.samples.iter() {
        assert!(!trace.process_of(sample.thread).pid.0.is_negative());
        for frame in trace.stacks.leaf_first(sample.stack) {
            assert!(trace.functions_leaf_first(frame).count() > 0);
        }
    }
});
