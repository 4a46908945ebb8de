//! `perfcollect convert` of `perf script` output: a file, or the text in an archive.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;

use super::arguments::ConvertOptions;
use super::convert_error::ConvertError;
use super::log::{LogLines, Runtimes};
use super::outputs::OutputRequest;
use super::progress::{Reporter, fraction_read};
use crate::capture::{Signals, choose_events, left_out, one_of_several};
use crate::perf_text::{self, TextError};
use crate::symbolize::CancellableReader;
use crate::trace::{Notice, NoticeKind};

/// Size of a read, in bytes.
const BUFFER_BYTES: usize = 1 << 18;

pub(super) fn run(
    options: &ConvertOptions,
    output: &Path,
    text: File,
    signals: &Signals,
) -> Result<(), ConvertError> {
    let path = options.source.recording.display().to_string();
    let cancel = || signals.pending();
    let input = |inner: &File| {
        let inner = inner.try_clone()?;
        let input = CancellableReader {
            inner,
            cancel: &cancel,
        };
        Ok(BufReader::with_capacity(BUFFER_BYTES, input))
    };
    let text_error = |error: TextError| match error {
        _ if signals.pending() => ConvertError::Stopped,
        error => ConvertError::Text {
            path: path.clone(),
            error,
        },
    };
    let reporter = Reporter::new(options.results.quiet || options.results.json);
    let done = || fraction_read(&text);
    let events = reporter.during("Reading the events of the text", &done, || {
        let input = input(&text).map_err(TextError::Read);
        input.and_then(perf_text::events)
    });
    let (info, samples) = events.map_err(text_error)?;
    if samples.is_empty() {
        return Err(no_samples(path));
    }
    let event = choose_events(&info, options.event.as_deref())?;
    (&text)
        .rewind()
        .map_err(|error| text_error(TextError::Read(error)))?;
    let input = input(&text).map_err(TextError::Read);
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
    let wanted = OutputRequest {
        name: output,
        spooled: None,
        raw_events: false,
        reporter: &reporter,
        naming: options.names.naming(),
        download: false,
        results: options.results,
        beside_command: false,
        settings: &LogLines::default(),
    };
    let written = wanted.write(
        &trace,
        ("recorded by perf", 0, Runtimes::default()),
        signals,
    )?;
    Ok(wanted.print(&written)?)
}

fn no_samples(path: String) -> ConvertError {
    let why = " as `perf script` prints them".to_owned();
    ConvertError::NoSamples { path, why }
}
