//! Symbolizes a written trace with debug files that are found later.
//!
//! The archive has what this needs: the build id of each module in `summary.json`, and the offset
//! of each unresolved frame in `perf.data.txt`. The flame graphs and `NAME.nettrace` beside the trace
//! are written again if they show the same samples. The new files replace the old ones when all are
//! complete. A `.nettrace` that an earlier run left behind is written again, too.

mod comparison;
mod modules;
mod rewrite;
mod siblings;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::output::archive::{ArchiveError, FOLDED, GRAPHS, PERF_TEXT};
use crate::output::file::{self, OutputError};
use crate::output::output_file::OutputFile;
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::output::{Measure, NameStyle, StackViews};
use crate::perf_text::{self, TextError, WrittenError, WrittenTrace};
use crate::symbolize::{CancelCheck, CancellableReader, CancellableWriter, Options};
use crate::trace::Trace;
use crate::trace_archive::{TraceArchive, TraceArchiveError};
use modules::Modules;
pub use modules::{NamedModule, find_symbols};
pub use siblings::SiblingError;
use siblings::{Graph, NewSiblings};

/// Limit of an entry that is read. A capture of a day has less.
const MAX_ENTRY_BYTES: u64 = 16 << 30;
/// Limit of the flame graph, which has at most some ten thousand frames.
const MAX_FLAME_GRAPH_BYTES: u64 = 256 << 20;
const BUFFER_BYTES: usize = 1 << 18;

