//! What can be wrong with an ELF file.

use std::io;

use thiserror::Error;

use crate::table::TableError;

/// Why an ELF file gave nothing.
#[derive(Debug, Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("ELF: reading: {0}")]
    Read(#[source] io::Error),
    /// A directory, a pipe, a device: reading it might hang or never end.
    #[error("ELF: not a regular file")]
    NotRegular,
    /// It does not start like one.
    #[error("ELF: no ELF magic at the start of the file")]
    NotElf,
    /// A header contradicts itself.
    #[error("ELF: {what}: {why}")]
    Corrupt {
        /// The part.
        what: &'static str,
        /// In the words of the parser.
        why: String,
    },
    /// A part does not lie in the file, which may be cut off.
    #[error("ELF: {what}: {size} bytes at {offset:#x} are not all in the file")]
    OutsideFile {
        /// The part.
        what: &'static str,
        /// Where it should start.
        offset: u64,
        /// How many bytes it should have.
        size: u64,
    },
    /// A part is larger than any honest one.
    #[error("ELF: {what}: {size}, more than the limit of {limit}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Bytes, or a count for symbols and headers.
        size: u64,
        /// In the same unit.
        limit: u64,
    },
    /// The names do not fit into a table.
    #[error("ELF: {0}")]
    Table(#[from] TableError),
}
