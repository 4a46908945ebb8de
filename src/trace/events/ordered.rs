//! The events of one stream in order of time.
//!
//! A stream is in order by thread only. Now and then the runtime says of an event that none older follows: up to there all
//! is known. What waits is one queue a thread, so that events are moved twice, however many wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::RuntimeEvent;
use super::stream::{EventStream, Positioned};
use crate::nettrace::Reader;
use crate::trace::{Nanos, Tid};

/// Most bytes of all streams that wait for older events, and how many each may have at least. A runtime that says nothing
/// of the order is believed to be in order beyond.
const MAX_WAITING_BYTES: usize = 64 << 20;
const MIN_WAITING_BYTES: usize = 1 << 20;
/// What an event takes besides its payload and stack.
const EVENT_BYTES: usize = 160;
/// Where there are more threads, those of which nothing waits are forgotten.
const MAX_THREADS: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Ordered<'a> {
    stream: &'a EventStream,
    reader: Option<Reader<Positioned<'a>>>,
    /// Events that wait, with their numbers, by the thread that noted them.
    waiting: FxHashMap<u64, VecDeque<(u64, RuntimeEvent)>>,
    /// The oldest of each thread that has any: time, number, thread.
    oldest: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
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
            waiting: FxHashMap::default(),
            oldest: BinaryHeap::new(),
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
        let queue = self.waiting.entry(event.capture_thread).or_default();
        let before = queue.back().map_or(self.gone, |(_, last)| last.time);
        let row = RuntimeEvent {
            // One that comes too late goes with those that are there.
            time: event.time.max(before),
            process: self.stream.process,
            thread: self.stream.thread(Tid(thread.unwrap_or(0))),
            activity: event.activity,
            kind: Arc::clone(event.kind),
            payload: event.payload.into(),
            stack: event.stack.shared(),
        };
        self.waiting_bytes += size(&row);
        self.number += 1;
        if queue.is_empty() {
            let next = (row.time, self.number, event.capture_thread);
            self.oldest.push(Reverse(next));
        }
        queue.push_back((self.number, row));
        true
    }

    fn take_oldest(&mut self) -> Option<RuntimeEvent> {
        let Reverse((.., thread)) = self.oldest.pop()?;
        let queue = self.waiting.get_mut(&thread)?;
        let (_, event) = queue.pop_front()?;
        if let Some((number, next)) = queue.front() {
            self.oldest.push(Reverse((next.time, *number, thread)));
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
            let oldest = self.oldest.peek().map(|Reverse((time, ..))| *time);
            let may_go = oldest.is_some_and(|time| time <= self.sorted)
                || self.waiting_bytes > self.max_waiting_bytes;
            if may_go || !self.read() {
                break;
            }
        }
        let event = self.take_oldest()?;
        self.waiting_bytes -= size(&event);
        self.gone = event.time;
        Some(event)
    }
}

fn size(event: &RuntimeEvent) -> usize {
    EVENT_BYTES + event.payload.len() + 8 * event.stack.len()
}
