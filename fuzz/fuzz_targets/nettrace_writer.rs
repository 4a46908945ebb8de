//! What is written of a stream of events in version 6 of the format, against the stream: as many events, of the same kinds,
//! threads and stacks, with the same bytes. What is given follows the beginning of a stream.
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

/// Records are the writer's own, and it leaves out what a runtime says of its process again.
fn is_compared(kind: &EventMetadata) -> bool {
    !kind.provider.starts_with("Universal.") && kind.provider != "Microsoft-DotNETCore-EventPipe"
}

fn same_kind(read: &EventMetadata, given: &Arc<EventMetadata>) {
    assert_eq!(
        (&read.provider, read.id, &read.name, read.keywords),
        (&given.provider, given.id, &given.name, given.keywords)
    );
    assert_eq!(
        (read.version, read.level),
        (given.version.min(255), given.level.min(255))
    );
    // Fields that are not known, or cannot be stated, are left out.
    let fields = read.fields.as_deref().unwrap_or_default();
    assert!(fields.is_empty() || Some(fields) == given.fields.as_deref());
}

fuzz_target!(|data: &[u8]| {
    let trace = Trace {
        events: EventStreams::new(vec![stream(7, data)]),
        ..Trace::default()
    };
    let mut written = Vec::new();
    nettrace::write(&trace, &mut written).expect("nothing fails");
    let mut reader = Reader::open(&*written).expect("a stream");
    let mut given = trace.events.iter();
    let mut compared = || -> Option<RuntimeEvent> { given.find(|event| is_compared(&event.kind)) };
    let mut last = Nanos(0);
    while let Some(event) = reader.next_event().expect("it is whole") {
        if !is_compared(event.kind) {
            continue;
        }
        let from = compared().expect("no more than there were");
        same_kind(event.kind, &from.kind);
        assert_eq!(event.payload, &*from.payload);
        assert_eq!(event.thread.process, Some(7));
        assert_eq!(
            event.thread.id,
            Some(u64::from(from.thread.0.cast_unsigned()))
        );
        // Behind the stack stands its root.
        let stack: Vec<u64> = event.stack.addresses().collect();
        let innermost = from.stack.len().min(MAX_FRAMES);
        assert_eq!(stack.get(..innermost), from.stack.get(..innermost));
        assert_eq!(stack.len(), innermost + usize::from(innermost > 0));
        assert!(event.time >= last && event.time >= from.time);
        last = event.time;
    }
    assert!(compared().is_none());
    nettrace::compare(&trace, &*written).expect("the samples of the trace");
    let mut again = Vec::new();
    nettrace::rewrite(&trace, &*written, &mut again).expect("nothing fails");
    assert!(again == written);
});
