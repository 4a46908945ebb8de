//! The new archive: entries that depend on symbols are written again, the others are copied.

use std::collections::HashSet;
use std::io::{self, BufReader, BufWriter, Read, Write};

use rustc_hash::FxHashMap;

use super::{BUFFER_BYTES, MAX_ENTRY_BYTES};
use crate::output::StackViews;
use crate::output::archive::{
    self, ArchiveError, FAULTS_TEXT, FOLDED, GRAPHS, MEASURED, PERF_TEXT, SUMMARY, WAKEUPS_TEXT,
};
use crate::output::perf_text::{self, EscapedNames};
use crate::output::summary::Summary;
use crate::trace::{FrameId, Trace};
use crate::trace_archive::TraceArchive;

/// Limit of the size of all entries, as a multiple of the archive's. Deflate reaches 1 032.
const MAX_RATIO: u64 = 1100;

/// Returns the new lines of frames, by their old line.
pub(super) fn replaced_lines(
    trace: &Trace,
    symbolized: &[FrameId],
    lines: &[Box<[u8]>],
) -> FxHashMap<Box<[u8]>, Vec<u8>> {
    let names = EscapedNames::new(trace);
    let new = |&frame: &FrameId| {
        let new = perf_text::frame_lines(&names, frame);
        (lines[frame.index()].clone(), new)
    };
    symbolized.iter().map(new).collect()
}

/// Returns an entry that would get lost, or that makes the archive too large.
pub(super) fn foreign_entry(archive: &TraceArchive, archive_bytes: u64) -> Option<&str> {
    let mut names = HashSet::new();
    let mut left = archive_bytes.saturating_mul(MAX_RATIO);
    // Entries that share their bytes take more than the archive has.
    let mut left_compressed = Some(archive_bytes);
    archive.zip.entries().iter().find_map(|entry| {
        let inside = entry.name.strip_prefix(archive.directory.as_str());
        let is_inside = inside.is_some_and(|rest| rest.starts_with('/'));
        let is_directory = entry.name.ends_with('/');
        let is_new = names.insert(entry.name.as_str());
        left_compressed =
            left_compressed.and_then(|left| left.checked_sub(entry.compressed_size()));
        let fits = entry.size() <= left.min(MAX_ENTRY_BYTES) && left_compressed.is_some();
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
            let folded = MEASURED.iter().find(|(_, entry, _)| *entry == name);
            let graph = GRAPHS.iter().find(|(_, entry)| *entry == name);
            match name {
                PERF_TEXT | FAULTS_TEXT | WAKEUPS_TEXT => new.entry(name, |out| {
                    let text = BufReader::with_capacity(BUFFER_BYTES, content()?);
                    Ok(perf_text::replace_frames(text, replaced, out)?)
                })?,
                FOLDED => new.entry(name, |out| Ok(views.write_folded(out)?))?,
                SUMMARY => new.summary(summary)?,
                name if let Some((measure, ..)) = folded => {
                    new.entry(name, |out| Ok(views.write_measured(*measure, out)?))?;
                }
                name if let Some((measure, _)) = graph => new.graph(name, views, *measure)?,
                name => new.entry(name, |out| {
                    io::copy(&mut content()?, out)?;
                    Ok(())
                })?,
            }
        }
        Ok(())
    })
}
