//! An untrusted perf map.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::perf_map::PerfMap;

fuzz_target!(|data: &[u8]| {
    let Ok(map) = PerfMap::read(data) else { return };
    let mut end = 0;
    for symbol in map.table().iter() {
        assert!(end <= symbol.start && symbol.start < symbol.end);
        assert_eq!(map.lookup(symbol.end - 1), Some(symbol));
        end = symbol.end;
    }
});
