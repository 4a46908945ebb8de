//! perf_event records as views into the ring buffer.
//!
//! See `perf_event_open(2)` and `<linux/perf_event.h>`.

use perf_event_open_sys::bindings as sys;

use super::occurrence_events::Occurrence;
use crate::ids::{Cpu, Nanos, Pid, Tid};

/// `PERF_CONTEXT_USER_DEFERRED`: a cookie follows as the last entry.
pub(super) const USER_DEFERRED: u64 = -640_i64 as u64;
/// Smallest context marker in a callchain (`PERF_CONTEXT_MAX`); smaller entries are addresses.
pub const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// Maximum number of addresses in a callchain: the default of kernel.perf_event_max_stack.
const MAX_CHAIN: usize = 127;

/// Processor mode of a sampled address (PERF_RECORD_MISC_CPUMODE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMode {
    /// Kernel.
    Kernel,
    /// User space.
    User,
    /// Hypervisor or guest, whose addresses cannot be resolved.
    Other,
}

impl CpuMode {
    /// Returns the mode of the callchain entries after a context marker.
    const fn from_context(marker: u64) -> Self {
        match marker {
            sys::PERF_CONTEXT_KERNEL => Self::Kernel,
            sys::PERF_CONTEXT_USER => Self::User,
            _ => Self::Other,
        }
    }
}

/// ABI of the user registers of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// No user registers: a kernel thread, or registers were not requested.
    None,
    /// 32-bit.
    Bits32,
    /// 64-bit.
    Bits64,
}

/// User registers from which unwinding starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, or [`UNKNOWN_FRAME_POINTER`].
    pub bp: u64,
}

/// Frame pointer of a thread that waits, which no file of the kernel shows. No stack is there.
///
/// A null frame pointer would be that of a root.
pub const UNKNOWN_FRAME_POINTER: u64 = 8;

/// An unaligned array of u64 inside a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct U64s<'a>(pub(super) &'a [u8]);

impl<'a> U64s<'a> {
    /// Whether the array is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of the array in the record.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns an iterator over the values.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let (values, _) = self.0.as_chunks::<8>();
        values.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// LBR call stack (`--call-graph lbr`): the calls that have not returned, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchStack<'a>(pub(super) &'a [u8]);

impl<'a> BranchStack<'a> {
    /// Size of an entry: from, to, flags.
    pub(super) const ENTRY_BYTES: usize = 24;

    /// Whether the stack is empty, for example because it was not requested.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the target of the innermost call, followed by the address of each call.
    fn addresses(self) -> impl Iterator<Item = u64> + use<'a> {
        let entries = self.0.len() / Self::ENTRY_BYTES;
        let words = U64s(self.0).iter();
        let to = words.skip(1).take(entries.min(1));
        to.chain(U64s(self.0).iter().step_by(Self::ENTRY_BYTES / 8))
    }
}

/// Counter values of a sample (`PERF_SAMPLE_READ`): those of one counter or of its whole group.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadValues<'a> {
    pub(super) words: U64s<'a>,
    /// Number of words per counter, the first of which is the value.
    pub(super) words_per_counter: usize,
    /// Index of the id among the words of a counter.
    pub(super) id_index: usize,
}

impl<'a> ReadValues<'a> {
    /// Whether there are no counters.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.words.0.is_empty()
    }

    /// Returns the id and the value of each counter.
    pub fn iter(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let counter_bytes = (8 * self.words_per_counter).max(1);
        let counters = self.words.0.chunks_exact(counter_bytes);
        counters.filter_map(move |counter| {
            let id = U64s(counter).iter().nth(self.id_index)?;
            Some((id, U64s(counter).iter().next()?))
        })
    }
}

/// PERF_RECORD_SAMPLE.
#[derive(Clone, Copy, Debug)]
pub struct SampleRecord<'a> {
    /// Processor mode of `ip`.
    pub mode: CpuMode,
    /// Instruction pointer.
    pub ip: u64,
    /// Process; 0 for the idle task.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Time.
    pub time: Nanos,
    /// CPU.
    pub cpu: Cpu,
    /// Event count since the previous sample; nanoseconds for cpu-clock.
    pub period: u64,
    /// Id of the event; 0 if not requested.
    pub event: u64,
    /// Counter values, empty if they have no ids.
    pub counts: ReadValues<'a>,
    /// Callchain with context markers, leaf first: the kernel part and, if requested, the user
    /// part.
    pub callchain: U64s<'a>,
    /// LBR call stack, which replaces the user part of the callchain unless it is empty.
    pub calls: BranchStack<'a>,
    /// Raw data in an event-specific format: the fields of a tracepoint.
    pub raw: &'a [u8],
    /// ABI of the user registers.
    pub abi: Abi,
    /// User registers, present only for the 64-bit ABI.
    pub registers: Option<Registers>,
    /// Copy of the user stack, from the stack pointer upwards.
    pub stack: &'a [u8],
    /// Requested size of the copy, in bytes.
    pub requested_stack: u64,
}

