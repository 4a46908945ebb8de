//! The events of a stream, one at a time.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashSet;

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

/// Flags of a sequence point of version 6: the threads, and the kinds of events, begin anew.
const FORGET_THREADS: u32 = 1;
const FORGET_KINDS: u32 = 2;

/// An event. Events of one thread come in the order of time; those of several are mixed.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What it is.
    pub kind: &'a Arc<EventMetadata>,
    /// When it was.
    pub time: Nanos,
    /// Whether no event that follows in the stream is older.
    pub is_sorted: bool,
    /// The thread it is about.
    pub thread: Thread,
    /// What it is part of.
    pub activity: Activity,
    /// Who noted it, as the stream numbers threads; nearly always the same.
    pub capture_thread: u64,
    /// Where that thread was; empty if the event has no stack.
    pub stack: Stack<'a>,
    /// What it holds, as [`EventMetadata::fields`] tell.
    pub payload: &'a [u8],
}

/// What did not come through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events that the sender dropped, by the gaps in its numbers.
    pub dropped_events: u64,
    /// Events of a kind that the stream has not stated, or that went beyond the limit of what is kept.
    pub unknown_events: u64,
    /// Stacks beyond that limit; their events seem to have none.
    pub forgotten_stacks: u64,
}

/// Reads a stream while it comes.
#[derive(Debug)]
pub struct Reader<R> {
    feed: Feed<R>,
    framing: Framing,
    info: TraceInfo,
    kinds: EventMetadataTable,
    stacks: Stacks,
    labels: Labels,
    threads: Threads,
    sequences: Sequences,
    events: EventBlock,
    /// The last block that is none of events.
    other: Vec<u8>,
    unknown_events: u64,
    /// What ends the stream once the events before it are delivered.
    ending: Option<NettraceError>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a stream.
    ///
    /// # Errors
    /// It is none, of an unknown version, or cannot be read.
    pub fn open(source: R) -> Result<Self, NettraceError> {
        let mut feed = Feed::new(source);
        let (framing, info) = stream_header::read(&mut feed)?;
        Ok(Self {
            feed,
            framing,
            stacks: Stacks::new(info.pointer_bytes),
            info,
            kinds: EventMetadataTable::default(),
            labels: Labels::default(),
            threads: Threads::default(),
            sequences: Sequences::default(),
            events: EventBlock::new(framing),
            other: Vec::new(),
            unknown_events: 0,
            ending: None,
            ended: false,
        })
    }

