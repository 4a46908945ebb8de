//! An event stream, compared with what the writer makes of it in version 6 of the format.
//!
//! Both have the same events with the same metadata, threads, stacks and payloads. The input
//! follows the preamble of a stream.
#![no_main]

#[path = "support/stream.rs"]
mod stream;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perfcollect::nettrace::{EventMetadata, Reader};
use perfcollect::output::nettrace;
use perfcollect::trace::{EventStreams, Nanos, RuntimeEvent, Trace};
use stream::stream;

const MAX_FRAMES: usize = 1000;

/// The writer adds records. It omits the process information, which a runtime sends repeatedly.
fn is_compared(metadata: &EventMetadata) -> bool {
    !metadata.provider.starts_with("Universal.")
        && metadata.provider != "Microsoft-DotNETCore-EventPipe"
}

fn assert_same_metadata(read: &EventMetadata, given: &Arc<EventMetadata>) {
    assert_eq!(
        (&read.provider, read.id, &read.name, read.keywords),
        (&given.provider, given.id, &given.name, given.keywords)
    );
    assert_eq!(
        (read.version, read.level),
        (given.version.min(255), given.level.min(255))
    );
    // The writer omits fields that are unknown, or that the format cannot declare.
    let fields = read.fields.as_deref().unwrap_or_default();
    assert!(fields.is_empty() || Some(fields) == given.fields.as_deref());
}

fuzz_target!(|data: &[u8]| {
    let trace = Trace {
        events: EventStreams::new(vec![stream(7, data)]),
        ..Trace::default()
    };
    let mut written = Vec::new();
    nettrace::write(&trace, &mut written).expect("a vector accepts all writes");
    let mut reader = Reader::open(&*written).expect("the writer makes a valid stream");
    let mut given = trace.events.iter();
    let mut compared =
        || -> Option<RuntimeEvent> { given.find(|event| is_compared(&event.metadata)) };
    let mut last = Nanos(0);
    while let Some(event) = reader.next_event().expect("the stream is complete") {
        if !is_compared(event.metadata) {
            continue;
        }
        let from = compared().expect("the writer adds no events");
        assert_same_metadata(event.metadata, &from.metadata);
        assert_eq!(event.payload, &*from.payload);
        assert_eq!(event.thread.process, Some(7));
        assert_eq!(
            event.thread.id,
            Some(u64::from(from.thread.0.cast_unsigned()))
        );
        // The root follows the stack.
        let stack: Vec<u64> = event.stack.addresses().collect();
        let innermost = from.stack.len().min(MAX_FRAMES);
        assert_eq!(stack.get(..innermost), from.stack.get(..innermost));
        assert_eq!(stack.len(), innermost + usize::from(innermost > 0));
        assert!(event.time >= last && event.time >= from.time);
        last = event.time;
    }
    assert!(compared().is_none());
    let mut again = Vec::new();
    nettrace::rewrite(&trace, &*written, &mut again, &|| false).expect("nothing fails");
    assert!(again == written);
});
