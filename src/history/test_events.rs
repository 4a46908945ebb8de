//! Events of a runtime with payloads of integers.

use std::sync::Arc;

use crate::nettrace::{Activity, EventMetadata};
use crate::trace::{Nanos, Pid, RuntimeEvent, Tid};

/// Creates an event at a time in microseconds, with this payload.
pub(crate) fn event(id: u32, time: u64, thread: i32, payload: Vec<u8>) -> RuntimeEvent {
    RuntimeEvent {
        time: Nanos(time * 1000),
        process: Pid(1),
        thread: Tid(thread),
        activity: Activity::default(),
        metadata: Arc::new(EventMetadata {
            provider: "Microsoft-Windows-DotNETRuntime".to_owned(),
            id,
            ..EventMetadata::default()
        }),
        payload: payload.into(),
        added_set: None,
        stack: [].into(),
    }
}

/// Passes events to `take`: id, time in microseconds, thread, and the integers of the payload.
pub(crate) fn each_event(events: &[(u32, u64, i32, &[u32])], mut take: impl FnMut(&RuntimeEvent)) {
    for &(id, time, thread, words) in events {
        let payload = words.iter().flat_map(|word| word.to_le_bytes());
        take(&event(id, time, thread, payload.collect()));
    }
}
