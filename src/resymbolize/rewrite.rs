//! The new files: entries that depend on symbols are written again, the others are copied.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use rustix::fs::{Mode, OFlags};

use super::{BUFFER_BYTES, MAX_ENTRY_BYTES, MAX_FLAME_GRAPH_BYTES};
use crate::output::StackViews;
use crate::output::archive::{self, ArchiveError, FLAME_GRAPH, FOLDED, PERF_TEXT, SUMMARY};
use crate::output::file::{OutputError, OutputFile};
use crate::output::perf_text::{self, EscapedNames};
use crate::output::summary::Summary;
use crate::trace::{FrameId, Trace};
use crate::trace_archive::TraceArchive;

/// Limit of the size of all entries, as a multiple of the archive's. Deflate reaches 1 032.
const MAX_RATIO: u64 = 1100;

/// Returns the new lines of frames, by their old line.
pub(super) fn replaced_lines(
    trace: &Trace,
    renamed: &[FrameId],
    lines: &[Box<[u8]>],
) -> FxHashMap<Box<[u8]>, Vec<u8>> {
    let names = EscapedNames::new(trace);
    let new = |&frame: &FrameId| {
        let new = perf_text::frame_lines(&names, frame);
        (lines[frame.index()].clone(), new)
    };
    renamed.iter().map(new).collect()
}

/// Returns an entry that would get lost, or that makes the archive too large.
pub(super) fn foreign_entry(archive: &TraceArchive, archive_bytes: u64) -> Option<&str> {
    let mut names = HashSet::new();
    let mut left = archive_bytes.saturating_mul(MAX_RATIO);
    archive.zip.entries().iter().find_map(|entry| {
        let inside = entry.name.strip_prefix(archive.directory.as_str());
        let is_inside = inside.is_some_and(|rest| rest.starts_with('/'));
        let is_directory = entry.name.ends_with('/');
        let is_new = names.insert(entry.name.as_str());
        let fits = entry.size() <= left.min(MAX_ENTRY_BYTES);
        left = left.saturating_sub(entry.size());
        let is_fine = is_new && fits && (is_inside || is_directory);
        (!is_fine).then_some(entry.name.as_str())
    })
}

/// Writes the new archive.
pub(super) fn write(
    archive: &TraceArchive,
    summary: &Summary,
    views: &StackViews<'_>,
    replaced: &FxHashMap<Box<[u8]>, Vec<u8>>,
    out: impl Write,
) -> Result<(), ArchiveError> {
    let directory = &archive.directory;
    let losses = &summary.quality.losses;
    let out = BufWriter::new(out);
    archive::write_entries(directory.clone(), losses, out, |new| {
        for entry in archive.zip.entries() {
            let name = entry.name.strip_prefix(directory.as_str());
            let Some(name) = name.and_then(|name| name.strip_prefix('/')) else {
                continue;
            };
            if name.is_empty() || name.ends_with('/') {
                continue;
            }
            let content = || Ok::<_, io::Error>(archive.zip.unpack(entry)?.take(MAX_ENTRY_BYTES));
            match name {
                PERF_TEXT => new.entry(name, |out| {
                    let text = BufReader::with_capacity(BUFFER_BYTES, content()?);
                    Ok(perf_text::replace_frames(text, replaced, out)?)
                })?,
                FOLDED => new.entry(name, |out| Ok(views.write_folded(out)?))?,
                FLAME_GRAPH => {
                    new.entry(name, |out| Ok(out.write_all(views.flame_graph()?)?))?;
                }
                SUMMARY => new.summary(summary)?,
                name => new.entry(name, |out| {
                    io::copy(&mut content()?, out)?;
                    Ok(())
                })?,
            }
        }
        Ok(())
    })
}

/// Replaces the flame graph beside the trace if it is that of the trace. Returns its path, and why
/// it was not replaced.
pub(super) fn flame_graph(
    trace: &Path,
    name: &str,
    drawn_before: &[u8],
    views: &StackViews<'_>,
) -> Option<(PathBuf, Option<OutputError>)> {
    let path = trace.with_file_name(format!("{name}.flamegraph.svg"));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let older = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
    let is_file = older.metadata().is_ok_and(|metadata| metadata.is_file());
    let is_same = || {
        let mut svg = Vec::new();
        let read = (&older).take(MAX_FLAME_GRAPH_BYTES).read_to_end(&mut svg);
        read.is_ok() && svg == drawn_before
    };
    if !is_file || !is_same() {
        return None;
    }
    let error = replace_flame_graph(&path, &older, views).err();
    Some((path, error))
}

fn replace_flame_graph(
    path: &Path,
    older: &File,
    views: &StackViews<'_>,
) -> Result<(), OutputError> {
    let mut file = OutputFile::replace(path, older)?;
    let drawn = views.flame_graph().and_then(|svg| file.write_all(svg));
    drawn.map_err(|error| file.explain(error))?;
    file.commit()
}

/// A writer that fails at the first byte that differs from those of a reader.
pub(super) struct Comparison<'a, R> {
    expected: &'a mut R,
    buffer: Vec<u8>,
}

impl<'a, R: Read> Comparison<'a, R> {
    pub(super) fn new(expected: &'a mut R) -> Self {
        Self {
            expected,
            buffer: Vec::new(),
        }
    }

    /// Returns whether everything was written that the reader has.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(self.expected.read(&mut [0]), Ok(0))
    }
}

impl<R: Read> Write for Comparison<'_, R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.resize(bytes.len(), 0);
        self.expected.read_exact(&mut self.buffer)?;
        match self.buffer == bytes {
            true => Ok(bytes.len()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
