//! The header of a table.

use super::GoError;
use super::words::Words;
use crate::elf::LoadedImage;

/// Size of the longest header, in bytes.
pub(super) const MAX_HEADER_BYTES: usize = 8 + 8 * 8;

/// Layout of a table, by the first version of Go that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// Entries are addresses, and so are pointers to function data.
    Go1_16,
    /// Entries and function data are relative to the code and to a symbol.
    Go1_18,
    /// Functions have the line of their start, and inlined functions other records.
    Go1_20,
}

/// A header whose offsets are checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) version: Version,
    pub(super) words: Words,
    /// Alignment of instructions: the unit of address deltas.
    pub(super) quantum: u8,
    /// Number of functions.
    pub(super) functions: usize,
    /// Start of the code; 0 if the header has none.
    pub(super) code_start: u64,
    /// Offsets from the header. None exceeds the size of the table, and they ascend.
    pub(super) names_at: usize,
    pub(super) units_at: usize,
    pub(super) files_at: usize,
    pub(super) pc_values_at: usize,
    pub(super) functions_at: usize,
}

/// The first eight bytes of a header.
pub(super) enum Start {
    Supported(Version),
    TooOld,
    UnknownMagic(u32),
    Corrupt(&'static str),
}

impl Start {
    /// Decodes the first bytes of a table.
    pub(super) fn parse(bytes: &[u8; 8], words: Words) -> Self {
        let version = match words.u32(bytes, 0) {
            Some(0xffff_fffb) => None,
            Some(0xffff_fffa) => Some(Version::Go1_16),
            Some(0xffff_fff0) => Some(Version::Go1_18),
            Some(0xffff_fff1) => Some(Version::Go1_20),
            magic => return Self::UnknownMagic(magic.unwrap_or_default()),
        };
        match (bytes, version) {
            (&[.., 0, 0, 1 | 2 | 4, size], version) if size == words.word_bytes => {
                version.map_or(Self::TooOld, Self::Supported)
            }
            _ => Self::Corrupt("instruction alignment or word size"),
        }
    }
}

impl Header {
    /// Parses the header of a table. `bytes` are its first bytes, `table_bytes` is its size.
    pub(super) fn parse(
        bytes: &[u8],
        table_bytes: u64,
        image: &LoadedImage,
    ) -> Result<Self, GoError> {
        let words = Words {
            is_big_endian: image.is_big_endian(),
            word_bytes: image.word_bytes(),
        };
        let truncated = GoError::Corrupt("truncated header");
        let Some(start) = bytes.first_chunk() else {
            return Err(truncated);
        };
        let version = match Start::parse(start, words) {
            Start::Supported(version) => version,
            Start::TooOld => return Err(GoError::TooOld),
            Start::UnknownMagic(magic) => return Err(GoError::UnknownMagic(magic)),
            Start::Corrupt(what) => return Err(GoError::Corrupt(what)),
        };
        let at = |index: usize| start.len() + index * usize::from(words.word_bytes);
        // Number of functions, number of files, start of the code; then the offsets.
        let (code_start, offsets) = match version {
            Version::Go1_16 => (Some(0), 2),
            Version::Go1_18 | Version::Go1_20 => (words.word(bytes, at(2)), 3),
        };
        let offset = |index| {
            let offset = words.offset(bytes, at(offsets + index), table_bytes);
            offset.ok_or(GoError::Corrupt("offset of a part"))
        };
        let header = Self {
            version,
            words,
            quantum: start[6],
            functions: 0,
            code_start: code_start.ok_or(truncated)?,
            names_at: offset(0)?,
            units_at: offset(1)?,
            files_at: offset(2)?,
            pc_values_at: offset(3)?,
            functions_at: offset(4)?,
        };
        let parts = [
            at(offsets + 5),
            header.names_at,
            header.units_at,
            header.files_at,
            header.pc_values_at,
            header.functions_at,
        ];
        if !parts.is_sorted() {
            return Err(GoError::Corrupt("order of the parts"));
        }
        // A pair for each function, and the end of the last one.
        let room = table_bytes.saturating_sub(header.functions_at as u64);
        let fields = room / header.entry_bytes() as u64;
        let functions = words.word(bytes, at(0)).unwrap_or(u64::MAX);
        if functions > fields.saturating_sub(1) / 2 {
            return Err(GoError::Corrupt("number of functions"));
        }
        let functions = usize::try_from(functions);
        Ok(Self {
            functions: functions.map_err(|_| GoError::Corrupt("number of functions"))?,
            ..header
        })
    }

    /// Returns the size of a field in the list of functions, in bytes.
    pub(super) fn entry_bytes(&self) -> usize {
        match self.version {
            Version::Go1_16 => self.words.word_bytes.into(),
            Version::Go1_18 | Version::Go1_20 => 4,
        }
    }
}
