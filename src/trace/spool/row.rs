//! Rows: what each says.

use std::borrow::Cow;

use thiserror::Error;

use crate::trace::{
    CodeAddress, FrameId, Losses, Nanos, Pid, ProcessId, Sample, StackId, ThreadId, Tid,
};

/// A file as the kernel tells it apart, and as it was when it was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device of `stat`.
    pub device: u64,
    /// Inode of `stat`.
    pub inode: u64,
    /// Its size.
    pub size: u64,
    /// When its content changed last, in seconds since 1970.
    pub modified: u64,
}

/// A file with code that was sampled; [`crate::trace::ModuleId`] counts these rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow<'a> {
    /// Path in the mount namespace of `pid`; may end in ` (deleted)`.
    pub path: Cow<'a, [u8]>,
    /// A process that had it mapped.
    pub pid: Pid,
    /// Which file it is; `None` if it could not be opened, or is none (the vDSO).
    pub identity: Option<FileIdentity>,
    /// Its build id; empty if it has none.
    pub build_id: Cow<'a, [u8]>,
}

/// Where the names of code made at run time are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitProcessRow {
    /// The process's id in its own pid namespace.
    pub namespace_pid: Pid,
    /// Its user.
    pub uid: u32,
    /// When it started, in ticks since the start of the machine: tells it from a later process with its id.
    pub start_ticks: u64,
    /// Device of its root directory.
    pub root_device: u64,
    /// Inode of its root directory.
    pub root_inode: u64,
    /// Path of the jitdump it has mapped; empty without one.
    pub dump: Box<[u8]>,
}

/// Code made at run time, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodRow<'a> {
    /// Whose it is.
    pub process: ProcessId,
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub size: u64,
    /// Its name; empty: there is other code than before, and its name is not known.
    pub name: Cow<'a, [u8]>,
    /// The assembly it is of.
    pub module: Cow<'a, [u8]>,
    /// How it was compiled; empty if that is not known.
    pub tier: Cow<'a, [u8]>,
}

/// Code that the kernel made at run time, as it came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KsymbolRow<'a> {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub size: u64,
    /// Whether it is gone.
    pub gone: bool,
    /// Its name.
    pub name: Cow<'a, [u8]>,
    /// Its module, in the words of /proc/kallsyms.
    pub module: Cow<'a, [u8]>,
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
        /// Its id.
        pid: Pid,
        /// Name of its main thread.
        name: &'a [u8],
        /// Its arguments.
        command_line: &'a [u8],
    },
    /// The next thread.
    Thread {
        /// Its process.
        process: ProcessId,
        /// Its id.
        tid: Tid,
        /// Its name.
        name: &'a [u8],
    },
    /// A process has another name now.
    ProcessName(ProcessId, &'a [u8]),
    /// A thread has another name now.
    ThreadName(ThreadId, &'a [u8]),
    /// A process runs code made at run time.
    JitHost(ProcessId, JitProcessRow),
    /// What code made at run time is from now on: of the frames that follow.
    Method(MethodRow<'a>),
    /// What code of the kernel came or went.
    Ksymbol(KsymbolRow<'a>),
    /// The next frame.
    Frame(CodeAddress),
    /// The next stack node: its parent and its frame.
    Node(StackId, FrameId),
    /// The losses so far.
    Losses(Losses),
    /// Everything before this time is in the spool.
    Clock(Nanos),
    /// The capture ended by itself.
    End(Nanos),
    /// A sample.
    Sample(Sample),
}

/// What is wrong with a row.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RowError {
    /// The block ends within it.
    #[error("a row ends early")]
    Ended,
    /// A number ends early or does not fit its field.
    #[error("a number is cut off or out of range")]
    Number,
    /// A text is longer than any writer writes.
    #[error("a text of {len} bytes where at most {max} are allowed")]
    TooLong {
        /// Its length.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// A kind this version does not know.
    #[error("a row of unknown kind {0}")]
    Kind(u8),
    /// It refers to what no row before it has defined.
    #[error("{what} {id} is used but not defined")]
    Undefined {
        /// What kind of thing.
        what: &'static str,
        /// Its number.
        id: u64,
    },
    /// The header cannot be understood, or stands where none may.
    #[error("the header is wrong")]
    Header,
}
