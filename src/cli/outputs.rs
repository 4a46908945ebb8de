//! Writes a capture: symbolizes it, writes its files and prints the report.

use std::io::{self, Write};
use std::path::Path;
use std::thread;

use super::arguments::OutputOptions;
use super::capture_files::CaptureFiles;
use super::downloads;
use super::log::{self, LogLines, Runtimes};
use super::meanwhile::until_signal;
use super::progress::Reporter;
use super::sandbox;
use super::screen;
use super::trace_files::{Paths, stopped};
use super::write_error::WriteError;
use super::{OneLine, say};
use crate::capture::{Capture, Signals, Snapshot};
use crate::findings;
use crate::output::StackViews;
use crate::output::archive::{ArchiveError, Contents};
use crate::output::file::OutputError;
use crate::output::sanitize::{json_text, shell_word};
use crate::output::spool_file::recover_command;
use crate::output::summary::Summary;
use crate::selection::Selection;
use crate::symbolize::{self, Cancelled};
use crate::trace::{Quality, Trace};
use crate::view::more::More;
use crate::view::{self, report};
use crate::waits::{self, StackReport};

/// Exit status of a trace that lacks what was asked for.
const POORER: u8 = 3;
/// Methods printed after a capture.
const TOP_METHODS: usize = 10;

/// Returns the exit status of a trace: what is less than what was asked for is no success.
pub(super) fn status_of(quality: &Quality) -> u8 {
    match quality.is_poorer_than_asked() {
        true => POORER,
        false => 0,
    }
}

/// How to write a capture.
pub(super) struct OutputRequest<'a> {
    /// Name of the trace.
    pub(super) name: &'a Path,
    /// Name and files of the capture. `None` for a conversion: its recording stays.
    pub(super) spooled: Option<(&'a Path, &'a CaptureFiles)>,
    pub(super) reporter: &'a Reporter,
    pub(super) naming: symbolize::Options,
    /// Whether to download missing debug files.
    pub(super) download: bool,
    pub(super) results: OutputOptions,
    /// Whether the archive gets the raw event streams.
    pub(super) raw_events: bool,
    /// Whether a command uses standard output, so that the report goes to standard error.
    pub(super) beside_command: bool,
    /// Lines of the log about the request.
    pub(super) settings: &'a LogLines,
}

