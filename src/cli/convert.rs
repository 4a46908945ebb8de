//! `perfcollect convert perf.data`: converts a recording to a trace, or a trace to other formats.

use std::path::PathBuf;
use std::sync::Arc;

use super::arguments::{ConvertOptions, RecordingOptions};
use super::convert_error::ConvertError;
use super::convert_export::ExportRequest;
use super::convert_trace;
use super::log::{LogLines, Runtimes};
use super::named;
use super::opened;
use super::outputs::OutputRequest;
use super::progress::Reporter;
use super::recorded::RecordedRequest;
use super::sandbox::{self, directory_of};
use super::trace_files::Paths;
use crate::capture::{self, Signals};
use crate::event_trace;
use crate::perf_data::{self, Source};
use crate::trace_archive::TraceArchive;

pub(super) fn run(options: &ConvertOptions) -> Result<(), ConvertError> {
    let signals = Arc::new(Signals::install().map_err(ConvertError::Signals)?);
    // Each file with code stays open until it is symbolized.
    capture::raise_limits();
    let options = &ConvertOptions {
        source: RecordingOptions {
            recording: opened::source_of(&options.source.recording),
            ..options.source.clone()
        },
        ..options.clone()
    };
    let source = &options.source;
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| default_name(options));
    let output = named::without_suffix(&output);
    let export = ExportRequest::of(options, &output)?;
    let is_itself = match &export {
        Some(export) => export.is_file(&source.recording),
        None => Paths::checked(&output, options.results)?.is_one(&source.recording),
    };
    if is_itself {
        let path = source.recording.display().to_string();
        return Err(ConvertError::Itself(path));
    }
    if !options.names.download() {
        // Archives are unpacked in one of the last two.
        let unpacked = directory_of(&source.recording);
        sandbox::enter(&[&output], &[unpacked, &std::env::temp_dir()]);
    }
    let cancelled = {
        let signals = Arc::clone(&signals);
        Arc::new(move || signals.pending())
    };
    if let Some(export) = &export
        && let Some(trace) = event_trace::open(&source.recording)?
    {
        return export.write(trace, &signals);
    }
    let opened = perf_data::source(&source.recording, cancelled);
    if signals.pending() {
        return Err(ConvertError::Stopped);
    }
    let request = RecordedRequest {
        source,
        event: options.event.as_deref(),
        naming: &options.names.naming(),
        beside: &output,
        signals: &signals,
    };
    let no_settings = LogLines::default();
    let mut reporter = Reporter::new(options.results.quiet || options.results.json);
    let outputs = |reporter, download| OutputRequest {
        name: &output,
        spooled: None,
        raw_events: false,
        reporter,
        naming: options.names.naming(),
        download,
        results: options.results,
        beside_command: false,
        settings: &no_settings,
    };
    if let Some(export) = export {
        let trace = match opened? {
            Source::Trace(file) => {
                let archive = TraceArchive::from_file(&source.recording, file)?;
                let (mut trace, _) = convert_trace::read(options, &archive, &reporter, &signals)?;
                if export.shows_events() {
                    trace.events = convert_trace::events(&source.recording)?;
                }
                trace
            }
            Source::Recording(opened) => {
                let (capture, _siblings) = request.capture(*opened, &mut reporter)?;
                outputs(&reporter, options.names.download()).symbolized(capture, &signals)?
            }
            Source::Text(text) => request.text(&text, &reporter)?,
        };
        return export.write(trace, &signals);
    }
    match opened? {
        Source::Trace(trace) => convert_trace::run(options, &output, trace, &signals),
        Source::Recording(opened) => {
            let (capture, _siblings) = request.capture(*opened, &mut reporter)?;
            let wanted = outputs(&reporter, options.names.download());
            wanted.make(capture, None, &signals)?;
            Ok(())
        }
        Source::Text(text) => {
            let trace = request.text(&text, &reporter)?;
            let wanted = outputs(&reporter, false);
            let about = ("recorded by perf", 0, Runtimes::default());
            let written = wanted.write(&trace, about, &signals)?;
            Ok(wanted.print(&written)?)
        }
    }
}

/// The default output: in the directory of the recording, with its name.
fn default_name(options: &ConvertOptions) -> PathBuf {
    let name = options.source.recording.display().to_string();
    if name == "-" {
        return "perf".into();
    }
    let without = |suffix: &str| name.strip_suffix(suffix).filter(|stem| !stem.is_empty());
    if let Some(stem) = [".data", ".txt"].into_iter().find_map(without) {
        return stem.into();
    }
    let stem = without(".trace.zip").unwrap_or(&name);
    format!("{stem}.converted").into()
}
