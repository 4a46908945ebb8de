//! Rows of an event block. Each row contains only the fields that differ from the previous row.
//!
//! ```text
//! bit 1    kind
//!     2    step of the sequence number, capture thread, CPU; else the sequence number increases by one
//!     4    thread
//!     8    stack
//!     16   list of labels
//!     64   sorted: no later event is older; always set
//!     128  bytes of payload
//! ```
//! Each row contains the time, as a difference. All fields are 0 at the start of a block.

use crate::bytes::put_varuint;

const KIND: u8 = 1;
const SEQUENCE: u8 = 2;
const THREAD: u8 = 4;
const STACK: u8 = 8;
const LABELS: u8 = 16;
const SORTED: u8 = 64;
const PAYLOAD_BYTES: u8 = 128;

/// An event without its payload. The ids are those that the stream has assigned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventHeader {
    pub(super) kind: u32,
    pub(super) thread: u32,
    /// Stack id; 0 for none.
    pub(super) stack: u32,
    /// Label list id; 0 for none.
    pub(super) labels: u32,
    pub(super) cpu: u8,
    /// Nanoseconds on the clock of the stream.
    pub(super) time: u64,
}

#[derive(Debug, Default)]
pub(super) struct EventRows {
    bytes: Vec<u8>,
    last: EventHeader,
    last_sequence_number: u32,
    last_payload_bytes: usize,
    first_time: u64,
}

impl EventRows {
    /// Appends an event with its capture thread and sequence number.
    pub(super) fn put(
        &mut self,
        event: EventHeader,
        payload: &[u8],
        capture_thread: u32,
        sequence_number: u32,
    ) {
        let is_first = self.bytes.is_empty();
        if is_first {
            self.first_time = event.time;
        }
        let step = sequence_number
            .wrapping_sub(self.last_sequence_number)
            .wrapping_sub(1);
        let differs = [
            (KIND, event.kind != self.last.kind),
            (
                SEQUENCE,
                is_first || step != 0 || event.cpu != self.last.cpu,
            ),
            (THREAD, event.thread != self.last.thread),
            (STACK, event.stack != self.last.stack),
            (LABELS, event.labels != self.last.labels),
            (PAYLOAD_BYTES, payload.len() != self.last_payload_bytes),
        ];
        let flags = differs
            .iter()
            .filter(|(_, differs)| *differs)
            .fold(SORTED, |flags, (bit, _)| flags | bit);
        let out = &mut self.bytes;
        let has = |bit: u8| flags & bit != 0;
        out.push(flags);
        if has(KIND) {
            put_varuint(out, event.kind.into());
        }
        if has(SEQUENCE) {
            for part in [step, capture_thread, event.cpu.into()] {
                put_varuint(out, part.into());
            }
        }
        if has(THREAD) {
            put_varuint(out, event.thread.into());
        }
        if has(STACK) {
            put_varuint(out, event.stack.into());
        }
        put_varuint(out, event.time.wrapping_sub(self.last.time));
        if has(LABELS) {
            put_varuint(out, event.labels.into());
        }
        if has(PAYLOAD_BYTES) {
            put_varuint(out, payload.len() as u64);
        }
        out.extend_from_slice(payload);
        self.last = event;
        self.last_sequence_number = sequence_number;
        self.last_payload_bytes = payload.len();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the header of the block: its length, the flag for compressed rows, first and last
    /// time.
    pub(super) fn header(&self) -> [u8; 20] {
        let mut header = [0; 20];
        header[0] = 20;
        header[2] = 1;
        header[4..12].copy_from_slice(&self.first_time.to_le_bytes());
        header[12..].copy_from_slice(&self.last.time.to_le_bytes());
        header
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts the next block.
    pub(super) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self {
            bytes,
            ..Self::default()
        };
    }
}
