//! A text as `perf script` prints it, or as somebody has changed it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::perf_text::{choose, events, import};

fuzz_target!(|data: &[u8]| {
    let Ok(events) = events(data) else { return };
    let Some(chosen) = choose(&events, None) else {
        return;
    };
    let Ok(trace) = import(data, &events[chosen].0) else {
        return;
    };
    for sample in trace.samples.iter() {
        assert!(!trace.process_of(sample.thread).pid.0.is_negative());
        for frame in trace.stacks.leaf_first(sample.stack) {
            assert!(trace.functions_leaf_first(frame).count() > 0);
        }
    }
});
