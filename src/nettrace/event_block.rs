//! The events of a block, one after the other.
//!
//! An event's header states only what differs from the one before it in its block: bits of the first byte say what.
//!
//! ```text
//! bit  field                                          else
//! 1    metadata id                                    the same
//! 2    step of the sequence number, capturing         the same, and the number one higher (not in
//!      thread, processor                              metadata before version 6)
//! 4    thread                                         the same
//! 8    stack id                                       the same
//!      time, as a difference modulo 2^64              always there
//! 16   activity id; version 6: list of labels         the same
//! 32   related activity id                            the same
//! 64   no event that follows in the stream is older   -
//! 128  bytes of payload                               the same
//! ```

use std::ops::Range;

use super::block::Framing;
use super::error::{NettraceError, NettraceErrorKind};
use super::labels::Activity;
use crate::bytes::Bytes;

const COMPRESSED: u16 = 1;
/// Sorted or not is told by the highest bit of an uncompressed metadata id.
const METADATA_ID_MASK: u32 = 0x7fff_ffff;
const SORTED: u8 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventHeader {
    pub(super) metadata_id: u32,
    pub(super) sequence: u32,
    pub(super) capture_thread: u64,
    pub(super) thread: u64,
    pub(super) stack: u32,
    pub(super) time: u64,
    /// Before version 6.
    pub(super) activity: Activity,
    /// From version 6 on.
    pub(super) labels: u32,
    pub(super) payload_bytes: u32,
    /// No event that follows in the stream is older.
    pub(super) is_sorted: bool,
}

/// A block of events, or of metadata before version 6, which has the same form.
#[derive(Debug)]
pub(super) struct EventBlock {
    pub(super) bytes: Vec<u8>,
    /// Where the block is in the stream.
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

    /// Begins with the block that `bytes` holds, which is at `offset` of the stream.
    pub(super) fn begin(&mut self, offset: u64) -> Result<(), NettraceError> {
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
            _ => Err(self.damaged("the header of a block")),
        }
    }

    /// Ends the block: what is left of it is not looked at.
    pub(super) fn close(&mut self) {
        self.at = self.bytes.len();
    }

    fn damaged(&self, what: &'static str) -> NettraceError {
        NettraceError {
            offset: self.offset + self.at as u64,
            problem: NettraceErrorKind::Damaged(what),
        }
    }

    /// The next event: its header, and where its payload is in the block.
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
        let header = parsed.ok_or_else(|| self.damaged("the header of an event"))?;
        let start = self.bytes.len() - bytes.0.len();
        bytes
            .take(header.payload_bytes as usize)
            .ok_or_else(|| self.damaged("an event is longer than its block"))?;
        let end = self.bytes.len() - bytes.0.len();
        self.at = end;
        if !self.compressed && self.framing == Framing::Objects {
            // Blocks begin at a multiple of four.
            self.at = end.next_multiple_of(4).min(self.bytes.len());
        }
        self.header = header;
        Ok(Some((header, start..end)))
    }
}

fn compressed(bytes: &mut Bytes<'_>, last: EventHeader, framing: Framing) -> Option<EventHeader> {
    let mut header = last;
    let flags = bytes.u8()?;
    let has = |bit: u8| flags & bit != 0;
    header.is_sorted = has(SORTED);
    if has(1) {
        header.metadata_id = bytes.varuint32()? & METADATA_ID_MASK;
    }
    if has(2) {
        header.sequence = header.sequence.wrapping_add(bytes.varuint32()?);
        header.capture_thread = bytes.varuint()?;
        let _processor = bytes.varuint32()?;
    }
    if header.metadata_id != 0 || framing == Framing::Blocks {
        header.sequence = header.sequence.wrapping_add(1);
    }
    if has(4) {
        header.thread = bytes.varuint()?;
    }
    if has(8) {
        header.stack = bytes.varuint32()?;
    }
    header.time = header.time.wrapping_add(bytes.varuint()?);
    match framing {
        Framing::Objects => {
            if has(16) {
                header.activity.id = bytes.array()?;
            }
            if has(32) {
                header.activity.related = bytes.array()?;
            }
        }
        Framing::Blocks if has(16) => header.labels = bytes.varuint32()?,
        Framing::Blocks => {}
    }
    if has(128) {
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
    let _processor = bytes.u32()?;
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
        thread,
        stack,
        time,
        activity,
        labels,
        payload_bytes: bytes.u32()?,
    })
}
