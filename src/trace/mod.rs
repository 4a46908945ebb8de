//! The finished trace: output of every input path, input of every writer.

mod block_io;
mod blocked;
mod callers;
mod code_address;
mod connections;
mod counters;
mod cpu_pressure;
mod distinct;
mod doubts;
pub mod events;
mod ids;
mod methods;
mod names;
mod notice;
mod process_memory;
mod process_notices;
mod quality;
mod recent;
mod recorder;
mod samples;
pub mod spool;
mod stack;
mod symptom;
mod throttle;
mod wakers;

pub use crate::ids::{Cpu, Nanos, Pid, Tid};
pub(crate) use block_io::MAX_IO_ROWS;
pub use block_io::{BlockIo, BlockIoRow};
pub use blocked::{Blocked, BlockedOn, IDLE, reason_of};
pub use callers::Callers;
pub use code_address::CodeAddress;
pub(crate) use connections::MAX_CONNECTION_ROWS;
pub use connections::{ConnectionRow, Connections};
pub(crate) use counters::MAX_COUNTED;
pub use counters::{CounterEvent, Counters, EventCount, ProcessCounters};
pub use cpu_pressure::{CpuPressure, ProcessWaits};
pub(crate) use distinct::Distinct;
pub use doubts::{Doubt, DoubtfulCode, Doubts};
pub use events::{
    EventCode, EventStream, EventStreams, ParseStreamNameError, RuntimeEvent, StreamContent,
    StreamFiles, StreamName, StreamWriter,
};
pub use ids::{FrameId, FunctionId, ModuleId, ProcessId, StackId, ThreadId};
pub(crate) use methods::CodeKey;
pub use methods::{Method, Methods};
pub(crate) use notice::{MORE_DESCRIPTORS, RIGHTS_TO_READ_THREADS, lacks_descriptors};
pub use notice::{Notice, NoticeKind};
pub use process_memory::ProcessMemory;
pub use process_notices::process_notices;
pub use quality::{
    CpuLosses, Losses, NameCount, ProcessEvents, Quality, StackQuality, SymbolCounts, Truncation,
};
pub use recorder::{Recorder, RowSource, SampleWriter};
pub use samples::Samples;
pub use spool::{Header, RawTrace};
pub use stack::StackTable;
pub use symptom::Symptom;
pub use throttle::{CpuPauses, Pauses};
pub use wakers::{InterruptSource, Outsider, ProcessCounts, Waker, waker_of_label, wakeup_label};

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use perfcollect_symbols::build_id::BuildId;

/// Kind of code of a function.
///
/// Decides the function's colour and the counter of [`SymbolCounts`] that counts its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// Kernel code.
    Kernel,
    /// Machine code of an ELF file, the vDSO included.
    Native,
    /// Code compiled while the process runs (JIT code).
    Jit,
    /// ReadyToRun code.
    ReadyToRun,
    /// An address in no known mapping.
    Unmapped,
    /// Not code: represents the missing callers of a truncated stack.
    Marker,
    /// Not code: represents where a thread waited.
    Blocked,
    /// Several functions that a view shows as one.
    Group,
}

/// A function, or an unresolved code address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Demangled name with its arguments, without the module. Untrusted.
    ///
    /// If this is `None`, output shows the module with the offset of `start`, or of the address.
    /// The string may contain any character: each writer escapes it for its format.
    pub name: Option<Box<str>>,
    /// Start of a function without a name, in the same address space as [`Frame::offset`].
    ///
    /// All addresses of the function then belong to one row.
    pub start: Option<u64>,
    /// Module as shown to the user: file name, assembly, `vmlinux`, `vdso`, ... Untrusted.
    pub module: Box<str>,
    /// Optimization tier of a .NET method, as the runtime spells it (`OptimizedTier1`).
    pub tier: Option<Box<str>>,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether the function was inlined into the next outer one.
    pub inlined: bool,
}

impl Function {
    /// Returns a function with a name, which is not inlined and has no tier.
    pub(crate) fn named(name: impl Into<Box<str>>, module: &str, kind: FunctionKind) -> Self {
        Self {
            name: Some(name.into()),
            start: None,
            module: module.into(),
            tier: None,
            kind,
            inlined: false,
        }
    }
}

