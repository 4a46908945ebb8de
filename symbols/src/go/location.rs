//! Location of the table in a file.

use std::ops::{ControlFlow, Range};

use super::header::{Header, MAX_HEADER_BYTES, Start};
use super::words::Words;
use super::{GoError, MAX_TABLE_BYTES};
use crate::elf::{DataRange, ElfError, LoadedImage};
use crate::memory::Memory;

/// Limit of the bytes of one search. It also bounds the tables whose header is malformed.
const MAX_SEARCH_BYTES: u64 = 256 << 20;
/// Size of the pieces in which segments are searched. Every element that is searched divides it.
const PIECE_BYTES: usize = 1 << 20;
/// Limit of headers that are parsed. Only a malformed file has more than one.
const MAX_CANDIDATES: u32 = 1024;
/// Alignment of a table that is searched. Go's linker aligns it to 16 or 32 bytes.
const ALIGNMENT: usize = 8;

/// Names of the section with the table. Go's linker uses the second one in position-independent
/// files.
const NAMES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// Returns the range of the table, or of all that is mapped after its start.
pub(super) fn find(image: &LoadedImage) -> Result<Option<Range<u64>>, GoError> {
    if let Some(range) = NAMES.iter().find_map(|name| image.section_range(name)) {
        let size = range.end.saturating_sub(range.start);
        if size > MAX_TABLE_BYTES {
            return Err(GoError::Elf(ElfError::TooLarge {
                what: "Go function table",
                size,
                limit: MAX_TABLE_BYTES,
            }));
        }
        return Ok(Some(range));
    }
    match image.has_sections() && !has_go_section(image) {
        true => Ok(None),
        false => search_table(image),
    }
}

/// Returns whether the file has a section that only Go's linker makes.
///
/// GNU ld puts the section of the table into `.data.rel.ro`.
pub(super) fn has_go_section(image: &LoadedImage) -> bool {
    image.has_section(|name| {
        NAMES.contains(&name) || name.starts_with(b".go.") || name.starts_with(b".note.go.")
    })
}

fn search_table(image: &LoadedImage) -> Result<Option<Range<u64>>, GoError> {
    let words = Words {
        is_big_endian: image.is_big_endian(),
        word_bytes: image.word_bytes(),
    };
    let mut is_too_old = false;
    let mut candidates = 0;
    let ranges = image.data_ranges();
    let found = search(image, &ranges, |address, piece: &[u8; ALIGNMENT], end| {
        match Start::parse(piece, words) {
            Start::Supported(_) => {}
            Start::TooOld => {
                is_too_old = true;
                return None;
            }
            Start::UnknownMagic(_) | Start::Corrupt(_) => return None,
        }
        candidates += 1;
        if candidates > MAX_CANDIDATES {
            return None;
        }
        let table = address..end.min(address.saturating_add(MAX_TABLE_BYTES));
        let mut header = [0; MAX_HEADER_BYTES];
        let read = image.read(address, &mut header);
        let header = header.get(..read)?;
        Header::parse(header, table.end - table.start, image).ok()?;
        Some(table)
    });
    match found {
        None if is_too_old => Err(GoError::TooOld),
        found => Ok(found),
    }
}

/// Searches aligned elements of `N` bytes. Returns the first result of `is_match`.
///
/// `is_match` gets the address of the element, the element, and the end of its range. Ranges that
/// are not readable end early.
pub(super) fn search<const N: usize, T>(
    image: &LoadedImage,
    ranges: &[DataRange],
    mut is_match: impl FnMut(u64, &[u8; N], u64) -> Option<T>,
) -> Option<T> {
    let mut left_bytes = MAX_SEARCH_BYTES;
    let mut piece = vec![0; PIECE_BYTES];
    for DataRange { range, .. } in ranges {
        let mut address = range.start.checked_next_multiple_of(N as u64)?;
        while address < range.end && left_bytes > 0 {
            let wanted = (range.end - address)
                .min(left_bytes)
                .min(PIECE_BYTES as u64);
            let read = image.read(address, piece.get_mut(..wanted as usize)?);
            let elements = piece.get(..read)?.chunks_exact(N);
            let found = elements
                .zip((address..).step_by(N))
                .try_for_each(|(element, at)| {
                    let found = element
                        .first_chunk()
                        .and_then(|e| is_match(at, e, range.end));
                    found.map_or(ControlFlow::Continue(()), ControlFlow::Break)
                });
            if let ControlFlow::Break(found) = found {
                return Some(found);
            }
            if (read as u64) < wanted {
                break;
            }
            address = address.saturating_add(wanted);
            left_bytes -= wanted;
        }
    }
    None
}
