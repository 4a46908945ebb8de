//! The streams of metadata.

use std::ops::Range;

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
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut header = Cursor(bytes);
        if header.take(4)? != MAGIC {
            return None;
        }
        header.take(8)?;
        let version_bytes = u32::from_le_bytes(header.array()?);
        header.take(usize::try_from(version_bytes).ok()?)?;
        header.take(2)?;
        let count = u16::from_le_bytes(header.array()?);
        let (mut tables, mut strings, mut blobs, mut guids) = (None, 0..0, 0..0, 0..0);
        for _ in 0..count.min(MAX_STREAMS) {
            let [offset, size] = [header.array()?, header.array()?].map(u32::from_le_bytes);
            let (offset, size) = (offset as usize, size as usize);
            let range = offset..offset.checked_add(size)?;
            bytes.get(range.clone())?;
            let end = memchr::memchr(0, header.0)?;
            let name = header.take((end + 4) & !3)?;
            match name.get(..end)? {
                b"#~" | b"#-" => tables = Some(range),
                b"#Strings" => strings = range,
                b"#Blob" => blobs = range,
                b"#GUID" => guids = range,
                _ => {}
            }
        }
        Some(Self {
            tables: tables?,
            strings,
            blobs,
            guids,
        })
    }
}
