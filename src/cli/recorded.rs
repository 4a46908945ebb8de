//! Reads a recording, or the text of `perf script`, as a trace.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::arguments::RecordingOptions;
use super::convert_error::ConvertError;
use super::progress::{Reporter, fraction_read};
use crate::capture::{
    self, Capture, CaptureError, ConvertRequest, Signals, choose_events, left_out, one_of_several,
};
use crate::output::file::unnamed_file;
use crate::perf_data::{self, OpenRecording, SiblingFiles};
use crate::perf_text::{self, TextError};
use crate::symbolize::{self, CancellableReader};
use crate::trace::{Notice, NoticeKind, Samples, Trace};

/// Size of a read, in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// How to read a recording.
pub(super) struct RecordedRequest<'a> {
    pub(super) source: &'a RecordingOptions,
    /// Event whose samples are read; by default the one that best measures CPU time.
    pub(super) event: Option<&'a str>,
    pub(super) naming: &'a symbolize::Options,
    /// Path beside which a file without a name takes most of the samples.
    pub(super) beside: &'a Path,
    pub(super) signals: &'a Signals,
}

impl RecordedRequest<'_> {
    /// Reads a recording. The files in its archive are needed until its samples are symbolized.
    pub(super) fn capture(
        &self,
        opened: OpenRecording,
        reporter: &mut Reporter,
    ) -> Result<(Capture, SiblingFiles), ConvertError> {
        let recording = &self.source.recording;
        match self.import(opened, self.event, reporter) {
            // The preferred event may have no samples. Then the most frequent one is imported.
            Err(ConvertError::Capture(CaptureError::NoSamples { others, .. }))
                if self.event.is_none() && !others.is_empty() && recording.is_file() =>
            {
                let most = others.into_iter().max_by_key(|(_, samples)| *samples);
                let opened = perf_data::open(recording)?;
                let event = most.as_ref().map(|(name, _)| &**name);
                self.import(opened, event, reporter)
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
                    path: recording.display().to_string(),
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

    /// Imports the samples of one event.
    fn import(
        &self,
        opened: OpenRecording,
        event: Option<&str>,
        reporter: &mut Reporter,
    ) -> Result<(Capture, SiblingFiles), ConvertError> {
        let OpenRecording { reader, siblings } = opened;
        let recorded = self.source.recorded(&siblings)?;
        let conversion = ConvertRequest {
            recorded,
            kallsyms: self.source.kallsyms.clone(),
            event: event.map(str::to_owned),
            symbolizer: Arc::new(symbolize::elf::unwind_symbolizer(self.naming)),
            samples: Samples::in_file(unnamed_file(self.beside)),
        };
        let capture = capture::convert(reader, conversion, |progress| {
            reporter.progress(&progress);
            match self.signals.pending() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        reporter.end();
        match self.signals.pending() {
            true => Err(ConvertError::Stopped),
            false => Ok((capture?, siblings)),
        }
    }

    /// Reads the text of `perf script`.
    pub(super) fn text(&self, text: &File, reporter: &Reporter) -> Result<Trace, ConvertError> {
        let path = self.source.recording.display().to_string();
        let cancel = || self.signals.pending();
        let input = |inner: &File| {
            let inner = inner.try_clone()?;
            let input = CancellableReader {
                inner,
                cancel: &cancel,
            };
            Ok(BufReader::with_capacity(BUFFER_BYTES, input))
        };
        let text_error = |error: TextError| match error {
            _ if self.signals.pending() => ConvertError::Stopped,
            error => ConvertError::Text {
                path: path.clone(),
                error,
            },
        };
        let done = || fraction_read(text);
        let events = reporter.during("Reading the events of the text", &done, || {
            let input = input(text).map_err(TextError::Read);
            input.and_then(perf_text::events)
        });
        let (info, samples) = events.map_err(text_error)?;
        if samples.is_empty() {
            return Err(no_samples(path));
        }
        let event = choose_events(&info, self.event)?;
        (&*text)
            .rewind()
            .map_err(|error| text_error(TextError::Read(error)))?;
        let input = input(text).map_err(TextError::Read);
        let trace = reporter.during("Reading the samples of the text", &done, || {
            input.and_then(|input| perf_text::import(input, &info, &event))
        });
        let mut trace = trace.map_err(text_error)?;
        if trace.samples.is_empty() {
            let notices = trace.quality.notices.iter();
            let notices: Vec<_> = notices.map(|notice| notice.what.as_str()).collect();
            let why = format!(" ({})", notices.join("; "));
            return Err(ConvertError::NoSamples { path, why });
        }
        if trace.info.target.is_empty() {
            trace.info.target.clone_from(&path);
        }
        let notices = &mut trace.quality.notices;
        let what = "imported from `perf script` output: symbols and stacks are those of perf";
        notices.push(Notice::new(NoticeKind::Imported, what, ""));
        let others = info.events.iter().map(|event| event.name.clone());
        let others = others.zip(samples).enumerate();
        let others = others.filter(|(at, _)| !event.members.contains(at));
        let others: Vec<_> = others.map(|(_, other)| other).collect();
        notices.extend(left_out(&others));
        notices.extend(one_of_several(&info, &event));
        Ok(trace)
    }
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

fn no_samples(path: String) -> ConvertError {
    let why = " as `perf script` prints them".to_owned();
    ConvertError::NoSamples { path, why }
}