/// A code address and the functions that contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address within the module: SVMA in an ELF file, file offset in another file.
    ///
    /// Without a file, this is the virtual address.
    pub offset: u64,
    /// Rows of [`Trace::frame_functions`], outermost function first. Never empty.
    ///
    /// All functions but the first are inlined.
    pub functions: Range<u32>,
}

/// A process instance: from its fork, or the first sight of it, to its exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id. Ids are reused, so several rows may have the same one.
    pub pid: Pid,
    /// Name of the main thread (comm), up to 15 bytes, lossily decoded. Untrusted.
    pub name: Box<str>,
    /// Arguments joined by spaces; empty if they could not be read. Untrusted.
    pub command_line: Box<str>,
    /// When its main thread ended, if that was during the capture.
    pub ended: Option<Nanos>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Process of the thread.
    pub process: ProcessId,
    /// Thread id.
    pub tid: Tid,
    /// Thread name (comm), lossily decoded. Untrusted.
    pub name: Box<str>,
}

/// An ELF file with sampled code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path in the mount namespace of a process that mapped the file, lossily decoded. Untrusted.
    pub path: Box<str>,
    /// Build id from the file's note.
    pub build_id: Option<BuildId>,
    /// Whether the file, or a debug file found for it, has a symbol table.
    pub has_symbols: bool,
    /// Counts of symbolized and unresolved frames; a frame counts once per sample that contains it.
    pub frames: NameCount,
}

/// Maximum weight of a sample of a recording: 100 s.
///
/// A file may contain any weight, and totals must not overflow.
pub const MAX_WEIGHT_NS: u64 = 100_000_000_000;

/// One sample of the CPU clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub time: Nanos,
    /// Weight: the CPU time that the sample represents.
    pub weight: Nanos,
    /// Thread that was sampled.
    pub thread: ThreadId,
    /// CPU that the thread ran on.
    pub cpu: Cpu,
    /// Call stack.
    pub stack: StackId,
}

/// Origin and conditions of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// Version of perfcollect.
    pub version: String,
    /// Host name (`uname -n`).
    #[serde(default)]
    pub host: String,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Processor architecture (`uname -m`).
    #[serde(rename = "machine")]
    pub arch: String,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// Name of the sampled event, such as `cpu-clock`.
    pub event: String,
    /// Nominal time between two samples of a busy CPU, in nanoseconds.
    pub period_ns: u64,
    /// Start of sampling, nanoseconds on CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of sampling, nanoseconds on CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Start of sampling, nanoseconds since 1970 (UTC).
    pub start_unix_ns: u64,
    /// Target as shown to the user: `system-wide`, `pid 12, 13` or the command.
    pub target: String,
    /// Whether perfcollect sampled the whole system; `false` for an import.
    #[serde(default)]
    pub system_wide: bool,
    /// Symptom for which perfcollect chose what it recorded (`-for`).
    #[serde(
        default,
        deserialize_with = "symptom::known",
        skip_serializing_if = "Option::is_none"
    )]
    pub symptom: Option<Symptom>,
    /// Reason why the capture ended, such as `time limit` or `command ended: exit status 3`.
    #[serde(default)]
    pub end: String,
    /// CPU time of perfcollect itself during the capture, in milliseconds.
    pub collector_cpu_ms: f64,
    /// Peak resident memory of perfcollect at the end of sampling, in KiB.
    pub collector_peak_kib: u64,
    /// Callers that the samples include.
    #[serde(default)]
    pub callers: Callers,
    /// Whether the weights of samples are CPU time, or nearly so; other weights are nominal.
    ///
    /// If this is `None`, the name of the event decides.
    #[serde(default, rename = "of_time")]
    pub counts_time: Option<bool>,
    /// Waits for CPUs; `None` if perfcollect did not capture the trace, or was killed.
    #[serde(default)]
    pub cpu_pressure: Option<CpuPressure>,
    /// Memory of the processes that the user named, or of the command, and of their descendants, most
    /// first: at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<ProcessMemory>,
    /// Counted events; `None` if none were requested, or perfcollect was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// Requests to block devices; `None` if they were not followed, or perfcollect was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIo>,
    /// TCP connections of the target; `None` if they were not followed, or perfcollect was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
}

