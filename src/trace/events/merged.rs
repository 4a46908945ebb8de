//! Merge of several event streams in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use super::RuntimeEvent;
use super::ordered::Ordered;
use super::stream::EventStream;
use crate::trace::Nanos;

/// All events of several streams, oldest first.
#[derive(Debug)]
pub struct MergedEvents<'a> {
    streams: Vec<Peekable<Ordered<'a>>>,
    /// Time of the next event and index of its stream, for each stream that has more events.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl<'a> MergedEvents<'a> {
    pub(super) fn new(streams: &'a [EventStream]) -> Self {
        let ordered = streams.iter().map(|s| Ordered::new(s, streams.len()));
        let mut merged = Self {
            streams: ordered.map(Iterator::peekable).collect(),
            next: BinaryHeap::new(),
        };
        for row in 0..merged.streams.len() {
            merged.queue_next(row);
        }
        merged
    }

    /// Queues the next event of a stream.
    fn queue_next(&mut self, row: usize) {
        if let Some(event) = self.streams.get_mut(row).and_then(Peekable::peek) {
            self.next.push(Reverse((event.time, row)));
        }
    }
}

impl Iterator for MergedEvents<'_> {
    type Item = RuntimeEvent;

    fn next(&mut self) -> Option<RuntimeEvent> {
        let Reverse((_, row)) = self.next.pop()?;
        let event = self.streams.get_mut(row)?.next();
        self.queue_next(row);
        event
    }
}