impl OutputRequest<'_> {
    /// Symbolizes the capture, writes its files and removes the spool. If writing fails, the spool stays.
    /// Returns the exit status.
    pub(super) fn make(
        &self,
        mut capture: Capture,
        snapshot: Option<Snapshot>,
        signals: &Signals,
    ) -> Result<u8, WriteError> {
        let end = capture.end.to_string();
        let spool_bytes = capture.raw_trace.bytes;
        let runtimes = Runtimes::of(&capture);
        let unwritten = std::mem::take(&mut capture.unwritten);
        let trace = self.symbolized(capture, signals);
        let trace = trace.map_err(|error| self.kept(error, &unwritten))?;
        let threads = snapshot.map(|snapshot| self.threads(snapshot, signals));
        let threads = threads
            .transpose()
            .map_err(|error| self.kept(error, &unwritten))?;
        let (report, json) = threads.unzip();
        let about = (&*end, spool_bytes, runtimes);
        let summary = || summary_of(&trace, report.as_ref());
        let written = self
            .write_with(&trace, summary, json.as_deref(), about, signals)
            .map_err(|error| self.kept(error, &unwritten))?;
        // `stop` prints what was printed when the spool is gone.
        let printed = self.print(&written);
        let removed = self.spooled.map(|(_, working)| (working, working.remove()));
        if let Some((working, Err(error))) = removed {
            let path = working.spool_path().display().to_string();
            say(format_args!("cannot remove {}: {error}", OneLine(&path)));
        }
        printed.map(|()| match written.lacks_exports {
            true => POORER,
            false => status_of(&trace.quality),
        })
    }

    /// Symbolizes the capture, removes the spool and prints the summary as JSON.
    pub(super) fn summarize(&self, capture: Capture, signals: &Signals) -> Result<(), WriteError> {
        let trace = self.symbolized(capture, signals)?;
        if let Some((_, working)) = self.spooled {
            let _ = working.remove();
        }
        let mut text = Vec::new();
        json(&summary_of(&trace, None), &mut text)
            .and_then(|()| super::print(&text))
            .map_err(WriteError::Print)
    }

    /// Symbolizes a capture, with debug files from servers if they are wanted.
    pub(super) fn symbolized(
        &self,
        mut capture: Capture,
        signals: &Signals,
    ) -> Result<Trace, WriteError> {
        if self.download {
            let wanted = symbolize::without_symbols(&capture, &self.naming);
            let cancel = || stopped(signals);
            let notice = downloads::get_for_capture(&wanted, self.reporter, cancel);
            capture.notices.extend(notice);
            let spooled = self.spooled.map(|(name, _)| name);
            let outputs = [self.name, spooled.unwrap_or(self.name)];
            sandbox::enter(&outputs, &[]);
        }
        let trace = self.reporter.during("Symbolizing", &|| None, || {
            symbolize::symbolize(capture, &self.naming, &|| stopped(signals))
        });
        let mut trace = trace.map_err(|Cancelled| WriteError::Stopped)?;
        waits::name_places(&mut trace);
        Ok(trace)
    }

    /// Writes the files of a trace.
    pub(super) fn write(
        &self,
        trace: &Trace,
        about: (&str, u64, Runtimes),
        signals: &Signals,
    ) -> Result<SavedTrace, WriteError> {
        self.write_with(trace, || summary_of(trace, None), None, about, signals)
    }

    /// Names the functions on the stacks of threads. Returns the report, and the same as JSON.
    fn threads(
        &self,
        snapshot: Snapshot,
        signals: &Signals,
    ) -> Result<(StackReport, Vec<u8>), WriteError> {
        let Snapshot {
            capture,
            threads,
            omitted,
            ..
        } = snapshot;
        let trace = symbolize::symbolize(capture, &self.naming, &|| stopped(signals));
        let trace = trace.map_err(|Cancelled| WriteError::Stopped)?;
        let report = StackReport::new(&threads, &omitted, &trace);
        let json = serde_json::to_vec_pretty(&report).map_err(ArchiveError::Threads)?;
        Ok((report, json))
    }

    /// Writes the files of a trace with a summary, and with the JSON of the threads at its end.
    pub(super) fn write_with(
        &self,
        trace: &Trace,
        summary: impl FnOnce() -> Summary,
        threads: Option<&[u8]>,
        (end, spool_bytes, runtimes): (&str, u64, Runtimes),
        signals: &Signals,
    ) -> Result<SavedTrace, WriteError> {
        let log = log::text(self.settings, end, spool_bytes, runtimes, trace);
        let mut paths = Paths::of_trace(self.name, self.results, trace);
        let pictures = StackViews::new(trace, self.results.names(), &paths.name);
        let counted = || {
            thread::scope(|scope| {
                scope.spawn(|| pictures.prepare());
                summary()
            })
        };
        let summary = self.reporter.during("Counting the methods", &|| None, || {
            until_signal(trace, signals, counted)
        });
        if stopped(signals) {
            return Err(WriteError::Stopped);
        }
        let contents = Contents {
            threads,
            summary: &summary,
            pictures: &pictures,
            name: &paths.name,
            log: log.as_bytes(),
            raw_events: self.raw_events,
        };
        let outputs = paths.create(self.results.force)?;
        let done = outputs.progress(trace, self.raw_events);
        let written = || outputs.write(trace, &contents, self.results.names(), signals);
        let lacking = self
            .reporter
            .during("Writing", &done, || until_signal(trace, signals, written))?;
        if let Err(error) = paths.remove_older() {
            say(OneLine(&error.to_string()));
        }
        for (at, error) in lacking.iter().rev() {
            paths.remove_export(*at);
            let name = shell_word(&self.name.to_string_lossy());
            let error = error.to_string();
            say(format_args!(
                "{}; the trace is complete: `perfcollect convert {name} -o FILE` writes a file for another viewer",
                OneLine(&error)
            ));
        }
        Ok(SavedTrace {
            summary,
            paths,
            lacks_exports: !lacking.is_empty(),
        })
    }

    /// Adds to an error how to recover the trace.
    fn kept(&self, error: WriteError, unwritten: &[u8]) -> WriteError {
        let Some((spooled, working)) = self.spooled else {
            return error;
        };
        // The incomplete files are removed by now, so that there may be space again.
        let is_complete = unwritten.is_empty() || working.append(unwritten).is_ok();
        let lost = match is_complete {
            true => "",
            false => " except for the last moment, for which there is no space",
        };
        let mut recover = recover_command(spooled);
        match error {
            WriteError::Output(OutputError::Full { .. }) => {
                recover.push_str(" -o DIRECTORY_ON_ANOTHER_DISK/NAME");
            }
            // The flame graph may exist already.
            WriteError::Stopped => recover.push_str(" -force"),
            _ => recover.push_str(" -o ANOTHER_NAME"),
        }
        WriteError::Kept {
            error: Box::new(error),
            recover,
            lost,
        }
    }

    /// Writes the first screen to a terminal, and the whole report elsewhere.
    fn report(&self, summary: &Summary, paths: &Paths, text: &mut Vec<u8>) -> io::Result<()> {
        let archive = paths.archive.as_deref();
        let more = archive.map(|path| More::new(path, &Selection::default()));
        let more = more.as_ref();
        let screen = match self.beside_command {
            true => screen::of(io::stderr()),
            false => screen::of(io::stdout()),
        };
        let saved = paths.to_string();
        let saved = OneLine(&saved).to_string();
        if let Some(screen) = screen {
            return view::screen::print(summary, more, &saved, screen, text);
        }
        report::findings(summary, more, text)?;
        report::summary(summary, text)?;
        if !summary.lacks_samples() {
            report::shares(summary, TOP_METHODS, text)?;
            report::methods(summary, TOP_METHODS, false, text)?;
        }
        report::missing_symbols(summary, more, text)?;
        writeln!(text, "\n{saved}")
    }

    /// Prints the report, or the summary as JSON.
    pub(super) fn print(
        &self,
        SavedTrace { summary, paths, .. }: &SavedTrace,
    ) -> Result<(), WriteError> {
        if self.results.quiet && !self.results.json {
            return Ok(());
        }
        let mut text = Vec::new();
        if self.results.json {
            json(summary, &mut text)
        } else {
            self.report(summary, paths, &mut text)
        }
        .and_then(|()| {
            if self.beside_command {
                io::stderr().write_all(&text)
            } else {
                super::print(&text)
            }
        })
        .map_err(WriteError::Print)
    }
}

fn summary_of(trace: &Trace, threads: Option<&StackReport>) -> Summary {
    let mut summary = Summary::new(trace);
    let seconds = summary.info.seconds();
    summary.blocked = threads.map(|threads| waits::summarize(threads, seconds));
    summary.findings = findings::find(&summary);
    summary
}

fn json(summary: &Summary, text: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_string_pretty(summary)?;
    writeln!(text, "{}", json_text(&json))
}

/// A trace on the disk.
pub(super) struct SavedTrace {
    summary: Summary,
    paths: Paths,
    /// Whether a file for another viewer could not be written.
    lacks_exports: bool,
}
