//! Notices: what happened to a capture, as data that the report, JSON and tests share.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Remedy if a file cannot be opened for lack of descriptors.
pub(crate) const MORE_DESCRIPTORS: &str = "raise the limit of open files (ulimit -n)";

/// Remedy if the threads of a process cannot be read.
pub(crate) const RIGHTS_TO_READ_THREADS: &str = "run perfcollect as the user of the process, or as root on the host; in a container it takes CAP_SYS_PTRACE \
     and, for other users, CAP_DAC_READ_SEARCH";

/// Returns whether a file could not be opened for lack of descriptors.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A message for the user: an event or state of the capture, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Kind of the event or state.
    #[serde(default)]
    pub kind: NoticeKind,
    /// What it concerns, such as a process id, a path or an event; empty for the whole capture.
    #[serde(default)]
    pub subject: String,
    /// Number of processes, files, samples, records or events that it concerns; 0 if not counted.
    #[serde(default)]
    pub count: u64,
    /// The problem and its cause, as text.
    pub what: String,
    /// The action that helps; empty if there is none.
    pub remedy: String,
}

impl Notice {
    /// Creates a notice about the whole capture; the remedy may be empty.
    pub fn new(kind: NoticeKind, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind,
            subject: String::new(),
            count: 0,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// Sets what the notice concerns.
    #[must_use]
    pub fn about(self, subject: impl ToString) -> Self {
        Self {
            subject: subject.to_string(),
            ..self
        }
    }

    /// Sets how many things the notice concerns.
    #[must_use]
    pub fn counting(self, count: impl TryInto<u64>) -> Self {
        Self {
            count: count.try_into().unwrap_or(u64::MAX),
            ..self
        }
    }
}

/// Kind of a notice. The name in JSON is stable.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// The kernel dropped records. Count: records.
    RecordsLost,
    /// The kernel throttled sampling. Count: pauses.
    Throttled,
    /// The kernel lowered the maximum sample rate. Count: samples per second.
    SampleRateLowered,
    /// Samples belong to processes outside the pid namespace. Count: samples.
    OutsidePidNamespace,
    /// It is not known, or not well known, where threads wait. Count: threads.
    NoThreadTime,
    /// It is not known whether CPU limits throttled processes. Count: processes.
    CpuLimitsUnread,
    /// CPUs went offline or came online. Count: changes.
    CpuHotplug,
    /// Threads of the target are not sampled. Count: threads.
    ThreadsNotSampled,
    /// There are events and no samples.
    NoSamples,
    /// The samples are of threads in managed code, by wall-clock time. Count: samples left out.
    ManagedThreadsOnly,
    /// A target is stopped or suspended. Subject: process id.
    NotRunning,
    /// The target does not fit the symptom that the capture is for. Subject: process ids. Count: processes.
    SymptomUnfit,
    /// The command was not stopped. Subject: process id.
    CommandStillRuns,

    /// Hardware cycles are not available.
    NoHardwareCycles,
    /// Events of the CPU or the kernel were not counted or sampled. Subject: their names. Count: threads or processes.
    CountersMissing,
    /// The kernel does not copy stacks.
    NoStackCopies,
    /// Only the threads of the target may be sampled.
    NotSystemWide,
    /// The kernel may not be sampled.
    UserCodeOnly,
    /// Ring buffers are smaller than requested. Count: KiB per CPU.
    RingBuffersReduced,
    /// Stack copies are shorter than requested. Count: bytes.
    StackCopiesReduced,

    /// The capture ended early, so that its trace fits on the disk.
    DiskSpace,
    /// The spool could not grow.
    SpoolFull,
    /// The spool is corrupt.
    SpoolCorrupt,
    /// The trace was recovered from a spool.
    Recovered,
    /// A view shows a part of a trace, without what cannot be selected.
    Selection,
    /// Files of a recovered capture are gone. Count: files.
    FilesMissing,

    /// Unwind information of a user's files took too long. Subject: user id.
    UnwindingBounded,
    /// Processes could not be read because too many files were open. Count: processes.
    TooManyOpenFiles,

    /// The memory or the runtime of .NET processes cannot be read. Subject: process ids. Count:
    /// processes.
    MemoryUnreadable,
    /// Method names of .NET processes cannot be read. Subject: process ids. Count: processes.
    MethodNamesUnreadable,
    /// Method events of a .NET process were lost. Subject: process id. Count: events.
    MethodNamesLost,
    /// Events of .NET processes are missing. Subject: process id, if one. Count: processes.
    EventsMissing,
    /// Processes got no event session. Subject: process ids. Count: processes.
    EventsNotRequested,
    /// A runtime dropped events. Subject: process id. Count: events.
    EventsLost,
    /// Event streams end early. Subject: process ids. Count: processes.
    EventsTruncated,
    /// The event streams of the capture cannot be read.
    EventsUnreadable,
    /// Requested providers sent no event. Subject: their names. Count: providers.
    ProviderSilent,

    /// Code of files is unresolved. Subject: paths. Count: files.
    CodeUnsymbolized,
    /// JIT code of processes is unresolved. Subject: processes. Count: processes.
    JitUnsymbolized,
    /// Functions of scripts have no names. Subject: process ids. Count: processes.
    ScriptUnnamed,
    /// Kernel code is unresolved.
    KernelUnsymbolized,
    /// Functions or inlined functions of a file are incomplete. Subject: path.
    SymbolsIncomplete,
    /// A file with parts of the debug information is missing or was not used. Subject: its path.
    DebugPartMissing,
    /// A debug file exists and was not used. Subject: path.
    DebugFileRejected,
    /// Directories with debug files cannot be searched. Subject: paths. Count: directories.
    DebugFilesNotSearched,
    /// No server has the debug files of modules. Subject: modules. Count: modules.
    NoDebugFile,

    /// The trace was imported from text.
    Imported,
    /// A recording is corrupt from a byte on.
    RecordingCorrupt,
    /// Data of hardware tracing was left out.
    HardwareTraceOmitted,
    /// Samples of idle CPUs were left out. Count: samples.
    IdleOmitted,
    /// Samples of an event were left out. Subject: event. Count: samples.
    EventOmitted,
    /// Events that count the same were imported as one. Subject: their name. Count: events.
    EventsMerged,
    /// Samples have no callers, or none in user space. Count: samples, if not all.
    NoCallers,
    /// Samples have equal weights although they represent different counts. Subject: event.
    UnevenWeights,
    /// The recording has no times.
    NoTimes,
    /// The text lacks fields or has other lines. Count: lines or samples.
    TextIncomplete,

    /// Any kind of a newer or older perfcollect.
    #[default]
    #[serde(other)]
    Unknown,
}

impl NoticeKind {
    /// Returns whether the subject is one process or several.
    pub(crate) fn is_about_processes(self) -> bool {
        matches!(
            self,
            Self::NotRunning
                | Self::SymptomUnfit
                | Self::CommandStillRuns
                | Self::MemoryUnreadable
                | Self::MethodNamesUnreadable
                | Self::MethodNamesLost
                | Self::EventsMissing
                | Self::EventsNotRequested
                | Self::EventsLost
                | Self::EventsTruncated
                | Self::JitUnsymbolized
                | Self::ScriptUnnamed
        )
    }
}
