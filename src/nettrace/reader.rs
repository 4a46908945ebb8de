//! Reader of the events of a stream, one at a time.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;

use super::block::{self, BlockKind, Framing};
use super::error::{NettraceError, NettraceErrorKind};
use super::event_block::{EventBlock, EventHeader};
use super::event_metadata::{EventMetadata, EventMetadataTable};
use super::feed::Feed;
use super::labels::{Activity, Labels};
use super::sequence::Sequences;
use super::stacks::{Stack, Stacks};
use super::stream_header;
use super::threads::{Thread, Threads};
use super::trace_info::TraceInfo;
use crate::bytes::Bytes;
use crate::ids::Nanos;

/// Flags of a version 6 sequence point: reset the threads, reset the event metadata.
const RESET_THREADS: u32 = 1;
const RESET_METADATA: u32 = 2;

/// An event. The events of one thread are in order of time, those of several threads are mixed.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The event's metadata.
    pub metadata: &'a Arc<EventMetadata>,
    /// The event's timestamp.
    pub time: Nanos,
    /// Whether no later event of the stream is older.
    pub is_sorted: bool,
    /// The thread that the event concerns.
    pub thread: Thread,
    /// The name of this thread; empty if the stream does not contain it.
    pub thread_name: &'a str,
    /// The activity that the event belongs to.
    pub activity: Activity,
    /// The stream's id of the thread that wrote the event. It is nearly always the same thread.
    pub capture_thread: u64,
    /// The processor that the capture thread ran on, if the sender reports it.
    pub processor: u32,
    /// The stack of the capture thread. Empty if the event has no stack.
    pub stack: Stack<'a>,
    /// The values of [`EventMetadata::fields`].
    pub payload: &'a [u8],
}

/// Counts of lost data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events that the sender dropped, counted by gaps in the sequence numbers.
    pub dropped_events: u64,
    /// Events without metadata: the stream declares none, or it exceeds the memory limit.
    pub unknown_events: u64,
    /// Stacks beyond the memory limit. Their events appear to have no stack.
    pub forgotten_stacks: u64,
}

/// Incremental reader of a stream.
#[derive(Debug)]
pub struct Reader<R> {
    feed: Feed<R>,
    framing: Framing,
    info: TraceInfo,
    metadata: EventMetadataTable,
    stacks: Stacks,
    labels: Labels,
    threads: Threads,
    sequences: Sequences,
    events: EventBlock,
    /// Buffer for blocks other than event blocks.
    other: Vec<u8>,
    unknown_events: u64,
    /// Size of the complete blocks before the last one that was read.
    complete_bytes: u64,
    /// The error to return after the events that precede it.
    pending_error: Option<NettraceError>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header of a stream.
    ///
    /// # Errors
    /// The source is not a nettrace stream, has an unsupported version, or cannot be read.
    pub fn open(source: R) -> Result<Self, NettraceError> {
        let mut feed = Feed::new(source);
        let (framing, info) = stream_header::read(&mut feed)?;
        Ok(Self {
            feed,
            framing,
            stacks: Stacks::new(info.pointer_bytes),
            info,
            metadata: EventMetadataTable::default(),
            labels: Labels::default(),
            threads: Threads::default(),
            sequences: Sequences::default(),
            events: EventBlock::new(framing),
            other: Vec::new(),
            unknown_events: 0,
            complete_bytes: 0,
            pending_error: None,
            ended: false,
        })
    }

    /// Returns the header of the trace.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Returns the offset after the last complete block, once the reader has reached the end or an
    /// error.
    #[must_use]
    pub fn complete_bytes(&self) -> u64 {
        self.complete_bytes
    }

