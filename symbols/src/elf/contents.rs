//! The contents of sections, which may be compressed.

use object::Endianness;
use object::elf::{self as raw, CompressionHeader32, CompressionHeader64};
use object::pod::from_bytes;
use object::read::elf::CompressionHeader;
use object::read::{CompressedData, CompressionFormat};

use super::ElfError;
use super::headers::{Headers, Section};
use super::source::Source;
use crate::turn;

/// Most bytes that one compressed byte stands for: two bits of RFC 1951 for 258 bytes, four bytes of RFC 8878 for a block.
const MAX_ZLIB_RATIO: u64 = 258 * 8 / 2;
const MAX_ZSTD_RATIO: u64 = (128 << 10) / 4;

pub(super) fn check_size(what: &'static str, size: u64, limit: u64) -> Result<(), ElfError> {
    if size > limit {
        Err(ElfError::TooLarge { what, size, limit })
    } else {
        Ok(())
    }
}

/// A section's bytes, decompressed; `limit` holds for both sizes.
pub(super) fn section_data(
    source: Source<'_>,
    headers: &Headers,
    section: &Section,
    what: &'static str,
    limit: u64,
) -> Result<Vec<u8>, ElfError> {
    check_size(what, section.size, limit)?;
    let data = source.read_exact(what, section.offset, section.size)?;
    if !section.is_compressed() {
        return Ok(data);
    }
    let damaged = |why: &str| ElfError::Damaged {
        what,
        why: why.to_owned(),
    };
    let (kind, uncompressed_size, data) = if section.is_compressed_by_name() {
        gnu_compression(&data)
    } else if headers.is_64 {
        compression::<CompressionHeader64<Endianness>>(&data, headers.endian)
    } else {
        compression::<CompressionHeader32<Endianness>>(&data, headers.endian)
    }
    .ok_or_else(|| damaged("compression header cut off"))?;
    check_size(what, uncompressed_size, limit)?;
    let (format, ratio) = match kind {
        raw::ELFCOMPRESS_ZLIB => (CompressionFormat::Zlib, MAX_ZLIB_RATIO),
        raw::ELFCOMPRESS_ZSTD => (CompressionFormat::Zstandard, MAX_ZSTD_RATIO),
        _ => return Err(damaged("unknown compression")),
    };
    // The decompressor fills as much memory first.
    if uncompressed_size > (data.len() as u64).saturating_mul(ratio) {
        return Err(damaged("more bytes stated than it can decompress to"));
    }
    turn::take(uncompressed_size);
    let compressed = CompressedData {
        format,
        data,
        uncompressed_size,
    };
    compressed
        .decompress()
        .map(Into::into)
        .map_err(|error| damaged(&error.to_string()))
}

/// The head of a section of GNU's before there was a flag: `ZLIB` and the size, big-endian.
fn gnu_compression(data: &[u8]) -> Option<(raw::CompressionType, u64, &[u8])> {
    let (size, data) = data.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some((raw::ELFCOMPRESS_ZLIB, u64::from_be_bytes(*size), data))
}

fn compression<H: CompressionHeader<Endian = Endianness>>(
    data: &[u8],
    endian: Endianness,
) -> Option<(raw::CompressionType, u64, &[u8])> {
    let (header, data) = from_bytes::<H>(data).ok()?;
    Some((header.ch_type(endian), header.ch_size(endian).into(), data))
}
