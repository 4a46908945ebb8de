//! What can be wrong with a perf.data file.

use std::io;

use thiserror::Error;

use super::file_header::MAGICS;

/// Why nothing of a file can be read.
#[derive(Debug, Error)]
pub enum PerfDataError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// The file ends before its first record.
    #[error(
        "ends within its header: perf was stopped before it wrote any, or the file was not copied whole"
    )]
    Short,
    /// It does not begin as a perf.data file does.
    #[error("is no perf.data file: {}", what_begins(.0))]
    Magic([u8; 8]),
    /// It was printed already.
    #[error(
        "is text already; `perfcollect convert` makes a trace of what `perf script` has printed"
    )]
    Text,
    /// Standard input cannot be read twice.
    #[error(
        "is a file of perf's in a pipe, which only `perf record -o -` writes: give the name of the file"
    )]
    FileInPipe,
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

impl From<io::Error> for PerfDataError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Short,
            _ => Self::Read(error),
        }
    }
}

/// What else a file is that begins so.
fn what_begins(magic: &[u8; 8]) -> String {
    if let Some(what) = known_format(magic) {
        return what.to_owned();
    }
    match looks_like_text(magic) {
        true => "it is text; `perfcollect convert` reads what `perf script` has printed".to_owned(),
        false => format!("it begins with {magic:02x?}"),
    }
}

/// Files that are taken for recordings, by their first eight bytes.
fn known_format(head: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 10] = [
        (b"\x1f\x8b", "it is compressed, unpack it with gunzip"),
        (b"\xfd7zXZ", "it is compressed, unpack it with unxz"),
        (
            b"\x28\xb5\x2f\xfd",
            "it is compressed, unpack it with unzstd",
        ),
        (b"BZh", "it is compressed, unpack it with bunzip2"),
        (b"Nettrace", "it is a .nettrace file, which PerfView opens"),
        (
            b"SIMPLEPE",
            "it is a report of simpleperf: convert its perf.data",
        ),
        (b"\x7fELF", "it is a program or a library"),
        (b"PK", "it is a damaged archive"),
        (b"{", "it is JSON"),
        (
            b"\xff\xfe",
            "it is text in UTF-16, which PowerShell writes: convert it to UTF-8",
        ),
    ];
    let known = KINDS.iter().find(|(begin, _)| head.starts_with(begin));
    known.map(|(_, what)| *what)
}

/// Whether bytes at the beginning of a file may be a text of `perf script`.
pub(super) fn looks_like_text(head: &[u8]) -> bool {
    // Names of threads may have escape characters.
    let is_text = |byte: &u8| matches!(byte, 7..=13 | 0x1b | b' '..=b'~' | 0x80..);
    known_format(head).is_none()
        && !head.is_empty()
        && !(MAGICS.iter().any(|magic| head.starts_with(*magic)))
        && head.iter().all(is_text)
}

/// Why the records end before the file says they do.
#[derive(Debug, Error)]
pub enum Corruption {
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
