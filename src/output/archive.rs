//! `NAME.trace.zip`: the one file of a capture. PerfView opens it, everything else unzips it.
//!
//! Same trace, same bytes: entries come in a fixed order with a fixed time. Their names are ours but for the folder,
//! and none but those of the events is one PerfView looks for (`metadata`, a second `.data.txt`).

use std::io::{self, Write};

use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter, ZipEntryWriter};

use super::call_tree::Measure;
use super::deflate::{Deflate, Workers};
use super::perf_text::markers;
use super::stack_views::StackViews;
use super::summary::Summary;
use super::{ctf, perf_text, raw_events, sanitize};
use crate::trace::{Losses, Trace};

/// End of the folder's name; the trace viewer finds its entries below it.
pub(crate) const FOLDER_SUFFIX: &str = ".trace";
/// Entry with the summary.
pub(crate) const SUMMARY: &str = "summary.json";
/// Entry with the folded stacks.
pub(crate) const FOLDED: &str = "stacks.folded";
/// Entry with the time without a CPU, as folded stacks.
const BLOCKED: &str = "blocked.folded";
/// Entry with the page faults, as folded stacks.
pub(crate) const FAULTS: &str = "faults.folded";
/// Entry with the samples of page faults, as perf prints them.
pub(crate) const FAULTS_TEXT: &str = "faults.perf.txt";
/// Entry with the wake-ups, as folded stacks.
pub(crate) const WAKEUPS: &str = "wakeups.folded";
/// Entry with the samples of wake-ups, as perf prints them.
pub(crate) const WAKEUPS_TEXT: &str = "wakeups.perf.txt";
/// Entry with the flame graph.
const FLAME_GRAPH: &str = "flamegraph.svg";
/// Entry with the flame graph of the time without a CPU.
const BLOCKED_GRAPH: &str = "blocked.svg";
/// Entry with the flame graph of the page faults.
const FAULTS_GRAPH: &str = "faults.svg";
/// Entry with the flame graph of the wake-ups.
const WAKEUPS_GRAPH: &str = "wakeups.svg";
/// Entries with a flame graph. Each is also beside the archive, as `NAME.` and the entry.
pub(crate) const GRAPHS: [(Measure, &str); 4] = [
    (Measure::Samples, FLAME_GRAPH),
    (Measure::BlockedTime, BLOCKED_GRAPH),
    (Measure::Faults, FAULTS_GRAPH),
    (Measure::Wakeups, WAKEUPS_GRAPH),
];
/// What else than samples has entries with folded stacks and with a flame graph.
pub(crate) const MEASURED: [(Measure, &str, &str); 3] = [
    (Measure::BlockedTime, BLOCKED, BLOCKED_GRAPH),
    (Measure::Faults, FAULTS, FAULTS_GRAPH),
    (Measure::Wakeups, WAKEUPS, WAKEUPS_GRAPH),
];
/// Folder of the event streams.
pub(crate) const RAW_EVENTS: &str = "eventpipe";
/// Entry with the samples, as perf prints them.
pub(crate) const PERF_TEXT: &str = "perf.data.txt";
/// Entry with the stacks of all threads when the capture ended.
pub(crate) const THREADS: &str = "threads.json";
const LOG: &str = "perfcollect.log";
/// The earliest time that an archive can tell, in seconds since 1970: 1980 began.
const MODIFIED: i64 = 315_532_800;
/// A plain file, for its owner.
const UNIX_MODE: u32 = 0o100_600;

/// Why an archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The target cannot be written to.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The summary cannot be expressed.
    #[error("cannot write {SUMMARY}: {0}")]
    Summary(serde_json::Error),
    /// The threads cannot be expressed.
    #[error("cannot write {THREADS}: {0}")]
    Threads(serde_json::Error),
    /// The archive cannot be expressed.
    #[error("cannot write the archive: {0}")]
    Zip(rawzip::Error),
}

impl From<rawzip::Error> for ArchiveError {
    fn from(error: rawzip::Error) -> Self {
        match error.kind() {
            rawzip::ErrorKind::IO(_) => match error.into_kind() {
                rawzip::ErrorKind::IO(error) => Self::Io(error),
                kind => Self::Zip(kind.into()),
            },
            _ => Self::Zip(error),
        }
    }
}

/// What goes into an archive besides the trace.
#[derive(Clone, Copy)]
pub struct Contents<'a> {
    /// The summary of the trace.
    pub summary: &'a Summary,
    /// The trace drawn.
    pub pictures: &'a StackViews<'a>,
    /// The capture's base name.
    pub name: &'a str,
    /// What perfcollect did, for its maintainers.
    pub log: &'a [u8],
    /// Whether the streams of events are kept.
    pub raw_events: bool,
    /// The stacks of all threads when the capture ended, as JSON.
    pub threads: Option<&'a [u8]>,
}

