//! Strings and blocks in version 6 of the format.

use std::io::{self, Write};

use crate::bytes::put_varuint;
use crate::output::sanitize::truncate;

/// Maximum length of a string, in bytes. A row and a payload contain at most 64 KiB.
pub(super) const MAX_TEXT_BYTES: usize = 8 << 10;

/// Kind of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockKind {
    End = 0,
    Trace = 1,
    Event = 2,
    Metadata = 3,
    SequencePoint = 4,
    Stack = 5,
    Thread = 6,
    Labels = 8,
}

/// Writes a block: kind and size, then the content. The size has 24 bits.
///
/// # Errors
/// Returns an error if the content is too large, and errors of `out`.
pub(super) fn block(out: &mut impl Write, kind: BlockKind, parts: &[&[u8]]) -> io::Result<()> {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let size = u32::try_from(size)
        .ok()
        .filter(|size| size >> 24 == 0)
        .ok_or_else(|| io::Error::other("a nettrace block exceeds 16 MiB"))?;
    out.write_all(&(size | (kind as u32) << 24).to_le_bytes())?;
    parts.iter().try_for_each(|part| out.write_all(part))
}

/// Appends a string of a block: the length, then UTF-8.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    let text = truncate(text, MAX_TEXT_BYTES);
    put_varuint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a string of a payload: the length in 16 bits, then UTF-8.
pub(super) fn payload_text(out: &mut Vec<u8>, text: &str) {
    let text = truncate(text, MAX_TEXT_BYTES);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends a row after its length in 16 bits. Returns `None` if the row is too long.
pub(super) fn row(out: &mut Vec<u8>, row: &[u8]) -> Option<()> {
    out.extend(u16::try_from(row.len()).ok()?.to_le_bytes());
    out.extend_from_slice(row);
    Some(())
}
