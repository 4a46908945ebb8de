//! The payload of an event of the runtime itself: two bytes of id, one that chooses who sends it, the rest what it holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::decode;
use perfcollect::nettrace::EventMetadata;

fuzz_target!(|data: &[u8]| {
    let Some(([low, high, who], payload)) = data.split_first_chunk() else {
        return;
    };
    let end = ["", "Rundown", "Private", "X"][usize::from(who % 4)];
    let kind = EventMetadata {
        provider: format!("Microsoft-Windows-DotNETRuntime{end}"),
        // Those that there are.
        id: u32::from(u16::from_le_bytes([*low, *high]) % 311),
        ..EventMetadata::default()
    };
    let (name, fields) = decode(&kind, payload);
    assert!(!name.is_empty());
    assert!(fields.len() < 64);
});
