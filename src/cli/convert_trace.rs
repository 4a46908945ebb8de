//! `perfcollect convert` of a trace of perfcollect: its files in other formats.

use std::fs::File;
use std::path::Path;

use super::arguments::ConvertOptions;
use super::convert_error::ConvertError;
use super::log::{LogLines, Runtimes};
use super::outputs::OutputRequest;
use super::progress::Reporter;
use crate::capture::Signals;
use crate::output::archive::THREADS;
use crate::output::summary::Summary;
use crate::perf_text;
use crate::trace::{EventStreams, Notice, NoticeKind, Trace};
use crate::trace_archive::TraceArchive;
use crate::view::ViewError;
use crate::view::events;
use crate::waits::StackReport;

pub(super) fn run(
    options: &ConvertOptions,
    output: &Path,
    file: File,
    signals: &Signals,
) -> Result<(), ConvertError> {
    let path = &options.source.recording;
    let reporter = Reporter::new(options.results.quiet || options.results.json);
    let archive = TraceArchive::from_file(path, file)?;
    let (threads, no_threads) = match archive.threads()? {
        None => (None, None),
        Some(json) => match StackReport::read(&json) {
            Ok(_) => (Some(json), None),
            Err(error) => (None, Some(error)),
        },
    };
    let (mut trace, summary) = read(options, &archive, &reporter, signals)?;
    trace.events = self::events(path)?;
    trace.quality.notices.push(notice(path, &summary, &trace));
    trace.quality.notices.extend(no_threads.map(|error| {
        let what = format!("not converted: {THREADS} in the trace is {error}");
        Notice::new(NoticeKind::Imported, what, "")
    }));
    let wanted = OutputRequest {
        name: output,
        spooled: None,
        raw_events: true,
        reporter: &reporter,
        naming: options.names.naming(),
        download: false,
        results: options.results,
        beside_command: false,
        settings: &LogLines::default(),
    };
    let end = summary.info.end.clone();
    let about = (&*end, 0, Runtimes::default());
    let summary = || summary.of_same_samples(&trace);
    let written = wanted.write_with(&trace, summary, threads.as_deref(), about, signals)?;
    Ok(wanted.print(&written)?)
}

/// Reads the samples of a trace.
pub(super) fn read(
    options: &ConvertOptions,
    archive: &TraceArchive,
    reporter: &Reporter,
    signals: &Signals,
) -> Result<(Trace, Summary), ConvertError> {
    let path = &options.source.recording;
    let summary = archive.summary()?;
    let is_chosen = |event: &String| *event == summary.info.event;
    let is_empty = summary.samples == 0 && summary.thread_time.is_none();
    if is_empty || !options.event.as_ref().is_none_or(is_chosen) {
        return Err(ConvertError::NoSamples {
            path: path.display().to_string(),
            why: match &options.event {
                Some(event) => format!(" with the event {event}"),
                None => String::new(),
            },
        });
    }
    let cancel = || signals.pending();
    let written = reporter.during("Reading the trace", &|| None, || {
        perf_text::read_written(archive, &summary, &cancel)
    });
    if signals.pending() {
        return Err(ConvertError::Stopped);
    }
    let written = written.map_err(|source| ConvertError::Trace {
        path: path.display().to_string(),
        source,
    })?;
    Ok((written.trace, summary))
}

/// Reads the event streams of a trace, if it has any.
pub(super) fn events(path: &Path) -> Result<EventStreams, ConvertError> {
    match events::streams(path) {
        Err(ViewError::NoEvents) => Ok(EventStreams::default()),
        streams => streams.map_err(ConvertError::Events),
    }
}

/// Returns the notice about the origin of the trace, and what it does not have.
fn notice(path: &Path, summary: &Summary, trace: &Trace) -> Notice {
    let missing = match (trace.events.is_empty(), summary.quality.events.is_empty()) {
        (false, _) => "; not converted: names of methods in the stacks of events",
        (true, false) => "; not converted: the events, whose streams it does not contain",
        (true, true) => "",
    };
    let what = format!(
        "converted from {}: its samples and counts{missing}",
        path.display()
    );
    Notice::new(NoticeKind::Imported, what, "")
}
