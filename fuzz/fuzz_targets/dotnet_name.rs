//! A name from a perf map.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::dotnet_name::ManagedName;

fuzz_target!(|data: &[u8]| {
    if let Some(name) = ManagedName::parse(data) {
        assert!(!name.assembly.is_empty());
        assert!(name.method.contains('.'));
        // An invalid byte becomes U+FFFD, which has three bytes.
        assert!(name.method.len() <= 3 * data.len());
    }
});
