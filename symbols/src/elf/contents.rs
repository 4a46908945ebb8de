//! Reads the contents of sections, which may be compressed.

use flate2::{FlushDecompress, Status};
use object::Endianness;
use object::elf::{self as raw, CompressionHeader32, CompressionHeader64};
use object::pod::from_bytes;
use object::read::elf::CompressionHeader;

use super::ElfError;
use super::headers::{Headers, Section};
use super::source::Source;

/// Highest compression ratio of zlib: RFC 1951 encodes 258 bytes in two bits.
const MAX_ZLIB_RATIO: u64 = 258 * 8 / 2;
/// Highest compression ratio of Zstandard: RFC 8878 encodes a block of 128 KiB in four bytes.
const MAX_ZSTD_RATIO: u64 = (128 << 10) / 4;

pub(super) fn check_size(what: &'static str, size: u64, limit: u64) -> Result<(), ElfError> {
    if size > limit {
        Err(ElfError::TooLarge { what, size, limit })
    } else {
        Ok(())
    }
}

/// Reads and decompresses a section. `limit` applies to the compressed and the decompressed size.
///
/// A compressed section that the loader maps is corrupt.
pub(super) fn section_data(
    source: &Source,
    headers: &Headers,
    section: &Section,
    what: &'static str,
    limit: u64,
) -> Result<Vec<u8>, ElfError> {
    check_size(what, section.size, limit)?;
    let corrupt = |why: &str| ElfError::Corrupt {
        what,
        why: why.to_owned(),
    };
    if section.is_compressed() && section.is_mapped() {
        return Err(corrupt("compressed, although the loader maps it"));
    }
    let data = source.read_exact(what, section.offset, section.size)?;
    if !section.is_compressed() {
        return Ok(data);
    }
    let (kind, uncompressed_size, data) = if section.is_compressed_by_name() {
        gnu_compression(&data)
    } else if headers.is_64 {
        compression::<CompressionHeader64<Endianness>>(&data, headers.endian)
    } else {
        compression::<CompressionHeader32<Endianness>>(&data, headers.endian)
    }
    .ok_or_else(|| corrupt("truncated compression header"))?;
    check_size(what, uncompressed_size, limit)?;
    let (decompress, ratio): (Decompress, _) = match kind {
        raw::ELFCOMPRESS_ZLIB => (zlib, MAX_ZLIB_RATIO),
        raw::ELFCOMPRESS_ZSTD => (zstd, MAX_ZSTD_RATIO),
        _ => return Err(corrupt("unknown compression")),
    };
    if uncompressed_size > (data.len() as u64).saturating_mul(ratio) {
        return Err(corrupt("declares more bytes than it can decompress to"));
    }
    source.memory.charge(uncompressed_size);
    let size = usize::try_from(uncompressed_size).map_err(|_| corrupt("too large"))?;
    // Zeroed pages come from the kernel: a page that is not written to uses no memory.
    let mut bytes = vec![0; size];
    let written = decompress(data, &mut bytes).map_err(|why| corrupt(&why))?;
    match written == size {
        true => Ok(bytes),
        false => Err(corrupt("decompresses to fewer bytes than declared")),
    }
}

/// Decompresses the first slice into the second and returns the number of bytes written.
type Decompress = fn(&[u8], &mut [u8]) -> Result<usize, String>;

fn zlib(data: &[u8], bytes: &mut [u8]) -> Result<usize, String> {
    let mut zlib = flate2::Decompress::new(true);
    match zlib.decompress(data, bytes, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => Ok(zlib.total_out() as usize),
        Ok(Status::Ok | Status::BufError) => {
            Err("zlib data is truncated or larger than declared".into())
        }
        Err(error) => Err(format!("zlib error, {error}")),
    }
}

/// Decompresses in one call, which allocates no window, whatever window size the data declares.
fn zstd(data: &[u8], bytes: &mut [u8]) -> Result<usize, String> {
    let written = zstd_safe::decompress(bytes, data);
    written.map_err(|error| format!("zstd error, {}", zstd_safe::get_error_name(error)))
}

/// Parses the header of the older GNU form: `ZLIB` and the size in big-endian byte order.
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
