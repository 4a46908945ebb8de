//! The files beside a trace that show its samples: the flame graphs and `NAME.nettrace`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::comparison::Comparison;
use super::{BUFFER_BYTES, MAX_ENTRY_BYTES, MAX_FLAME_GRAPH_BYTES};
use crate::bytes::Positioned;
use crate::output::file::{OutputError, capture_name};
use crate::output::nettrace::{self, OldStreamError, RewriteError};
use crate::output::output_file::OutputFile;
use crate::output::{Measure, StackViews};
use crate::symbolize::{CancelCheck, CancellableReader, CancellableWriter};
use crate::trace::Trace;

const NETTRACE: &str = ".nettrace";
/// Limit on a new `.nettrace`: a multiple of the old one, and bytes for the names.
const MAX_GROWTH: (u64, u64) = (8, 256 << 20);

/// A flame graph in a trace. The file beside it may be the same.
pub(super) struct Graph {
    pub(super) measure: Measure,
    pub(super) entry: &'static str,
    pub(super) svg: Vec<u8>,
}

/// A file beside a trace cannot be written again.
#[derive(Debug, Error)]
pub enum SiblingError {
    /// The file cannot be opened or read.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// The file is no regular file, belongs to another user, or was replaced meanwhile.
    #[error("it belongs to another user or is no regular file: make it yours and run this again")]
    NotOwn,
    /// The new flame graph cannot be drawn.
    #[error("cannot draw it: {0}")]
    Draw(io::Error),
    /// The file is not the flame graph of the trace.
    #[error("it is not the flame graph of the trace; the new one is in the trace")]
    OtherFlameGraph,
    /// The old `.nettrace` cannot be read, or is not of the trace.
    #[error(transparent)]
    Old(#[from] OldStreamError),
    /// The new `.nettrace` would be too large.
    #[error("its stacks make it too large")]
    TooLarge,
    /// The new file cannot be written.
    #[error(transparent)]
    Output(OutputError),
}

impl SiblingError {
    /// Returns whether the trace stays as it is, too: its disk is full, or fails.
    fn is_fatal(&self) -> bool {
        matches!(self, Self::Output(_))
    }
}

impl From<OutputError> for SiblingError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::NotReplaceable { .. } => Self::NotOwn,
            error => Self::Output(error),
        }
    }
}

/// Returns whether there is a `.nettrace` beside a trace.
pub(super) fn has_nettrace(trace: &Path) -> bool {
    sibling_path(trace, NETTRACE).symlink_metadata().is_ok()
}

fn sibling_path(trace: &Path, suffix: &str) -> PathBuf {
    trace.with_file_name(format!("{}{suffix}", capture_name(trace)))
}

/// A regular file beside a trace.
struct Sibling {
    path: PathBuf,
    file: File,
}

impl Sibling {
    /// Opens the file of a trace with this suffix, if there is one.
    fn open(trace: &Path, suffix: &str) -> Option<(PathBuf, Result<Self, SiblingError>)> {
        let path = sibling_path(trace, suffix);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return None,
            Err(Errno::LOOP) => Err(SiblingError::NotOwn),
            Err(errno) => Err(SiblingError::Read(errno.into())),
            Ok(file) => Self::new(path.clone(), file.into()),
        };
        Some((path, opened))
    }

    fn new(path: PathBuf, file: File) -> Result<Self, SiblingError> {
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Self { path, file }),
            Ok(_) => Err(SiblingError::NotOwn),
            Err(error) => Err(SiblingError::Read(error)),
        }
    }

    fn reader<'a>(&'a self, cancel: CancelCheck<'a>) -> impl Read + 'a {
        let file = &self.file;
        let inner = BufReader::with_capacity(BUFFER_BYTES, Positioned { file, at: 0 });
        CancellableReader { inner, cancel }.take(MAX_ENTRY_BYTES)
    }

    /// Writes the new flame graph, if there is one and the file is the old one.
    fn redraw(
        &self,
        old: &[u8],
        new: Option<io::Result<&[u8]>>,
        cancel: CancelCheck<'_>,
    ) -> Result<Option<OutputFile>, SiblingError> {
        let mut content = Vec::new();
        let mut reader = self.reader(cancel).take(MAX_FLAME_GRAPH_BYTES);
        let read = reader.read_to_end(&mut content);
        read.map_err(SiblingError::Read)?;
        let is_old = content == old;
        let Some(new) = new else {
            return match is_old {
                true => Ok(None),
                false => Err(SiblingError::OtherFlameGraph),
            };
        };
        let new = new.map_err(SiblingError::Draw)?;
        // An earlier run that was killed may have written it.
        if content == new {
            return Ok(None);
        }
        if !is_old {
            return Err(SiblingError::OtherFlameGraph);
        }
        let mut file = OutputFile::replace(&self.path, &self.file)?;
        match file.write_all(new) {
            Ok(()) => Ok(Some(file)),
            Err(error) => Err(file.explain(error).into()),
        }
    }

    /// Writes the `.nettrace` with the functions of a trace, unless it has them.
    fn rewrite(
        &self,
        trace: &Trace,
        cancel: CancelCheck<'_>,
    ) -> Result<Option<OutputFile>, SiblingError> {
        let mut old = self.reader(cancel);
        let mut same = Comparison::new(&mut old);
        match nettrace::rewrite(trace, self.reader(cancel), &mut same, cancel) {
            Ok(()) if same.is_at_end() => return Ok(None),
            Err(RewriteError::Old(error)) => return Err(error.into()),
            Ok(()) | Err(RewriteError::Write(_)) => {}
        }
        // A sparse file is longer than what it takes.
        let bytes = self.file.metadata();
        let bytes = bytes.map_or(0, |file| file.len().min(file.blocks() * 512));
        let mut file = OutputFile::replace(&self.path, &self.file)?;
        let out = CancellableWriter {
            inner: &mut file,
            cancel,
        };
        let mut out = LimitedWriter {
            inner: BufWriter::with_capacity(BUFFER_BYTES, out),
            left: bytes
                .saturating_mul(MAX_GROWTH.0)
                .saturating_add(MAX_GROWTH.1),
        };
        let written = nettrace::rewrite(trace, self.reader(cancel), &mut out, cancel);
        let is_too_large = out.left == 0;
        drop(out);
        match written {
            Ok(()) => Ok(Some(file)),
            Err(RewriteError::Write(_)) if is_too_large => Err(SiblingError::TooLarge),
            Err(RewriteError::Write(error)) => Err(file.explain(error).into()),
            Err(RewriteError::Old(error)) => Err(error.into()),
        }
    }
}

