//! Kinds of work that the functions in a stack reveal: compilation, collection, exceptions, ...

use serde::{Deserialize, Serialize};

use super::entries::Entries;
use crate::output::own_code::OwnCode;
use crate::trace::{Function, FunctionKind, StackId, Trace};

/// A kind of work that has a method of the user's code behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// As [`Work::kernel`], without page faults.
    Kernel,
    /// As [`Work::page_faults`].
    PageFaults,
    /// As [`Work::jit`].
    Jit,
    /// As [`Work::exceptions`].
    Exceptions,
    /// As [`Work::spinning`].
    Spinning,
    /// As [`Work::task_waits`].
    TaskWaits,
    /// As [`Work::not_optimized`].
    NotOptimized,
}

impl WorkKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Kernel,
        Self::PageFaults,
        Self::Jit,
        Self::Exceptions,
        Self::Spinning,
        Self::TaskWaits,
        Self::NotOptimized,
    ];

    fn flag(self) -> u16 {
        match self {
            Self::Kernel => KERNEL,
            Self::PageFaults => PAGE_FAULT,
            Self::Jit => JIT,
            Self::Exceptions => EXCEPTION,
            Self::Spinning => SPINNING,
            Self::TaskWaits => TASK_WAIT,
            Self::NotOptimized => NOT_OPTIMIZED,
        }
    }

    fn is_other(self, flags: u16) -> bool {
        self == Self::Kernel && flags & PAGE_FAULT != 0
    }
}

/// Samples of a process by kind of work. A sample may be in several counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// In the kernel.
    pub kernel: u64,
    /// In the kernel, because of a page fault.
    pub page_faults: u64,
    /// Below the JIT compiler of .NET.
    pub jit: u64,
    /// Below the garbage collector, as far as functions or threads with a name reveal it.
    pub gc: u64,
    /// Below the code that throws and catches exceptions.
    pub exceptions: u64,
    /// In a loop that waits for a lock or another thread, but not for a task or for work of a thread
    /// pool.
    pub spinning: u64,
    /// Of threads that wait for a task to complete, which blocks a thread.
    pub task_waits: u64,
    /// In or below the user's .NET methods that were compiled without optimization on request.
    pub not_optimized: u64,
    /// In or below the user's methods with a name.
    pub own: u64,
    /// With stacks that lack callers.
    #[serde(default)]
    pub truncated: u64,
}

impl Work {
    /// Returns the samples of a kind of work.
    #[must_use]
    pub fn samples(&self, kind: WorkKind) -> u64 {
        match kind {
            WorkKind::Kernel => self.kernel.saturating_sub(self.page_faults),
            WorkKind::PageFaults => self.page_faults,
            WorkKind::Jit => self.jit,
            WorkKind::Exceptions => self.exceptions,
            WorkKind::Spinning => self.spinning,
            WorkKind::TaskWaits => self.task_waits,
            WorkKind::NotOptimized => self.not_optimized,
        }
    }
}

const PAGE_FAULT: u16 = 1;
const JIT: u16 = 2;
const GC: u16 = 4;
const EXCEPTION: u16 = 8;
const SPINNING: u16 = 16;
const TASK_WAIT: u16 = 32;
const KERNEL: u16 = 64;
const NOT_OPTIMIZED: u16 = 128;
/// No kind of work: what is below does not wait for a task.
const TASK_RUN: u16 = 256;
/// No kind of work: a thread of the thread pool waits for some.
const POOL_WAIT: u16 = 512;
/// No kind of work: what is below is work of the thread pool.
const POOL_RUN: u16 = 1024;
/// No kind of work: the stack lacks callers.
const TRUNCATED: u16 = 2048;

