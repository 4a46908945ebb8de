//! Kinds of work that the functions in a stack reveal: compilation, collection, exceptions, ...

use serde::{Deserialize, Serialize};

use crate::output::own_code::OwnCode;
use crate::trace::{Function, FunctionKind, StackId, Trace};

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
    /// In a loop that waits for a lock or another thread.
    pub spinning: u64,
    /// Of threads that wait for a task to complete, which blocks a thread.
    pub task_waits: u64,
    /// In or below the user's .NET methods that were compiled without optimization on request.
    pub not_optimized: u64,
    /// In or below the user's methods with a name.
    pub own: u64,
}

const PAGE_FAULT: u8 = 1;
const JIT: u8 = 2;
const GC: u8 = 4;
const EXCEPTION: u8 = 8;
const SPINNING: u8 = 16;
const TASK_WAIT: u8 = 32;
const KERNEL: u8 = 64;
const NOT_OPTIMIZED: u8 = 128;

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
/// Starts of .NET methods that spin.
const SPINS: [&str; 3] = [
    "System.Threading.SpinWait.",
    "System.Threading.SpinLock.",
    "System.Threading.Thread.SpinWait",
];
/// Starts of .NET methods that block a thread until a task is complete.
const TASK_WAITS: [&str; 4] = [
    "System.Threading.Tasks.Task.InternalWait",
    "System.Threading.Tasks.Task.SpinThenBlockingWait",
    "System.Threading.Tasks.Task.Wait",
    "System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification",
];
/// Threads of the garbage collector.
const GC_THREADS: [&str; 2] = [".NET Server GC", ".NET BGC"];
/// Tier of methods that are compiled without optimization on request: a debug build.
const MIN_OPT_TIER: &str = "MinOptJitted";

/// The kinds of work of each stack.
pub(super) struct StackWork(Vec<u8>);

impl StackWork {
    pub(super) fn new(trace: &Trace, own_code: &OwnCode) -> Self {
        let functions: Vec<u8> = trace.functions.iter().map(flags).collect();
        let mut stacks = vec![0; trace.stacks.len()];
        for (stack, parent, frame) in trace.stacks.nodes() {
            let inherited: u8 = match parent {
                StackId::EMPTY => 0,
                parent => stacks[parent.index()],
            };
            // The innermost method of the user decides.
            let mut inside = trace.functions_leaf_first(frame);
            let not_optimized = match inside.find(|function| own_code.is_own(*function)) {
                Some(own) if is_not_optimized(&trace.functions[own.index()]) => NOT_OPTIMIZED,
                Some(_) => 0,
                None => inherited & NOT_OPTIMIZED,
            };
            let inside = trace.functions_leaf_first(frame);
            let inside = inside.map(|function| functions[function.index()]);
            let kinds = inside.fold(inherited & !NOT_OPTIMIZED, |all, flags| all | flags);
            stacks[stack.index()] = kinds | not_optimized;
        }
        Self(stacks)
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

fn flags(function: &Function) -> u8 {
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
            ]
            .into_iter()
            .filter(|(is_it, _)| *is_it)
            .fold(0, |all, (_, flag)| all | flag)
        }
        FunctionKind::Jit | FunctionKind::ReadyToRun => [
            (&HANDLERS[..], EXCEPTION),
            (&SPINS, SPINNING),
            (&TASK_WAITS, TASK_WAIT),
        ]
        .into_iter()
        .filter(|(prefixes, _)| starts(prefixes))
        .fold(0, |all, (_, flag)| all | flag),
        FunctionKind::Unmapped | FunctionKind::Marker | FunctionKind::Group => 0,
    }
}
