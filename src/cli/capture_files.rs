//! Files of a capture until its trace is complete: the spool and the event streams.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::background::{ENDED, FAILED};
use super::progress::{Reporter, fraction_read};
use crate::capture::{Capture, Kept, LastWords, Signals};
use crate::dotnet::SharedSink;
use crate::output::event_directory::{EventDirectory, StoredStream};
use crate::output::file::{OutputError, unnamed_file};
use crate::output::spool_file::{SpoolFile, recover_command};
use crate::trace::{EventStream, EventStreams, Notice, NoticeKind, Samples};

/// The spool and the directory of event streams. Dropping the value keeps the files.
pub(super) struct CaptureFiles {
    spool: SpoolFile,
    events: Option<Arc<EventDirectory>>,
    /// What is printed if the program ends early. `None` when the files are removed.
    last_words: Mutex<Option<(Kept, io::Result<LastWords>)>>,
}

impl CaptureFiles {
    /// Creates a directory for events if requested. Removes that of an earlier capture otherwise.
    pub(super) fn create(
        name: &Path,
        spool: SpoolFile,
        with_events: bool,
        signals: &Signals,
    ) -> Result<Self, OutputError> {
        let events = match with_events {
            true => EventDirectory::new(name).map(|directory| Some(Arc::new(directory))),
            false => {
                // If this fails, a later capture that needs the path reports it.
                let _ = EventDirectory::remove_stale(name);
                Ok(None)
            }
        };
        match events {
            Ok(events) => Ok(Self::new(name, spool, events, signals)),
            Err(error) => {
                // The spool is empty.
                let _ = spool.remove();
                Err(error)
            }
        }
    }

    /// Opens the event directory of a spool that a killed capture left.
    pub(super) fn open(
        name: &Path,
        spool: SpoolFile,
        signals: &Signals,
    ) -> Result<Self, OutputError> {
        let events = EventDirectory::open(name)?.map(Arc::new);
        Ok(Self::new(name, spool, events, signals))
    }

    fn new(
        name: &Path,
        spool: SpoolFile,
        events: Option<Arc<EventDirectory>>,
        signals: &Signals,
    ) -> Self {
        let kept = signals.keep(format!(
            "; what was captured until then is kept: run `{}`",
            recover_command(name)
        ));
        let line = format!(
            "{FAILED}{ENDED}, for lack of memory or by a bug; what was captured until then is kept: run `{}` with more \
             memory",
            recover_command(name)
        );
        Self {
            spool,
            events,
            // It is not worth an error.
            last_words: Mutex::new(Some((kept, LastWords::new(&line)))),
        }
    }

    /// Reads a capture from its spool, then its event streams, and prints the progress. Temporary data
    /// is beside the output, if that is elsewhere.
    pub(super) fn read<E>(
        &self,
        elsewhere: Option<&Path>,
        reporter: &Reporter,
        read: impl FnOnce(&File, Samples) -> Result<Capture, E>,
    ) -> Result<Capture, E> {
        let spool = self.spool();
        let done = || fraction_read(spool);
        let temporary = match elsewhere {
            Some(output) => unnamed_file(output),
            None => self.spool.unnamed_file(),
        };
        let samples = Samples::in_file(temporary);
        let mut capture = reporter.during("Reading the samples", &done, || read(spool, samples))?;
        reporter.during("Counting the events", &|| None, || {
            self.read_events(&mut capture);
        });
        Ok(capture)
    }

    pub(super) fn spool(&self) -> &File {
        self.spool.file()
    }

    pub(super) fn spool_path(&self) -> &Path {
        self.spool.path()
    }

    /// Returns the sink that creates stream files.
    pub(super) fn keep_stream(&self) -> Option<SharedSink> {
        let directory = Arc::clone(self.events.as_ref()?);
        Some(directory)
    }

    /// Adds the event streams to a capture.
    fn read_events(&self, capture: &mut Capture) {
        let Some(directory) = &self.events else {
            return;
        };
        match directory.streams() {
            Ok(streams) => {
                let streams = streams.into_iter();
                let streams = streams.map(|StoredStream { name, threads }| {
                    EventStream::stored(name, directory.clone()).with_threads(threads)
                });
                capture.events = EventStreams::new(streams);
            }
            Err(error) => capture.notices.push(Notice::new(
                NoticeKind::EventsUnreadable,
                format!("cannot read the event streams: {error}"),
                "",
            )),
        }
    }

    /// Appends blocks that did not fit on the disk before.
    pub(super) fn append(&self, blocks: &[u8]) -> io::Result<()> {
        self.spool.append(blocks)
    }

    /// Removes all files, the spool last: it identifies the others.
    pub(super) fn remove(&self) -> io::Result<()> {
        let last_words = self.last_words.lock();
        drop(last_words.unwrap_or_else(PoisonError::into_inner).take());
        let removed = self
            .events
            .as_ref()
            .map_or(Ok(()), |directory| directory.remove());
        self.spool.remove()?;
        removed
    }
}
