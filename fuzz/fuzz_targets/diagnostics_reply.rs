//! The reply of a runtime on its diagnostic port, and the process information in a reply.
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
