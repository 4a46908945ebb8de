//! Blocks: packed rows with a sequence number and a checksum.

use std::io::{self, Read};

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use thiserror::Error;

use crate::bytes::fill;

/// Magic bytes and version of the format.
const MAGIC: [u8; 4] = *b"PCS8";
/// Oldest readable version. It has no row 16 (forget).
const OLDEST_VERSION: u8 = b'2';
/// Oldest version whose checksum covers the magic bytes.
const CHECKED_VERSION: u8 = b'6';
/// Length of a block's header.
pub(super) const HEADER_BYTES: usize = 20;
/// Maximum length of the unpacked rows of a block.
pub(super) const MAX_RAW_BYTES: usize = 256 << 10;

/// Reason why there is no further block.
#[derive(Debug, Error)]
pub enum BlockError {
    /// The file ends within a block: perfcollect died while writing it.
    #[error("the file ends within a block")]
    Truncated,
    /// The bytes are no block of this format.
    #[error("no block where the next one should start")]
    Magic,
    /// The block has another version.
    #[error("another version of perfcollect wrote this file (format {})", .0.escape_ascii())]
    Version(u8),
    /// The block has another sequence number.
    #[error("found block {found} instead of block {expected}")]
    Sequence {
        /// Sequence number of the block.
        found: u32,
        /// Expected sequence number.
        expected: u32,
    },
    /// A length that no writer writes.
    #[error("a block has invalid lengths: {raw} bytes of rows, {stored} bytes stored")]
    Length {
        /// Length of the rows.
        raw: u32,
        /// Length in the file.
        stored: u32,
    },
    /// The block is corrupt.
    #[error("the checksum of block {0} is wrong")]
    Checksum(u32),
    /// The checksum is correct, but the content is not.
    #[error("block {0} cannot be unpacked")]
    Unpack(u32),
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
}

/// Packs `rows` as block `sequence` and appends it to `out`.
///
/// `rows` must have 1 to [`MAX_RAW_BYTES`] bytes.
pub(super) fn pack(sequence: u32, rows: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let body = start + HEADER_BYTES;
    out.resize(body + get_maximum_output_size(rows.len()), 0);
    let stored = match compress_into(rows, &mut out[body..]) {
        Ok(len) if len < rows.len() => len,
        _ => {
            out[body..body + rows.len()].copy_from_slice(rows);
            rows.len()
        }
    };
    out.truncate(body + stored);
    let numbers = [sequence, rows.len() as u32, stored as u32].map(u32::to_le_bytes);
    out[start..start + 4].copy_from_slice(&MAGIC);
    out[start + 4..start + 16].copy_from_slice(numbers.as_flattened());
    let crc = checksum(&MAGIC, numbers.as_flattened(), &out[body..]);
    out[start + 16..body].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(magic: &[u8], numbers: &[u8], stored: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    if magic[3] >= CHECKED_VERSION {
        crc.update(magic);
    }
    crc.update(numbers);
    crc.update(stored);
    crc.finalize()
}

/// Reads blocks one after another.
pub(super) struct Blocks<R> {
    input: R,
    sequence: u32,
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// Length of the whole blocks read so far.
    pub(super) bytes: u64,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            sequence: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the rows of the next block, or `None` if the file ends after a whole block.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, BlockError> {
        let mut header = [0; HEADER_BYTES];
        match fill(&mut self.input, &mut header)? {
            0 => return Ok(None),
            HEADER_BYTES => {}
            _ => return Err(BlockError::Truncated),
        }
        let (magic, rest) = header.split_at(4);
        if magic[..3] != MAGIC[..3] {
            return Err(BlockError::Magic);
        }
        if !(OLDEST_VERSION..=MAGIC[3]).contains(&magic[3]) {
            return Err(BlockError::Version(magic[3]));
        }
        let (words, _) = rest.as_chunks::<4>();
        let [sequence, raw, stored, crc] = [0, 1, 2, 3].map(|at| u32::from_le_bytes(words[at]));
        if sequence != self.sequence {
            return Err(BlockError::Sequence {
                found: sequence,
                expected: self.sequence,
            });
        }
        if raw == 0 || raw as usize > MAX_RAW_BYTES || stored > raw {
            return Err(BlockError::Length { raw, stored });
        }
        self.stored.resize(stored as usize, 0);
        if fill(&mut self.input, &mut self.stored)? < self.stored.len() {
            return Err(BlockError::Truncated);
        }
        if checksum(magic, &rest[..12], &self.stored) != crc {
            return Err(BlockError::Checksum(sequence));
        }
        self.raw.resize(raw as usize, 0);
        if stored == raw {
            self.raw.copy_from_slice(&self.stored);
        } else if decompress_into(&self.stored, &mut self.raw).ok() != Some(raw as usize) {
            return Err(BlockError::Unpack(sequence));
        }
        self.sequence = sequence.checked_add(1).ok_or(BlockError::Magic)?;
        self.bytes += (HEADER_BYTES + stored as usize) as u64;
        Ok(Some(&self.raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_round_trip(rows in proptest::collection::vec(
            (any::<u8>(), 1..5000_usize, any::<bool>()), 1..6))
        {
            let raws: Vec<Vec<u8>> = rows
                .iter()
                .map(|&(seed, len, packs)| {
                    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3];
                    (0..len).map(|at| if packs { seed } else { byte(at) ^ seed }).collect()
                })
                .collect();
            let mut file = Vec::new();
            for (sequence, raw) in raws.iter().enumerate() {
                pack(sequence as u32, raw, &mut file);
            }
            let mut blocks = Blocks::new(&file[..]);
            for raw in &raws {
                prop_assert_eq!(blocks.next().unwrap().unwrap(), &raw[..]);
            }
            prop_assert!(blocks.next().unwrap().is_none());
            prop_assert_eq!(blocks.bytes, file.len() as u64);
        }
    }

    #[test]
    fn rejects_block_with_wrong_sequence_number() {
        let mut file = Vec::new();
        pack(1, b"rows", &mut file);
        let error = Blocks::new(&file[..]).next().unwrap_err();
        assert!(matches!(
            error,
            BlockError::Sequence {
                found: 1,
                expected: 0
            }
        ));
    }
}
