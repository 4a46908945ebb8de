//! The events of .NET runtimes: streams on disk, merged in order of time.
//!
//! Each consumer reads the streams again. Memory holds only the events that wait for older ones.
//!
//! ```text
//! stream (file) ── Reader ── Ordered: waits for older ones ─┐
//! stream (file) ── Reader ── Ordered ───────────────────────┴─ Merged ── RuntimeEvent, by time
//! ```

mod code;
mod kinds;
mod merged;
mod ordered;
mod stream;
mod stream_file;
mod stream_name;

pub use code::EventCode;
pub use merged::MergedEvents;
pub use stream::{EventStream, StreamCounts, StreamFiles};
pub use stream_file::StreamWriter;
pub use stream_name::{ParseStreamNameError, StreamContent, StreamName};

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kinds::SharedKinds;

use super::{Nanos, Notice, NoticeKind, Pid, ProcessEvents, Tid};
use crate::nettrace::{Activity, EventMetadata};

/// Maximum number of processes listed in a notice.
const MAX_LISTED: usize = 5;

/// An event of a runtime, or of a program that runs in it.
#[derive(Clone, Debug)]
pub struct RuntimeEvent {
    /// Time of the event.
    pub time: Nanos,
    /// Process id in perfcollect's pid namespace.
    pub process: Pid,
    /// Thread id in perfcollect's pid namespace; 0 if the stream does not contain it.
    ///
    /// The id is that of the process's own pid namespace if the thread ended before perfcollect saw
    /// it.
    pub thread: Tid,
    /// Activity that the event is part of.
    pub activity: Activity,
    /// Provider, id, version and name, and the fields if the stream declares them.
    pub metadata: Arc<EventMetadata>,
    /// Payload.
    pub payload: Box<[u8]>,
    /// Number of the set of events that perfcollect added to the stream, if it is of one.
    pub added_set: Option<u32>,
    /// Stack of the thread: code addresses, the innermost first.
    ///
    /// The addresses of callers are return addresses.
    pub stack: Arc<[u64]>,
}

/// The streams of a trace.
#[derive(Debug, Default)]
pub struct EventStreams {
    streams: Vec<EventStream>,
    reading: Reading,
}

/// State of all iterators over the streams.
#[derive(Debug, Default)]
struct Reading {
    /// Number of events that were read again since the streams were opened.
    events: AtomicU64,
    /// Whether the iterators end now.
    is_stopped: AtomicBool,
}

impl EventStreams {
    /// Creates the streams of a trace.
    #[must_use]
    pub fn new(streams: impl IntoIterator<Item = EventStream>) -> Self {
        let mut kinds = SharedKinds::default();
        let streams = streams.into_iter().map(|mut stream| {
            stream.share_kinds(&mut kinds);
            stream
        });
        Self {
            streams: streams.collect(),
            reading: Reading::default(),
        }
    }

    /// Returns the streams: one per process instance, or two.
    #[must_use]
    pub fn streams(&self) -> &[EventStream] {
        &self.streams
    }

