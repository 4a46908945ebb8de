//! The runtime's events about code, and the table of methods that they fill.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::dotnet::{CodeEvent, RundownTable};
use perfcollect::nettrace::EventMetadata;

fuzz_target!(|data: &[u8]| {
    let mut table = RundownTable::default();
    let mut rest = data;
    while let Some(([choice, length], after)) = rest.split_first_chunk() {
        let (payload, next) = after.split_at((*length as usize).min(after.len()));
        rest = next;
        let provider = [
            "Microsoft-Windows-DotNETRuntime",
            "Microsoft-Windows-DotNETRuntimeRundown",
        ];
        let kind = EventMetadata {
            provider: provider[usize::from(choice & 1)].to_owned(),
            id: [143, 144, 152, 154][usize::from(choice >> 1 & 3)],
            ..EventMetadata::default()
        };
        if let Ok(Some(event)) = CodeEvent::parse(&kind, payload) {
            table.take(event);
        }
    }
    let methods: Vec<_> = table.methods().collect();
    assert!(
        methods
            .windows(2)
            .all(|pair| { pair[0].start.saturating_add(pair[0].size) <= pair[1].start })
    );
});
