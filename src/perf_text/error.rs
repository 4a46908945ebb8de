//! Errors of the import.

use std::io;

use thiserror::Error;

/// Maximum number of characters of a line in a message.
const MAX_SHOWN_CHARS: usize = 120;

/// Error of the import.
#[derive(Debug, Error)]
pub enum TextError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line does not start a sample, but only a sample can be there.
    #[error(
        "line {} begins no sample as `perf script` prints them{} (what is read: `perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,dso`)",
        .0.number, .0.quoted()
    )]
    Odd(OddLine),
    /// The text of a trace has more different stacks, frames or threads than are read.
    #[error("it has more different stacks than are read")]
    TooManyStacks,
    /// The text is not the one that perfcollect wrote for these samples.
    #[error("it is not as perfcollect wrote it, or cannot be read back exactly")]
    NotWritten,
}

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddLine {
    /// The line number, from 1.
    pub number: u64,
    /// The start of the line. Empty before the first sample: a file that may be anything, such as a
    /// private one that a link leads to, is not quoted.
    pub text: String,
}

impl OddLine {
    fn quoted(&self) -> String {
        match &*self.text {
            "" => String::new(),
            text => format!(": {text}"),
        }
    }

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
