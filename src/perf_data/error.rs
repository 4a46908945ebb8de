//! What can be wrong with a perf.data file.

use std::io;

use thiserror::Error;

/// Why nothing of a file can be read.
#[derive(Debug, Error)]
pub enum PerfDataError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It does not begin as a perf.data file does.
    #[error("is no perf.data file: it begins with {0:02x?}")]
    Magic([u8; 8]),
    /// One file of several.
    #[error(
        "is one of the files that `perf record --threads` has written; give the folder they are in"
    )]
    OneOfMany,
    /// The header is not a header.
    #[error("has a damaged header: {0}")]
    Header(&'static str),
    /// It names no event, so no record can be understood.
    #[error("names no event")]
    NoEvents,
}

/// Why the records end before the file says they do.
#[derive(Debug, Error)]
pub enum Damage {
    /// Reading failed.
    #[error("reading failed: {0}")]
    Read(io::Error),
    /// The file ends within a record.
    #[error("the file ends within a record")]
    Cut,
    /// A record is smaller than its own header.
    #[error("a record says it has {0} bytes")]
    Size(u16),
    /// Compressed records cannot be decompressed.
    #[error("its compressed records are damaged: {0}")]
    Compressed(&'static str),
    /// The file ends before what stands behind the records.
    #[error(
        "the file ends within what follows its records: names of events, build ids and more are missing"
    )]
    Sections,
    /// The recording was not ended: no header was written.
    #[error("perf was killed before it wrote the header's sizes")]
    Unended,
}
