//! Errors in perf.data recordings.

use std::io;

use thiserror::Error;

use super::magic::{known_format, looks_like_text};

/// Reason why a recording cannot be read at all.
#[derive(Debug, Error)]
pub enum PerfDataError {
    /// Reading failed.
    #[error("reading failed: {0}")]
    Read(io::Error),
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The file ends before its first record.
    #[error(
        "it ends within its header; perf was stopped before it wrote records, or the copy is incomplete"
    )]
    Short,
    /// The file starts with other bytes than a perf.data file.
    #[error("{}", describe_magic(.0))]
    Magic([u8; 8]),
    /// The file is text.
    #[error("it is text; `perfcollect convert` reads the output of `perf script`")]
    Text,
    /// The file must be read with seeking, but the input is a pipe.
    #[error(
        "it is a perf.data file, and only the output of `perf record -o -` can be read from a pipe; \
         pass the name of the file"
    )]
    FileInPipe,
    /// The file is one of several in a directory.
    #[error("it is one of several files of `perf record --threads`; pass their directory")]
    PartOfDirectory,
    /// The header is corrupt.
    #[error("it has a corrupt header: {0}")]
    Header(&'static str),
    /// The header declares no event, so records cannot be parsed.
    #[error("it declares no event")]
    NoEvents,
}

impl From<io::Error> for PerfDataError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Short,
            _ => Self::Read(error),
        }
    }
}

/// Describes a file that starts with other bytes than a perf.data file.
fn describe_magic(magic: &[u8; 8]) -> String {
    if let Some(description) = known_format(magic) {
        return description.to_owned();
    }
    match looks_like_text(magic) {
        true => PerfDataError::Text.to_string(),
        // A private file that a link leads to is not quoted.
        false => "its format is unknown".to_owned(),
    }
}

/// Reason why a recording is incomplete.
#[derive(Debug, Error)]
pub enum Corruption {
    /// Reading failed.
    #[error("reading failed: {0}")]
    Read(io::Error),
    /// The file ends within a record.
    #[error("the file ends within a record")]
    Truncated,
    /// A record is smaller than its header.
    #[error("a record declares a size of {0} bytes")]
    Size(u16),
    /// Compressed records cannot be decompressed.
    #[error("compressed records are corrupt: {0}")]
    Compressed(&'static str),
    /// The file ends before or within the sections after the records.
    #[error(
        "the file ends within the sections after its records, so event names, build ids and more are missing"
    )]
    Sections,
    /// perf did not complete the header.
    #[error("perf was killed before it wrote the sizes in the header")]
    IncompleteHeader,
}
