//! Batches of samples between the thread that reads a recording and the thread that prints it.
//! Buffers are reused.

use std::sync::Arc;

use perf_event_open_sys::bindings as sys;

use super::symbols::FileSymbols;
use crate::perf::SampleRecord;
use crate::perf_data::{Attribute, RecordingInfo};
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// Maximum number of samples of a batch.
const MAX_LINES: usize = 512;
/// Limits of a batch: number of frames, and bytes of its texts.
const MAX_FRAMES: usize = 16 << 10;
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The index of an object among all since the last batch with `forgets_all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectId(pub(super) u32);

/// The index of a stack, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackId(pub(super) u32);

/// What an address belongs to.
pub(super) enum Object {
    File(Arc<FileSymbols>),
    /// The kernel or one of its modules, by its printed name.
    Kernel(Arc<[u8]>),
    /// A single function, if known, and the text printed as its file.
    One(Option<Box<[u8]>>, Box<[u8]>),
}

/// An address as printed, and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) shown: u64,
    pub(super) object: ObjectId,
}

/// The frames of a sample.
#[derive(Clone, Copy)]
pub(super) enum Stack {
    /// The next frames of the batch, which get the next [`StackId`].
    New(u32),
    /// The next frames of the batch, without an id.
    Once(u32),
    /// Like `Once`, with inlined functions.
    Inlined(u32),
    Known(StackId),
}

/// The fixed-size part of a sample.
pub(super) struct Line {
    pub(super) event: u32,
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    pub(super) cpu: Cpu,
    pub(super) time: Nanos,
    pub(super) period: u64,
    pub(super) ip: u64,
    /// Length of the thread's name, and of the tracepoint's text that follows it.
    pub(super) comm: u32,
    pub(super) trace: u32,
    pub(super) stack: Stack,
}

impl Line {
    pub(super) fn of(event: usize, period: u64, sample: &SampleRecord<'_>) -> Self {
        Self {
            event: event as u32,
            pid: sample.pid,
            tid: sample.tid,
            cpu: sample.cpu,
            time: sample.time,
            period,
            ip: sample.ip,
            comm: 0,
            trace: 0,
            stack: Stack::Once(0),
        }
    }
}

/// Formatting of an event's samples.
pub(super) struct Columns {
    /// The event's name, padded to the longest.
    pub(super) event: String,
    pub(super) has_cpu: bool,
    pub(super) has_time: bool,
    pub(super) has_callchain: bool,
}

impl Columns {
    fn of(event: &Attribute, width: usize) -> Self {
        Self {
            event: format!("{:>width$}: ", event.name),
            has_cpu: event.has(sys::PERF_SAMPLE_CPU),
            has_time: event.has(sys::PERF_SAMPLE_TIME),
            has_callchain: event.has_callchain(),
        }
    }
}

/// Samples in the order of their time.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Columns>,
    pub(super) lines: Vec<Line>,
    /// Frames of the new stacks, one after the other.
    pub(super) frames: Vec<Frame>,
    /// Thread names and texts of all lines, one after the other.
    pub(super) text: Vec<u8>,
    /// Objects that are new in this batch.
    pub(super) objects: Vec<Object>,
    /// Whether stack ids start from 0 in this batch.
    pub(super) forgets_stacks: bool,
    /// Whether object and stack ids do.
    pub(super) forgets_all: bool,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.lines.clear();
        self.frames.clear();
        self.text.clear();
        self.objects.clear();
        (self.forgets_stacks, self.forgets_all) = (false, false);
    }

    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= MAX_LINES
            || self.frames.len() >= MAX_FRAMES
            || self.text.len() >= MAX_TEXT_BYTES
    }

    /// Adds the events of the recording. A pipe may declare more of them later.
    pub(super) fn know(&mut self, info: &RecordingInfo, width: usize) {
        if self.events.len() != info.events.len() {
            let columns = info.events.iter().map(|event| Columns::of(event, width));
            self.events.clear();
            self.events.extend(columns);
        }
    }
}
