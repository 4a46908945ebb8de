//! A mangled symbol name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect_symbols::demangle::{MAX_DEMANGLED_BYTES, demangle};

fuzz_target!(|data: &[u8]| {
    let text = demangle(data);
    assert!(text.len() <= MAX_DEMANGLED_BYTES.max(3 * data.len()) + data.len());
});
