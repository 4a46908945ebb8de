//! Stream of records and other events.

use std::io::{self, Write};

use super::event_rows::EventHeader;
use super::records::Record;
use super::stream::{Stream, StreamHeader};

/// A stream in which the kinds of all records are declared.
pub(super) struct RecordStream<W> {
    pub(super) stream: Stream<W>,
    ids: [u32; Record::ALL.len()],
}

impl<W: Write> RecordStream<W> {
    /// Writes the header of the stream.
    pub(super) fn start(out: W, header: StreamHeader<'_>) -> io::Result<Self> {
        let mut stream = Stream::start(out, header)?;
        let ids = Record::ALL.map(|record| stream.kind(&record.kind()));
        Ok(Self { stream, ids })
    }

    /// Returns the id of a record's kind.
    pub(super) fn kind(&self, record: Record) -> u32 {
        self.ids[record as usize]
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
