//! Why a text becomes no trace.

use std::io;

use thiserror::Error;

/// Characters of a line that a message shows.
const MAX_SHOWN_CHARS: usize = 120;

/// Why a text becomes no trace.
#[derive(Debug, Error)]
pub enum TextError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line stands where a sample must begin, and begins none.
    #[error(
        "line {} begins no sample as `perf script` prints them: {} (what is read: `perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,dso`)",
        .0.number, .0.text
    )]
    Odd(OddLine),
    /// It is not the text that perfcollect wrote of these samples.
    #[error("it is not as perfcollect wrote it, or cannot be read back exactly")]
    NotWritten,
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its beginning.
    pub text: String,
}

impl OddLine {
    pub(super) fn new(number: u64, line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line);
        let mut shown: String = text.trim().chars().take(MAX_SHOWN_CHARS).collect();
        if shown.len() < text.trim().len() {
            shown.push_str("...");
        }
        Self {
            number,
            text: shown,
        }
    }
}