/// Error of [`resymbolize`].
#[derive(Debug, Error)]
pub enum ResymbolizeError {
    /// The trace cannot be read.
    #[error(transparent)]
    Archive(#[from] TraceArchiveError),
    /// Its samples cannot be read.
    #[error("{} is unchanged: {PERF_TEXT} in it: {source}", path.display())]
    Text {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: TextError,
    },
    /// The old trace belongs to another user, or is a link.
    #[error("cannot replace {}: it belongs to another user or is no regular file; run as its owner, or copy it", .0.display())]
    NotReplaceable(PathBuf),
    /// The archive has entries that perfcollect did not write.
    #[error("{} is unchanged: {entry} in it is not of perfcollect, or too large", path.display())]
    Foreign {
        /// Path of the trace.
        path: PathBuf,
        /// Name of the first such entry, escaped.
        entry: String,
    },
    /// The new trace cannot be written. The old one stays.
    #[error("{}: {source}", path.display())]
    Output {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: OutputError,
    },
    /// The new trace cannot be expressed. The old one stays.
    #[error("{}: cannot write the trace: {source}", path.display())]
    Write {
        /// Path of the trace.
        path: PathBuf,
        /// Cause.
        source: ArchiveError,
    },
    /// A file beside the trace cannot be written. The trace stays. The next run does what is left.
    #[error("{} is unchanged: {}: {source}", trace.display(), path.display())]
    Sibling {
        /// Path of the trace.
        trace: PathBuf,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: SiblingError,
    },
    /// The user cancelled it. The old trace stays.
    #[error("{} is unchanged: cancelled", .0.display())]
    Cancelled(PathBuf),
}

/// What was symbolized. Without modules, the trace was not replaced.
#[derive(Debug, Default)]
pub struct Resymbolized {
    /// Modules with new symbols, those with most frames first.
    pub modules: Vec<NamedModule>,
    /// Replaced files beside the trace.
    pub replaced: Vec<PathBuf>,
    /// Files beside the trace that were not replaced, and why.
    pub kept: Vec<(PathBuf, SiblingError)>,
    /// Names that modules of several builds share. They were left out.
    pub ambiguous: Vec<String>,
    /// Modules with unresolved frames whose symbols were not found.
    pub missing: usize,
    /// Unresolved native frames that remain, each counted once per sample that contains it.
    pub unresolved: u64,
    /// Whether the trace has threads when the capture ended, whose functions keep their names.
    pub has_threads: bool,
}

fn output_error(path: &Path, source: OutputError) -> ResymbolizeError {
    let path = path.to_owned();
    match source {
        OutputError::NotReplaceable { path } => ResymbolizeError::NotReplaceable(path),
        source => ResymbolizeError::Output { path, source },
    }
}

/// Symbolizes the unresolved frames of a trace with the debug files on this machine. Replaces the
/// trace, and its flame graphs and `.nettrace` beside it. If no frame is symbolized, trace and flame
/// graphs stay. A `.nettrace` that was left behind is still written again.
///
/// # Errors
/// See [`ResymbolizeError`]. The old trace stays.
pub fn resymbolize(
    path: &Path,
    options: &Options,
    cancel: CancelCheck<'_>,
) -> Result<Resymbolized, ResymbolizeError> {
    match symbolize(path, options, cancel) {
        Err(_) if cancel() => Err(ResymbolizeError::Cancelled(path.to_owned())),
        symbolized => symbolized,
    }
}

fn symbolize(
    path: &Path,
    options: &Options,
    cancel: CancelCheck<'_>,
) -> Result<Resymbolized, ResymbolizeError> {
    let file = open(path)?;
    let to_replace = file.try_clone().map_err(|source| opened(path, source))?;
    let archive = TraceArchive::from_file(path, file)?;
    let size = to_replace.metadata().map_or(0, |metadata| metadata.len());
    if let Some(entry) = rewrite::foreign_entry(&archive, size) {
        return Err(ResymbolizeError::Foreign {
            path: path.to_owned(),
            entry: terminal(entry).into_owned(),
        });
    }
    let mut summary = archive.summary()?;
    let mut modules = Modules::find(&summary, options, cancel);
    let mut siblings = NewSiblings::default();
    let not_written = |(sibling, source)| ResymbolizeError::Sibling {
        trace: path.to_owned(),
        path: sibling,
        source,
    };
    let unresolved = summary.quality.names.native.unresolved;
    let unchanged = |modules: Modules, mut siblings: NewSiblings| {
        siblings
            .flame_graphs(path, &flame_graphs(&archive)?, None, cancel)
            .and_then(|()| siblings.commit())
            .map_err(not_written)?;
        Ok(Resymbolized {
            replaced: siblings.replaced,
            kept: siblings.kept,
            ambiguous: modules.ambiguous,
            missing: modules.missing,
            unresolved,
            ..Resymbolized::default()
        })
    };
    if cancel() {
        return Err(ResymbolizeError::Cancelled(path.to_owned()));
    }
    if summary.samples == 0 || modules.is_empty() && !siblings::has_nettrace(path) {
        return unchanged(modules, siblings);
    }
    let read = match read_styled(path, &archive, &summary, cancel) {
        Err(ResymbolizeError::Text { .. }) if modules.is_empty() && !cancel() => {
            return unchanged(modules, siblings);
        }
        read => read?,
    };
    let (WrittenTrace { mut trace, lines }, style) = read;
    let samples = trace.count_names();
    modules.check(&trace, &samples, &summary);

    let symbolized = modules.symbolize(&mut trace, &samples, options, cancel);
    if cancel() {
        return Err(ResymbolizeError::Cancelled(path.to_owned()));
    }
    siblings
        .nettrace(path, &trace, cancel)
        .map_err(not_written)?;
    if symbolized.frames.is_empty() {
        return unchanged(modules, siblings);
    }
    trace.count_names();
    modules.describe(&trace, &samples, &mut summary);
    let name = file::capture_name(path);
    let views = StackViews::new(&trace, style, &name);
    let replaced = rewrite::replaced_lines(&trace, &symbolized.frames, &lines);
    let failed = |error| output_error(path, error);
    let mut output = OutputFile::replace(path, &to_replace).map_err(failed)?;
    let out = CancellableWriter {
        inner: &mut output,
        cancel,
    };
    match rewrite::write(&archive, &summary, &views, &replaced, out) {
        Ok(()) => {}
        Err(ArchiveError::Io(error)) => return Err(failed(output.explain(error))),
        Err(source) => {
            let path = path.to_owned();
            return Err(ResymbolizeError::Write { path, source });
        }
    }
    siblings
        .flame_graphs(path, &flame_graphs(&archive)?, Some(&views), cancel)
        .map_err(not_written)?;
    siblings.commit().map_err(not_written)?;
    // The trace is last: while the old one is there, all can be done again.
    output.commit().map_err(failed)?;
    Ok(Resymbolized {
        modules: symbolized.modules,
        replaced: siblings.replaced,
        kept: siblings.kept,
        ambiguous: modules.ambiguous,
        missing: modules.missing,
        unresolved: summary.quality.names.native.unresolved,
        has_threads: summary.blocked.is_some(),
    })
}

/// Reads the samples of a trace, and the style of its names.
fn read_styled(
    path: &Path,
    archive: &TraceArchive,
    summary: &Summary,
    cancel: CancelCheck<'_>,
) -> Result<(WrittenTrace, NameStyle), ResymbolizeError> {
    let text_error = |source| ResymbolizeError::Text {
        path: path.to_owned(),
        source,
    };
    let written = perf_text::read_written(archive, summary, cancel);
    let written = written.map_err(|error| match error {
        WrittenError::Archive(error) => error.into(),
        WrittenError::Text(source) => text_error(source),
    })?;
    let style = [NameStyle::Full, NameStyle::Short]
        .into_iter()
        .find(|style| {
            archive.folded(FOLDED).is_ok_and(|(inner, _)| {
                let entry = CancellableReader { inner, cancel };
                let mut folded = BufReader::with_capacity(BUFFER_BYTES, entry);
                is_equal(&written.trace, *style, &mut folded)
            })
        });
    match style {
        Some(style) => Ok((written, style)),
        None => Err(text_error(TextError::NotWritten)),
    }
}

/// Opens the trace itself, not what a link refers to: it will be replaced.
fn open(path: &Path) -> Result<File, ResymbolizeError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    let file = file.map_err(|errno| match errno {
        Errno::LOOP => ResymbolizeError::NotReplaceable(path.to_owned()),
        errno => opened(path, errno.into()),
    })?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(ResymbolizeError::NotReplaceable(path.to_owned())),
        Err(error) => Err(opened(path, error)),
    }
}

