//! What a capture keeps on the disk until its trace is complete: the spool, and the streams of events.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::capture::Capture;
use crate::dotnet::SharedSink;
use crate::output::event_folder::{EventFolder, StreamFile};
use crate::output::file::OutputError;
use crate::output::spool_file::SpoolFile;
use crate::trace::{EventStream, EventStreams, Notice};

/// The spool and the folder of events. Dropping it leaves them alone.
pub(super) struct CaptureFiles {
    spool: SpoolFile,
    events: Option<Arc<EventFolder>>,
}

impl CaptureFiles {
    /// With a new folder for events if any are wanted; one that was left goes as its spool did.
    pub(super) fn create(
        name: &Path,
        spool: SpoolFile,
        wants_events: bool,
    ) -> Result<Self, OutputError> {
        let events = match wants_events {
            true => EventFolder::new(name).map(|folder| Some(Arc::new(folder))),
            false => {
                if let Ok(Some(left)) = EventFolder::open(name) {
                    // A later capture that wants the place says what is wrong with it.
                    let _ = left.remove();
                }
                Ok(None)
            }
        };
        match events {
            Ok(events) => Ok(Self { spool, events }),
            Err(error) => {
                // It is empty; nobody misses it.
                let _ = spool.remove();
                Err(error)
            }
        }
    }

    /// With the folder that stands beside a spool that was left.
    pub(super) fn open(name: &Path, spool: SpoolFile) -> Result<Self, OutputError> {
        let events = EventFolder::open(name)?.map(Arc::new);
        Ok(Self { spool, events })
    }

    pub(super) fn spool(&self) -> &File {
        self.spool.file()
    }

    pub(super) fn spool_path(&self) -> &Path {
        self.spool.path()
    }

    /// Makes files for streams.
    pub(super) fn keep_stream(&self) -> Option<SharedSink> {
        let folder = Arc::clone(self.events.as_ref()?);
        Some(folder)
    }

    /// Adds the events that are there to a capture.
    pub(super) fn read_events(&self, capture: &mut Capture) {
        let Some(folder) = &self.events else {
            return;
        };
        match folder.streams() {
            Ok(streams) => {
                let streams = streams.into_iter().map(
                    |StreamFile {
                         process,
                         name,
                         threads,
                         file,
                     }| {
                        EventStream::open(process, name, file).with_threads(threads)
                    },
                );
                capture.events = EventStreams::new(streams.collect());
            }
            Err(error) => capture.notices.push(Notice::new(
                format!("the events cannot be read back: {error}"),
                "",
            )),
        }
    }

    /// Adds blocks to the spool that there was no room for before.
    pub(super) fn append(&self, blocks: &[u8]) -> io::Result<()> {
        self.spool.append(blocks)
    }

    /// Removes all: the trace is complete, or nothing is in it. The spool goes last, as it says what the rest is for.
    pub(super) fn remove(&self) -> io::Result<()> {
        let removed = self
            .events
            .as_ref()
            .map_or(Ok(()), |folder| folder.remove());
        self.spool.remove()?;
        removed
    }
}
