//! Merge of several event streams in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use super::kinds::SharedKinds;
use super::ordered::Ordered;
use super::stream::EventStream;
use super::{Reading, RuntimeEvent};
use crate::nettrace::{EventMetadata, KindMap};
use crate::trace::Nanos;

/// Step of the count of read events, which all CPUs share.
const READ_STEP: u64 = 1 << 10;

/// All events of several streams, oldest first. Events of one kind share its metadata.
///
/// A stream is open from its first event to its last one, so that memory depends on the processes
/// that ran at the same time.
#[derive(Debug)]
pub struct MergedEvents<'a> {
    streams: &'a [EventStream],
    is_wanted: fn(&EventMetadata) -> bool,
    open: FxHashMap<usize, OpenStream<'a>>,
    /// Time of the next event and index of its stream, for each stream that has more events.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
    kinds: SharedKinds,
    /// Counts the events that all iterators return, in steps of [`READ_STEP`].
    reading: &'a Reading,
    returned: u64,
}

#[derive(Debug)]
struct OpenStream<'a> {
    events: Peekable<Ordered<'a>>,
    /// Metadata that the streams share, by that of the stream.
    kinds: KindMap<Arc<EventMetadata>>,
}

impl<'a> MergedEvents<'a> {
    pub(super) fn new(
        streams: &'a [EventStream],
        reading: &'a Reading,
        is_wanted: fn(&EventMetadata) -> bool,
    ) -> Self {
        let next = streams.iter().zip(0..);
        let next = next.filter_map(|(stream, row)| Some(Reverse((stream.counts.first?, row))));
        Self {
            streams,
            is_wanted,
            open: FxHashMap::default(),
            next: next.collect(),
            kinds: SharedKinds::default(),
            reading,
            returned: 0,
        }
    }

    /// Queues the next event of an open stream, or closes it.
    fn queue_next(&mut self, row: usize) {
        let stream = self.open.get_mut(&row);
        match stream.and_then(|stream| stream.events.peek()) {
            Some(event) => self.next.push(Reverse((event.time, row))),
            None => {
                self.open.remove(&row);
            }
        }
    }
}

impl Iterator for MergedEvents<'_> {
    type Item = RuntimeEvent;

    fn next(&mut self) -> Option<RuntimeEvent> {
        loop {
            let Reverse((_, row)) = self.next.pop()?;
            let Some(stream) = self.open.get_mut(&row) else {
                let (stream, streams) = (&self.streams[row], self.streams.len());
                let is_stopped = &self.reading.is_stopped;
                let events = Ordered::new(stream, streams, self.is_wanted, is_stopped).peekable();
                let kinds = KindMap::default();
                self.open.insert(row, OpenStream { events, kinds });
                self.queue_next(row);
                continue;
            };
            let mut event = stream.events.next();
            if let Some(event) = &mut event {
                let kind = &event.metadata;
                event.metadata = stream.kinds.get_or_insert_with(kind, || {
                    self.kinds.get(kind).unwrap_or_else(|| {
                        self.kinds = SharedKinds::default();
                        Arc::clone(kind)
                    })
                });
            }
            self.queue_next(row);
            self.returned += 1;
            if self.returned.is_multiple_of(READ_STEP) {
                let read = &self.reading.events;
                read.fetch_add(READ_STEP, Ordering::Relaxed);
            }
            return event;
        }
    }
}
