//! Stream of records and other events.

use std::io::{self, Write};
use std::sync::Arc;

use hashbrown::HashMap;

use super::event_rows::EventHeader;
use super::records::Record;
use super::stream::{Stream, StreamHeader};
use crate::nettrace::{EventMetadata, KindMap};
use crate::trace::{Pid, Tid};

/// A stream that declares the kinds of all records, and other kinds and threads at their first use.
pub(super) struct RecordStream<W> {
    pub(super) stream: Stream<W>,
    records: [u32; Record::ALL.len()],
    /// Ids of the other event kinds.
    kinds: KindMap<u32>,
    pub(super) threads: HashMap<(Pid, Tid), u32>,
}

impl<W: Write> RecordStream<W> {
    /// Writes the header of the stream.
    pub(super) fn start(out: W, header: StreamHeader<'_>) -> io::Result<Self> {
        let mut stream = Stream::start(out, header)?;
        let records = Record::ALL.map(|record| stream.kind(&record.kind()));
        Ok(Self {
            stream,
            records,
            kinds: KindMap::default(),
            threads: HashMap::new(),
        })
    }

    /// Returns the id of a record's kind.
    pub(super) fn kind(&self, record: Record) -> u32 {
        self.records[record as usize]
    }

    /// Returns the id of another event kind.
    pub(super) fn event_kind(&mut self, kind: &Arc<EventMetadata>) -> u32 {
        let stream = &mut self.stream;
        self.kinds.get_or_insert_with(kind, || stream.kind(kind))
    }

    /// Returns the id of a thread. The name counts at its first use.
    pub(super) fn thread(&mut self, pid: Pid, tid: Tid, name: &str) -> u32 {
        let stream = &mut self.stream;
        let known = self.threads.entry((pid, tid));
        *known.or_insert_with(|| stream.thread(name, Some((pid, tid))))
    }

    /// Writes a record without a stack.
    pub(super) fn record(
        &mut self,
        record: Record,
        thread: u32,
        time: u64,
        payload: &[u8],
    ) -> io::Result<()> {
        let header = EventHeader {
            kind: self.kind(record),
            thread,
            time,
            ..EventHeader::default()
        };
        self.stream.event(header, payload)
    }
}
