//! The event streams of a `.trace.zip`, which is untrusted.

use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::history::CpuSample;
use crate::output::archive::{PERF_TEXT, RAW_EVENTS};
use crate::output::summary::Summary;
use crate::perf_text::{self, TextError};
use crate::trace::{EventStream, EventStreams, Nanos, Pid, StreamName, Tid};
use crate::trace_archive::{TraceArchive, TraceArchiveError, plausible_bytes};
use crate::view::ViewError;

/// Limit of all event streams together, and of all samples.
///
/// A disk is unlikely to have room for more than that twice.
const MAX_EVENT_BYTES: u64 = 64 << 30;

/// The event streams of a trace.
#[derive(Debug)]
pub(super) struct Events {
    /// The summary of the trace.
    pub(super) summary: Summary,
    /// Streams, unpacked to files without a name.
    pub(super) streams: EventStreams,
}

/// Passes the samples of the trace at `path` to `take`, if the trace has any.
///
/// PerfView's views of the trace start at `zero_ns`.
///
/// # Errors
/// Returns an error if the trace cannot be read, see [`ViewError`].
pub(super) fn each_sample(
    path: &Path,
    zero_ns: i64,
    take: &mut dyn FnMut(CpuSample),
) -> Result<(), ViewError> {
    let archive = TraceArchive::open(path)?;
    let text = match archive.entry(PERF_TEXT, MAX_EVENT_BYTES) {
        Err(TraceArchiveError::Missing { .. }) => return Ok(()),
        text => text?,
    };
    // The first record is at time zero. On a freshly booted system its time is shifted.
    let mut zero = None;
    let each = |sample: &perf_text::Sample| {
        let Some(header) = sample.header() else {
            return Ok(());
        };
        let Some(time) = header.time else {
            return Ok(());
        };
        let zero = *zero.get_or_insert(time);
        let since = time.0.saturating_sub(zero.0);
        // The record at time zero belongs to no process.
        if let (Some(ns), Some(process @ Pid(1..))) = (header.period, header.pid) {
            take(CpuSample {
                process,
                thread: header.tid,
                time: Nanos(since.saturating_add_signed(zero_ns)),
                ns,
            });
        }
        Ok(())
    };
    match perf_text::each(BufReader::new(text), each, |_| {}) {
        Ok(_leftovers) => Ok(()),
        Err(error) => Err(ViewError::Archive(TraceArchiveError::Entry {
            entry: PERF_TEXT,
            source: match error {
                TextError::Read(error) => error,
                error => io::Error::other(error),
            },
        })),
    }
}

/// Reads the event streams of the trace at `path`. A corrupt stream is read up to the corruption.
///
/// # Errors
/// Returns an error if the trace cannot be read, see [`ViewError`].
pub(super) fn read(path: &Path) -> Result<Events, ViewError> {
    let archive = TraceArchive::open(path)?;
    let TraceArchive { zip, directory } = &archive;
    let summary = archive.summary()?;
    let prefix = format!("{directory}/{RAW_EVENTS}/");
    let failed = |source| ViewError::Unpack {
        directory: std::env::temp_dir(),
        source,
    };
    let mut streams = Vec::new();
    let mut budget = MAX_EVENT_BYTES;
    for entry in zip.entries() {
        let stem = entry.name.strip_prefix(&prefix);
        let stem = stem.and_then(|name| name.strip_suffix(".nettrace"));
        let Some(name) = stem.and_then(|stem| stem.parse::<StreamName>().ok()) else {
            continue;
        };
        let mut file = tempfile::tempfile().map_err(failed)?;
        let limit = plausible_bytes(zip.packed_size(entry), MAX_EVENT_BYTES).min(budget);
        let (copied, corruption) = match zip.unpack(entry) {
            Ok(entry) => {
                let mut whole = ReadToCorruption::new(entry.take(limit + 1));
                let copied = io::copy(&mut whole, &mut file).map_err(failed)?;
                (copied, whole.corruption)
            }
            Err(error) => (0, Some(error)),
        };
        if copied > limit {
            return Err(TraceArchiveError::TooLarge {
                entry: RAW_EVENTS,
                limit,
            }
            .into());
        }
        budget -= copied;
        let recorded = summary.quality.events.iter();
        let threads = recorded.filter(|events| events.pid == name.process.0);
        let threads = threads.flat_map(|events| &events.threads);
        let threads = threads.map(|&(inside, tid)| (Tid(inside), Tid(tid)));
        let mut stream = EventStream::open(name, file);
        if let Some(corruption) = corruption {
            stream.counts.truncated = Some(format!("in the archive: {corruption}"));
        }
        streams.push(stream.with_threads(threads.collect()));
    }
    match streams.is_empty() {
        true => Err(ViewError::NoEvents),
        false => Ok(Events {
            summary,
            streams: EventStreams::new(streams),
        }),
    }
}

/// Reader of an archive entry that treats corrupt data as the end of the entry.
struct ReadToCorruption<R> {
    entry: R,
    corruption: Option<io::Error>,
}

impl<R: Read> ReadToCorruption<R> {
    fn new(entry: R) -> Self {
        Self {
            entry,
            corruption: None,
        }
    }
}

impl<R: Read> Read for ReadToCorruption<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.entry.read(buffer) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.corruption = Some(error);
                Ok(0)
            }
            read => read,
        }
    }
}
