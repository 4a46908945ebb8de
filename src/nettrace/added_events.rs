//! Blocks with events that are added to a stream of version 4 or 5.
//!
//! ```text
//! object   05 05 01 | version u32 | oldest reader u32 | name length u32 | name | 06 | size u32 | padding | block | 06
//! block    header length u16 | flags u16 | first time u64 | last time u64 | spare bytes | rows
//! kind     id u32 | provider | event id u32 | name | keywords u64 | version u32 | level u32 | number of fields u32
//! ```
//! Strings are NUL-terminated UTF-16. A block is aligned to four bytes in the stream. The size of
//! all added objects is a multiple of four, so what follows them stays as it is.

use super::EventMetadata;
use super::block::{END_OBJECT, ObjectHeader};
use super::event_block::{CAPTURE, COMPRESSED, METADATA_ID, PAYLOAD_BYTES, SORTED, THREAD};
use crate::bytes::{put_utf16z, put_varuint};

/// Size of the header of a stream of version 4 or 5.
pub const OBJECTS_HEADER_BYTES: usize = 102;
/// First metadata id of added kinds. Runtimes count from 1.
const FIRST_KIND: u32 = 1 << 30;
/// Maximum number of kinds of one set of events.
const MAX_KINDS: u32 = 16;
/// Capture thread of the first set of events. Linux has no such thread ids.
const FIRST_CAPTURE_THREAD: u64 = 1 << 31;
/// Length of a block header without spare bytes.
const HEADER_BYTES: usize = 20;
/// Size of the rows after which a block ends.
const BLOCK_BYTES: usize = 100 << 10;

/// Events to add to a stream, all at one time.
#[derive(Debug)]
pub struct AddedEvents {
    set: u32,
    thread: u64,
    ticks: u64,
    kinds: Vec<u8>,
    kind_count: u32,
    /// Rows of the complete event blocks.
    blocks: Vec<Vec<u8>>,
    /// Rows of the last event block.
    rows: Vec<u8>,
    event_count: u64,
}

impl AddedEvents {
    /// Returns the number of the set that an event of a capture thread belongs to, if of any.
    #[must_use]
    pub fn set_of(capture_thread: u64) -> Option<u32> {
        let set = capture_thread.checked_sub(FIRST_CAPTURE_THREAD)?;
        u32::try_from(set).ok()
    }

    /// Creates an empty set of events of a thread, at a time in ticks of the stream.
    ///
    /// `set` is the number of the set among those that are added to one stream.
    #[must_use]
    pub fn new(set: u32, thread: u64, ticks: u64) -> Self {
        Self {
            set,
            thread,
            ticks,
            kinds: Vec::new(),
            kind_count: 0,
            blocks: Vec::new(),
            rows: Vec::new(),
            event_count: 0,
        }
    }

    /// Adds a kind without fields, as runtimes declare their own events. Returns its id.
    pub fn kind(&mut self, kind: &EventMetadata) -> u32 {
        debug_assert!(self.kind_count < MAX_KINDS);
        let id = FIRST_KIND + self.set * MAX_KINDS + self.kind_count;
        self.kind_count += 1;
        let mut row = id.to_le_bytes().to_vec();
        put_utf16z(&mut row, &kind.provider);
        row.extend(kind.id.to_le_bytes());
        put_utf16z(&mut row, &kind.name);
        row.extend(kind.keywords.to_le_bytes());
        for number in [kind.version, kind.level, 0] {
            row.extend(number.to_le_bytes());
        }
        self.kinds.push(PAYLOAD_BYTES);
        put_varuint(&mut self.kinds, 0);
        put_varuint(&mut self.kinds, row.len() as u64);
        self.kinds.extend(row);
        id
    }

    /// Adds an event of a kind that [`Self::kind`] returned.
    pub fn event(&mut self, kind: u32, payload: &[u8]) {
        let out = &mut self.rows;
        let flags = METADATA_ID | SORTED | PAYLOAD_BYTES;
        // The first row of a block has nothing to refer to.
        match out.is_empty() {
            true => {
                out.push(flags | CAPTURE | THREAD);
                put_varuint(out, kind.into());
                let capture_thread = FIRST_CAPTURE_THREAD + u64::from(self.set);
                for part in [self.event_count, capture_thread, 0, self.thread, self.ticks] {
                    put_varuint(out, part);
                }
            }
            false => {
                out.push(flags);
                put_varuint(out, kind.into());
                put_varuint(out, 0);
            }
        }
        put_varuint(out, payload.len() as u64);
        out.extend_from_slice(payload);
        self.event_count += 1;
        if self.rows.len() >= BLOCK_BYTES {
            self.blocks.push(std::mem::take(&mut self.rows));
        }
    }

