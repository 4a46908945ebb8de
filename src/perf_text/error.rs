//! Why a text becomes no trace.

use std::io;

use thiserror::Error;

use super::lines::OddLine;

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
}