fn opened(path: &Path, source: io::Error) -> ResymbolizeError {
    let path = path.to_owned();
    TraceArchiveError::Open { path, source }.into()
}

/// Returns the flame graphs of a trace.
fn flame_graphs(archive: &TraceArchive) -> Result<Vec<Graph>, TraceArchiveError> {
    let mut graphs = Vec::new();
    for (measure, entry) in GRAPHS {
        let mut content = match archive.entry(entry, MAX_FLAME_GRAPH_BYTES) {
            // A capture has the others only if it was asked for them.
            Err(TraceArchiveError::Missing { .. }) if measure != Measure::Samples => continue,
            content => content?,
        };
        let mut svg = Vec::new();
        let read = content.read_to_end(&mut svg);
        read.map_err(|source| TraceArchiveError::Entry { entry, source })?;
        graphs.push(Graph {
            measure,
            entry,
            svg,
        });
    }
    Ok(graphs)
}

/// Returns whether the folded stacks of a trace in a style are these.
fn is_equal(trace: &Trace, style: NameStyle, folded: &mut impl Read) -> bool {
    let mut same = comparison::Comparison::new(folded);
    let written = StackViews::new(trace, style, "").write_folded(&mut same);
    written.is_ok() && same.is_at_end()
}

impl From<TextError> for io::Error {
    fn from(error: TextError) -> Self {
        Self::other(error)
    }
}