/// Writes the archive of `trace`.
///
/// # Errors
/// [`ArchiveError::Io`] is what `out` returned.
pub fn write(trace: &Trace, contents: &Contents<'_>, out: impl Write) -> Result<(), ArchiveError> {
    let folder = sanitize::entry_name(contents.name) + FOLDER_SUFFIX;
    write_entries(folder, &trace.quality.losses, out, |archive| {
        archive.fill(trace, contents)
    })
}

/// Writes an archive with the entries that `fill` adds to `folder`.
///
/// # Errors
/// [`ArchiveError::Io`] is what `out` returned.
pub(crate) fn write_entries<W: Write>(
    folder: String,
    losses: &Losses,
    out: W,
    fill: impl FnOnce(&mut Archive<'_, W>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    Workers::run(|workers| {
        let mut archive = Archive {
            folder,
            zip: ZipArchiveWriter::new(out),
            workers,
        };
        fill(&mut archive)?;
        let mut zip = archive.zip;
        if let Some(warning) = losses.incomplete_warning() {
            // What `unzip -l` and file managers show first.
            zip.set_comment(warning);
        }
        zip.finish()?;
        Ok(())
    })
}

/// An archive that is being written.
pub(crate) struct Archive<'w, W> {
    folder: String,
    zip: ZipArchiveWriter<W>,
    workers: &'w Workers,
}

/// An entry that is being written.
pub(crate) type ZipEntry<'w, 'z, W> = Deflate<'w, ZipEntryWriter<'z, W>>;

impl<W: Write> Archive<'_, W> {
    fn fill(&mut self, trace: &Trace, contents: &Contents<'_>) -> Result<(), ArchiveError> {
        let Contents {
            summary,
            pictures,
            log,
            raw_events,
            threads,
            ..
        } = *contents;
        // PerfView takes the first entry that ends in `.data.txt`.
        self.entry(PERF_TEXT, |out| Ok(perf_text::write(trace, out)?))?;
        self.entry(FOLDED, |out| Ok(pictures.write_folded(out)?))?;
        self.graph(FLAME_GRAPH, pictures, Measure::Samples)?;
        for (measure, folded, graph) in MEASURED {
            if !measure.is_empty(trace) {
                self.entry(folded, |out| Ok(pictures.write_measured(measure, out)?))?;
                self.graph(graph, pictures, measure)?;
            }
        }
        let texts = [
            (FAULTS_TEXT, markers::FAULTS, &trace.faults),
            (WAKEUPS_TEXT, markers::WAKEUPS, &trace.wakeups),
        ];
        for (entry, event, samples) in texts {
            if !samples.is_empty() {
                self.entry(entry, |out| {
                    Ok(perf_text::write_others(trace, samples, event, out)?)
                })?;
            }
        }
        self.summary(summary)?;
        if let Some(threads) = threads {
            self.entry(THREADS, |out| Ok(out.write_all(threads)?))?;
        }
        if !trace.events.is_empty() {
            let folder = ctf::folder(trace);
            let names = self.entry(&format!("{folder}/{}", ctf::CHANNEL), |out| {
                Ok(ctf::write_channel(trace, out)?)
            })?;
            self.entry(&format!("{folder}/{}", ctf::METADATA), |out| {
                Ok(ctf::write_metadata(trace, &names, out)?)
            })?;
        }
        if raw_events {
            for stream in trace.events.streams() {
                self.entry(&format!("{RAW_EVENTS}/{}.nettrace", stream.name), |out| {
                    raw_events::write(trace, stream, out)?;
                    trace.events.add_read(stream.counts.events);
                    Ok(())
                })?;
            }
        }
        self.entry(LOG, |out| Ok(out.write_all(log)?))
    }

    /// Adds a flame graph.
    pub(crate) fn graph(
        &mut self,
        name: &str,
        views: &StackViews<'_>,
        measure: Measure,
    ) -> Result<(), ArchiveError> {
        self.entry(name, |out| Ok(out.write_all(views.graph(measure)?)?))
    }

    /// Adds the summary.
    pub(crate) fn summary(&mut self, summary: &Summary) -> Result<(), ArchiveError> {
        self.entry(SUMMARY, |out| {
            serde_json::to_writer_pretty(out, summary).map_err(|error| match error.is_io() {
                true => ArchiveError::Io(error.into()),
                false => ArchiveError::Summary(error),
            })
        })
    }

    /// Adds an entry below the folder.
    pub(crate) fn entry<T>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut ZipEntry<'_, '_, W>) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        let (entry, _) = self
            .zip
            .new_file(format!("{}/{name}", self.folder))
            .compression_method(CompressionMethod::DEFLATE)
            .unix_permissions(UNIX_MODE)
            .last_modified(UtcDateTime::from_unix(MODIFIED))
            .start()?;
        let mut out = Deflate::new(self.workers, entry);
        let filled = fill(&mut out)?;
        let (entry, content) = out.finish()?;
        entry.finish(content)?;
        Ok(filled)
    }
}
