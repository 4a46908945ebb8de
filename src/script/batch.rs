//! What goes from the thread that reads a recording to the one that prints it: samples by the hundred, in buffers that come back.

use std::sync::Arc;

use perf_event_open_sys::bindings as sys;

use super::symbols::FileSymbols;
use crate::perf::SampleRecord;
use crate::perf_data::{Attribute, RecordingInfo};
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// Samples of a batch.
const MAX_LINES: usize = 512;
/// Frames of a batch, and bytes of its texts.
const MAX_FRAMES: usize = 16 << 10;
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The position of an object among all that were told since the last batch that forgets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectId(pub(super) u32);

/// The position of a stack, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackId(pub(super) u32);

/// What code lies in.
pub(super) enum Object {
    File(Arc<FileSymbols>),
    /// The kernel or one of its modules, by the name that is printed.
    Kernel(Arc<[u8]>),
    /// One function, or none that is known, and what is printed as its file.
    One(Option<Box<[u8]>>, Box<[u8]>),
}

/// An address as it is printed, and what it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) shown: u64,
    pub(super) object: ObjectId,
}

/// The frames of a sample.
#[derive(Clone, Copy)]
pub(super) enum Stack {
    /// So many of the batch, which get the next [`StackId`].
    New(u32),
    /// So many of the batch, which nobody asks for again.
    Once(u32),
    /// The same with the functions that were inlined in them.
    Inlined(u32),
    Known(StackId),
}

/// A sample without what is of changing length.
pub(super) struct Line {
    pub(super) event: u32,
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    pub(super) cpu: Cpu,
    pub(super) time: Nanos,
    pub(super) period: u64,
    pub(super) ip: u64,
    /// Bytes of the thread's name, and behind it of what the tracepoint says.
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

/// How the samples of an event are printed.
pub(super) struct Columns {
    /// The event's name, as wide as the widest.
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
    /// Of the lines with new stacks, one behind the other.
    pub(super) frames: Vec<Frame>,
    /// Names and texts of all lines, one behind the other.
    pub(super) text: Vec<u8>,
    /// What was not met before.
    pub(super) objects: Vec<Object>,
    /// Whether stacks count from the first of this batch.
    pub(super) forgets_stacks: bool,
    /// Whether objects and stacks do.
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

    /// Takes in the events of the recording; in a pipe they may become more.
    pub(super) fn know(&mut self, about: &RecordingInfo, width: usize) {
        if self.events.len() != about.events.len() {
            let columns = about.events.iter().map(|event| Columns::of(event, width));
            self.events.clear();
            self.events.extend(columns);
        }
    }
}
