//! The streams of metadata.

use std::ops::Range;

use super::MetadataError;
use crate::dotnet::element::Cursor;

const MAGIC: &[u8] = b"BSJB";
/// Limit on the streams. Compilers write five.
const MAX_STREAMS: u16 = 32;

/// Byte ranges of the streams that are read.
pub(super) struct Streams {
    pub(super) tables: Range<usize>,
    pub(super) strings: Range<usize>,
    pub(super) blobs: Range<usize>,
    pub(super) guids: Range<usize>,
}

impl Streams {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, MetadataError> {
        let mut header = Cursor(bytes);
        if header.take(4) != Some(MAGIC) {
            return Err(MetadataError::Magic);
        }
        let count = stream_count(&mut header).ok_or(MetadataError::Truncated("root"))?;
        let (mut tables, mut strings, mut blobs, mut guids) = (None, 0..0, 0..0, 0..0);
        for _ in 0..count.min(MAX_STREAMS) {
            let (range, name) = stream(&mut header, bytes.len())?;
            match name {
                b"#~" | b"#-" => tables = Some(range),
                b"#Strings" => strings = range,
                b"#Blob" => blobs = range,
                b"#GUID" => guids = range,
                _ => {}
            }
        }
        Ok(Self {
            tables: tables.ok_or(MetadataError::NoTables)?,
            strings,
            blobs,
            guids,
        })
    }
}

/// Reads the root after its magic. Returns the number of streams.
fn stream_count(header: &mut Cursor<'_>) -> Option<u16> {
    header.take(8)?;
    let version_bytes = u32::from_le_bytes(header.array()?);
    header.take(usize::try_from(version_bytes).ok()?)?;
    header.take(2)?;
    header.array().map(u16::from_le_bytes)
}

/// Reads the header of a stream. Returns its range and name.
fn stream<'a>(
    header: &mut Cursor<'a>,
    limit: usize,
) -> Result<(Range<usize>, &'a [u8]), MetadataError> {
    let truncated = MetadataError::Truncated("stream headers");
    let mut field = || header.array().map(u32::from_le_bytes).ok_or(truncated);
    let (offset, size) = (field()?, field()?);
    let start = offset as usize;
    let end = start.checked_add(size as usize);
    let end = end.filter(|end| *end <= limit);
    let end = end.ok_or(MetadataError::OutsideMetadata {
        offset,
        size,
        limit,
    })?;
    let name = name(header).ok_or(truncated)?;
    Ok((start..end, name))
}

/// Reads a name, which NULs fill up to a multiple of four bytes.
fn name<'a>(header: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let end = memchr::memchr(0, header.0)?;
    header.take((end + 4) & !3)?.get(..end)
}
