//! Errors of the reader.

use std::io;

use thiserror::Error;

/// An error at an offset of a stream.
#[derive(Debug, Error)]
#[error("cannot read the event stream at byte {offset}: {kind}")]
pub struct NettraceError {
    /// The offset of the first unusable byte.
    pub offset: u64,
    /// The cause.
    pub kind: NettraceErrorKind,
}

/// The cause of an error.
#[derive(Debug, Error)]
pub enum NettraceErrorKind {
    /// The stream ends without its end marker.
    #[error("the stream is truncated")]
    Truncated,
    /// The source of the stream fails.
    #[error("{0}")]
    Read(io::Error),
    /// The source has another format.
    #[error("not a nettrace stream")]
    NotNettrace,
    /// The version of the stream is not supported.
    #[error("version {0} is not supported (supported: 4 to 6)")]
    Version(u32),
    /// A block is larger than any that a runtime writes.
    #[error("block too large ({size} bytes, limit {limit})")]
    TooLarge {
        /// The declared size.
        size: u32,
        /// The limit.
        limit: u32,
    },
    /// A part of the stream violates the format.
    #[error("corrupt {0}")]
    Corrupt(&'static str),
}