impl<'a> SampleRecord<'a> {
    /// Returns the addresses of the callchain with their modes, leaf first.
    ///
    /// The LBR call stack replaces the user part, if it was recorded. The kernel part comes first.
    /// The kernel reads the user part from the stack of the process, so values of [`CONTEXT_MAX`]
    /// and above are addresses there, not markers.
    pub fn addresses(&self) -> impl Iterator<Item = (CpuMode, u64)> + use<'a> {
        let mut entries = self.callchain.iter();
        let has_calls =
            !self.calls.is_empty() && entries.any(|entry| entry == sys::PERF_CONTEXT_USER);
        let calls = has_calls.then(|| self.calls.addresses());
        let (mut mode, mut is_user) = (CpuMode::User, false);
        let chain = self.callchain.iter().filter_map(move |entry| {
            if entry >= CONTEXT_MAX && !is_user {
                mode = CpuMode::from_context(entry);
                is_user = entry == sys::PERF_CONTEXT_USER;
                return None;
            }
            (!is_user || !has_calls).then_some((mode, entry))
        });
        let calls = calls.into_iter().flatten();
        chain.chain(calls.map(|address| (CpuMode::User, address)))
    }

    /// Whether the callchain has a user part, which may be empty.
    #[must_use]
    pub fn has_user_side(&self) -> bool {
        let mut entries = self.callchain.iter();
        entries.any(|entry| matches!(entry, sys::PERF_CONTEXT_USER | USER_DEFERRED))
    }

    /// Returns the kernel addresses of the callchain, leaf first.
    pub fn kernel_chain(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.addresses_in(CpuMode::Kernel)
    }

    /// Returns the user addresses of the callchain, leaf first.
    ///
    /// They come from the kernel's unwinding by frame pointer or from the LBR call stack.
    pub fn user_chain(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.addresses_in(CpuMode::User)
    }

    /// Whether the callchain has the maximum length, so that callers may be missing.
    #[must_use]
    pub fn chain_is_full(&self) -> bool {
        let addresses = self.callchain.iter().filter(|&entry| entry < CONTEXT_MAX);
        addresses.count() >= MAX_CHAIN
    }

    fn addresses_in(&self, mode: CpuMode) -> impl Iterator<Item = u64> + use<'a> {
        let addresses = self.addresses().filter(move |&(other, _)| other == mode);
        addresses.map(|(_, address)| address)
    }
}

/// PERF_RECORD_MMAP2 (or MMAP): a process mapped executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmapRecord<'a> {
    /// Process that mapped it.
    pub pid: Pid,
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Device (major, minor) of the file; zeros for anonymous memory.
    pub device: (u32, u32),
    /// Inode number of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Build id of the file, if the record contains it in place of device and inode.
    pub build_id: &'a [u8],
    /// Path in the process's mount namespace, or a name such as `[vdso]` or `//anon`.
    pub path: &'a [u8],
}

/// PERF_RECORD_KSYMBOL: registers or unregisters dynamically generated kernel code.
///
/// Such code is a BPF program or a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether it is a BPF program or trampoline, not code of ftrace or kprobes.
    pub bpf: bool,
    /// Whether the kernel unregistered it.
    pub unregistered: bool,
    /// Name, as in /proc/kallsyms.
    pub name: &'a [u8],
}

impl Ksymbol<'_> {
    /// Returns the module that /proc/kallsyms lists for such code.
    ///
    /// See kernel/kallsyms.c, get_ksymbol_bpf and others.
    #[must_use]
    pub fn module(&self) -> &'static str {
        match self.name {
            _ if self.bpf => "bpf",
            b"ftrace_trampoline" => "__builtin__ftrace",
            _ => "__builtin__kprobes",
        }
    }
}

/// A record. Types that perfcollect does not use are [`Record::Other`].
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A sample.
    Sample(SampleRecord<'a>),
    /// A sample of occurrences: its period is their number.
    Occurrences(Occurrence, SampleRecord<'a>),
    /// A process mapped executable memory.
    Mapping(MmapRecord<'a>),
    /// A thread changed its name.
    Comm {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Whether the name changed because of an exec.
        exec: bool,
        /// New name.
        name: &'a [u8],
    },
    /// A process or thread started.
    Fork {
        /// New process; equal to `parent_pid` for a new thread.
        pid: Pid,
        /// New thread.
        tid: Tid,
        /// Process that started it.
        parent_pid: Pid,
        /// Thread that started it, whose name the new thread inherits.
        parent_tid: Tid,
    },
    /// A thread ended.
    Exit {
        /// Process of the thread.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The kernel dropped records because the ring buffer was full.
    Lost {
        /// Number of records.
        records: u64,
        /// CPU of the ring buffer.
        cpu: Cpu,
        /// Id of an event of the ring buffer, if the records have ids.
        event: Option<u64>,
    },
    /// The kernel dropped samples.
    LostSamples {
        /// Number of samples.
        samples: u64,
        /// CPU of the samples.
        cpu: Cpu,
    },
    /// The kernel paused an event.
    Throttle {
        /// CPU of the event.
        cpu: Cpu,
        /// Id of the event, if the records have ids.
        event: Option<u64>,
    },
    /// The kernel resumed an event.
    Unthrottle {
        /// CPU of the event.
        cpu: Cpu,
        /// Id of the event, if the records have ids.
        event: Option<u64>,
    },
    /// The kernel registered or unregistered dynamically generated kernel code.
    Ksymbol(Ksymbol<'a>),
    /// A record of another type.
    Other,
}

impl Record<'_> {
    /// Returns the process that the record is about, except for samples.
    #[must_use]
    pub fn process(&self) -> Option<Pid> {
        match *self {
            Self::Mapping(ref mapping) => Some(mapping.pid),
            Self::Comm { pid, .. } | Self::Fork { pid, .. } | Self::Exit { pid, .. } => Some(pid),
            _ => None,
        }
    }
}
