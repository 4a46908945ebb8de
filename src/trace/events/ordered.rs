//! The events of one stream in order of time.
//!
//! A stream is in order by thread only. Now and then the runtime says of an event that none older follows: up to there all
//! is known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::RuntimeEvent;
use super::stream::{EventStream, Positioned};
use crate::dotnet::nettrace::Reader;
use crate::trace::{Nanos, Tid};

/// Most bytes of all streams that wait for older events, and how many each may have at least. A runtime that says nothing
/// of the order is believed to be in order beyond.
const MAX_WAITING_BYTES: usize = 64 << 20;
const MIN_WAITING_BYTES: usize = 1 << 20;
/// What an event takes besides its payload and stack.
const EVENT_BYTES: usize = 160;

#[derive(Debug)]
pub(super) struct Ordered<'a> {
    stream: &'a EventStream,
    reader: Option<Reader<Positioned<'a>>>,
    waiting: BinaryHeap<Waiting>,
    waiting_bytes: usize,
    max_waiting_bytes: usize,
    /// No older event follows.
    sorted: Nanos,
    /// The time of the last event that went.
    gone: Nanos,
    number: u64,
}

impl<'a> Ordered<'a> {
    /// One of so many streams.
    pub(super) fn new(stream: &'a EventStream, streams: usize) -> Self {
        Self {
            stream,
            reader: stream.reader(),
            waiting: BinaryHeap::new(),
            waiting_bytes: 0,
            max_waiting_bytes: (MAX_WAITING_BYTES / streams.max(1)).max(MIN_WAITING_BYTES),
            sorted: Nanos(0),
            gone: Nanos(0),
            number: 0,
        }
    }

    /// Reads the next event in; `false` at the end.
    fn read(&mut self) -> bool {
        let Some(reader) = &mut self.reader else {
            return false;
        };
        // Why a stream ends early was told when it was looked through.
        let Ok(Some(event)) = reader.next_event() else {
            self.reader = None;
            return false;
        };
        if event.is_sorted {
            self.sorted = self.sorted.max(event.time);
        }
        let thread = event.thread.id.and_then(|id| id.try_into().ok());
        let event = RuntimeEvent {
            // One that comes too late goes now.
            time: event.time.max(self.gone),
            process: self.stream.process,
            thread: self.stream.thread(Tid(thread.unwrap_or(0))),
            activity: event.activity,
            kind: Arc::clone(event.kind),
            payload: event.payload.into(),
            stack: event.stack.addresses().collect(),
        };
        self.waiting_bytes += size(&event);
        self.number += 1;
        self.waiting
            .push(Waiting(Reverse((event.time, self.number)), event));
        true
    }
}

impl Iterator for Ordered<'_> {
    type Item = RuntimeEvent;

    fn next(&mut self) -> Option<RuntimeEvent> {
        loop {
            let oldest = self.waiting.peek().map(|waiting| waiting.1.time);
            let may_go = oldest.is_some_and(|time| time <= self.sorted)
                || self.waiting_bytes > self.max_waiting_bytes;
            if may_go || !self.read() {
                break;
            }
        }
        let Waiting(_, event) = self.waiting.pop()?;
        self.waiting_bytes -= size(&event);
        self.gone = event.time;
        Some(event)
    }
}

fn size(event: &RuntimeEvent) -> usize {
    EVENT_BYTES + event.payload.len() + 8 * event.stack.len()
}

/// Oldest first; those of one time in the order of the stream.
#[derive(Debug)]
struct Waiting(Reverse<(Nanos, u64)>, RuntimeEvent);

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Waiting {}
