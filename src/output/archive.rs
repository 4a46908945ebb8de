//! `NAME.trace.zip`: the one file of a capture. PerfView opens it, everything else unzips it.
//!
//! Same trace, same bytes: entries come in a fixed order with a fixed time. Their names are ours but for the folder,
//! and none but those of the events is one PerfView looks for (`metadata`, a second `.data.txt`).

use std::io::{self, Seek, SeekFrom, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::call_tree::CallTree;
use super::short_name::MethodNames;
use super::summary::Summary;
use super::{ctf, flame_graph, folded, perf_text, sanitize};
use crate::trace::Trace;

/// End of the folder's name; the trace viewer finds its entries below it.
pub(crate) const FOLDER_SUFFIX: &str = ".trace";
/// Entry with the summary.
pub(crate) const SUMMARY: &str = "summary.json";
/// Entry with the folded stacks.
pub(crate) const FOLDED: &str = "stacks.folded";
/// Entry with the flame graph.
pub(crate) const FLAME_GRAPH: &str = "flamegraph.svg";
/// Folder of the event streams as they came.
pub(crate) const RAW_EVENTS: &str = "eventpipe";
const PERF_TEXT: &str = "perf.data.txt";
const LOG: &str = "perfcollect.log";

/// Measured on 60 000 samples (338 MB of text, 98 MB of folded stacks): level 1 makes 33 MB in 1.5 s, 2 makes 26 MB in
/// 1.8 s, 3 makes 25 MB in 2.3 s, 6 makes 21 MB in 3.4 s.
const TEXT_LEVEL: i64 = 2;

/// An event takes 47 bytes in CTF besides its payload, and as few as 4 in the stream; other providers' are JSON in UTF-16.
const CTF_GROWTH: u64 = 16;

/// Why an archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The target cannot be written to.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The summary cannot be expressed.
    #[error("cannot write {SUMMARY}: {0}")]
    Summary(serde_json::Error),
    /// The archive cannot be expressed.
    #[error("cannot write the archive: {0}")]
    Zip(zip::result::ZipError),
}

impl From<zip::result::ZipError> for ArchiveError {
    fn from(error: zip::result::ZipError) -> Self {
        match error {
            zip::result::ZipError::Io(error) => Self::Io(error),
            other => Self::Zip(other),
        }
    }
}

/// What goes into an archive besides the trace.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The summary of the trace.
    pub summary: &'a Summary,
    /// Names of methods in the pictures of stacks.
    pub names: MethodNames,
    /// The capture's base name.
    pub name: &'a str,
    /// What perfcollect did, for its maintainers.
    pub log: &'a [u8],
    /// Whether the streams of events are kept as they came.
    pub raw_events: bool,
}

/// Writes the archive of `trace`.
///
/// # Errors
/// [`ArchiveError::Io`] is what `out` returned.
pub fn write(
    trace: &Trace,
    contents: &Contents<'_>,
    out: impl Write + Seek,
) -> Result<(), ArchiveError> {
    let Contents {
        summary,
        names,
        name,
        log,
        raw_events,
    } = *contents;
    let folder = sanitize::entry_name(name) + FOLDER_SUFFIX;
    let mut zip = ZipWriter::new(FailsOnce::new(out));
    // PerfView takes the first entry that ends in `.data.txt`.
    let event_bytes: u64 = trace.events.streams().iter().map(|s| s.counts.bytes).sum();
    let largest = perf_text::max_bytes(trace).max(event_bytes.saturating_mul(CTF_GROWTH));
    let is_large = largest > u64::from(u32::MAX);
    let start = |zip: &mut ZipWriter<_>, entry: &str| {
        let options = options().large_file(is_large);
        zip.start_file(format!("{folder}/{entry}"), options)
    };
    start(&mut zip, PERF_TEXT)?;
    perf_text::write(trace, &mut zip)?;
    let tree = CallTree::new(trace, names);
    start(&mut zip, FOLDED)?;
    folded::write_tree(&tree, &mut zip)?;
    start(&mut zip, FLAME_GRAPH)?;
    flame_graph::write_tree(&tree, trace, name, &mut zip)?;
    start(&mut zip, SUMMARY)?;
    serde_json::to_writer_pretty(&mut zip, summary).map_err(|error| match error.is_io() {
        true => ArchiveError::Io(error.into()),
        false => ArchiveError::Summary(error),
    })?;
    if !trace.events.is_empty() {
        let ctf_folder = ctf::folder(trace);
        start(&mut zip, &format!("{ctf_folder}/{}", ctf::CHANNEL))?;
        let names = ctf::write_channel(trace, &mut zip)?;
        start(&mut zip, &format!("{ctf_folder}/{}", ctf::METADATA))?;
        ctf::write_metadata(trace, &names, &mut zip)?;
    }
    if raw_events {
        for stream in trace.events.streams() {
            start(&mut zip, &format!("{RAW_EVENTS}/{}.nettrace", stream.name))?;
            io::copy(&mut stream.bytes(), &mut zip)?;
        }
    }
    start(&mut zip, LOG)?;
    zip.write_all(log)?;
    if let Some(mark) = trace.quality.losses.mark() {
        // What `unzip -l` and file managers show first.
        zip.set_comment(mark)?;
    }
    zip.finish()?;
    Ok(())
}

/// Tells of the first error and from then on takes everything, as a file without end would. `ZipWriter` tries again when
/// it is dropped, and would print to standard error that this fails too.
struct FailsOnce<W> {
    out: W,
    failed: bool,
    position: u64,
    end: u64,
}

impl<W> FailsOnce<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            failed: false,
            position: 0,
            end: 0,
        }
    }

    fn attempt<T>(
        &mut self,
        pretended: T,
        act: impl FnOnce(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failed {
            return Ok(pretended);
        }
        let result = act(&mut self.out);
        self.failed = result
            .as_ref()
            .is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        result
    }
}

impl<W: Write> Write for FailsOnce<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.attempt(bytes.len(), |out| out.write(bytes))?;
        self.position += written as u64;
        self.end = self.end.max(self.position);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), Write::flush)
    }
}

impl<W: Seek> Seek for FailsOnce<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let pretended = match to {
            SeekFrom::Start(position) => position,
            SeekFrom::Current(offset) => self.position.saturating_add_signed(offset),
            SeekFrom::End(offset) => self.end.saturating_add_signed(offset),
        };
        self.position = self.attempt(pretended, |out| out.seek(to))?;
        Ok(self.position)
    }
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(TEXT_LEVEL))
        .last_modified_time(DateTime::default())
        .unix_permissions(0o600)
}
