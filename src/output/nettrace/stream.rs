//! Stream of chunks. A chunk contains the objects that its events refer to, then the events.
//!
//! A sequence point follows each chunk. At a sequence point, readers discard all earlier stacks.

use std::io::{self, Write};

use hashbrown::HashMap;

use super::encode::{BlockKind, block, row, text};
use super::event_rows::{EventHeader, EventRows};
use super::kinds;
use crate::bytes::put_varuint;
use crate::nettrace::{Activity, EventMetadata};
use crate::trace::{Pid, Tid};

/// Magic, reserved bytes, major version 6 and minor version 0.
const MAGIC: &[u8] = b"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0";
const TICKS_PER_SECOND: u64 = 1_000_000_000;
const POINTER_BYTES: u32 = 8;
/// A chunk ends when it contains this many bytes, or this many stacks.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_STACKS: u32 = 1 << 15;
/// Maximum size of a payload. Readers store the size in 16 bits.
pub(super) const MAX_PAYLOAD_BYTES: usize = u16::MAX as usize;
/// Id of the capture thread of all events. One thread has one sequence, which shows missing events.
const CAPTURE_THREAD: u32 = 1;
/// Maximum number of missing events. Readers do not report larger gaps in the sequence.
const MAX_GAP: u64 = 1 << 30;

/// Header of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamHeader<'a> {
    /// Year, month, day of the week, day, hour, minute, second, millisecond, UTC.
    pub(super) system_time: [u16; 8],
    /// The same time on the clock of the stream, in nanoseconds. No event is older.
    pub(super) time: u64,
    /// Keys and values of the trace block.
    pub(super) properties: &'a [(String, String)],
}

/// Writes events in order of time.
pub(super) struct Stream<W> {
    out: W,
    kinds: Vec<u8>,
    kind_count: u32,
    threads: Vec<u8>,
    thread_count: u32,
    stacks: Vec<u8>,
    stack_ids: HashMap<Box<[u64]>, u32>,
    labels: Vec<u8>,
    label_ids: HashMap<Activity, u32>,
    events: EventRows,
    /// Sequence number of the last event.
    sequence_number: u32,
    /// Number of sequence numbers without an event.
    missing: u64,
    time: u64,
    chunk: u32,
}

impl<W: Write> Stream<W> {
    pub(super) fn start(mut out: W, header: StreamHeader<'_>) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let mut trace = Vec::new();
        trace.extend(header.system_time.into_iter().flat_map(u16::to_le_bytes));
        trace.extend(header.time.to_le_bytes());
        trace.extend(TICKS_PER_SECOND.to_le_bytes());
        trace.extend(POINTER_BYTES.to_le_bytes());
        trace.extend((header.properties.len() as u32).to_le_bytes());
        for (key, value) in header.properties {
            text(&mut trace, key);
            text(&mut trace, value);
        }
        block(&mut out, BlockKind::Trace, &[&trace])?;
        let mut stream = Self {
            out,
            kinds: Vec::new(),
            kind_count: 0,
            threads: Vec::new(),
            thread_count: 0,
            stacks: Vec::new(),
            stack_ids: HashMap::new(),
            labels: Vec::new(),
            label_ids: HashMap::new(),
            events: EventRows::default(),
            sequence_number: 0,
            missing: 0,
            time: header.time,
            chunk: 0,
        };
        stream.thread("perfcollect", None);
        Ok(stream)
    }

    /// Declares an event kind and returns its id.
    pub(super) fn kind(&mut self, kind: &EventMetadata) -> u32 {
        self.kind_count += 1;
        kinds::put(&mut self.kinds, self.kind_count, kind);
        self.kind_count
    }

    /// Declares a thread and returns its id. `name` is empty if it is unknown.
    pub(super) fn thread(&mut self, name: &str, ids: Option<(Pid, Tid)>) -> u32 {
        const NAME: u8 = 1;
        const PROCESS: u8 = 2;
        const ID: u8 = 3;
        self.thread_count += 1;
        let mut thread = Vec::new();
        put_varuint(&mut thread, self.thread_count.into());
        thread.push(NAME);
        text(&mut thread, name);
        if let Some((pid, tid)) = ids {
            for (tag, id) in [(PROCESS, pid.0), (ID, tid.0)] {
                thread.push(tag);
                put_varuint(&mut thread, id.cast_unsigned().into());
            }
        }
        // The row fits, because `text` limits the length of the name.
        let _ = row(&mut self.threads, &thread);
        self.thread_count
    }

    /// Returns the id of a stack within the chunk. The innermost address is first.
    pub(super) fn stack(&mut self, addresses: &[u64]) -> u32 {
        if addresses.is_empty() {
            return 0;
        }
        if let Some(&id) = self.stack_ids.get(addresses) {
            return id;
        }
        let id = self.stack_ids.len() as u32 + 1;
        self.stack_ids.insert(addresses.into(), id);
        let bytes = size_of_val(addresses) as u32;
        self.stacks.extend(bytes.to_le_bytes());
        self.stacks
            .extend(addresses.iter().flat_map(|address| address.to_le_bytes()));
        id
    }

