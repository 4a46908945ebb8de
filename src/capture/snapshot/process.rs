//! What a snapshot reads of one process: stacks, locks and files of its threads.

use std::cell::Cell;

use perfcollect_symbols::process::{parse_all_maps, read_maps};
use rustc_hash::FxHashMap;

use super::{Activity, SnapshotThread};
use crate::dotnet::{Memory, Monitor, PrivateMemory};
use crate::machine::{
    self, Blocked, ControlGroup, Descriptors, NotBlocked, Resource, SchedulerState,
    new_namespace_threads, time_slices,
};
use crate::trace::{Blocked as InKernel, BlockedOn, Pid, Tid};

/// Size of the part of a stack that is read at first: reading holds a lock of the process for a moment.
pub(super) const MIN_STACK_BYTES: u64 = 64 << 10;
/// Maximum size if its frames need more.
const MAX_STACK_BYTES: u64 = 8 << 20;
/// Size that is read of all stacks, about. When most of it is used, less of each is read.
const STACK_BUDGET: u64 = 1 << 30;
/// Part of the budget that one stack may take.
const BUDGET_SHARE: u64 = 16;
/// How often a thread is read again that has run meanwhile.
const MAX_READS: u32 = 4;

/// The part of a stack that a thread uses.
struct Stacks {
    /// Ranges of memory that belongs to no file, by their start.
    memory: Vec<(u64, u64)>,
    /// Whether the process has a .NET runtime.
    is_dotnet: bool,
}

impl Stacks {
    fn of(pid: Pid) -> Self {
        let maps = read_maps(pid.0).unwrap_or_default();
        let memory = parse_all_maps(&maps).filter(|line| line.inode == 0);
        Self {
            memory: memory.map(|line| (line.start, line.end)).collect(),
            is_dotnet: parse_all_maps(&maps).any(|line| is_of_dotnet(line.path)),
        }
    }

    /// Returns the memory with an address.
    fn range(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.memory.partition_point(|(start, _)| *start <= address);
        let range = *self.memory.get(after.checked_sub(1)?)?;
        (address < range.1).then_some(range)
    }

    /// Returns the end of the memory with a stack pointer.
    fn end(&self, sp: u64) -> Option<u64> {
        self.range(sp).map(|(_, end)| end)
    }
}

/// Returns whether only processes with a .NET runtime map a file: the runtime, or its memory for code, which a
/// program that the runtime is linked into has, too.
fn is_of_dotnet(path: &[u8]) -> bool {
    path.ends_with(b"/libcoreclr.so") || path.starts_with(b"/memfd:doublemapper")
}

/// The memory of a process that no file and not the stack of a thread has: where its locks may be.
struct Heap<'a> {
    memory: &'a PrivateMemory,
    stacks: &'a Stacks,
    stack: (u64, u64),
    /// Number of reads that are left.
    left: &'a Cell<u32>,
}

impl Memory for Heap<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        match self.stacks.range(address) {
            Some(range) if range != self.stack && self.left.get() > 0 => {
                self.left.set(self.left.get() - 1);
                self.memory.read(address, buffer)
            }
            _ => 0,
        }
    }
}

/// What is read once for a process.
pub(in crate::capture) struct Process {
    pub(super) pid: Pid,
    /// Its threads by their ids in its pid namespace, and these ids by thread.
    threads: FxHashMap<Tid, Tid>,
    pub(super) namespace_tids: FxHashMap<Tid, Tid>,
    is_dotnet: bool,
    /// Whether a control group of it is frozen.
    pub(super) is_frozen: bool,
    pub(super) memory: Option<PrivateMemory>,
    stacks: Stacks,
    pub(super) descriptors: Descriptors,
    stack_budget: Cell<u64>,
}

/// A thread that waits, and its stack.
#[derive(Debug)]
pub(in crate::capture) struct Read {
    pub(in crate::capture) blocked: Blocked,
    pub(in crate::capture) stack: Vec<u8>,
    pub(in crate::capture) has_moved: bool,
    pub(in crate::capture) time_slices: Option<u64>,
}

impl Process {
    pub(in crate::capture) fn of(pid: Pid, is_dotnet: bool) -> Self {
        // The files of a main thread that has ended are empty.
        let reader = match SchedulerState::of(pid, Tid(pid.0)) {
            Some(SchedulerState::Ended) => living_thread(pid),
            _ => pid,
        };
        let threads = new_namespace_threads(pid, &FxHashMap::default());
        Self {
            is_dotnet,
            is_frozen: machine::is_frozen(&ControlGroup::of(pid)),
            namespace_tids: threads.iter().map(|&(id, tid)| (tid, id)).collect(),
            threads: threads.into_iter().collect(),
            ..Self::of_stacks(pid, reader)
        }
    }

    /// Reads the memory map only: the ids of the threads in their namespace are not known.
    pub(in crate::capture) fn of_stacks(pid: Pid, reader: Pid) -> Self {
        Self {
            pid,
            is_dotnet: false,
            is_frozen: false,
            namespace_tids: FxHashMap::default(),
            threads: FxHashMap::default(),
            memory: PrivateMemory::open(reader),
            stacks: Stacks::of(pid),
            descriptors: Descriptors::of(reader),
            stack_budget: Cell::new(STACK_BUDGET),
        }
    }

