//! What a runtime answers on its diagnostics port: the reply, and in it what it says of its process.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::diagnostics::{ProcessInfo, read_reply};

fuzz_target!(|data: &[u8]| {
    if let Ok(payload) = read_reply(data) {
        assert!(payload.len() + 20 <= data.len());
    }
    if let Ok(info) = ProcessInfo::parse_newest(data) {
        assert!(info.command_line.len() <= 3 * data.len());
    }
});