    /// Returns the objects to insert at an offset of the stream, between two objects.
    #[must_use]
    pub fn objects_at(mut self, offset: u64) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.rows.is_empty() {
            self.blocks.push(self.rows);
        }
        let Some(last) = self.blocks.pop() else {
            return out;
        };
        let put = |name: &str, rows: &[u8], spare: usize, out: &mut Vec<u8>| {
            object(out, offset, name, spare, self.ticks, rows);
        };
        put("MetadataBlock", &self.kinds, 0, &mut out);
        for rows in &self.blocks {
            put("EventBlock", rows, 0, &mut out);
        }
        let before = out.len();
        put("EventBlock", &last, 0, &mut out);
        let spare = out.len().wrapping_neg() % 4;
        out.truncate(before);
        put("EventBlock", &last, spare, &mut out);
        out
    }
}

/// Appends an object. `offset` is that of `out` in the stream.
fn object(out: &mut Vec<u8>, offset: u64, name: &str, spare: usize, ticks: u64, rows: &[u8]) {
    let header = ObjectHeader {
        version: 2,
        oldest_reader: 0,
        name: name.into(),
    };
    let header_bytes = HEADER_BYTES + spare;
    header.put(out, offset, header_bytes + rows.len());
    out.extend((header_bytes as u16).to_le_bytes());
    out.extend(COMPRESSED.to_le_bytes());
    out.extend([ticks.to_le_bytes(); 2].as_flattened());
    out.resize(out.len() + spare, 0);
    out.extend(rows);
    out.push(END_OBJECT);
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::block::NULL_REFERENCE;
    use super::*;
    use crate::nettrace::Reader;

    /// Header of a stream of version 4: nanoseconds, 8 bytes per address, process 77.
    pub(in super::super) fn header() -> Vec<u8> {
        let mut out = b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01".to_vec();
        for number in [4_u32, 4, 5] {
            out.extend(number.to_le_bytes());
        }
        out.extend(b"Trace\x06");
        out.extend([0; 16]);
        for number in [1000_u64, 1_000_000_000] {
            out.extend(number.to_le_bytes());
        }
        for number in [8_u32, 77, 1, 0] {
            out.extend(number.to_le_bytes());
        }
        out.push(END_OBJECT);
        out
    }

    pub(in super::super) fn kind(id: u32) -> EventMetadata {
        EventMetadata {
            provider: "Provider".into(),
            id,
            version: 1,
            ..EventMetadata::default()
        }
    }

    #[test]
    fn sets_can_be_read_between_any_blocks() {
        assert_eq!(header().len(), OBJECTS_HEADER_BYTES);
        for payload_bytes in 0..4 {
            let mut stream = header();
            let mut expected = Vec::new();
            for set in 0..3 {
                let mut added = AddedEvents::new(set, 9, 2000 + u64::from(set));
                let (first, second) = (added.kind(&kind(10)), added.kind(&kind(11)));
                // Enough for several blocks.
                for event in 0..4_u8 {
                    let size = usize::from(event % 2) * BLOCK_BYTES + payload_bytes;
                    let payload = vec![event; size];
                    added.event(if event == 3 { second } else { first }, &payload);
                    expected.push((if event == 3 { 11 } else { 10 }, payload));
                }
                let objects = added.objects_at(stream.len() as u64);
                assert!(objects.len().is_multiple_of(4));
                stream.extend(objects);
            }
            stream.push(NULL_REFERENCE);
            let mut reader = Reader::open(&stream[..]).unwrap();
            let mut events = Vec::new();
            while let Some(event) = reader.next_event().unwrap() {
                assert_eq!(event.thread.id, Some(9));
                assert_eq!(event.time.0, 2000 + events.len() as u64 / 4);
                events.push((event.metadata.id, event.payload.to_vec()));
            }
            assert!(events == expected);
            assert_eq!(reader.losses(), crate::nettrace::Losses::default());
        }
    }

    #[test]
    fn empty_set_adds_nothing() {
        let mut added = AddedEvents::new(0, 1, 1);
        added.kind(&kind(1));
        assert!(added.objects_at(102).is_empty());
    }
}