/// A writer that fails at a number of bytes.
struct LimitedWriter<W> {
    inner: W,
    left: u64,
}

impl<W: Write> Write for LimitedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        match self.left {
            0 => Err(io::ErrorKind::FileTooLarge.into()),
            _ => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// New files beside a trace.
#[derive(Default)]
pub(super) struct NewSiblings {
    written: Vec<(PathBuf, OutputFile)>,
    /// Paths of replaced files.
    pub(super) replaced: Vec<PathBuf>,
    /// Paths of files that were not replaced, and why.
    pub(super) kept: Vec<(PathBuf, SiblingError)>,
}

impl NewSiblings {
    /// Writes the new `.nettrace`, without replacing the old one, unless there is none.
    ///
    /// # Errors
    /// Returns path and cause if the file cannot be written. If the old one cannot be used, it stays,
    /// which is no error.
    pub(super) fn nettrace(
        &mut self,
        path: &Path,
        trace: &Trace,
        cancel: CancelCheck<'_>,
    ) -> Result<(), (PathBuf, SiblingError)> {
        self.sibling(path, NETTRACE, cancel, |file| file.rewrite(trace, cancel))
    }

    /// Writes the new flame graphs, if there are any, without replacing the old ones. `old` has those in the
    /// trace.
    ///
    /// # Errors
    /// As of [`NewSiblings::nettrace`].
    pub(super) fn flame_graphs(
        &mut self,
        path: &Path,
        old: &[Graph],
        new: Option<&StackViews<'_>>,
        cancel: CancelCheck<'_>,
    ) -> Result<(), (PathBuf, SiblingError)> {
        old.iter().try_for_each(|graph| {
            self.sibling(path, &format!(".{}", graph.entry), cancel, |file| {
                let new = new.map(|views| views.graph(graph.measure));
                file.redraw(&graph.svg, new, cancel)
            })
        })
    }

    fn sibling(
        &mut self,
        trace: &Path,
        suffix: &str,
        cancel: CancelCheck<'_>,
        write: impl FnOnce(&Sibling) -> Result<Option<OutputFile>, SiblingError>,
    ) -> Result<(), (PathBuf, SiblingError)> {
        let Some((path, opened)) = Sibling::open(trace, suffix) else {
            return Ok(());
        };
        match opened.and_then(|file| write(&file)) {
            Ok(Some(file)) => self.written.push((path, file)),
            Ok(None) => {}
            Err(error) if cancel() => return Err((path, error)),
            Err(error) => self.keep(path, error)?,
        }
        Ok(())
    }

    fn keep(&mut self, path: PathBuf, error: SiblingError) -> Result<(), (PathBuf, SiblingError)> {
        if error.is_fatal() {
            return Err((path, error));
        }
        self.kept.push((path, error));
        Ok(())
    }

    /// Replaces the old files.
    ///
    /// # Errors
    /// Returns path and cause of the first file that cannot be replaced.
    pub(super) fn commit(&mut self) -> Result<(), (PathBuf, SiblingError)> {
        for (path, file) in std::mem::take(&mut self.written) {
            match file.commit() {
                Ok(()) => self.replaced.push(path),
                Err(error) => self.keep(path, error.into())?,
            }
        }
        Ok(())
    }
}
