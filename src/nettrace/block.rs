//! Block headers in the two framings of the format.
//!
//! ```text
//! version 4, 5   05 05 01 version min length name 06 | size pad payload | 06    a tagged object; 01 at the end
//! version 6      size + (kind << 24) payload                                    kind 0 at the end
//! ```

use std::io::Read;

use super::error::{NettraceError, NettraceErrorKind};
use super::feed::Feed;

pub(super) const NULL_REFERENCE: u8 = 1;
pub(super) const BEGIN_OBJECT: u8 = 5;
pub(super) const END_OBJECT: u8 = 6;
/// Size limit of an object's type name. Known names have 5 to 13 bytes.
const MAX_NAME_BYTES: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Trace,
    Event,
    Metadata,
    SequencePoint,
    Stack,
    Thread,
    RemoveThread,
    LabelList,
    /// Unused or unknown.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Versions 4 and 5.
    Objects,
    /// Version 6.
    Blocks,
}

/// The start of an object in versions 4 and 5.
#[derive(Clone, Debug)]
pub(super) struct ObjectHeader {
    pub(super) version: u32,
    /// Oldest version of a reader that can read the object.
    pub(super) oldest_reader: u32,
    pub(super) name: Vec<u8>,
}

impl ObjectHeader {
    /// Reads the start of an object. Returns `None` at the end of the stream.
    pub(super) fn read<R: Read>(feed: &mut Feed<R>) -> Result<Option<Self>, NettraceError> {
        let offset = feed.offset();
        let corrupt = |description| NettraceError {
            offset,
            kind: NettraceErrorKind::Corrupt(description),
        };
        match feed.u8()? {
            NULL_REFERENCE => return Ok(None),
            BEGIN_OBJECT => {}
            _ => return Err(corrupt("object start tag")),
        }
        let tags = [BEGIN_OBJECT, NULL_REFERENCE];
        feed.expect(tags, NettraceErrorKind::Corrupt("object type"))?;
        let version = feed.u32()?;
        let oldest_reader = feed.u32()?;
        let length = feed.u32()?;
        if length > MAX_NAME_BYTES {
            return Err(corrupt("object type: the name is too long"));
        }
        let mut name = Vec::new();
        feed.block(length, &mut name)?;
        feed.expect([END_OBJECT], NettraceErrorKind::Corrupt("object type"))?;
        Ok(Some(Self {
            version,
            oldest_reader,
            name,
        }))
    }

    pub(super) fn kind(&self) -> BlockKind {
        match self.name.as_slice() {
            b"Trace" => BlockKind::Trace,
            b"EventBlock" => BlockKind::Event,
            b"MetadataBlock" => BlockKind::Metadata,
            b"StackBlock" => BlockKind::Stack,
            b"SPBlock" => BlockKind::SequencePoint,
            _ => BlockKind::Other,
        }
    }

    /// Appends the object with this header up to its size, and the padding before its block.
    /// `offset` is that of `out` in the stream.
    pub(super) fn put(&self, out: &mut Vec<u8>, offset: u64, block_bytes: usize) {
        out.extend([BEGIN_OBJECT, BEGIN_OBJECT, NULL_REFERENCE]);
        for number in [self.version, self.oldest_reader, self.name.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(&self.name);
        out.push(END_OBJECT);
        out.extend((block_bytes as u32).to_le_bytes());
        let padding = (offset + out.len() as u64).wrapping_neg() % 4;
        out.resize(out.len() + padding as usize, 0);
    }
}

/// Reads the start of an object. Returns kind and version, or `None` at the end of the stream.
pub(super) fn begin_object<R: Read>(
    feed: &mut Feed<R>,
) -> Result<Option<(BlockKind, u32)>, NettraceError> {
    let offset = feed.offset();
    let Some(header) = ObjectHeader::read(feed)? else {
        return Ok(None);
    };
    let kind = header.kind();
    if kind == BlockKind::Trace && header.oldest_reader > 5 {
        return Err(NettraceError {
            offset,
            kind: NettraceErrorKind::Version(header.oldest_reader),
        });
    }
    Ok(Some((kind, header.version)))
}

pub(super) fn end_object<R: Read>(feed: &mut Feed<R>) -> Result<(), NettraceError> {
    feed.expect([END_OBJECT], NettraceErrorKind::Corrupt("object end tag"))
}

/// Reads the header of a block. Returns kind and size, or `None` at the end of the stream.
pub(super) fn read_header<R: Read>(
    feed: &mut Feed<R>,
    framing: Framing,
) -> Result<Option<(BlockKind, u32)>, NettraceError> {
    match framing {
        Framing::Objects => {
            let Some((kind, _)) = begin_object(feed)? else {
                return Ok(None);
            };
            if kind == BlockKind::Trace {
                return Err(feed.error(NettraceErrorKind::Corrupt("second trace block")));
            }
            let size = feed.u32()?;
            let size = feed.check_size(size)?;
            feed.align()?;
            Ok(Some((kind, size)))
        }
        Framing::Blocks => {
            let header = feed.u32()?;
            let kind = match header >> 24 {
                0 => return Ok(None),
                1 => BlockKind::Trace,
                2 => BlockKind::Event,
                3 => BlockKind::Metadata,
                4 => BlockKind::SequencePoint,
                5 => BlockKind::Stack,
                6 => BlockKind::Thread,
                7 => BlockKind::RemoveThread,
                8 => BlockKind::LabelList,
                _ => BlockKind::Other,
            };
            Ok(Some((kind, header & 0xff_ffff)))
        }
    }
}
