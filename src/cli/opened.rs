//! The trace or recording that a view prints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::arguments::RecordingOptions;
use super::convert_error::ConvertError;
use super::progress::Reporter;
use super::recorded::RecordedRequest;
use super::sandbox::{self, directory_of};
use super::{OneLine, say};
use crate::capture::{Signals, raise_limits};
use crate::event_trace::{self, EventTraceError};
use crate::output::file::{self, FileOwner};
use crate::output::spool_file::{SpoolFile, SpoolFileError};
use crate::perf_data::{self, Source};
use crate::selection::Selection;
use crate::symbolize::{self, Cancelled};
use crate::trace::Trace;
use crate::trace_archive::TraceArchiveError;
use crate::view::{OpenTrace, ViewError};

/// A view cannot be printed.
#[derive(Debug, Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    View(#[from] ViewError),
    #[error(transparent)]
    Recording(#[from] ConvertError),
    #[error(transparent)]
    Events(#[from] EventTraceError),
    #[error(transparent)]
    Running(#[from] SpoolFileError),
}

/// Returns the path of the trace that is called `name`: a file, or the NAME of its capture, for which `record -o` of perf
/// has NAME.data.
pub(super) fn path_of(name: &Path) -> PathBuf {
    let is_recording = name.extension().is_some_and(|suffix| suffix == "data");
    let recording = is_recording.then(|| name.with_extension(""));
    let captures = [Some(name.to_owned()), recording].into_iter().flatten();
    let mut traces = captures.map(|name| file::trace_path(&name));
    let capture = traces.find(|trace| !name.exists() && trace.exists());
    capture.unwrap_or_else(|| name.to_owned())
}

/// Returns the path of the trace that is called `name`, as [`path_of`]. For the NAME.nettrace of a capture, that is its
/// archive, if it exists.
pub(super) fn source_of(name: &Path) -> PathBuf {
    let path = path_of(name);
    let archive = file::trace_path(&path.with_extension(""));
    let is_nettrace = path.extension().is_some_and(|suffix| suffix == "nettrace");
    if !is_nettrace || !archive.exists() || !event_trace::is_system_wide(&path) {
        return path;
    }
    say(format_args!(
        "reading {}: it is of the same capture",
        OneLine(&archive.to_string_lossy())
    ));
    archive
}

/// Fails if there is no trace that is called `name`, but a capture that still runs.
fn check_ended(name: &Path) -> Result<(), OpenError> {
    if path_of(name).exists() {
        return Ok(());
    }
    match SpoolFile::open(name) {
        Err(running @ SpoolFileError::Running { .. }) => Err(running.into()),
        _ => Ok(()),
    }
}

/// Opens the trace that is called `name`, or the recording or event stream as one, or what is selected of it. The
/// sandbox is entered before any of it is read.
pub(super) fn open(name: &Path, selection: &Selection) -> Result<OpenTrace, OpenError> {
    check_ended(name)?;
    let path = &*source_of(name);
    // Archives are unpacked in one of the two.
    sandbox::enter(&[], &[directory_of(path), &std::env::temp_dir()]);
    read(path, selection)
}

/// Opens two traces, as [`open`] does one.
pub(super) fn open_both(
    names: [&Path; 2],
    selection: &Selection,
) -> Result<[OpenTrace; 2], OpenError> {
    for name in names {
        check_ended(name)?;
    }
    let [before, after] = names.map(source_of);
    let directories = [directory_of(&before), directory_of(&after)];
    sandbox::enter(&[], &[&directories[..], &[&std::env::temp_dir()]].concat());
    Ok([read(&before, selection)?, read(&after, selection)?])
}

fn read(path: &Path, selection: &Selection) -> Result<OpenTrace, OpenError> {
    match OpenTrace::open(path, selection) {
        Err(ViewError::Archive(error)) if may_be_recording(&error) => {
            match event_trace::open(path) {
                Ok(Some(trace)) => return Ok(OpenTrace::of_events(path, trace, selection)?),
                Ok(None) => {}
                Err(error) => return Err(error.into()),
            }
            let error = match recording(path) {
                Ok(Some(trace)) => return Ok(OpenTrace::of_trace(path, trace, selection)?),
                Ok(None) => error,
                Err(error) => return Err(error.into()),
            };
            Err(ViewError::Archive(error).into())
        }
        opened => Ok(opened?),
    }
}

fn may_be_recording(error: &TraceArchiveError) -> bool {
    matches!(
        error,
        TraceArchiveError::Zip { .. } | TraceArchiveError::Missing { .. }
    )
}

/// Reads a recording; `None` if the file is none.
fn recording(path: &Path) -> Result<Option<Trace>, ConvertError> {
    let signals = Arc::new(Signals::install().map_err(ConvertError::Signals)?);
    // Each file with code stays open until it is symbolized.
    raise_limits();
    let cancelled = {
        let signals = Arc::clone(&signals);
        Arc::new(move || signals.pending())
    };
    let opened = match perf_data::source(path, cancelled) {
        Ok(opened) => opened,
        Err(error) if error.is_other_file() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let naming = symbolize::Options {
        inlined: true,
        symbol_directories: Vec::new(),
        invoking_user: FileOwner::invoking_user().map(|owner| owner.uid.as_raw()),
    };
    let source = RecordingOptions {
        recording: path.to_owned(),
        sysroot: None,
        kallsyms: None,
    };
    let request = RecordedRequest {
        source: &source,
        event: None,
        naming: &naming,
        beside: &std::env::temp_dir().join("perfcollect"),
        signals: &signals,
    };
    let mut reporter = Reporter::new(false);
    let trace = match opened {
        Source::Recording(opened) => {
            let (capture, _siblings) = request.capture(*opened, &mut reporter)?;
            let cancel = || signals.pending();
            reporter
                .during("Symbolizing", &|| None, || {
                    symbolize::symbolize(capture, &naming, &cancel)
                })
                .map_err(|Cancelled| ConvertError::Stopped)?
        }
        Source::Text(text) => request.text(&text, &reporter)?,
        Source::Trace(_) => return Ok(None),
    };
    Ok(Some(trace))
}
