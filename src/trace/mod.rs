//! The trace: everything that records ends in it, everything that shows starts from it.

mod callers;
pub mod events;
mod ids;
mod methods;
mod quality;
mod recent;
mod recorder;
mod samples;
pub mod spool;
mod stack;
mod throttle;

pub use crate::ids::{Cpu, Nanos, Pid, Tid};
pub use callers::Callers;
pub use events::{EventStream, EventStreams, RuntimeEvent};
pub use ids::{FrameId, FunctionId, ModuleId, ProcessId, StackId, ThreadId};
pub use methods::{Method, Methods};
pub use quality::{
    CpuLosses, Losses, NameCount, Notice, ProcessEvents, Quality, StackQuality, SymbolCounts,
    Truncation,
};
pub use recorder::{CodeAddress, DescribeFile, Recorder};
pub use samples::Samples;
pub use spool::{Header, RawTrace};
pub use stack::StackTable;
pub use throttle::{CpuPauses, Pauses};

use std::ops::Range;

use serde::{Deserialize, Serialize};

use perfcollect_symbols::build_id::BuildId;

/// What kind of code a function is; decides its colour and the counter of [`SymbolCounts`] it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// Kernel code.
    Kernel,
    /// Machine code of an ELF file, the vDSO included.
    Native,
    /// Code compiled while the process runs.
    Jit,
    /// Precompiled .NET code.
    ReadyToRun,
    /// An address in no known mapping.
    Unmapped,
    /// Not code: stands for the callers that a cut stack lacks.
    Marker,
}

/// A function, or a code address no name was found for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// The demangled name, without module, arguments kept. `None`: shown as module and offset, that of `start` or of the address.
    /// Text from outside: may hold any character, writers escape it for their format.
    pub name: Option<Box<str>>,
    /// Where it starts, in the terms of [`Frame::offset`], if that is known in place of the name: it is then one function at all its
    /// addresses.
    pub start: Option<u64>,
    /// What a reader sees as module: file name, assembly, `vmlinux`, `vdso`, ... Text from outside.
    pub module: Box<str>,
    /// The JIT's optimization tier as the runtime spells it (`OptimizedTier1`), for .NET methods.
    pub tier: Option<Box<str>>,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether the function was inlined into the next outer one.
    pub inlined: bool,
}

/// A code address and the functions it lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it is, in the terms of its module: ELF files as their symbols count, other files by file offset; the
    /// virtual address where there is no file.
    pub offset: u64,
    /// Rows of [`Trace::frame_functions`], outermost function first; never empty. All but the first are inlined.
    pub functions: Range<u32>,
}

/// One life of a process: from its fork or exec-less start to its exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id; ids are reused, so several rows may have the same.
    pub pid: Pid,
    /// Name of the main thread (comm), up to 15 bytes, lossily decoded. Text from outside.
    pub name: Box<str>,
    /// Arguments joined by spaces, if they could be read; else empty. Text from outside.
    pub command_line: Box<str>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Its id.
    pub tid: Tid,
    /// Its name (comm), lossily decoded. Text from outside.
    pub name: Box<str>,
}

/// An ELF file with code that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its path in the mount namespace of a process that had it mapped, lossily decoded. Text from outside.
    pub path: Box<str>,
    /// The build id its note states.
    pub build_id: Option<BuildId>,
    /// Whether it, or a debug file that was found, has a symbol table.
    pub has_symbols: bool,
    /// How many frames got names, each counted once for each sample it is in.
    pub frames: NameCount,
}

/// The most that a sample of a recording may stand for, 100 s: a file may say anything, and sums must fit.
pub const MAX_WEIGHT_NS: u64 = 100_000_000_000;

/// One sample of the CPU clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: Nanos,
    /// How much it stands for: nanoseconds of CPU time.
    pub weight: Nanos,
    /// Who.
    pub thread: ThreadId,
    /// Where.
    pub cpu: Cpu,
    /// What ran.
    pub stack: StackId,
}

/// How the trace came to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// Version of perfcollect.
    pub version: String,
    /// Name of the machine (`uname -n`).
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
    /// Who was sampled: `whole machine`, `pid 12, 13` or the command.
    pub target: String,
    /// Why the capture ended, such as `time limit` or `command ended: exit status 3`.
    #[serde(default)]
    pub end: String,
    /// CPU time the collector itself took while capturing, in milliseconds.
    pub collector_cpu_ms: f64,
    /// The collector's peak resident memory at the end of sampling, in KiB.
    pub collector_peak_kib: u64,
    /// Which callers the samples have.
    #[serde(default)]
    pub callers: Callers,
    /// Whether the weights of samples are CPU time, or nearly so; others are nominal. `None`: the name of the event shows it.
    #[serde(default)]
    pub of_time: Option<bool>,
}

impl CaptureInfo {
    /// Whether the samples are of an event that counts time, or nearly so; those of others, such as tracepoints of recordings, have a nominal weight.
    #[must_use]
    pub fn is_of_time(&self) -> bool {
        let clocks = ["-clock", "cycles"];
        let by_name = || clocks.iter().any(|clock| self.event.contains(clock));
        self.of_time.unwrap_or_else(by_name)
    }
}

/// A finished capture: immutable columns with all names resolved.
#[derive(Default)]
pub struct Trace {
    /// How it came to be.
    pub info: CaptureInfo,
    /// One row per process life that has samples.
    pub processes: Vec<Process>,
    /// One row per thread that has samples.
    pub threads: Vec<Thread>,
    /// One row per function.
    pub functions: Vec<Function>,
    /// Functions of all frames, see [`Frame::functions`].
    pub frame_functions: Vec<FunctionId>,
    /// One row per code address.
    pub frames: Vec<Frame>,
    /// Stacks of `frames`. A cut stack has a frame of kind [`FunctionKind::Marker`] at its root.
    pub stacks: StackTable,
    /// Samples in order of time.
    pub samples: Samples,
    /// One row per ELF file with code in a stack.
    pub modules: Vec<Module>,
    /// Events of .NET runtimes: streams on the disk.
    pub events: EventStreams,
    /// The quality report.
    pub quality: Quality,
}

impl Trace {
    /// Functions of a frame, innermost (inlined) first.
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

    /// The process a thread belongs to.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> &Process {
        &self.processes[self.threads[thread.index()].process.index()]
    }
}
