//! The event stream of one life of a process.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::nettrace::{EventMetadata, Losses, Reader};
use crate::trace::{Nanos, Pid, Tid};

/// Most kinds of events that are counted one by one; a runtime has some hundreds.
const MAX_KINDS: usize = 1 << 14;

/// What is in a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamCounts {
    /// Bytes.
    pub bytes: u64,
    /// Events.
    pub events: u64,
    /// Events by kind, in the order in which the kinds come first.
    pub by_kind: Vec<(Arc<EventMetadata>, u64)>,
    /// When the first event was; of threads that began later an older one may come.
    pub first: Option<Nanos>,
    /// What the runtime dropped, and what could not be kept.
    pub losses: Losses,
    /// Why it ends early, if it does.
    pub cut: Option<String>,
}

/// A stream, and what is in it.
#[derive(Debug)]
pub struct EventStream {
    /// The process, as the collector's pid namespace numbers it.
    pub process: Pid,
    /// Names the stream within the trace: the process id, with `-2` for a second life.
    pub name: String,
    /// What is in it.
    pub counts: StreamCounts,
    /// Threads by the id they have in the pid namespace of the process, where it has one of its own.
    threads: FxHashMap<Tid, Tid>,
    file: File,
}

impl EventStream {
    /// Looks a stream through, to its end or as far as it is whole.
    #[must_use]
    pub fn open(process: Pid, name: String, file: File) -> Self {
        let mut stream = Self {
            process,
            name,
            counts: StreamCounts::default(),
            threads: FxHashMap::default(),
            file,
        };
        stream.counts = stream.count();
        stream
    }

    /// With the ids that its threads have in the collector's pid namespace, by those in its own.
    #[must_use]
    pub fn with_threads(self, threads: FxHashMap<Tid, Tid>) -> Self {
        Self { threads, ..self }
    }

    /// Its threads, by the id in its own pid namespace.
    pub(super) fn threads(&self) -> Vec<(i32, i32)> {
        let threads = self.threads.iter().map(|(inside, tid)| (inside.0, tid.0));
        let mut threads: Vec<_> = threads.collect();
        threads.sort_unstable();
        threads
    }

    /// A thread of the stream in the collector's pid namespace, if that is known.
    pub(super) fn thread(&self, id: Tid) -> Tid {
        self.threads.get(&id).copied().unwrap_or(id)
    }

    /// Its bytes from the beginning.
    #[must_use]
    pub fn bytes(&self) -> impl Read + '_ {
        Positioned {
            file: &self.file,
            at: 0,
        }
    }

    pub(super) fn reader(&self) -> Option<Reader<Positioned<'_>>> {
        let file = Positioned {
            file: &self.file,
            at: 0,
        };
        Reader::open(file).ok()
    }

    fn count(&self) -> StreamCounts {
        let mut counts = StreamCounts {
            bytes: self.file.metadata().map_or(0, |file| file.len()),
            ..StreamCounts::default()
        };
        let mut reader = match Reader::open(self.bytes()) {
            Ok(reader) => reader,
            Err(error) => {
                counts.cut = Some(error.to_string());
                return counts;
            }
        };
        // A kind that the stream states anew is another row. Rows hold their kinds, so no other kind gets the place of one.
        let mut rows: FxHashMap<*const EventMetadata, usize> = FxHashMap::default();
        let ended = loop {
            match reader.next_event() {
                Ok(Some(event)) => {
                    counts.events += 1;
                    counts.first = Some(counts.first.map_or(event.time, |f| f.min(event.time)));
                    let key = Arc::as_ptr(event.kind);
                    if let Some((_, count)) =
                        rows.get(&key).and_then(|&row| counts.by_kind.get_mut(row))
                    {
                        *count += 1;
                    } else if counts.by_kind.len() < MAX_KINDS {
                        rows.insert(key, counts.by_kind.len());
                        counts.by_kind.push((Arc::clone(event.kind), 1));
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        counts.losses = reader.losses();
        counts.cut = ended;
        counts
    }
}

/// A file read from a place of its own, so that several can read it.
#[derive(Debug)]
pub(super) struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
