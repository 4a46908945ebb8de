//! `perfcollect convert perf.data`: converts a recording to a trace, or a trace to other formats.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arguments::ConvertOptions;
use super::convert_error::ConvertError;
use super::convert_text;
use super::convert_trace;
use super::log::LogLines;
use super::outputs::OutputRequest;
use super::progress::Reporter;
use super::sandbox::{self, directory_of};
use super::trace_files::Paths;
use crate::capture::{self, CaptureError, ConvertRequest, Signals};
use crate::output::file::unnamed_file;
use crate::perf_data::{self, OpenRecording, Source};
use crate::symbolize;
use crate::trace::Samples;

pub(super) fn run(options: &ConvertOptions) -> Result<(), ConvertError> {
    let signals = Arc::new(Signals::install().map_err(ConvertError::Signals)?);
    // Each file with code stays open until it is symbolized.
    capture::raise_limits();
    let source = &options.source;
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| default_name(options));
    let paths = Paths::checked(&output, options.results)?;
    if paths.is_one(&source.recording) {
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
    let opened = perf_data::source(&source.recording, cancelled);
    if signals.pending() {
        return Err(ConvertError::Stopped);
    }
    let opened = match opened? {
        Source::Recording(opened) => *opened,
        Source::Trace(trace) => return convert_trace::run(options, &output, trace, &signals),
        Source::Text(text) => return convert_text::run(options, &output, text, &signals),
    };
    match import(opened, options, &output, options.event.clone(), &signals) {
        // The preferred event may have no samples. Then the most frequent one is imported.
        Err(ConvertError::Capture(CaptureError::NoSamples { others, .. }))
            if options.event.is_none() && !others.is_empty() && source.recording.is_file() =>
        {
            let most = others.into_iter().max_by_key(|(_, samples)| *samples);
            let opened = perf_data::open(&source.recording)?;
            import(
                opened,
                options,
                &output,
                most.map(|(name, _)| name),
                &signals,
            )
        }
        done => done,
    }
    .map_err(|error| match error {
        ConvertError::Capture(CaptureError::NoSamples {
            event,
            others,
            idle,
            hardware_trace,
            lost,
            corruption,
        }) => {
            let lost = (lost > 0).then(|| {
                format!(
                    " (the kernel dropped {lost} records: record with a lower `perf record -F` or a larger `-m`)"
                )
            });
            let idle = (idle > 0).then(|| format!(" ({idle} of idle CPUs)"));
            let trace = hardware_trace.map(|trace| {
                format!(
                    " ({trace} are there, which `perf script --itrace=i1000i` makes samples of)"
                )
            });
            ConvertError::NoSamples {
                path: source.recording.display().to_string(),
                why: format!(
                    " with the event {event}{}{}{}{}{corruption}",
                    choice(&others),
                    idle.unwrap_or_default(),
                    trace.unwrap_or_default(),
                    lost.unwrap_or_default()
                ),
            }
        }
        error => error,
    })
}

/// Describes the other events with their options.
fn choice(others: &[(String, u64)]) -> String {
    let others: Vec<_> = others
        .iter()
        .map(|(name, samples)| format!("-event {name} has {samples}"))
        .collect();
    match &others[..] {
        [] => String::new(),
        others => format!(" ({})", others.join(", ")),
    }
}

/// Imports the samples of one event.
fn import(
    opened: OpenRecording,
    options: &ConvertOptions,
    output: &Path,
    event: Option<String>,
    signals: &Signals,
) -> Result<(), ConvertError> {
    let source = &options.source;
    let OpenRecording { reader, siblings } = opened;
    let recorded = source.recorded(&siblings)?;
    let conversion = ConvertRequest {
        recorded,
        kallsyms: source.kallsyms.clone(),
        event,
        symbolizer: Arc::new(symbolize::elf::unwind_symbolizer(&options.names.naming())),
        samples: Samples::in_file(unnamed_file(output)),
    };
    let mut reporter = Reporter::new(options.results.quiet || options.results.json);
    let capture = capture::convert(reader, conversion, |progress| {
        reporter.progress(&progress);
        match signals.pending() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    reporter.end();
    if signals.pending() {
        return Err(ConvertError::Stopped);
    }
    let capture = capture?;
    let wanted = OutputRequest {
        name: output,
        spooled: None,
        raw_events: false,
        reporter: &reporter,
        naming: options.names.naming(),
        download: options.names.download(),
        results: options.results,
        beside_command: false,
        settings: &LogLines::default(),
    };
    Ok(wanted.make(capture, signals)?)
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