    /// Returns whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.iter().all(|stream| stream.counts.events == 0)
    }

    /// Returns whether an event of this provider was received.
    ///
    /// The comparison ignores case, as programs spell provider names in any case.
    #[must_use]
    pub fn has_any_of(&self, provider: &str) -> bool {
        let mut kinds = self
            .streams
            .iter()
            .flat_map(|stream| &stream.counts.by_kind);
        kinds.any(|(kind, _)| kind.provider.eq_ignore_ascii_case(provider))
    }

    /// Returns the time of the first event.
    #[must_use]
    pub fn first_time(&self) -> Option<Nanos> {
        let times = self.streams.iter().filter_map(|stream| stream.counts.first);
        times.min()
    }

    /// Returns the event counts of each runtime for the quality report.
    pub(crate) fn qualities(&self) -> Vec<ProcessEvents> {
        // A stream may declare any number of lost events.
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        let mut qualities: BTreeMap<(Pid, u32), ProcessEvents> = BTreeMap::new();
        for stream in &self.streams {
            let (counts, name) = (&stream.counts, stream.name);
            let instance = (name.process, name.instance);
            let process = qualities.entry(instance).or_insert_with(|| ProcessEvents {
                pid: name.process.0,
                threads: stream.threads(),
                ..ProcessEvents::default()
            });
            add(&mut process.events, counts.events);
            add(&mut process.dropped, counts.losses.dropped_events);
            add(&mut process.unknown, counts.losses.unknown_events);
            add(&mut process.without_stack, counts.losses.forgotten_stacks);
            if process.truncated.is_empty() {
                process.truncated = counts.truncated.clone().unwrap_or_default();
            }
        }
        qualities.into_values().collect()
    }

    /// Returns the notices about lost events and truncated streams.
    pub(crate) fn notices(&self) -> impl Iterator<Item = Notice> {
        let qualities = self.qualities();
        let truncated = truncation_notice(&qualities);
        let lossy = qualities.into_iter().filter_map(|process| {
            let lost = process.dropped.saturating_add(process.unknown);
            (lost > 0).then(|| {
                let what = format!(
                    "{lost} of {} events of .NET process {} are lost: the runtime's buffer was full, the disk was too slow, or its user's part of -maxsize was used up",
                    lost.saturating_add(process.events),
                    process.pid
                );
                let remedy = "request fewer events, for example with -gccollectonly, a larger buffer with -eventbuffer MB, a larger -maxsize, or a name on a faster disk";
                Notice::new(NoticeKind::EventsLost, what, remedy)
                    .about(process.pid)
                    .counting(lost)
            })
        });
        lossy.chain(truncated)
    }

    /// Returns the number of events.
    pub(crate) fn count(&self) -> u64 {
        let counts = self.streams.iter().map(|stream| stream.counts.events);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns the error because of which an iterator omitted the events of a stream, if any.
    pub(crate) fn read_error(&self) -> Option<&io::Error> {
        self.streams.iter().find_map(EventStream::reopen_error)
    }

    /// Counts events that were read from the streams themselves.
    pub(crate) fn add_read(&self, events: u64) {
        self.reading.events.fetch_add(events, Ordering::Relaxed);
    }

    /// Returns about how many events all iterators have returned so far.
    pub(crate) fn read(&self) -> u64 {
        self.reading.events.load(Ordering::Relaxed)
    }

    /// Ends all iterators early, also those that are still to come.
    pub(crate) fn stop(&self) {
        self.reading.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns all events in order of time.
    #[must_use]
    pub fn iter(&self) -> MergedEvents<'_> {
        self.iter_of(|_| true)
    }

    /// Returns the events of some kinds in order of time.
    ///
    /// Others take no time but for reading them.
    #[must_use]
    pub fn iter_of(&self, is_wanted: fn(&EventMetadata) -> bool) -> MergedEvents<'_> {
        MergedEvents::new(&self.streams, &self.reading, is_wanted)
    }
}

/// Returns the notice that lists the processes with truncated streams, with the reasons.
fn truncation_notice(processes: &[ProcessEvents]) -> Option<Notice> {
    let truncated = processes
        .iter()
        .filter(|process| !process.truncated.is_empty());
    let (pids, truncated): (Vec<String>, Vec<String>) = truncated
        .map(|process| {
            let ProcessEvents { pid, truncated, .. } = process;
            (pid.to_string(), format!("{pid} ({truncated})"))
        })
        .unzip();
    let listed = truncated.len().min(MAX_LISTED);
    let more = match truncated.len() - listed {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (listed > 0).then(|| {
        let what = format!(
            "the events of .NET process {}{more} end early",
            truncated[..listed].join(", ")
        );
        Notice::new(
            NoticeKind::EventsTruncated,
            what,
            "streams end early when the process or perfcollect is killed, or the disk is full",
        )
        .about(pids[..listed].join(", "))
        .counting(pids.len())
    })
}

impl<'a> IntoIterator for &'a EventStreams {
    type Item = RuntimeEvent;
    type IntoIter = MergedEvents<'a>;

    fn into_iter(self) -> MergedEvents<'a> {
        self.iter()
    }
}
