//! `perfcollect convert FILE -o X.pb.gz`: a recording or trace as one file for another viewer.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use super::OneLine;
use super::arguments::ConvertOptions;
use super::convert_error::ConvertError;
use super::progress::Reporter;
use super::trace_files::{is_same_file, stopped, write_file};
use super::write_error::WriteError;
use crate::capture::Signals;
use crate::output::exports::{self, Export};
use crate::output::file::check_name;
use crate::output::output_file::OutputFile;
use crate::selection::Selection;
use crate::trace::Trace;
use crate::view;

/// Suffixes of files that are not written: a trace of such a name would surprise.
const OTHER_SUFFIXES: [&str; 15] = [
    "cpuprofile",
    "data",
    "diagsession",
    "etl",
    "etlx",
    "gz",
    "html",
    "json",
    "md",
    "pb",
    "perf",
    "pdf",
    "png",
    "txt",
    "xml",
];

/// A file to write for another viewer.
pub(super) struct ExportRequest<'a> {
    options: &'a ConvertOptions,
    path: &'a Path,
    export: Export,
    /// Name of the file without its suffix.
    title: String,
    selection: Selection,
}

impl<'a> ExportRequest<'a> {
    /// Returns what the options ask for: `None` is a trace.
    pub(super) fn of(
        options: &'a ConvertOptions,
        path: &'a Path,
    ) -> Result<Option<Self>, ConvertError> {
        if options.results.format.exports().next().is_some() {
            return Err(ConvertError::Format);
        }
        let selection = options.selection.selection();
        let Some((export, title)) = Export::of(path) else {
            let suffix = path.extension().and_then(OsStr::to_str).unwrap_or_default();
            let is_other = OTHER_SUFFIXES
                .iter()
                .any(|other| suffix.eq_ignore_ascii_case(other));
            return match selection.is_whole() {
                _ if is_other => Err(ConvertError::Suffix(
                    path.display().to_string(),
                    Export::suffixes().collect::<Vec<_>>().join(", "),
                )),
                _ if options.threads => Err(ConvertError::Threads),
                true => Ok(None),
                false => Err(ConvertError::OnlyExport("a part of a trace")),
            };
        };
        let export = match options.threads {
            true => export.by_thread().ok_or(ConvertError::Threads)?,
            false => export,
        };
        if options.results.perfdata || options.results.json {
            return Err(ConvertError::OnlyTrace);
        }
        check_name(path)?;
        OutputFile::check(path, options.results.force)?;
        Ok(Some(Self {
            options,
            path,
            export,
            title,
            selection,
        }))
    }

    /// Returns whether the output is this file.
    pub(super) fn is_file(&self, file: &Path) -> bool {
        is_same_file(self.path, file)
    }

    /// Returns whether it shows events of .NET runtimes.
    pub(super) fn shows_events(&self) -> bool {
        self.export.shows_events()
    }

    /// Writes what is selected of a trace.
    pub(super) fn write(&self, mut trace: Trace, signals: &Signals) -> Result<(), ConvertError> {
        let results = self.options.results;
        if !self.selection.is_whole() {
            view::select(&mut trace, &self.selection).map_err(ConvertError::Selection)?;
        }
        if trace.samples.is_empty() {
            let path = self.options.source.recording.display().to_string();
            let why = String::new();
            return Err(ConvertError::NoSamples { path, why });
        }
        let mut file = OutputFile::create(self.path, results.force)?;
        let reporter = Reporter::new(results.quiet);
        reporter.during("Writing", &|| None, || {
            write_file(&mut file, signals, |mut out| {
                let names = results.names();
                self.export.write(&trace, names, &self.title, &mut out)?;
                Ok(out.flush()?)
            })
        })?;
        if let Some(error) = trace.samples.read_error() {
            return Err(WriteError::Unread(error.to_string()).into());
        }
        if stopped(signals) {
            return Err(ConvertError::Stopped);
        }
        file.commit()?;
        match results.quiet {
            true => Ok(()),
            false => self.print(&trace),
        }
    }

    /// Prints what was written, and of what quality it is.
    fn print(&self, trace: &Trace) -> Result<(), ConvertError> {
        let quality = exports::quality_lines(trace);
        let path = self.path.display().to_string();
        let (path, viewer) = (OneLine(&path), self.export.viewer());
        let mut text = format!("Saved to {path} ({viewer})\n");
        for line in quality {
            text.push_str(&format!("  {}\n", OneLine(&line)));
        }
        super::print(text.as_bytes()).map_err(ConvertError::Print)
    }
}
