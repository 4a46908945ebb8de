//! The streams of events of a `.trace.zip`, which may come from anyone.

use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::output::archive::{PERF_TEXT, RAW_EVENTS, SUMMARY};
use crate::output::summary::Summary;
use crate::perf_text::{self, TextError};
use crate::trace::{EventStream, EventStreams, Nanos, Pid, Tid};
use crate::view::ViewError;
use crate::view::archive::{MAX_SUMMARY_BYTES, folder_of, open, open_file, open_zip, read_summary};

/// Most bytes of all streams of events together, and of all samples: more than a disk that has room for them twice is likely
/// to have.
const MAX_EVENT_BYTES: u64 = 64 << 30;

/// The streams of events of a trace.
#[derive(Debug)]
pub(super) struct Events {
    /// The summary of the trace.
    pub(super) summary: Summary,
    /// The streams, unpacked to files that have no name any more.
    pub(super) streams: EventStreams,
}

/// CPU time of a thread.
#[derive(Clone, Copy, Debug)]
pub struct CpuSample {
    /// Its process.
    pub process: Pid,
    /// The thread.
    pub thread: Tid,
    /// When.
    pub time: Nanos,
    /// How much it stands for, in nanoseconds.
    pub ns: u64,
}

/// Hands out the samples of the trace at `path`, if it has any; its views count from `zero_ns`.
///
/// # Errors
/// See [`ViewError`].
pub(super) fn each_sample(
    path: &Path,
    zero_ns: i64,
    take: &mut dyn FnMut(CpuSample),
) -> Result<(), ViewError> {
    let mut zip = open_zip(path, open_file(path)?)?;
    let folder = folder_of(&zip)?;
    let text = match open(&mut zip, &folder, PERF_TEXT, MAX_EVENT_BYTES) {
        Err(ViewError::Missing { .. }) => return Ok(()),
        text => text?,
    };
    // The first record is at time zero; the time of a machine that has just started is moved.
    let mut zero = None;
    let each = |sample: &perf_text::Sample| {
        let Some(header) = sample.header() else {
            return;
        };
        let Some(time) = header.time else {
            return;
        };
        let zero = *zero.get_or_insert(time);
        let since = time.0.saturating_sub(zero.0);
        // The record at time zero is of no process.
        if let (Some(ns), Some(process @ Pid(1..))) = (header.period, header.pid) {
            take(CpuSample {
                process,
                thread: header.tid,
                time: Nanos(since.saturating_add_signed(zero_ns)),
                ns,
            });
        }
    };
    match perf_text::each(BufReader::new(text), each, |_| {}) {
        Ok(_leftovers) => Ok(()),
        Err(error) => Err(ViewError::Entry {
            entry: PERF_TEXT,
            source: match error {
                TextError::Read(error) => error,
                error => io::Error::other(error),
            },
        }),
    }
}

/// Reads the streams of events of the trace at `path`; one that is damaged there to the damage.
///
/// # Errors
/// See [`ViewError`].
pub(super) fn read(path: &Path) -> Result<Events, ViewError> {
    let mut zip = open_zip(path, open_file(path)?)?;
    let folder = folder_of(&zip)?;
    let summary = read_summary(open(&mut zip, &folder, SUMMARY, MAX_SUMMARY_BYTES)?)?;
    let prefix = format!("{folder}/{RAW_EVENTS}/");
    let failed = |source| ViewError::Unpack {
        directory: std::env::temp_dir(),
        source,
    };
    let mut streams = Vec::new();
    let mut left = MAX_EVENT_BYTES;
    for index in 0..zip.len() {
        let Some(Ok(name)) = zip.name_for_index(index) else {
            continue;
        };
        let stem = name
            .strip_prefix(&prefix)
            .and_then(|name| name.strip_suffix(".nettrace"));
        let Some((stem, process)) =
            stem.and_then(|stem| Some((stem.to_owned(), process_of(stem)?)))
        else {
            continue;
        };
        let mut file = tempfile::tempfile().map_err(failed)?;
        let (copied, damage) = match zip.by_index(index) {
            Ok(entry) => {
                let mut whole = Whole::new(entry.take(left + 1));
                let copied = io::copy(&mut whole, &mut file).map_err(failed)?;
                (copied, whole.damage)
            }
            Err(error) => (0, Some(error.into())),
        };
        left = left.checked_sub(copied).ok_or(ViewError::TooLarge {
            entry: RAW_EVENTS,
            limit: MAX_EVENT_BYTES,
        })?;
        let told = summary.quality.events.iter();
        let threads = told.filter(|events| events.pid == process.0);
        let threads = threads.flat_map(|events| &events.threads);
        let threads = threads.map(|&(inside, tid)| (Tid(inside), Tid(tid)));
        let mut stream = EventStream::open(process, stem, file);
        if let Some(damage) = damage {
            stream.counts.cut = Some(format!("in the archive: {damage}"));
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

/// An entry that ends where it is damaged.
struct Whole<R> {
    entry: R,
    damage: Option<io::Error>,
}

impl<R: Read> Whole<R> {
    fn new(entry: R) -> Self {
        Self {
            entry,
            damage: None,
        }
    }
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.entry.read(buffer) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.damage = Some(error);
                Ok(0)
            }
            read => read,
        }
    }
}

/// The process of a stream, by its name: the id, and `-2` for a second life.
fn process_of(stem: &str) -> Option<Pid> {
    stem.split('-').next()?.parse().ok().map(Pid)
}
