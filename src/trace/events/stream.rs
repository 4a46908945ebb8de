//! An event stream of one process instance.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::StreamName;
use super::kinds::SharedKinds;
use super::stream_file::{StreamBytes, UndamagedBytes};
use crate::bytes::Positioned;
use crate::nettrace::{EventMetadata, Losses, NettraceError, Reader, TraceInfo};
use crate::trace::{Nanos, Tid};

/// Limit on the memory of the event types that are counted separately. A session with many providers
/// has some 20 KB.
const MAX_KINDS_BYTES: usize = 2 << 20;

/// Content of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamCounts {
    /// Size of its file in bytes.
    pub bytes: u64,
    /// Number of events.
    pub events: u64,
    /// Number of events by type, in the order of first occurrence; without types beyond a limit.
    pub by_kind: Vec<(Arc<EventMetadata>, u64)>,
    /// Time of the earliest event.
    pub first: Option<Nanos>,
    /// Events that the runtime dropped, and events that could not be kept.
    pub losses: Losses,
    /// Reason for an early end, if any.
    pub truncated: Option<String>,
}

/// Files of streams, which are opened on demand.
pub trait StreamFiles: fmt::Debug + Send + Sync {
    /// Opens the file of a stream.
    ///
    /// # Errors
    /// The file cannot be opened.
    fn open(&self, name: StreamName) -> io::Result<File>;
}

#[derive(Debug)]
enum Source {
    File(Arc<File>),
    Stored(Arc<dyn StreamFiles>),
}

/// A stream and its content.
#[derive(Debug)]
pub struct EventStream {
    /// Name of the stream within the trace.
    pub name: StreamName,
    /// Content.
    pub counts: StreamCounts,
    /// Thread ids by the id in the process's pid namespace, if that is a separate one.
    threads: FxHashMap<Tid, Tid>,
    source: Source,
    reopen_error: OnceLock<io::Error>,
}

impl EventStream {
    /// Reads a stream to its end, or to the first event that is truncated or corrupt.
    #[must_use]
    pub fn open(name: StreamName, file: File) -> Self {
        Self::read(name, Source::File(file.into()))
    }

    /// Reads a stream in the same way. It is open only while it is read.
    #[must_use]
    pub fn stored(name: StreamName, files: Arc<dyn StreamFiles>) -> Self {
        Self::read(name, Source::Stored(files))
    }

    fn read(name: StreamName, source: Source) -> Self {
        let mut stream = Self {
            name,
            counts: StreamCounts::default(),
            threads: FxHashMap::default(),
            source,
            reopen_error: OnceLock::new(),
        };
        stream.counts = match stream.file() {
            Ok(file) => count(file),
            Err(error) => StreamCounts {
                truncated: Some(format!("cannot open the event stream: {error}")),
                ..StreamCounts::default()
            },
        };
        stream
    }

    fn file(&self) -> io::Result<Arc<File>> {
        match &self.source {
            Source::File(file) => Ok(Arc::clone(file)),
            Source::Stored(files) => files.open(self.name).map(Arc::new),
        }
    }

    /// Reads the header of a stream in a file.
    ///
    /// # Errors
    /// The file has none, or one of an unknown version.
    pub(crate) fn header(file: &File) -> Result<TraceInfo, NettraceError> {
        let reader = Reader::open(Positioned { file, at: 0 })?;
        Ok(reader.info().clone())
    }

    /// Adds the threads' ids in perfcollect's pid namespace, by those in the process's namespace.
    #[must_use]
    pub fn with_threads(self, threads: FxHashMap<Tid, Tid>) -> Self {
        Self { threads, ..self }
    }

    /// Returns the ids of the threads, by the id in the process's pid namespace.
    pub(super) fn threads(&self) -> Vec<(i32, i32)> {
        let threads = self.threads.iter().map(|(inside, tid)| (inside.0, tid.0));
        let mut threads: Vec<_> = threads.collect();
        threads.sort_unstable();
        threads
    }

    /// Returns the id of a thread in perfcollect's pid namespace, if known.
    pub(super) fn thread(&self, id: Tid) -> Tid {
        self.threads.get(&id).copied().unwrap_or(id)
    }

    /// Returns the bytes of the stream from the start, up to where its file is damaged.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn bytes(&self) -> io::Result<impl Read + use<>> {
        let bytes = self.file().map(StreamBytes::new);
        bytes.map(UndamagedBytes)
    }

    /// Returns a reader of the stream, unless it cannot be opened (see
    /// [`super::EventStreams::read_error`]) or its header is corrupt.
    pub(crate) fn reader(&self) -> Option<Reader<StreamBytes>> {
        let file = self.file().map_err(|error| self.reopen_error.set(error));
        let file = file.ok()?;
        Reader::open(StreamBytes::new(file)).ok()
    }

    /// Returns why the stream, which has events, could not be opened again.
    pub(super) fn reopen_error(&self) -> Option<&io::Error> {
        let error = self.reopen_error.get();
        error.filter(|_| self.counts.events > 0)
    }

    /// Lets equal metadata of all streams be the same. Removes kinds beyond the limit of all streams.
    pub(super) fn share_kinds(&mut self, all: &mut SharedKinds) {
        self.counts
            .by_kind
            .retain_mut(|(kind, _)| match all.get(kind) {
                Some(shared) => {
                    *kind = shared;
                    true
                }
                None => false,
            });
    }
}

fn count(file: Arc<File>) -> StreamCounts {
    let mut counts = StreamCounts {
        bytes: file.metadata().map_or(0, |file| file.len()),
        ..StreamCounts::default()
    };
    let mut reader = match Reader::open(StreamBytes::new(file)) {
        Ok(reader) => reader,
        Err(error) => {
            counts.truncated = Some(error.to_string());
            return counts;
        }
    };
    // Rows hold their metadata, so no address is reused.
    let mut rows: FxHashMap<*const EventMetadata, usize> = FxHashMap::default();
    let mut kinds_bytes = 0;
    let ended = loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                counts.events += 1;
                counts.first = Some(counts.first.map_or(event.time, |f| f.min(event.time)));
                let key = Arc::as_ptr(event.metadata);
                if let Some((_, count)) =
                    rows.get(&key).and_then(|&row| counts.by_kind.get_mut(row))
                {
                    *count += 1;
                } else if kinds_bytes < MAX_KINDS_BYTES {
                    kinds_bytes += event.metadata.bytes();
                    rows.insert(key, counts.by_kind.len());
                    counts.by_kind.push((Arc::clone(event.metadata), 1));
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    counts.losses = reader.losses();
    counts.truncated = ended;
    counts
}