impl CaptureInfo {
    /// Returns whether there are requests to disks, or connections.
    #[must_use]
    pub fn has_input_or_output(&self) -> bool {
        let requests = self.block_io.as_ref().map(|block_io| block_io.rows.len());
        let connections = self.connections.as_ref();
        let connections = connections.map(|connections| connections.rows.len());
        requests.into_iter().chain(connections).any(|rows| rows > 0)
    }

    /// Returns whether the sampled event counts time, or nearly so.
    ///
    /// Samples of other events, such as tracepoints of a recording, have a nominal weight.
    #[must_use]
    pub fn counts_time(&self) -> bool {
        let clocks = ["-clock", "cycles"];
        let by_name = || clocks.iter().any(|clock| self.event.contains(clock));
        self.counts_time.unwrap_or_else(by_name)
    }

    /// Returns the length of the capture in nanoseconds; 0 if it ends before it starts.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns the length of the capture in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.duration_ns() as f64 / 1e9
    }
}

/// A finished capture: immutable columns with all symbols resolved.
#[derive(Default)]
pub struct Trace {
    /// Origin and conditions.
    pub info: CaptureInfo,
    /// One row per process instance that has samples.
    pub processes: Vec<Process>,
    /// One row per thread that has samples.
    pub threads: Vec<Thread>,
    /// One row per function.
    pub functions: Vec<Function>,
    /// Functions of all frames, see [`Frame::functions`].
    pub frame_functions: Vec<FunctionId>,
    /// One row per code address.
    pub frames: Vec<Frame>,
    /// Stacks of `frames`. A truncated stack has a frame of kind [`FunctionKind::Marker`] at its
    /// root.
    pub stacks: StackTable,
    /// Samples in order of time.
    pub samples: Samples,
    /// Times for which threads waited, in order of their ends: a sample has the end, the length as its
    /// weight, and the stack with [`Blocked`] as its leaf.
    pub blocked: Samples,
    /// Samples of page faults in order of time: the weight of each is the number of faults that it stands for.
    pub faults: Samples,
    /// Samples of wake-ups in order of time: each thread was woken, with the stack of what woke it below a
    /// [`Waker`], as many times as the weight.
    pub wakeups: Samples,
    /// The leaves of the stacks of `blocked`.
    pub places: FxHashMap<FrameId, Blocked>,
    /// One row per ELF file with code in a stack.
    pub modules: Vec<Module>,
    /// Events of .NET runtimes, as streams on disk.
    pub events: EventStreams,
    /// Code in the stacks of events.
    pub event_code: EventCode,
    /// The quality report.
    pub quality: Quality,
}

impl Trace {
    /// Returns the functions of a frame, innermost (inlined) first.
    pub fn functions_leaf_first(
        &self,
        frame: FrameId,
    ) -> impl DoubleEndedIterator<Item = FunctionId> + '_ {
        let Range { start, end } = self.frames[frame.index()].functions;
        self.frame_functions[start as usize..end as usize]
            .iter()
            .rev()
            .copied()
    }

    /// Ends everything that reads samples or events now or later. Its results are incomplete.
    pub(crate) fn stop_reading(&self) {
        self.samples.stop();
        self.blocked.stop();
        self.faults.stop();
        self.wakeups.stop();
        self.events.stop();
    }

    /// Returns the last program that a process executed, or the last process with this id.
    #[must_use]
    pub fn last_process(&self, pid: Pid) -> Option<&Process> {
        self.processes.iter().rfind(|process| process.pid == pid)
    }

    /// Returns for each row of `processes` the row of the last program that this process executed.
    ///
    /// A row after the end of the process is another one with its id.
    #[must_use]
    pub fn last_programs(&self) -> Vec<ProcessId> {
        let mut last: FxHashMap<Pid, ProcessId> = FxHashMap::default();
        let mut rows: Vec<ProcessId> = (0..self.processes.len() as u32).map(ProcessId).collect();
        for (row, process) in rows.iter_mut().zip(&self.processes).rev() {
            if process.pid.0 <= 0 {
                continue;
            }
            let known = last.entry(process.pid).or_insert(*row);
            match process.ended {
                Some(_) => *known = *row,
                None => *row = *known,
            }
        }
        rows
    }

    /// Returns the process of a thread.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> &Process {
        &self.processes[self.threads[thread.index()].process.index()]
    }
}
