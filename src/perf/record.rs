//! perf_event records as views into the ring, after `perf_event_open(2)` and `<linux/perf_event.h>`.

use perf_event_open_sys::bindings as sys;

use super::deferred::USER_DEFERRED;
use crate::ids::{Cpu, Nanos, Pid, Tid};

/// Callchain entries from here up are context markers (`PERF_CONTEXT_MAX`), not addresses.
pub const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// Addresses of a callchain (kernel.perf_event_max_stack, unless somebody has changed it).
const MAX_CHAIN: usize = 127;

/// Where a sample was taken (PERF_RECORD_MISC_CPUMODE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMode {
    /// In the kernel.
    Kernel,
    /// In user space.
    User,
    /// In a hypervisor or a guest: its addresses mean nothing here.
    Other,
}

impl CpuMode {
    /// What a context marker of a callchain says of the entries behind it.
    const fn of_context(marker: u64) -> Self {
        match marker {
            sys::PERF_CONTEXT_KERNEL => Self::Kernel,
            sys::PERF_CONTEXT_USER => Self::User,
            _ => Self::Other,
        }
    }
}

/// Register set of the sampled task's user side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// No user side (a kernel thread), or nobody asked for registers.
    None,
    /// 32-bit.
    Bits32,
    /// 64-bit.
    Bits64,
}

/// What the unwinder starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
}

/// An unaligned array of u64 inside a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct U64s<'a>(pub(super) &'a [u8]);

impl<'a> U64s<'a> {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// As they lie in the record.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The values.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let (values, _) = self.0.as_chunks::<8>();
        values.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The calls that have not returned yet as the processor has kept them (`--call-graph lbr`), the innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchStack<'a>(pub(super) &'a [u8]);

impl<'a> BranchStack<'a> {
    /// From, to, flags.
    pub(super) const ENTRY_BYTES: usize = 24;

    /// Whether nobody asked for them.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Where the innermost call went, and where each call is.
    fn addresses(self) -> impl Iterator<Item = u64> + use<'a> {
        let entries = self.0.len() / Self::ENTRY_BYTES;
        let numbers = U64s(self.0).iter();
        let to = numbers.skip(1).take(entries.min(1));
        to.chain(U64s(self.0).iter().step_by(Self::ENTRY_BYTES / 8))
    }
}

/// What a sample tells of counters (`PERF_SAMPLE_READ`): of its own, or of all of its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadValues<'a> {
    pub(super) numbers: U64s<'a>,
    /// So many numbers of each counter: what it counts, and at this position its id.
    pub(super) of_each: usize,
    pub(super) id_at: usize,
}

impl<'a> ReadValues<'a> {
    /// Whether it tells of none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.numbers.0.is_empty()
    }

    /// The ids of the counters, and what they count.
    pub fn iter(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let counters = self.numbers.0.chunks_exact((8 * self.of_each).max(1));
        counters.filter_map(move |counter| {
            let id = U64s(counter).iter().nth(self.id_at)?;
            Some((id, U64s(counter).iter().next()?))
        })
    }
}

/// PERF_RECORD_SAMPLE.
#[derive(Clone, Copy, Debug)]
pub struct SampleRecord<'a> {
    /// Where the instruction pointer was.
    pub mode: CpuMode,
    /// Instruction pointer.
    pub ip: u64,
    /// Process; 0 for the idle task.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// When.
    pub time: Nanos,
    /// Where it ran.
    pub cpu: Cpu,
    /// Event count since the sample before; nanoseconds for cpu-clock.
    pub period: u64,
    /// The id of the event that took it; 0 where nobody asked.
    pub event: u64,
    /// What counters have counted, if it tells whose.
    pub counts: ReadValues<'a>,
    /// Callchain of the kernel and, where asked for, of the user side, with context markers, leaf first.
    pub callchain: U64s<'a>,
    /// What stands in place of the user side of the callchain, if anything does.
    pub calls: BranchStack<'a>,
    /// What the event says besides, in a format of its own: the fields of a tracepoint.
    pub raw: &'a [u8],
    /// Kind of `registers`.
    pub abi: Abi,
    /// User registers, if there are any and they are 64-bit.
    pub registers: Option<Registers>,
    /// Copy of the user stack upwards from the stack pointer.
    pub stack: &'a [u8],
}