/// Kernel functions that handle page faults.
const PAGE_FAULTS: [&str; 3] = ["asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault"];
/// Native functions that throw exceptions.
const THROWS: [&str; 5] = [
    "IL_Throw",
    "IL_Rethrow",
    "_Unwind_RaiseException",
    "__cxa_throw",
    "RhThrowEx",
];
/// Starts of .NET methods that handle exceptions.
const HANDLERS: [&str; 1] = ["System.Runtime.EH."];
/// Native functions that spin, of .NET 9 or newer. The JIT compiler inlines the methods that call
/// them.
const SPIN_FUNCTIONS: [&str; 1] = ["ThreadNative_SpinWait"];
/// Starts of .NET methods that spin.
const SPINS: [&str; 3] = [
    "System.Threading.SpinWait.",
    "System.Threading.SpinLock.",
    "System.Threading.Thread.SpinWait",
];
/// Starts of .NET methods that block a thread until a task is complete.
const TASK_WAITS: [&str; 6] = [
    "System.Threading.Tasks.Task.InternalWait",
    "System.Threading.Tasks.Task.SpinThenBlockingWait",
    "System.Threading.Tasks.Task.Wait(",
    "System.Threading.Tasks.Task.WaitAll",
    "System.Threading.Tasks.Task.WaitAny",
    "System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification",
];
/// Starts of .NET methods that run a task: what is below them does not wait. A thread that waits for
/// tasks runs those that no other thread has started.
const TASK_RUNS: [&str; 2] = [
    "System.Threading.Tasks.Task.ExecuteEntry",
    "System.Threading.Tasks.Task.ExecuteWithThreadLocal",
];
/// Starts of .NET methods in which threads of the thread pool spin until there is work for them. The
/// JIT compiler inlines the first into the second.
const POOL_WAITS: [&str; 2] = [
    "System.Threading.LowLevelLifoSemaphore.",
    "System.Threading.PortableThreadPool+WorkerThread.",
];
/// Start of .NET methods that run the work of the thread pool: what is below them does not wait for it.
const POOL_RUNS: [&str; 1] = ["System.Threading.ThreadPoolWorkQueue.Dispatch"];
/// Threads of the garbage collector.
const GC_THREADS: [&str; 2] = [".NET Server GC", ".NET BGC"];
/// Tier of methods that are compiled without optimization on request: a debug build.
const MIN_OPT_TIER: &str = "MinOptJitted";

/// The kinds of work of each stack.
pub(super) struct StackWork(Vec<u16>);

impl StackWork {
    /// Finds the kinds of work of each stack. What is in or below a method of the user counts for
    /// that method only: a task may run in a thread that waits for it, a handler below a `throw`.
    pub(super) fn new(trace: &Trace, own_code: &OwnCode) -> Self {
        let functions: Vec<u16> = trace.functions.iter().map(flags).collect();
        let mut stacks = vec![0; trace.stacks.len()];
        let mut entries = Entries::new(trace);
        for (stack, parent, frame) in trace.stacks.nodes() {
            let mut inside = trace.functions_leaf_first(frame);
            let own = inside.find(|function| own_code.is_own(*function));
            let mut inherited = match (parent, own) {
                (StackId::EMPTY, _) => 0,
                (parent, Some(_)) => stacks[parent.index()] & TRUNCATED,
                (parent, None) => stacks[parent.index()],
            };
            let mut kinds = match own {
                Some(own) if is_not_optimized(&trace.functions[own.index()]) => NOT_OPTIMIZED,
                _ => 0,
            };
            let mut outermost = None;
            for function in trace.functions_leaf_first(frame) {
                kinds |= functions[function.index()];
                outermost = Some(function);
            }
            if kinds & EXCEPTION != 0
                && let Some(entry) = entries.of(parent)
            {
                stacks[entry.index()] |= EXCEPTION;
            }
            if kinds & TASK_RUN != 0 {
                inherited &= !TASK_WAIT;
                kinds &= !(TASK_WAIT | TASK_RUN);
            }
            if kinds & POOL_RUN != 0 {
                inherited &= !POOL_WAIT;
                kinds &= !(POOL_WAIT | POOL_RUN);
            }
            if let Some(function) = outermost {
                entries.add(stack, parent, (function, own.is_some()));
            }
            if (inherited | kinds) & (TASK_WAIT | POOL_WAIT) != 0 {
                kinds &= !SPINNING;
            }
            stacks[stack.index()] = inherited | kinds;
        }
        // Most of a `throw` runs in native code without a name, beside the functions with one.
        for (stack, ..) in trace.stacks.nodes() {
            if let Some(entry) = entries.of(stack) {
                stacks[stack.index()] |= stacks[entry.index()] & EXCEPTION;
            }
        }
        Self(stacks)
    }

    /// Returns the kinds of work of a sample.
    pub(super) fn kinds(&self, stack: StackId) -> impl Iterator<Item = WorkKind> {
        let flags = self.0.get(stack.index()).copied().unwrap_or_default();
        let kinds = WorkKind::ALL.into_iter();
        kinds.filter(move |kind| flags & kind.flag() != 0 && !kind.is_other(flags))
    }

