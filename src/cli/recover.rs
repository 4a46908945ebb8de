//! `perfcollect recover NAME`: writes the trace of a killed capture.

use std::io;

use thiserror::Error;

use super::arguments::RecoverOptions;
use super::capture_files::CaptureFiles;
use super::log::LogLines;
use super::outputs::OutputRequest;
use super::progress::Reporter;
use super::sandbox;
use super::trace_files::Paths;
use super::write_error::WriteError;
use crate::capture::{self, Signals};
use crate::output::file::OutputError;
use crate::output::spool_file::{self, SpoolFile, SpoolFileError};
use crate::trace::spool::SpoolError;

#[derive(Debug, Error)]
pub(super) enum RecoverError {
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    File(#[from] SpoolFileError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot recover {path}: {error}")]
    Spool { path: String, error: SpoolError },
    #[error(
        "{path} contains no samples and there are no events: the capture was killed too early, or its target only waited, \
         which is read when a capture ends; remove it with `rm {path}`"
    )]
    NoSamples { path: String },
}

pub(super) fn run(options: &RecoverOptions) -> Result<(), RecoverError> {
    let signals = Signals::install().map_err(RecoverError::Signals)?;
    // The event streams of processes that ran at the same time are open at the same time.
    capture::raise_limits();
    let spool = SpoolFile::open(&options.name)?;
    let capture_name = spool_file::capture_of(&options.name);
    let name = capture_name.as_ref().unwrap_or(&options.name);
    let output = options.output.as_ref().unwrap_or(name);
    Paths::checked(output, options.results)?;
    let working = CaptureFiles::open(name, spool, &signals)?;
    let path = || working.spool_path().display().to_string();
    let reporter = Reporter::new(options.results.quiet || options.results.json);
    let capture = working.read(options.output.as_deref(), &reporter, |spool, samples| {
        capture::recover(spool, samples)
    });
    let capture = capture.map_err(|error| RecoverError::Spool {
        path: path(),
        error,
    })?;
    // Its files were opened through the processes that still run.
    if !options.names.download() {
        sandbox::enter(&[name, output], &[]);
    }
    let raw_trace = &capture.raw_trace;
    let has_samples = !raw_trace.samples.is_empty() || !raw_trace.blocked.is_empty();
    if !has_samples && !capture.has_others() && capture.events.is_empty() {
        return Err(RecoverError::NoSamples { path: path() });
    }
    reporter.say(&format!(
        "Recovering {} samples from {}.",
        capture.raw_trace.samples.len(),
        path()
    ));
    let wanted = OutputRequest {
        name: output,
        spooled: Some((name, &working)),
        reporter: &reporter,
        naming: options.names.naming(),
        download: options.names.download(),
        results: options.results,
        raw_events: !options.noraw,
        beside_command: false,
        settings: &LogLines::default(),
    };
    wanted.make(capture, None, &signals)?;
    Ok(())
}
