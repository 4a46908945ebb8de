//! The events of one stream in order of time.
//!
//! A stream is ordered only within each thread. At intervals the runtime marks an event that no
//! older event follows: all earlier events are then known. Waiting events are in one queue per
//! thread, so each event moves only twice, however many wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;

use super::RuntimeEvent;
use super::stream::EventStream;
use super::stream_file::StreamBytes;
use crate::nettrace::{AddedEvents, EventMetadata, KindMap, Reader};
use crate::trace::{Nanos, Tid};

/// Maximum size of the waiting events of all streams, and the minimum share of each stream.
///
/// Beyond its share, a stream without such marker events counts as ordered.
const MAX_WAITING_BYTES: usize = 64 << 20;
const MIN_WAITING_BYTES: usize = 1 << 20;
/// Size of an event without its payload and stack.
const EVENT_BYTES: usize = 160;
/// Number of threads above which empty queues are removed.
const MAX_THREADS: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Ordered<'a> {
    stream: &'a EventStream,
    reader: Option<Reader<StreamBytes>>,
    is_wanted: fn(&EventMetadata) -> bool,
    wanted: KindMap<bool>,
    /// Whether to end early.
    is_stopped: &'a AtomicBool,
    /// Waiting events with their sequence numbers, by the thread that recorded them.
    waiting: FxHashMap<u64, VecDeque<(u64, RuntimeEvent)>>,
    /// Oldest event of each non-empty queue: time, sequence number, thread.
    oldest: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    waiting_bytes: usize,
    max_waiting_bytes: usize,
    /// Time before which no further event follows.
    sorted: Nanos,
    /// Time of the last returned event.
    last_time: Nanos,
    sequence: u64,
}

impl<'a> Ordered<'a> {
    /// Orders the events of some kinds in one of `streams` streams, which share the memory limit.
    pub(super) fn new(
        stream: &'a EventStream,
        streams: usize,
        is_wanted: fn(&EventMetadata) -> bool,
        is_stopped: &'a AtomicBool,
    ) -> Self {
        Self {
            stream,
            reader: stream.reader(),
            is_wanted,
            wanted: KindMap::default(),
            is_stopped,
            waiting: FxHashMap::default(),
            oldest: BinaryHeap::new(),
            waiting_bytes: 0,
            max_waiting_bytes: (MAX_WAITING_BYTES / streams.max(1)).max(MIN_WAITING_BYTES),
            sorted: Nanos(0),
            last_time: Nanos(0),
            sequence: 0,
        }
    }

    /// Reads the next event, into its queue if it is wanted. Returns `false` at the end of the stream.
    fn read(&mut self) -> bool {
        let Some(reader) = &mut self.reader else {
            return false;
        };
        // `StreamCounts` already contains the reason for an early end.
        let Ok(Some(event)) = reader.next_event() else {
            self.reader = None;
            return false;
        };
        if event.is_sorted {
            self.sorted = self.sorted.max(event.time);
        }
        let is_wanted = || (self.is_wanted)(event.metadata);
        if !self.wanted.get_or_insert_with(event.metadata, is_wanted) {
            return true;
        }
        let thread = event.thread.id.and_then(|id| id.try_into().ok());
        let queue = self.waiting.entry(event.capture_thread).or_default();
        let before = queue.back().map_or(self.last_time, |(_, last)| last.time);
        let row = RuntimeEvent {
            // An event that is too late gets the time of the event before it.
            time: event.time.max(before),
            process: self.stream.name.process,
            thread: self.stream.thread(Tid(thread.unwrap_or(0))),
            activity: event.activity,
            metadata: Arc::clone(event.metadata),
            payload: event.payload.into(),
            added_set: AddedEvents::set_of(event.capture_thread),
            stack: event.stack.shared(),
        };
        self.waiting_bytes += size(&row);
        self.sequence += 1;
        if queue.is_empty() {
            let next = (row.time, self.sequence, event.capture_thread);
            self.oldest.push(Reverse(next));
        }
        queue.push_back((self.sequence, row));
        true
    }

    fn take_oldest(&mut self) -> Option<RuntimeEvent> {
        let Reverse((.., thread)) = self.oldest.pop()?;
        let queue = self.waiting.get_mut(&thread)?;
        let (_, event) = queue.pop_front()?;
        if let Some((sequence, next)) = queue.front() {
            self.oldest.push(Reverse((next.time, *sequence, thread)));
        } else if self.waiting.len() > MAX_THREADS {
            self.waiting.remove(&thread);
        }
        Some(event)
    }
}

impl Iterator for Ordered<'_> {
    type Item = RuntimeEvent;

    fn next(&mut self) -> Option<RuntimeEvent> {
        loop {
            if self.is_stopped.load(Ordering::Relaxed) {
                return None;
            }
            let oldest = self.oldest.peek().map(|Reverse((time, ..))| *time);
            let is_due = oldest.is_some_and(|time| time <= self.sorted)
                || self.waiting_bytes > self.max_waiting_bytes;
            if is_due || !self.read() {
                break;
            }
        }
        let event = self.take_oldest()?;
        self.waiting_bytes -= size(&event);
        self.last_time = event.time;
        Some(event)
    }
}

fn size(event: &RuntimeEvent) -> usize {
    EVENT_BYTES + event.payload.len() + 8 * event.stack.len()
}
