//! The runtime's `moduledata`: the start of the code and of the function data.
//!
//! ```text
//! word  0 address of the table         20 first address of the functions
//!       1 names (address, len, cap)    22 start of the code
//!       4 units                        38 start of the function data (1.18, 1.19)
//!       7 files                        40 the same (1.20 to 1.26)
//!      10 pc values                    41 end of the table (1.26)
//!      13 functions
//! ```

use std::ops::Range;

use super::GoError;
use super::header::{Header, Version};
use super::location::search;
use crate::elf::LoadedImage;

/// Number of words that are read.
const WORDS: usize = 48;
/// Limit of the words that point to the table and are examined. Programs have two or three.
const MAX_CANDIDATES: usize = 8;

/// The parts of `moduledata` that the table refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModuleData {
    /// Start of the code, to which entries are relative.
    pub(super) code_start: u64,
    /// Start of the function data, to which offsets in function records are relative.
    pub(super) data_start: Option<u64>,
}

impl ModuleData {
    /// Searches the structure in the data segments. Returns `None` if they have none.
    ///
    /// # Errors
    /// The relocations of the file cannot be read.
    pub(super) fn find(
        image: &LoadedImage,
        table: Range<u64>,
        header: &Header,
        bytes: &[u8],
    ) -> Result<Option<Self>, GoError> {
        // In a position-independent file, a relocation has the address.
        let relocated = image.relocated_to(table.start, MAX_CANDIDATES)?;
        let parse = |address| Self::parse(image, address, &table, header, bytes);
        if let Some(found) = relocated.into_iter().find_map(parse) {
            return Ok(Some(found));
        }
        let mut ranges = image.data_ranges();
        ranges.sort_by_key(|range| !range.writable);
        let mut candidates = 0;
        let mut examine = |address: u64, word: Option<u64>| {
            if word != Some(table.start) || candidates == MAX_CANDIDATES {
                return None;
            }
            candidates += 1;
            Self::parse(image, address, &table, header, bytes)
        };
        let words = header.words;
        Ok(match words.word_bytes {
            4 => search(image, &ranges, |address, word: &[u8; 4], _| {
                examine(address, words.word(word, 0))
            }),
            _ => search(image, &ranges, |address, word: &[u8; 8], _| {
                examine(address, words.word(word, 0))
            }),
        })
    }

    /// Parses the structure at an address. Returns `None` if it does not belong to the table.
    fn parse(
        image: &LoadedImage,
        address: u64,
        table: &Range<u64>,
        header: &Header,
        bytes: &[u8],
    ) -> Option<Self> {
        let size = WORDS as u64 * u64::from(header.words.word_bytes);
        let range = address..address.checked_add(size)?;
        let contents = image.relocated("Go module data", range).ok()?;
        let word = |index: usize| {
            let at = index * usize::from(header.words.word_bytes);
            header.words.word(&contents, at)
        };
        let has_parts = [
            (0, 0),
            (1, header.names_at),
            (4, header.units_at),
            (7, header.files_at),
            (10, header.pc_values_at),
            (13, header.functions_at),
        ]
        .iter()
        .all(|&(index, offset)| word(index) == table.start.checked_add(offset as u64));
        let code_start = word(22)?;
        let first = header.words.u32(bytes, header.functions_at)?;
        if !has_parts || word(20) != code_start.checked_add(first.into()) {
            return None;
        }
        let data_start = match (header.version, header.code_start) {
            (Version::Go1_16, _) => None,
            (Version::Go1_18, _) => word(38),
            // Go 1.26 has the function data in the section of the table, and the end of the section
            // in the next word. Later versions may have further words before.
            (Version::Go1_20, 0) => (38..WORDS - 1).find_map(|index| {
                let (start, end) = (word(index)?, word(index + 1)?);
                (table.start < start && start < end && end <= table.end).then_some(start)
            }),
            (Version::Go1_20, _) => word(40),
        };
        Some(Self {
            code_start,
            data_start,
        })
    }
}
