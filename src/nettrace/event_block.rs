//! Reader of the events of a block.
//!
//! A compressed event header contains only the fields that differ from the previous header of the
//! block. The bits of its first byte are:
//!
//! ```text
//! bit  field                                          if not set
//! 1    metadata id                                    same
//! 2    increment of the sequence number, capture      same, and the sequence number + 1 (not in
//!      thread, processor                              metadata before version 6)
//! 4    thread                                         same
//! 8    stack id                                       same
//!      time, as a difference modulo 2^64              always present
//! 16   activity id; version 6: label list id          same
//! 32   related activity id                            same
//! 64   no later event of the stream is older          -
//! 128  payload size                                   same
//! ```

use std::ops::Range;

use super::block::Framing;
use super::error::{NettraceError, NettraceErrorKind};
use super::labels::Activity;
use crate::bytes::Bytes;

/// Flag of a block with compressed headers.
pub(super) const COMPRESSED: u16 = 1;
/// The highest bit of an uncompressed metadata id is clear for sorted events.
const METADATA_ID_MASK: u32 = 0x7fff_ffff;
// Flags of a compressed header.
pub(super) const METADATA_ID: u8 = 1;
pub(super) const CAPTURE: u8 = 2;
pub(super) const THREAD: u8 = 4;
const STACK: u8 = 8;
/// Activity id, or label list id.
const ACTIVITY: u8 = 16;
const RELATED: u8 = 32;
pub(super) const SORTED: u8 = 64;
pub(super) const PAYLOAD_BYTES: u8 = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventHeader {
    pub(super) metadata_id: u32,
    pub(super) sequence: u32,
    pub(super) capture_thread: u64,
    pub(super) thread: u64,
    pub(super) processor: u32,
    pub(super) stack: u32,
    pub(super) time: u64,
    /// Versions 4 and 5.
    pub(super) activity: Activity,
    /// Version 6.
    pub(super) labels: u32,
    pub(super) payload_bytes: u32,
    /// Whether no later event of the stream is older.
    pub(super) is_sorted: bool,
}

/// An event block, or a metadata block of version 4 or 5, which has the same format.
#[derive(Debug)]
pub(super) struct EventBlock {
    pub(super) bytes: Vec<u8>,
    /// The offset of the block in the stream.
    offset: u64,
    at: usize,
    framing: Framing,
    compressed: bool,
    header: EventHeader,
}

impl EventBlock {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            bytes: Vec::new(),
            offset: 0,
            at: 0,
            framing,
            compressed: false,
            header: EventHeader::default(),
        }
    }

    /// Starts reading the block in `bytes`, which is at `offset` of the stream.
    pub(super) fn start(&mut self, offset: u64) -> Result<(), NettraceError> {
        self.offset = offset;
        self.at = 0;
        self.header = EventHeader::default();
        let mut bytes = Bytes(&self.bytes);
        let length = bytes.u16();
        let flags = bytes.u16();
        match (length, flags) {
            (Some(length), Some(flags)) if (4..=self.bytes.len()).contains(&length.into()) => {
                self.at = length.into();
                self.compressed = flags & COMPRESSED != 0;
                Ok(())
            }
            _ => Err(self.corrupt("block header")),
        }
    }

    /// Skips the rest of the block.
    pub(super) fn close(&mut self) {
        self.at = self.bytes.len();
    }

    fn corrupt(&self, description: &'static str) -> NettraceError {
        NettraceError {
            offset: self.offset + self.at as u64,
            kind: NettraceErrorKind::Corrupt(description),
        }
    }

    /// Returns the next event's header and the range of its payload in `bytes`.
    pub(super) fn next(&mut self) -> Result<Option<(EventHeader, Range<usize>)>, NettraceError> {
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let mut bytes = Bytes(rest);
        let parsed = if self.compressed {
            compressed(&mut bytes, self.header, self.framing)
        } else {
            uncompressed(&mut bytes, self.framing)
        };
        let header = parsed.ok_or_else(|| self.corrupt("event header"))?;
        let start = self.bytes.len() - bytes.0.len();
        bytes
            .take(header.payload_bytes as usize)
            .ok_or_else(|| self.corrupt("event header: the event exceeds its block"))?;
        let end = self.bytes.len() - bytes.0.len();
        self.at = end;
        if !self.compressed && self.framing == Framing::Objects {
            // Uncompressed events are aligned to four bytes, and so are the blocks in the stream.
            self.at = end.next_multiple_of(4).min(self.bytes.len());
        }
        self.header = header;
        Ok(Some((header, start..end)))
    }
}

fn compressed(
    bytes: &mut Bytes<'_>,
    previous: EventHeader,
    framing: Framing,
) -> Option<EventHeader> {
    let mut header = previous;
    let flags = bytes.u8()?;
    let has = |bit: u8| flags & bit != 0;
    header.is_sorted = has(SORTED);
    if has(METADATA_ID) {
        header.metadata_id = bytes.varuint32()? & METADATA_ID_MASK;
    }
    if has(CAPTURE) {
        header.sequence = header.sequence.wrapping_add(bytes.varuint32()?);
        header.capture_thread = bytes.varuint()?;
        header.processor = bytes.varuint32()?;
    }
    if header.metadata_id != 0 || framing == Framing::Blocks {
        header.sequence = header.sequence.wrapping_add(1);
    }
    if has(THREAD) {
        header.thread = bytes.varuint()?;
    }
    if has(STACK) {
        header.stack = bytes.varuint32()?;
    }
    header.time = header.time.wrapping_add(bytes.varuint()?);
    match framing {
        Framing::Objects => {
            if has(ACTIVITY) {
                header.activity.id = bytes.array()?;
            }
            if has(RELATED) {
                header.activity.related = bytes.array()?;
            }
        }
        Framing::Blocks if has(ACTIVITY) => header.labels = bytes.varuint32()?,
        Framing::Blocks => {}
    }
    if has(PAYLOAD_BYTES) {
        header.payload_bytes = bytes.varuint32()?;
    }
    Some(header)
}

fn uncompressed(bytes: &mut Bytes<'_>, framing: Framing) -> Option<EventHeader> {
    let _size = bytes.u32()?;
    let metadata_id = bytes.u32()?;
    let sequence = bytes.u32()?;
    let thread = bytes.u64()?;
    let capture_thread = bytes.u64()?;
    let processor = bytes.u32()?;
    let stack = bytes.u32()?;
    let time = bytes.u64()?;
    let (mut activity, mut labels) = (Activity::default(), 0);
    match framing {
        Framing::Objects => {
            activity.id = bytes.array()?;
            activity.related = bytes.array()?;
        }
        Framing::Blocks => labels = bytes.u32()?,
    }
    Some(EventHeader {
        metadata_id: metadata_id & METADATA_ID_MASK,
        is_sorted: metadata_id & !METADATA_ID_MASK == 0,
        sequence,
        capture_thread,
        processor,
        thread,
        stack,
        time,
        activity,
        labels,
        payload_bytes: bytes.u32()?,
    })
}