impl<'a> SampleRecord<'a> {
    /// The addresses of the callchain and where they lie, leaf first; its user side is that of the processor's own calls, if it
    /// has kept them. The kernel's side comes first: what follows is read from the stack of the process, so values of
    /// [`CONTEXT_MAX`] and above are no markers there, and are kept.
    pub fn addresses(&self) -> impl Iterator<Item = (CpuMode, u64)> + use<'a> {
        let mut users = self.callchain.iter();
        let has_calls =
            !self.calls.is_empty() && users.any(|entry| entry == sys::PERF_CONTEXT_USER);
        let calls = has_calls.then(|| self.calls.addresses());
        let (mut mode, mut is_user) = (CpuMode::User, false);
        let chain = self.callchain.iter().filter_map(move |entry| {
            if entry >= CONTEXT_MAX && !is_user {
                mode = CpuMode::of_context(entry);
                is_user = entry == sys::PERF_CONTEXT_USER;
                return None;
            }
            (!is_user || !has_calls).then_some((mode, entry))
        });
        let calls = calls.into_iter().flatten();
        chain.chain(calls.map(|address| (CpuMode::User, address)))
    }

    /// Whether a user side was to be in the callchain, even if it has no address.
    #[must_use]
    pub fn has_user_side(&self) -> bool {
        let mut entries = self.callchain.iter();
        entries.any(|entry| matches!(entry, sys::PERF_CONTEXT_USER | USER_DEFERRED))
    }

    /// Kernel addresses of the callchain, leaf first.
    pub fn kernel_chain(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.addresses_in(CpuMode::Kernel)
    }

    /// User addresses of the callchain, which the kernel found along the frame pointers or the processor has kept, leaf first.
    pub fn user_chain(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.addresses_in(CpuMode::User)
    }

    /// Whether the callchain is as long as the kernel makes any, so that callers may be missing.
    #[must_use]
    pub fn chain_is_full(&self) -> bool {
        let addresses = self.callchain.iter().filter(|&entry| entry < CONTEXT_MAX);
        addresses.count() >= MAX_CHAIN
    }

    fn addresses_in(&self, wanted: CpuMode) -> impl Iterator<Item = u64> + use<'a> {
        let addresses = self.addresses().filter(move |&(mode, _)| mode == wanted);
        addresses.map(|(_, address)| address)
    }
}

/// PERF_RECORD_MMAP2 (or MMAP): a range of executable memory appeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmapRecord<'a> {
    /// Process it appeared in.
    pub pid: Pid,
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Device (major, minor) and inode of the file; zeros for anonymous memory.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Build id of the file, if the record tells it in place of device and inode.
    pub build_id: &'a [u8],
    /// Path in the process's mount namespace, or a name such as `[vdso]` or `//anon`.
    pub path: &'a [u8],
}

/// PERF_RECORD_KSYMBOL: code that the kernel made at run time came or went (a BPF program, a trampoline).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether it is a BPF program or trampoline; else it is of ftrace or kprobes.
    pub bpf: bool,
    /// Whether it went.
    pub gone: bool,
    /// Its name, as in /proc/kallsyms.
    pub name: &'a [u8],
}

impl Ksymbol<'_> {
    /// The module that /proc/kallsyms tells of such code (kernel/kallsyms.c, get_ksymbol_bpf and others).
    #[must_use]
    pub fn module(&self) -> &'static str {
        match self.name {
            _ if self.bpf => "bpf",
            b"ftrace_trampoline" => "__builtin__ftrace",
            _ => "__builtin__kprobes",
        }
    }
}

/// A record. Those nobody asked for are [`Record::Other`].
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A sample.
    Sample(SampleRecord<'a>),
    /// Executable memory appeared.
    Mapping(MmapRecord<'a>),
    /// A thread got a name; `exec`: because its process runs a new program.
    Comm {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Whether it is an exec.
        exec: bool,
        /// The name.
        name: &'a [u8],
    },
    /// A process or thread began.
    Fork {
        /// New process; equal to `parent_pid` for a new thread.
        pid: Pid,
        /// New thread.
        tid: Tid,
        /// Process that made it.
        parent_pid: Pid,
        /// Thread that made it, whose name the new one has at first.
        parent_tid: Tid,
    },
    /// A thread ended.
    Exit {
        /// Its process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The kernel dropped records because the ring was full.
    Lost {
        /// How many.
        records: u64,
        /// On which CPU.
        cpu: Cpu,
    },
    /// The kernel dropped samples.
    LostSamples {
        /// How many.
        samples: u64,
        /// On which CPU.
        cpu: Cpu,
    },
    /// The kernel stopped sampling on a CPU.
    Throttle(Cpu),
    /// It samples there again.
    Unthrottle(Cpu),
    /// Code of the kernel came or went.
    KernelCode(Ksymbol<'a>),
    /// Another record type.
    Other,
}

impl Record<'_> {
    /// The process whose state the record changes.
    #[must_use]
    pub fn process(&self) -> Option<Pid> {
        match *self {
            Self::Mapping(ref mapping) => Some(mapping.pid),
            Self::Comm { pid, .. } | Self::Fork { pid, .. } | Self::Exit { pid, .. } => Some(pid),
            _ => None,
        }
    }
}
