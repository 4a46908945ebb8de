//! Why a stream cannot be read on.

use std::io;

use thiserror::Error;

/// Where the reading of a stream ended, and why.
#[derive(Debug, Error)]
#[error("at byte {offset} of the event stream: {problem}")]
pub struct NettraceError {
    /// The first byte that could not be used.
    pub offset: u64,
    /// What is wrong with it.
    pub problem: NettraceErrorKind,
}

/// What is wrong with a stream.
#[derive(Debug, Error)]
pub enum NettraceErrorKind {
    /// No more bytes, and no mark of the end before.
    #[error("it ends before its end mark")]
    Truncated,
    /// The source of the stream fails.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// Another format.
    #[error("not the beginning of a nettrace stream")]
    NotNettrace,
    /// A version that is not known here.
    #[error("version {0}, where 4 to 6 are understood")]
    Version(u32),
    /// A block that no writer writes.
    #[error("a block of {size} bytes, where at most {limit} are taken")]
    TooLarge {
        /// The size it states.
        size: u32,
        /// The limit.
        limit: u32,
    },
    /// A part that contradicts the format.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}
