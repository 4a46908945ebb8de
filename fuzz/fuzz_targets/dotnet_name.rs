//! A name out of a perf map.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dotnet_name::ManagedName;

fuzz_target!(|data: &[u8]| {
    if let Some(name) = ManagedName::parse(data) {
        assert!(!name.assembly.is_empty());
        assert!(name.method.contains('.'));
        // U+FFFD is three bytes for one.
        assert!(name.method.len() <= 3 * data.len());
    }
});