    /// Counts a sample of a thread with this name.
    pub(super) fn count(&self, stack: StackId, is_gc_thread: bool, work: &mut Work) {
        let flags = self.0.get(stack.index()).copied().unwrap_or_default();
        let has = |flag| u64::from(flags & flag != 0);
        work.kernel += has(KERNEL);
        work.page_faults += has(PAGE_FAULT);
        work.jit += has(JIT);
        work.gc += has(GC).max(u64::from(is_gc_thread));
        work.exceptions += has(EXCEPTION);
        work.spinning += has(SPINNING);
        work.task_waits += has(TASK_WAIT);
        work.not_optimized += has(NOT_OPTIMIZED);
        work.truncated += has(TRUNCATED);
    }
}

/// Returns whether a thread belongs to the garbage collector.
pub(super) fn is_gc_thread(name: &str) -> bool {
    GC_THREADS.contains(&name)
}

/// Returns whether a method was compiled without optimization because its assembly asks for it.
fn is_not_optimized(function: &Function) -> bool {
    function.tier.as_deref() == Some(MIN_OPT_TIER)
}

fn flags(function: &Function) -> u16 {
    let name = function.name.as_deref().unwrap_or_default();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match function.kind {
        FunctionKind::Kernel if PAGE_FAULTS.contains(&name) => KERNEL | PAGE_FAULT,
        FunctionKind::Kernel => KERNEL,
        FunctionKind::Native => {
            let is_jit = function.module.starts_with("libclrjit");
            let is_gc = function.module.starts_with("libclrgc") || name.contains("gc_heap::");
            [
                (is_jit, JIT),
                (is_gc, GC),
                (THROWS.contains(&name), EXCEPTION),
                (SPIN_FUNCTIONS.contains(&name), SPINNING),
            ]
            .into_iter()
            .filter(|(is_it, _)| *is_it)
            .fold(0, |all, (_, flag)| all | flag)
        }
        FunctionKind::Jit | FunctionKind::ReadyToRun => [
            (&HANDLERS[..], EXCEPTION),
            (&SPINS, SPINNING),
            (&TASK_WAITS, TASK_WAIT),
            (&TASK_RUNS, TASK_RUN),
            (&POOL_WAITS, POOL_WAIT),
            (&POOL_RUNS, POOL_RUN),
        ]
        .into_iter()
        .filter(|(prefixes, _)| starts(prefixes))
        .fold(0, |all, (_, flag)| all | flag),
        FunctionKind::Marker => TRUNCATED,
        FunctionKind::Unmapped | FunctionKind::Blocked | FunctionKind::Group => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Frame, FrameId, FunctionId};

    /// Returns whether a stack of methods, root first, that ends in a native function spins.
    fn spins(methods: &[&str], native: &str) -> bool {
        let methods = methods
            .iter()
            .map(|name| Function::named(*name, "System.Private.CoreLib", FunctionKind::ReadyToRun));
        let functions: Vec<Function> = methods
            .chain([Function::named(
                native,
                "libcoreclr.so",
                FunctionKind::Native,
            )])
            .collect();
        let mut trace = Trace::default();
        for index in 0..functions.len() as u32 {
            trace.frame_functions.push(FunctionId(index));
            trace.frames.push(Frame {
                offset: 0,
                functions: index..index + 1,
            });
        }
        let stack = trace
            .stacks
            .intern((0..functions.len() as u32).map(FrameId));
        trace.functions = functions;
        let own_code = OwnCode::new(&trace, std::iter::empty());
        StackWork::new(&trace, &own_code)
            .kinds(stack)
            .any(|kind| kind == WorkKind::Spinning)
    }

    #[test]
    fn threads_without_work_do_not_spin_for_a_lock() {
        let worker = "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart()";
        let semaphore = "System.Threading.LowLevelLifoSemaphore.Wait(int,bool)";
        let dispatch = "System.Threading.ThreadPoolWorkQueue.Dispatch()";
        let lock = "System.Threading.Lock.TryEnterSlow(int)";
        let spin = SPIN_FUNCTIONS[0];
        assert!(!spins(&[worker, semaphore], spin));
        assert!(!spins(&[worker], spin), "the semaphore is inlined");
        assert!(spins(&[worker, dispatch, lock], spin));
        assert!(spins(&[lock], spin));
        assert!(!spins(&[worker, dispatch, lock], "ThreadNative_Sleep"));
    }
}
