//! Errors of writing a trace.

use std::io;

use thiserror::Error;

use crate::output::archive::ArchiveError;
use crate::output::file::OutputError;

/// A trace could not be written.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("cannot read samples or events back from their temporary files: {0}")]
    Unread(String),
    #[error("stopped by a signal")]
    Stopped,
    #[error("{error}; the samples are kept: `{recover}` writes the trace{lost}")]
    Kept {
        error: Box<WriteError>,
        recover: String,
        /// Describes missing samples.
        lost: &'static str,
    },
    #[error("cannot print the summary: {0}")]
    Print(io::Error),
}