    /// Reads the stack of a thread that waits.
    pub(super) fn read(&self, tid: Tid, limit: u64) -> Result<Read, NotBlocked> {
        let mut last = None;
        for _ in 0..MAX_READS {
            let before = time_slices(self.pid, tid);
            let blocked = Blocked::of(self.pid, tid)?;
            let stack = self.stack(blocked.sp, limit);
            let time_slices = time_slices(self.pid, tid);
            let read = last.insert(Read {
                blocked,
                stack,
                has_moved: before != time_slices,
                time_slices,
            });
            if !read.has_moved {
                break;
            }
        }
        last.ok_or(NotBlocked::Runs)
    }

    /// Returns where a thread waits, as the leaf of its stack.
    pub(in crate::capture) fn place(&self, blocked: &Blocked) -> InKernel {
        let Some(call) = blocked.call else {
            return InKernel::Fault;
        };
        let Ok(number) = u16::try_from(call.number) else {
            return InKernel::Unknown;
        };
        let on = match call.resource() {
            Resource::File(descriptor) => self.descriptors.kind(descriptor),
            Resource::Futex {
                has_owner: true, ..
            } => BlockedOn::Owner,
            Resource::Time(_) | Resource::Until => BlockedOn::Time,
            _ => BlockedOn::Nothing,
        };
        InKernel::Call(number, on)
    }

    /// Returns the monitor that a thread may wait for.
    pub(super) fn monitor(&self, tid: Tid, read: &Read) -> Option<Monitor> {
        let resource = read.blocked.call?.resource();
        let is_futex = matches!(resource, Resource::Futex { .. });
        let memory = self
            .memory
            .as_ref()
            .filter(|_| is_futex && self.is_dotnet)?;
        Monitor::on_stack(&read.stack, memory, |owner| self.is_other(owner, tid))
    }

    /// Returns the address of a .NET monitor that a thread may wait for in a futex. `last` is the last one, which is
    /// tried first. `left` is the number of reads of memory that this may take, which it lowers: the words of a stack
    /// may be any number of pointers.
    pub(in crate::capture) fn monitor_at(
        &self,
        tid: Tid,
        read: &Read,
        last: Option<u64>,
        left: &Cell<u32>,
    ) -> Option<u64> {
        let resource = read.blocked.call?.resource();
        let is_futex = matches!(
            resource,
            Resource::Futex {
                has_owner: false,
                ..
            }
        );
        let memory = self
            .memory
            .as_ref()
            .filter(|_| is_futex && self.stacks.is_dotnet)?;
        let heap = Heap {
            memory,
            stacks: &self.stacks,
            stack: self.stacks.range(read.blocked.sp)?,
            left,
        };
        // The ids of the threads in their namespace are not known.
        let may_be_other = |owner: u32| owner != 0 && i64::from(owner) != i64::from(tid.0);
        let (words, _) = read.stack.as_chunks::<8>();
        let last = last.filter(|last| words.contains(&last.to_le_bytes()));
        let last = last.and_then(|last| Monitor::at(last, &heap, may_be_other));
        let monitor = last.or_else(|| Monitor::on_stack(&read.stack, &heap, may_be_other))?;
        Some(monitor.address)
    }

    /// Returns whether an id in the pid namespace of the process is that of another thread.
    fn is_other(&self, id: u32, tid: Tid) -> bool {
        let other = i32::try_from(id).ok();
        let other = other.and_then(|id| self.threads.get(&Tid(id)));
        other.is_some_and(|other| *other != tid)
    }

    /// Reads the locks that threads wait for again, and finds which threads have not run since.
    ///
    /// Without that, threads that take turns with their locks would look like a deadlock.
    pub(super) fn confirm(&self, threads: &mut [SnapshotThread]) {
        let Some(memory) = &self.memory else {
            return;
        };
        for thread in &mut *threads {
            if let Activity::Waits(wait) = &mut thread.activity {
                wait.refresh(memory);
            }
            let monitor = thread.monitor.map(|monitor| monitor.address);
            thread.monitor = monitor.and_then(|address| {
                Monitor::at(address, memory, |owner| self.is_other(owner, thread.tid))
            });
        }
        for thread in threads {
            let slices = thread.time_slices;
            thread.has_stayed = !thread.has_moved
                && slices.is_some()
                && slices == time_slices(self.pid, thread.tid);
        }
    }

    pub(in crate::capture) fn stack(&self, sp: u64, limit: u64) -> Vec<u8> {
        let end = self.stacks.end(sp);
        let range = end.map(|end| sp..end.min(sp.saturating_add(limit)));
        let copied = self.memory.as_ref().zip(range);
        let copied = copied.map(|(memory, range)| memory.copy(range));
        let copied = copied.unwrap_or_default();
        let left = self.stack_budget.get();
        self.stack_budget
            .set(left.saturating_sub(copied.len() as u64));
        copied
    }

    /// Returns how much of a stack may be read if its frames need that much.
    pub(super) fn larger_limit(&self) -> u64 {
        (self.stack_budget.get() / BUDGET_SHARE).clamp(MIN_STACK_BYTES, MAX_STACK_BYTES)
    }
}

/// Returns the id of a thread that has not ended, or else that of its process.
fn living_thread(pid: Pid) -> Pid {
    let threads = machine::threads([pid]).into_iter();
    let mut living =
        threads.filter(|tid| SchedulerState::of(pid, *tid) != Some(SchedulerState::Ended));
    living.next().map_or(pid, |tid| Pid(tid.0))
}
