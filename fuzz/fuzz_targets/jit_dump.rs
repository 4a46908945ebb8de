//! An untrusted jitdump.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::jit_dump::JitDump;

fuzz_target!(|data: &[u8]| {
    let Ok(dump) = JitDump::read(data, 1 << 32) else {
        return;
    };
    let mut end = 0;
    for symbol in dump.table().iter() {
        assert!(end <= symbol.start && symbol.start < symbol.end);
        assert_eq!(dump.lookup(symbol.end - 1), Some(symbol));
        end = symbol.end;
    }
});
