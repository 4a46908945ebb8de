//! The files beside a trace that show its samples: the flame graph and `NAME.nettrace`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use super::{BUFFER_BYTES, MAX_FLAME_GRAPH_BYTES};
use crate::bytes::Positioned;
use crate::output::StackViews;
use crate::output::file::{OutputError, OutputFile, capture_name};
use crate::output::nettrace::{self, FunctionStarts, OldStreamError, RewriteError};
use crate::symbolize::{CancelCheck, CancellableReader};
use crate::trace::Trace;

/// A file beside a trace cannot be written again.
#[derive(Debug, Error)]
pub enum SiblingError {
    /// The new file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The old file cannot be read, or is not of the trace.
    #[error(transparent)]
    Old(#[from] OldStreamError),
}

/// A regular file beside a trace.
struct Sibling {
    path: PathBuf,
    file: File,
}

impl Sibling {
    /// Opens the file of a trace with this suffix, if there is one.
    fn open(trace: &Path, suffix: &str) -> Option<Self> {
        let path = trace.with_file_name(format!("{}{suffix}", capture_name(trace)));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        is_file.then_some(Self { path, file })
    }

    fn reader<'a>(&'a self, cancel: CancelCheck<'a>) -> impl Read + 'a {
        let file = &self.file;
        let inner = BufReader::with_capacity(BUFFER_BYTES, Positioned { file, at: 0 });
        CancellableReader { inner, cancel }
    }

    fn is_equal(&self, expected: &[u8], cancel: CancelCheck<'_>) -> bool {
        let mut content = Vec::new();
        let mut reader = self.reader(cancel).take(MAX_FLAME_GRAPH_BYTES);
        reader.read_to_end(&mut content).is_ok() && content == expected
    }

    /// Writes a flame graph in place of the file.
    fn redraw(&self, views: &StackViews<'_>) -> Result<OutputFile, SiblingError> {
        let mut file = OutputFile::replace(&self.path, &self.file)?;
        let drawn = views.flame_graph().and_then(|svg| file.write_all(svg));
        drawn.map_err(|error| file.explain(error))?;
        Ok(file)
    }

    fn compare(
        &self,
        trace: &Trace,
        cancel: CancelCheck<'_>,
    ) -> Result<FunctionStarts, OldStreamError> {
        nettrace::compare(trace, self.reader(cancel))
    }

    /// Writes a `.nettrace` in place of the file, with the functions of a trace.
    fn rewrite(&self, trace: &Trace, cancel: CancelCheck<'_>) -> Result<OutputFile, SiblingError> {
        let mut file = OutputFile::replace(&self.path, &self.file)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &mut file);
        let written = nettrace::rewrite(trace, self.reader(cancel), &mut out);
        drop(out);
        match written {
            Ok(()) => Ok(file),
            Err(RewriteError::Write(error)) => Err(file.explain(error).into()),
            Err(RewriteError::Old(error)) => Err(error.into()),
        }
    }
}

/// The files beside a trace that were written from it.
pub(super) struct Siblings {
    flame_graph: Option<Sibling>,
    nettrace: Option<(Sibling, Result<FunctionStarts, OldStreamError>)>,
}

impl Siblings {
    /// Finds the files of a trace. `flame_graph` is the one in the trace.
    pub(super) fn find(
        path: &Path,
        trace: &Trace,
        flame_graph: Vec<u8>,
        cancel: CancelCheck<'_>,
    ) -> Self {
        let svg = Sibling::open(path, ".flamegraph.svg");
        let nettrace = Sibling::open(path, ".nettrace");
        Self {
            flame_graph: svg.filter(|svg| svg.is_equal(&flame_graph, cancel)),
            nettrace: nettrace.map(|file| {
                let compared = file.compare(trace, cancel);
                (file, compared)
            }),
        }
    }

    /// Adds what only the `.nettrace` has: the starts of functions without a name.
    pub(super) fn apply_starts(&self, trace: &mut Trace) {
        if let Some((_, Ok(starts))) = &self.nettrace {
            starts.apply(trace);
        }
    }

    /// Writes the new files, without replacing the old ones.
    pub(super) fn write(
        self,
        trace: &Trace,
        views: &StackViews<'_>,
        cancel: CancelCheck<'_>,
    ) -> NewSiblings {
        let mut new = NewSiblings::default();
        match self.nettrace {
            Some((file, Ok(_))) => {
                let written = file.rewrite(trace, cancel);
                new.written.push((file.path, written));
            }
            // An earlier run that was killed may have replaced it.
            Some((file, Err(error))) if file.compare(trace, cancel).is_err() => {
                new.kept.push((file.path, error.into()));
            }
            _ => {}
        }
        if let Some(file) = self.flame_graph {
            let written = file.redraw(views);
            new.written.push((file.path, written));
        }
        new
    }
}

/// New files beside a trace.
#[derive(Default)]
pub(super) struct NewSiblings {
    written: Vec<(PathBuf, Result<OutputFile, SiblingError>)>,
    /// Paths of replaced files.
    pub(super) replaced: Vec<PathBuf>,
    /// Paths of files that were not replaced, and why.
    pub(super) kept: Vec<(PathBuf, SiblingError)>,
}

impl NewSiblings {
    /// Replaces the old files if all new ones are complete.
    ///
    /// A file of another user stays, and is no error.
    ///
    /// # Errors
    /// Returns path and cause of the first file that cannot be written.
    pub(super) fn commit(&mut self) -> Result<(), (PathBuf, SiblingError)> {
        let mut complete = Vec::new();
        for (path, written) in self.written.drain(..) {
            match written {
                Ok(file) => complete.push((path, file)),
                Err(error @ SiblingError::Output(OutputError::NotReplaceable { .. })) => {
                    self.kept.push((path, error));
                }
                Err(error) => return Err((path, error)),
            }
        }
        for (path, file) in complete {
            match file.commit() {
                Ok(()) => self.replaced.push(path),
                Err(error) => return Err((path, error.into())),
            }
        }
        Ok(())
    }
}
