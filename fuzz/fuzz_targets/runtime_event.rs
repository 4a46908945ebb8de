//! An event of the runtime: two bytes of id, one byte that selects the provider, and the payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::decode;
use perfcollect::nettrace::EventMetadata;

fuzz_target!(|data: &[u8]| {
    let Some(([low, high, provider], payload)) = data.split_first_chunk() else {
        return;
    };
    let end = ["", "Rundown", "Private", "X"][usize::from(provider % 4)];
    let kind = EventMetadata {
        provider: format!("Microsoft-Windows-DotNETRuntime{end}"),
        // Larger ids do not exist.
        id: u32::from(u16::from_le_bytes([*low, *high]) % 311),
        ..EventMetadata::default()
    };
    let (name, fields) = decode(&kind, payload);
    assert!(!name.is_empty());
    assert!(fields.len() < 64);
});