    /// What the stream says of itself.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// What has not come through so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses {
            dropped_events: self.sequences.lost,
            unknown_events: self.unknown_events,
            forgotten_stacks: self.stacks.forgotten,
        }
    }

    /// The next event; `None` behind the last. May wait for the source.
    ///
    /// # Errors
    /// The stream is damaged, cut off, or cannot be read. All events before that were delivered; none comes any more.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, NettraceError> {
        if self.ended {
            return Ok(None);
        }
        match self.advance() {
            Ok(Some((header, payload))) => Ok(self.event(header, payload)),
            end => {
                self.ended = true;
                self.events.close();
                end.map(|_| None)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<(EventHeader, Range<usize>)>, NettraceError> {
        loop {
            while let Some((header, payload)) = self.next_in_block()? {
                self.sequences.saw(header.capture_thread, header.sequence);
                if self.kinds.get(header.metadata_id).is_some() {
                    return Ok(Some((header, payload)));
                }
                self.unknown_events += 1;
            }
            if let Some(error) = self.ending.take() {
                return Err(error);
            }
            if !self.read_block()? {
                return Ok(None);
            }
        }
    }

    /// The error of a block that was cut off goes before that of its last event, which follows from it.
    fn next_in_block(&mut self) -> Result<Option<(EventHeader, Range<usize>)>, NettraceError> {
        self.events
            .next()
            .map_err(|error| self.ending.take().unwrap_or(error))
    }

    fn event(&self, header: EventHeader, payload: Range<usize>) -> Option<Event<'_>> {
        let (thread, activity) = match self.framing {
            Framing::Objects => {
                let thread = Thread {
                    id: Some(header.thread),
                    process: None,
                };
                (thread, header.activity)
            }
            Framing::Blocks => {
                let thread = self.threads.get(header.thread);
                (thread, self.labels.get(header.labels))
            }
        };
        Some(Event {
            kind: self.kinds.get(header.metadata_id)?,
            time: self.info.nanos(header.time),
            is_sorted: header.is_sorted,
            thread,
            activity,
            capture_thread: header.capture_thread,
            stack: self.stacks.get(header.stack),
            payload: self.events.bytes.get(payload)?,
        })
    }

    /// Takes one block in. `false`: the stream ends here as it should.
    fn read_block(&mut self) -> Result<bool, NettraceError> {
        let Some((kind, size)) = block::begin(&mut self.feed, self.framing)? else {
            return Ok(false);
        };
        let offset = self.feed.offset();
        let into = match kind {
            BlockKind::Event => &mut self.events.bytes,
            _ => &mut self.other,
        };
        let mut taken = self.feed.block(size, into);
        if kind == BlockKind::Event {
            // The events that are whole go first.
            if taken.is_ok() && self.framing == Framing::Objects {
                taken = block::end_object(&mut self.feed);
            }
            self.ending = taken.err();
            self.events
                .begin(offset)
                .map_err(|error| self.ending.take().unwrap_or(error))?;
            return Ok(true);
        }
        taken?;
        self.take_in(kind, offset)?;
        if self.framing == Framing::Objects {
            block::end_object(&mut self.feed)?;
        }
        Ok(true)
    }

    fn take_in(&mut self, kind: BlockKind, offset: u64) -> Result<(), NettraceError> {
        let payload = std::mem::take(&mut self.other);
        let (taken, what) = match kind {
            BlockKind::Metadata => (self.add_kinds(&payload, offset)?, "a block of metadata"),
            BlockKind::Stack => (self.stacks.add(&payload), "a block of stacks"),
            BlockKind::SequencePoint => (self.sequence_point(&payload), "a sequence point"),
            BlockKind::Thread => (self.threads.add(&payload), "a block of threads"),
            BlockKind::RemoveThread => (self.remove_threads(&payload), "a block of ended threads"),
            BlockKind::LabelList => (self.labels.add(&payload), "a block of labels"),
            BlockKind::Trace => (None, "a second beginning"),
            BlockKind::Event | BlockKind::Other => (Some(()), ""),
        };
        self.other = payload;
        taken.ok_or(NettraceError {
            offset,
            problem: NettraceErrorKind::Damaged(what),
        })
    }

    fn add_kinds(&mut self, payload: &[u8], offset: u64) -> Result<Option<()>, NettraceError> {
        if self.framing == Framing::Blocks {
            return Ok(self.kinds.add_rows(payload));
        }
        let mut rows = EventBlock::new(self.framing);
        rows.bytes.extend_from_slice(payload);
        rows.begin(offset)?;
        while let Some((_, row)) = rows.next()? {
            let row = rows.bytes.get(row).unwrap_or_default();
            if self.kinds.add_object(row).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn sequence_point(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        let _time = bytes.u64()?;
        let flags = match self.framing {
            Framing::Objects => 0,
            Framing::Blocks => bytes.u32()?,
        };
        let mut alive = FxHashSet::default();
        for _ in 0..bytes.u32()? {
            let (thread, number) = match self.framing {
                Framing::Objects => (bytes.u64()?, bytes.u32()?),
                Framing::Blocks => (bytes.varuint()?, bytes.varuint32()?),
            };
            alive.insert(thread);
            self.sequences.reached(thread, number);
        }
        self.stacks.clear();
        self.labels.clear();
        if flags & FORGET_THREADS != 0 {
            self.threads.clear();
            self.sequences.clear();
        } else if self.framing == Framing::Objects {
            self.sequences.keep_alive(&alive);
        }
        if flags & FORGET_KINDS != 0 {
            self.kinds.clear();
        }
        Some(())
    }

    fn remove_threads(&mut self, payload: &[u8]) -> Option<()> {
        let mut bytes = Bytes(payload);
        while !bytes.0.is_empty() {
            let (thread, number) = (bytes.varuint()?, bytes.varuint32()?);
            self.sequences.ended(thread, number);
            self.threads.remove(thread);
        }
        Some(())
    }
}
