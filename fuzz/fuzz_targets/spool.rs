//! A corrupt spool, and a forged one with correct checksums: bytes and rows are untrusted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::trace::RawTrace;
use perfcollect::trace::spool::pack_rows;

fuzz_target!(|data: &[u8]| {
    let packed = pack_rows(data);
    for spool in [data, &packed] {
        let Ok(raw_trace) = RawTrace::read(spool) else {
            continue;
        };
        for samples in [&raw_trace.samples, &raw_trace.blocked] {
            let total = samples
                .iter()
                .try_fold(0, |total: u64, sample| total.checked_add(sample.weight.0));
            assert!(total.is_some());
        }
        for sample in raw_trace.samples.iter().chain(raw_trace.blocked.iter()) {
            let thread = &raw_trace.threads[sample.thread.index()];
            assert!(thread.process.index() < raw_trace.processes.len());
            for frame in raw_trace.stacks.leaf_first(sample.stack) {
                assert!(frame.index() < raw_trace.frames.len());
            }
        }
    }
});