    /// Returns the losses up to now.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses {
            dropped_events: self.sequences.lost,
            unknown_events: self.unknown_events,
            forgotten_stacks: self.stacks.forgotten,
        }
    }

    /// Returns the next event, or `None` after the last. Blocks while the source has no data.
    ///
    /// # Errors
    /// The stream is corrupt, truncated, or cannot be read. The reader has returned all earlier
    /// events, and every later call returns `None`.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, NettraceError> {
        if self.ended {
            return Ok(None);
        }
        match self.advance() {
            Ok(Some((header, payload))) => Ok(self.event(header, payload)),
            last => {
                self.ended = true;
                self.events.close();
                last.map(|_| None)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<(EventHeader, Range<usize>)>, NettraceError> {
        loop {
            while let Some((header, payload)) = self.next_in_block()? {
                self.sequences
                    .on_event(header.capture_thread, header.sequence);
                if self.metadata.get(header.metadata_id).is_some() {
                    return Ok(Some((header, payload)));
                }
                self.unknown_events += 1;
            }
            if let Some(error) = self.pending_error.take() {
                return Err(error);
            }
            if !self.read_block()? {
                return Ok(None);
            }
        }
    }

    /// Returns the next event of the block.
    ///
    /// The error of a truncated block replaces that of its last event, which is a consequence.
    fn next_in_block(&mut self) -> Result<Option<(EventHeader, Range<usize>)>, NettraceError> {
        self.events
            .next()
            .map_err(|error| self.pending_error.take().unwrap_or(error))
    }

    fn event(&self, header: EventHeader, payload: Range<usize>) -> Option<Event<'_>> {
        let ((thread, thread_name), activity) = match self.framing {
            Framing::Objects => {
                let thread = Thread {
                    id: Some(header.thread),
                    process: None,
                };
                ((thread, ""), header.activity)
            }
            Framing::Blocks => {
                let thread = self.threads.get(header.thread);
                (thread, self.labels.get(header.labels))
            }
        };
        Some(Event {
            metadata: self.metadata.get(header.metadata_id)?,
            time: self.info.nanos(header.time),
            is_sorted: header.is_sorted,
            thread,
            thread_name,
            activity,
            capture_thread: header.capture_thread,
            processor: header.processor,
            stack: self.stacks.get(header.stack),
            payload: self.events.bytes.get(payload)?,
        })
    }

    /// Reads one block. Returns whether the stream continues after it.
    fn read_block(&mut self) -> Result<bool, NettraceError> {
        self.complete_bytes = self.feed.offset();
        let Some((kind, size)) = block::read_header(&mut self.feed, self.framing)? else {
            return Ok(false);
        };
        let offset = self.feed.offset();
        let buffer = match kind {
            BlockKind::Event => &mut self.events.bytes,
            _ => &mut self.other,
        };
        let mut result = self.feed.block(size, buffer);
        if kind == BlockKind::Event {
            // The complete events of the block precede the error.
            if result.is_ok() && self.framing == Framing::Objects {
                result = block::end_object(&mut self.feed);
            }
            self.pending_error = result.err();
            self.events
                .start(offset)
                .map_err(|error| self.pending_error.take().unwrap_or(error))?;
            return Ok(true);
        }
        result?;
        self.apply_block(kind, offset)?;
        if self.framing == Framing::Objects {
            block::end_object(&mut self.feed)?;
        }
        Ok(true)
    }

    /// Applies the block in `other` to the state of the reader.
    fn apply_block(&mut self, kind: BlockKind, offset: u64) -> Result<(), NettraceError> {
        let payload = std::mem::take(&mut self.other);
        let (applied, description) = match kind {
            BlockKind::Metadata => (
                self.metadata.add_block(&payload, offset, self.framing)?,
                "metadata block",
            ),
            BlockKind::Stack => (self.stacks.add(&payload), "stack block"),
            BlockKind::SequencePoint => (self.sequence_point(&payload), "sequence point block"),
            BlockKind::Thread => (self.threads.add(&payload), "thread block"),
            BlockKind::RemoveThread => (self.remove_threads(&payload), "remove-thread block"),
            BlockKind::LabelList => (self.labels.add(&payload), "label list block"),
            BlockKind::Trace => (None, "second trace block"),
            BlockKind::Event | BlockKind::Other => (Some(()), ""),
        };
        self.other = payload;
        applied.ok_or(NettraceError {
            offset,
            kind: NettraceErrorKind::Corrupt(description),
        })
    }

    fn sequence_point(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        let _time = bytes.u64()?;
        let flags = match self.framing {
            Framing::Objects => 0,
            Framing::Blocks => bytes.u32()?,
        };
        let mut alive = HashSet::new();
        for _ in 0..bytes.u32()? {
            let (thread, sequence) = match self.framing {
                Framing::Objects => (bytes.u64()?, bytes.u32()?),
                Framing::Blocks => (bytes.varuint()?, bytes.varuint32()?),
            };
            // Version 6 removes threads by blocks of their own.
            if self.framing == Framing::Objects {
                alive.insert(thread);
            }
            self.sequences.advance_to(thread, sequence);
        }
        self.stacks.clear();
        self.labels.clear();
        if flags & RESET_THREADS != 0 {
            self.threads.clear();
            self.sequences.clear();
        } else if self.framing == Framing::Objects {
            self.sequences.retain_alive(&alive);
        }
        if flags & RESET_METADATA != 0 {
            self.metadata.clear();
        }
        Some(())
    }

    fn remove_threads(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        while !bytes.0.is_empty() {
            let (thread, sequence) = (bytes.varuint()?, bytes.varuint32()?);
            self.sequences.remove(thread, sequence);
            self.threads.remove(thread);
        }
        Some(())
    }
}
