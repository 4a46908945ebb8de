//! An untrusted jitdump.
#![no_main]

use std::io::{Seek, Write};

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::jit_dump::{JitDump, JitDumpCode};

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
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    file.rewind().unwrap();
    let code = JitDumpCode::read(file).unwrap();
    for symbol in dump.table().iter() {
        if let Some(function) = code.lookup(symbol.start, 1 << 32) {
            assert!(function.range.contains(&symbol.start));
            let _ = code
                .call_frames(function)
                .map(|frames| frames.rows(symbol.start));
        }
    }
});
