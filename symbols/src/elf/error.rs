//! Errors of ELF files.

use std::io;

use thiserror::Error;

use crate::table::TableError;

/// Why an ELF file or a part of it cannot be used.
#[derive(Debug, Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("cannot read ELF file: {0}")]
    Read(#[source] io::Error),
    /// A directory, a pipe or a device: reading it might block or never end.
    #[error("not a regular file")]
    NotRegular,
    /// The file does not start with the ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// A part of the file is corrupt.
    #[error("corrupt ELF {what}: {why}")]
    Corrupt {
        /// The part.
        what: &'static str,
        /// The cause, as the parser reports it.
        why: String,
    },
    /// A part is not inside the file, which may be truncated.
    #[error("corrupt ELF {what}: {size} bytes at {offset:#x} exceed the file size")]
    OutsideFile {
        /// The part.
        what: &'static str,
        /// Its offset, according to the header.
        offset: u64,
        /// Its size in bytes, according to the header.
        size: u64,
    },
    /// A part exceeds a limit that no valid file is known to exceed.
    #[error("ELF {what} too large: {size}, limit {limit}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its size: bytes, or a count for symbols and headers.
        size: u64,
        /// The limit, in the same unit.
        limit: u64,
    },
    /// The symbols exceed the limits of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}
