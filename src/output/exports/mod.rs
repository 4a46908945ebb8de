//! Exports: a trace in one file for another viewer, chosen by the suffix of the file's name.
//!
//! Each writer streams the samples of the trace. In memory are tables with a row per function and per
//! stack, and at most `tracks::MAX_BATCH` samples.
//!
//! ```text
//!         ┌ calls: functions, call tree ┐
//! Trace ──┼ tracks: samples by thread ──┼─ speedscope, pprof, firefox, chromium, functions (CSV)
//!         ├ quality: losses as lines ───┘
//!         └ stack_views ─────────────────── folded, SVG
//! ```

mod calls;
mod chromium;
mod firefox;
mod firefox_markers;
mod firefox_threads;
mod functions;
mod json;
mod modules;
mod pprof;
mod protobuf;
mod quality;
mod speedscope;
mod tracks;
mod weights;

use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::short_name::NameStyle;
use super::stack_views::StackViews;
use crate::trace::Trace;

pub use quality::lines as quality_lines;

/// Level of compression. Higher ones take several times as long and save a tenth.
const LEVEL: Compression = Compression::new(2);

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Speedscope,
    Pprof,
    Firefox,
    Folded,
    Svg,
    Chromium,
    Csv,
}

/// Suffixes of file names, and whether the file is compressed.
const SUFFIXES: [(&str, Format, bool); 14] = [
    (".speedscope.json", Format::Speedscope, false),
    (".speedscope.json.gz", Format::Speedscope, true),
    (".pb.gz", Format::Pprof, true),
    (".pprof", Format::Pprof, true),
    (".firefox.json", Format::Firefox, false),
    (".firefox.json.gz", Format::Firefox, true),
    (".profile.json", Format::Firefox, false),
    (".profile.json.gz", Format::Firefox, true),
    (".folded", Format::Folded, false),
    (".folded.gz", Format::Folded, true),
    (".svg", Format::Svg, false),
    (".chromium.json", Format::Chromium, false),
    (".chromium.json.gz", Format::Chromium, true),
    (".csv", Format::Csv, false),
];

/// A format of exports, and whether the file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    format: Format,
    is_compressed: bool,
    by_thread: bool,
}

impl Export {
    /// Returns the export that a file name asks for, and the name without the suffix.
    #[must_use]
    pub fn of(path: &Path) -> Option<(Self, String)> {
        let name = path.file_name()?.to_string_lossy();
        SUFFIXES
            .iter()
            .find_map(|&(suffix, format, is_compressed)| {
                let at = name.len().checked_sub(suffix.len()).filter(|at| *at > 0)?;
                let end = name.get(at..)?;
                let export = Self::new(format, is_compressed);
                end.eq_ignore_ascii_case(suffix)
                    .then(|| (export, name[..at].to_owned()))
            })
    }

    /// Returns the export of a name, which is its suffix with or without `.json`: `speedscope`, `pprof`, `csv`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let is_name = |suffix: &str| {
            let plain = suffix.trim_start_matches('.');
            let stem = plain.strip_suffix(".json").unwrap_or(plain);
            [plain, stem]
                .iter()
                .any(|one| one.eq_ignore_ascii_case(name))
        };
        let mut rows = SUFFIXES.iter();
        rows.find(|(suffix, ..)| is_name(suffix))
            .map(|&(_, format, is_compressed)| Self::new(format, is_compressed))
    }

    fn new(format: Format, is_compressed: bool) -> Self {
        Self {
            format,
            is_compressed,
            by_thread: false,
        }
    }

    /// Lets stacks tell threads apart. Returns `None` for formats which do so anyway, or have no stacks.
    #[must_use]
    pub fn by_thread(self) -> Option<Self> {
        let has_merged = matches!(self.format, Format::Folded | Format::Svg);
        has_merged.then_some(Self {
            by_thread: true,
            ..self
        })
    }

    /// Returns the suffix of its files, with the dot.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        let is_it = |&&(_, format, is_compressed): &&(&str, Format, bool)| {
            (format, is_compressed) == (self.format, self.is_compressed)
        };
        SUFFIXES
            .iter()
            .find(is_it)
            .map_or("", |(suffix, ..)| suffix)
    }

    /// Returns the suffixes of all exports.
    pub fn suffixes() -> impl Iterator<Item = &'static str> {
        SUFFIXES.iter().map(|&(suffix, ..)| suffix)
    }

    /// Returns what opens the file.
    #[must_use]
    pub fn viewer(self) -> &'static str {
        match self.format {
            Format::Speedscope => "speedscope.app",
            Format::Pprof => "go tool pprof",
            Format::Firefox => "profiler.firefox.com, ui.perfetto.dev",
            Format::Folded => "inferno, flamegraph.pl",
            Format::Svg => "any browser",
            Format::Chromium => "chrome://tracing, ui.perfetto.dev",
            Format::Csv => "spreadsheets",
        }
    }

    /// Returns whether it shows events of .NET runtimes.
    #[must_use]
    pub fn shows_events(self) -> bool {
        self.format == Format::Firefox
    }

    /// Writes the export of `trace`, with names of .NET methods in a style. `title` is the name of the
    /// trace.
    ///
    /// # Errors
    /// Returns errors of `out`.
    pub fn write(
        self,
        trace: &Trace,
        names: NameStyle,
        title: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match self.is_compressed {
            false => self.write_plain(trace, names, title, out),
            true => {
                // The encoder is slow with short writes.
                let mut out = BufWriter::new(GzEncoder::new(out, LEVEL));
                self.write_plain(trace, names, title, &mut out)?;
                let encoder = out.into_inner().map_err(IntoInnerError::into_error)?;
                encoder.finish().map(drop)
            }
        }
    }

    fn write_plain(
        self,
        trace: &Trace,
        names: NameStyle,
        title: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let views = || StackViews::new(trace, names, title).by_thread(self.by_thread);
        match self.format {
            Format::Speedscope => speedscope::write(trace, names, title, out),
            Format::Pprof => pprof::write(trace, names, out),
            Format::Firefox => firefox::write(trace, names, title, out),
            Format::Folded => views().write_folded(out),
            Format::Svg => out.write_all(views().flame_graph()?),
            Format::Chromium => chromium::write(trace, names, out),
            Format::Csv => functions::write(trace, names, out),
        }
    }
}
