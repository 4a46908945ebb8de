//! The events of .NET runtimes: streams on the disk, read anew by each who wants them, merged in order of time. None is
//! ever held in memory but what has to wait for its turn.
//!
//! ```text
//! stream (file) ── Reader ── Ordered: waits for older ones ─┐
//! stream (file) ── Reader ── Ordered ───────────────────────┴─ Merged ── RuntimeEvent, by time
//! ```

mod merged;
mod ordered;
mod stream;

pub use merged::MergedEvents;
pub use stream::{EventStream, StreamCounts};

use std::sync::Arc;

use super::{Nanos, Notice, Pid, ProcessEvents, Tid};
use crate::nettrace::{Activity, EventMetadata};

/// Processes that are named in a notice.
const LISTED: usize = 5;

/// An event of a runtime, or of a program in it.
#[derive(Clone, Debug)]
pub struct RuntimeEvent {
    /// When.
    pub time: Nanos,
    /// The process, as the collector's pid namespace numbers it.
    pub process: Pid,
    /// The thread; as the process's own pid namespace numbers it, if it has one and the thread ended before anybody saw it.
    /// 0 if the stream does not tell.
    pub thread: Tid,
    /// What it is part of.
    pub activity: Activity,
    /// What: provider, id, version, name, and fields where the stream states them.
    pub kind: Arc<EventMetadata>,
    /// What it holds.
    pub payload: Box<[u8]>,
    /// Where its thread was: code addresses, the innermost first. Those of callers are where they go on after the call.
    pub stack: Arc<[u64]>,
}

/// The streams of a trace.
#[derive(Debug, Default)]
pub struct EventStreams(Vec<EventStream>);

impl EventStreams {
    /// Streams that were looked through.
    #[must_use]
    pub fn new(streams: Vec<EventStream>) -> Self {
        Self(streams)
    }

    /// One for each life of a process.
    #[must_use]
    pub fn streams(&self) -> &[EventStream] {
        &self.0
    }

    /// Whether there is no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|stream| stream.counts.events == 0)
    }

    /// Whether an event of this provider came; programs name theirs in any case.
    #[must_use]
    pub fn has_any_of(&self, provider: &str) -> bool {
        let mut kinds = self.0.iter().flat_map(|stream| &stream.counts.by_kind);
        kinds.any(|(kind, _)| kind.provider.eq_ignore_ascii_case(provider))
    }

    /// When the first event was.
    #[must_use]
    pub fn first_time(&self) -> Option<Nanos> {
        let times = self.0.iter().filter_map(|stream| stream.counts.first);
        times.min()
    }

    /// What came of each runtime and what did not, for the quality report.
    pub(crate) fn qualities(&self) -> Vec<ProcessEvents> {
        let streams = self.0.iter().map(|stream| {
            let counts = &stream.counts;
            ProcessEvents {
                pid: stream.process.0,
                events: counts.events,
                dropped: counts.losses.dropped_events,
                unknown: counts.losses.unknown_events,
                without_stack: counts.losses.forgotten_stacks,
                cut: counts.cut.clone().unwrap_or_default(),
                threads: stream.threads(),
            }
        });
        streams.collect()
    }

    /// What the user should know.
    pub(crate) fn notices(&self) -> impl Iterator<Item = Notice> {
        let lossy = self.0.iter().filter_map(|stream| {
            let losses = stream.counts.losses;
            let lost = losses.dropped_events + losses.unknown_events;
            (lost > 0).then(|| {
                format!(
                    "{lost} of {} events of .NET process {} are lost: its runtime had no room for them",
                    lost + stream.counts.events,
                    stream.process
                )
            })
        });
        lossy
            .map(|what| Notice::new(what, "ask for fewer events, such as with -gccollectonly, or for more room in its memory with -eventbuffer MB"))
            .chain(self.cut_notice())
    }

    /// Whose streams end early, and why.
    fn cut_notice(&self) -> Option<Notice> {
        let cut = self.0.iter().filter_map(|stream| {
            let why = stream.counts.cut.as_ref()?;
            Some(format!("{} ({why})", stream.process))
        });
        let cut: Vec<String> = cut.collect();
        let listed = cut.len().min(LISTED);
        let more = match cut.len() - listed {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (listed > 0).then(|| {
            let what = format!(
                "the events of .NET process {}{more} end early; names of methods in their stacks may be missing, as a \
                 runtime tells them last",
                cut[..listed].join(", ")
            );
            Notice::new(
                what,
                "so it is where the process or the capture is killed, or the disk is full",
            )
        })
    }

    /// All events in order of time.
    #[must_use]
    pub fn iter(&self) -> MergedEvents<'_> {
        MergedEvents::new(&self.0)
    }
}

impl<'a> IntoIterator for &'a EventStreams {
    type Item = RuntimeEvent;
    type IntoIter = MergedEvents<'a>;

    fn into_iter(self) -> MergedEvents<'a> {
        self.iter()
    }
}