    /// Returns the id of a label list within the chunk; 0 for none.
    pub(super) fn labels(&mut self, activity: Activity) -> u32 {
        const ID: u8 = 1;
        const RELATED: u8 = 2;
        const LAST: u8 = 128;
        if activity == Activity::default() {
            return 0;
        }
        let id = self.label_ids.len() as u32 + 1;
        let labels = &mut self.labels;
        *self.label_ids.entry(activity).or_insert_with(|| {
            let is_related = activity.related != Activity::default().related;
            labels.push(if is_related { ID } else { ID | LAST });
            labels.extend(activity.id);
            if is_related {
                labels.push(RELATED | LAST);
                labels.extend(activity.related);
            }
            id
        })
    }

    /// Returns the index of the current chunk. Stack ids are valid in one chunk only.
    pub(super) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Writes an event. An event that is older than the last one gets the time of the last one.
    ///
    /// Omits an event that is too large, but counts it in the sequence: readers report it as
    /// missing.
    pub(super) fn event(&mut self, mut event: EventHeader, payload: &[u8]) -> io::Result<()> {
        self.sequence_number = self.sequence_number.wrapping_add(1);
        if payload.len() > MAX_PAYLOAD_BYTES {
            self.missing += 1;
            return Ok(());
        }
        self.time = self.time.max(event.time);
        event.time = self.time;
        self.events
            .put(event, payload, CAPTURE_THREAD, self.sequence_number);
        let Self { kinds, threads, .. } = self;
        let referenced = kinds.len() + threads.len() + self.stacks.len() + self.labels.len();
        let bytes = referenced + self.events.len();
        if bytes >= CHUNK_BYTES || self.stack_ids.len() as u32 >= CHUNK_STACKS {
            self.end_chunk()?;
        }
        Ok(())
    }

    /// Skips sequence numbers. Readers report the gap as missing events.
    pub(super) fn skip(&mut self, count: u64) {
        let count = count.min(MAX_GAP.saturating_sub(self.missing));
        self.missing += count;
        self.sequence_number = self.sequence_number.wrapping_add(count as u32);
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let Self { out, events, .. } = self;
        if !self.kinds.is_empty() {
            // The header before the rows is empty.
            block(out, BlockKind::Metadata, &[&[0; 2], &self.kinds])?;
        }
        if !self.threads.is_empty() {
            block(out, BlockKind::Thread, &[&self.threads])?;
        }
        if !self.stack_ids.is_empty() {
            let count = self.stack_ids.len() as u32;
            let header = [1_u32.to_le_bytes(), count.to_le_bytes()].concat();
            block(out, BlockKind::Stack, &[&header, &self.stacks])?;
        }
        if !self.label_ids.is_empty() {
            let count = self.label_ids.len() as u32;
            let header = [1_u32.to_le_bytes(), count.to_le_bytes()].concat();
            block(out, BlockKind::Labels, &[&header, &self.labels])?;
        }
        if events.len() > 0 {
            block(out, BlockKind::Event, &[&events.header(), events.bytes()])?;
        }
        let mut point = self.time.to_le_bytes().to_vec();
        point.extend([0; 4]);
        point.extend(1_u32.to_le_bytes());
        put_varuint(&mut point, CAPTURE_THREAD.into());
        put_varuint(&mut point, self.sequence_number.into());
        block(out, BlockKind::SequencePoint, &[&point])?;
        self.kinds.clear();
        self.threads.clear();
        self.stacks.clear();
        self.stack_ids.clear();
        self.labels.clear();
        self.label_ids.clear();
        self.events.clear();
        self.chunk += 1;
        Ok(())
    }

    /// Writes the last chunk and the end of the stream.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_chunk()?;
        block(&mut self.out, BlockKind::End, &[])?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nettrace::Reader;

    #[test]
    fn gaps_have_a_common_limit() {
        let header = StreamHeader {
            system_time: [0; 8],
            time: 1,
            properties: &[],
        };
        let mut bytes = Vec::new();
        let mut stream = Stream::start(&mut bytes, header).unwrap();
        let kind = stream.kind(&EventMetadata::default());
        stream.skip(7);
        let event = EventHeader {
            kind,
            time: 1,
            ..EventHeader::default()
        };
        stream.event(event, &[]).unwrap();
        stream.skip(u64::MAX);
        stream.skip(208);
        stream.finish().unwrap();
        let mut reader = Reader::open(&*bytes).unwrap();
        while reader.next_event().unwrap().is_some() {}
        assert_eq!(reader.losses().dropped_events, MAX_GAP);
    }
}
