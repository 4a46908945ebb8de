//! A spool that was damaged, or made by somebody who knows the checksums: both the bytes and the rows are hostile.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::trace::RawTrace;
use perfcollect::trace::spool::pack_rows;

fuzz_target!(|data: &[u8]| {
    let packed = pack_rows(data);
    for spool in [data, &packed] {
        let Ok(recording) = RawTrace::read(spool) else {
            continue;
        };
        for sample in recording.samples.iter() {
            let thread = &recording.threads[sample.thread.index()];
            assert!(thread.process.index() < recording.processes.len());
            for frame in recording.stacks.leaf_first(sample.stack) {
                assert!(frame.index() < recording.frames.len());
            }
        }
    }
});
