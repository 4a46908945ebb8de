//! The contents of sections, which may be compressed.

use flate2::{FlushDecompress, Status};
use object::Endianness;
use object::elf::{self as raw, CompressionHeader32, CompressionHeader64};
use object::pod::from_bytes;
use object::read::elf::CompressionHeader;

use super::ElfError;
use super::headers::{Headers, Section};
use super::source::Source;
use crate::large_file_permit;

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
    let damaged = |why: &str| ElfError::Corrupt {
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
    let (decompress, ratio): (Decompress, _) = match kind {
        raw::ELFCOMPRESS_ZLIB => (zlib, MAX_ZLIB_RATIO),
        raw::ELFCOMPRESS_ZSTD => (zstd, MAX_ZSTD_RATIO),
        _ => return Err(damaged("unknown compression")),
    };
    if uncompressed_size > (data.len() as u64).saturating_mul(ratio) {
        return Err(damaged("more bytes stated than it can decompress to"));
    }
    large_file_permit::charge(uncompressed_size);
    let size = usize::try_from(uncompressed_size).map_err(|_| damaged("too large"))?;
    // As the kernel gives them: what is not written to costs nothing.
    let mut bytes = vec![0; size];
    let written = decompress(data, &mut bytes).map_err(|why| damaged(&why))?;
    match written == size {
        true => Ok(bytes),
        false => Err(damaged("fewer bytes than stated")),
    }
}

/// Fills the second with what the first decompresses to, and tells how many bytes that were.
type Decompress = fn(&[u8], &mut [u8]) -> Result<usize, String>;

fn zlib(data: &[u8], bytes: &mut [u8]) -> Result<usize, String> {
    let mut zlib = flate2::Decompress::new(true);
    match zlib.decompress(data, bytes, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => Ok(zlib.total_out() as usize),
        Ok(Status::Ok | Status::BufError) => Err("zlib: cut off, or more bytes than stated".into()),
        Err(error) => Err(format!("zlib: {error}")),
    }
}

/// In one go: nothing is kept for a window, however large the data says it is.
fn zstd(data: &[u8], bytes: &mut [u8]) -> Result<usize, String> {
    let written = zstd_safe::decompress(bytes, data);
    written.map_err(|error| format!("zstd: {}", zstd_safe::get_error_name(error)))
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
