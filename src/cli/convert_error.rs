//! Errors of `perfcollect convert`.

use std::io;

use thiserror::Error;

use super::recording_options::UnusablePath;
use super::write_error::WriteError;
use crate::capture::CaptureError;
use crate::event_trace::EventTraceError;
use crate::output::file::OutputError;
use crate::perf_data::OpenRecordingError;
use crate::perf_text::{TextError, WrittenError};
use crate::trace_archive::TraceArchiveError;
use crate::view::ViewError;

/// A recording could not be converted.
#[derive(Debug, Error)]
pub(super) enum ConvertError {
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Open(#[from] OpenRecordingError),
    #[error(transparent)]
    Path(#[from] UnusablePath),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("cannot read {path} as `perf script` output: {error}")]
    Text { path: String, error: TextError },
    #[error("cannot read {path}: {source}")]
    Trace { path: String, source: WrittenError },
    #[error(transparent)]
    Archive(#[from] TraceArchiveError),
    #[error(transparent)]
    Events(ViewError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(
        "{0} is the recording itself, which its trace would replace: choose another name with -o"
    )]
    Itself(String),
    #[error(
        "{0} is for a file for another viewer: name it with -o, such as -o app.speedscope.json or -o app.pb.gz"
    )]
    OnlyExport(&'static str),
    #[error(
        "no format has the suffix of {0}: a file for another viewer ends in {1}; a trace has a NAME without a suffix"
    )]
    Suffix(String, String),
    #[error(
        "-perfdata and -json are for a trace, not for a file for another viewer: run convert twice"
    )]
    OnlyTrace,
    #[error(
        "-threads is for -o FILE.svg and -o FILE.folded: .csv has no stacks, and other files have the threads anyway"
    )]
    Threads,
    #[error(
        "convert writes a trace, or one file for another viewer: name that with -o, such as -o app.speedscope.json or -o app.pb.gz, \
         not with -format"
    )]
    Format,
    #[error(transparent)]
    Stream(#[from] EventTraceError),
    #[error(transparent)]
    Selection(ViewError),
    #[error("cannot print what was written: {0}")]
    Print(io::Error),
    #[error("stopped by a signal")]
    Stopped,
    #[error("{path} contains no samples of a running process{why}; nothing was written")]
    NoSamples { path: String, why: String },
}
