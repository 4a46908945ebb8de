//! The rows of a spool.

use std::borrow::Cow;

use thiserror::Error;

use super::codec::MAX_HEADER_BYTES;
use super::header::Header;
use crate::trace::{
    CodeAddress, Doubts, FrameId, Losses, Nanos, Pid, ProcessId, Sample, StackId, ThreadId, Tid,
};

/// Identity and state of a file when it was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device, as in `stat`.
    pub device: u64,
    /// Inode, as in `stat`.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content, in seconds since 1970.
    pub modified: u64,
}

/// A file with sampled code. The id of the n-th such row is [`crate::trace::ModuleId`] n, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow<'a> {
    /// Path in the mount namespace of `pid`; may end in ` (deleted)`.
    pub path: Cow<'a, [u8]>,
    /// A process that mapped the file.
    pub pid: Pid,
    /// Identity; `None` if the file could not be opened, or there is none (the vDSO).
    pub identity: Option<FileIdentity>,
    /// Build id; empty if the file has none.
    pub build_id: Cow<'a, [u8]>,
}

/// A process with JIT code, and the data that locates its perf map or jitdump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitProcessRow {
    /// Process id in the process's own pid namespace.
    pub namespace_pid: Pid,
    /// User id of the process.
    pub uid: u32,
    /// Start time, in ticks since boot. It distinguishes the process from a later one with its id.
    pub start_ticks: u64,
    /// Device of the process's root directory.
    pub root_device: u64,
    /// Inode of the process's root directory.
    pub root_inode: u64,
    /// Path of the jitdump that the process mapped; empty without one.
    pub dump: Box<[u8]>,
}

/// A method, and the address range of its JIT code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodRow<'a> {
    /// Process that contains the code.
    pub process: ProcessId,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Name; empty if the code changed and its new name is unknown.
    pub name: Cow<'a, [u8]>,
    /// Assembly of the method.
    pub module: Cow<'a, [u8]>,
    /// How the method was compiled; empty if unknown.
    pub tier: Cow<'a, [u8]>,
}

/// Kernel code that was registered or unregistered (`PERF_RECORD_KSYMBOL`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KsymbolRow<'a> {
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Whether the kernel unregistered the code.
    pub unregistered: bool,
    /// Symbol.
    pub name: Cow<'a, [u8]>,
    /// Module, as in /proc/kallsyms.
    pub module: Cow<'a, [u8]>,
}

/// The code at an address in the stacks of runtime events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCodeRow {
    /// Process of the events.
    pub process: ProcessId,
    /// Address, as in the stacks.
    pub address: u64,
    /// Time after which the address may contain this code. Before, it contained that of an earlier
    /// row.
    pub since: Nanos,
    /// Frame of the code.
    pub frame: FrameId,
}

/// One row of a spool.
#[derive(Clone, Debug, PartialEq)]
pub enum SpoolRow<'a> {
    /// See [`super::Header`].
    Header(Cow<'a, [u8]>),
    /// The next file.
    File(FileRow<'a>),
    /// The next process.
    Process {
        /// Process id.
        pid: Pid,
        /// Name of the main thread.
        name: &'a [u8],
        /// Command-line arguments.
        command_line: &'a [u8],
    },
    /// The next thread.
    Thread {
        /// Process of the thread.
        process: ProcessId,
        /// Thread id.
        tid: Tid,
        /// Thread name.
        name: &'a [u8],
    },
    /// New name of a process.
    ProcessName(ProcessId, &'a [u8]),
    /// New name of a thread.
    ThreadName(ThreadId, &'a [u8]),
    /// When a process ended.
    ProcessEnd(ProcessId, Nanos),
    /// A process with JIT code.
    JitProcess(ProcessId, JitProcessRow),
    /// A method, which names the following frames of its code.
    Method(MethodRow<'a>),
    /// Kernel code that was registered or unregistered.
    Ksymbol(KsymbolRow<'a>),
    /// The next frame.
    Frame(CodeAddress),
    /// The next stack node: its parent and its frame.
    Node(StackId, FrameId),
    /// The code at an address in the stacks of events.
    EventCode(EventCodeRow),
    /// The losses so far.
    Losses(Losses),
    /// The stacks with doubtful callers so far. The number of guessed ones is in [`Self::Losses`].
    Doubts(Doubts),
    /// All data before this time is in the spool.
    Clock(Nanos),
    /// Proper end of the capture.
    End(Nanos),
    /// A sample.
    Sample(Sample),
    /// A thread waited: until a time, for its weight.
    Blocked(Sample),
    /// A sample of page faults: its weight is their number.
    Faults(Sample),
    /// A process that is not one of the target, and woke a thread of it.
    Outsider {
        /// Process id.
        pid: Pid,
        /// Name. Untrusted.
        name: &'a [u8],
    },
    /// A sample of wake-ups: its thread was woken, its stack is that of the thread that woke it, and its weight
    /// is the number of wake-ups.
    Wakeups(Sample),
    /// The [`Header`] with the results of the capture.
    Results(Cow<'a, [u8]>),
    /// No later row refers to a frame or stack node before this row.
    Forget,
}

impl SpoolRow<'static> {
    /// Returns the row with the results of a capture. If they are too large it lacks the notices; returns `None` if they
    /// still are.
    #[must_use]
    pub fn results(header: &Header) -> Option<Self> {
        let brief = || Header {
            notices: Vec::new(),
            ..header.clone()
        };
        let json = |header: &Header| {
            let json = serde_json::to_vec(header).ok()?;
            (json.len() <= MAX_HEADER_BYTES).then_some(json)
        };
        let json = json(header).or_else(|| json(&brief()))?;
        Some(Self::Results(json.into()))
    }
}

/// Error in a row.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RowError {
    /// The block ends within the row.
    #[error("a row is truncated")]
    Ended,
    /// An integer is truncated, or does not fit its field.
    #[error("an integer is truncated or out of range")]
    Number,
    /// A sample weighs more than any writer writes, or a thread waited before the system started.
    #[error("the weight of a sample is out of range")]
    Weight,
    /// A string is longer than any writer writes.
    #[error("a string has {len} bytes, the limit is {max}")]
    TooLong {
        /// Length in bytes.
        len: u64,
        /// Limit in bytes.
        max: usize,
    },
    /// A kind that this version does not know.
    #[error("a row has the unknown kind {0}")]
    Kind(u8),
    /// The row refers to an id that no earlier row defines.
    #[error("{what} {id} is used but not defined")]
    Undefined {
        /// Kind of the id.
        what: &'static str,
        /// Value of the id.
        id: u64,
    },
    /// The header is malformed or misplaced.
    #[error("the header is malformed or misplaced")]
    Header,
}
