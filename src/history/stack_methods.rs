//! The methods in the stacks of events.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::trace::{
    Function, FunctionId, FunctionKind, Nanos, Pid, ProcessId, RuntimeEvent, Trace,
};

/// Limits on the stacks whose methods are kept.
const MAX_STACKS: usize = 1 << 14;
const MAX_ADDRESSES: usize = 1 << 21;
/// Maximum number of frames that are searched in a stack.
const MAX_FRAMES: usize = 512;
/// Module of the runtime's own methods.
const CORE_LIBRARY: &str = "System.Private.CoreLib";
/// Methods that throw, lock, wait or allocate for their callers, by the start of their names.
const PLUMBING: [&str; 19] = [
    "System.Diagnostics.Tracing.",
    "System.Runtime.EH.",
    "System.Runtime.ExceptionServices.ExceptionDispatchInfo.",
    "System.Runtime.CompilerServices.Async",
    "System.Runtime.CompilerServices.CastHelpers.",
    "System.Runtime.CompilerServices.Configured",
    "System.Runtime.CompilerServices.RuntimeHelpers.",
    "System.Runtime.CompilerServices.TaskAwaiter",
    "System.Runtime.CompilerServices.ValueTaskAwaiter",
    "System.ThrowHelper.",
    "System.Threading.Tasks.TplEventSource.",
    "System.Threading.Lock.",
    "System.Threading.Lock+",
    "System.Threading.Monitor.",
    "System.Threading.ManualResetEventSlim.",
    "System.Threading.Thread.Join",
    "System.Threading.WaitHandle.",
    "System.StubHelpers.",
    "System.GC.",
];
/// Start of the names of tasks, and their methods that wait for the task to end.
const TASK: &str = "System.Threading.Tasks.Task";
const TASK_WAITS: [&str; 5] = [
    ".Wait",
    ".InternalWait",
    ".SpinThenBlockingWait(",
    ".GetResultCore(",
    ".get_Result(",
];

/// The methods of a stack that identify what the thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EventMethods {
    /// The innermost method with a name that is not one of the runtime's helpers.
    pub(crate) leaf: Option<FunctionId>,
    /// The innermost method of the user.
    pub(crate) own: Option<FunctionId>,
    /// Whether the thread waits for a task.
    pub(crate) waits_for_task: bool,
}

/// A stack, which stays allocated, and its methods.
type KnownStack = (Arc<[u64]>, EventMethods);

/// Finds the methods in the stacks of events.
pub(crate) struct StackMethods<'a> {
    trace: &'a Trace,
    is_own: &'a dyn Fn(FunctionId) -> bool,
    /// Process instances of each process id whose code is known.
    instances: FxHashMap<Pid, Vec<ProcessId>>,
    /// Methods by the address of the stack. The `Arc` keeps the address unique.
    known: FxHashMap<(Pid, usize), KnownStack>,
    /// Number of addresses in these stacks.
    addresses: usize,
}

impl<'a> StackMethods<'a> {
    /// `is_own` returns whether a function is the user's.
    pub(crate) fn new(trace: &'a Trace, is_own: &'a dyn Fn(FunctionId) -> bool) -> Self {
        let mut instances: FxHashMap<Pid, Vec<ProcessId>> = FxHashMap::default();
        for (process, row) in trace.processes.iter().zip(0..) {
            if trace.event_code.has(ProcessId(row)) {
                instances
                    .entry(process.pid)
                    .or_default()
                    .push(ProcessId(row));
            }
        }
        Self {
            trace,
            is_own,
            instances,
            known: FxHashMap::default(),
            addresses: 0,
        }
    }

    /// Returns the methods in the stack of an event.
    pub(crate) fn of(&mut self, event: &RuntimeEvent) -> EventMethods {
        if event.stack.is_empty() {
            return EventMethods::default();
        }
        let key = (event.process, Arc::as_ptr(&event.stack).addr());
        if let Some((_, methods)) = self.known.get(&key) {
            return *methods;
        }
        let methods = self.find(event.process, &event.stack, event.time);
        self.addresses += event.stack.len();
        if self.known.len() >= MAX_STACKS || self.addresses > MAX_ADDRESSES {
            self.known.clear();
            self.addresses = event.stack.len();
        }
        self.known.insert(key, (Arc::clone(&event.stack), methods));
        methods
    }

    fn find(&self, process: Pid, stack: &[u64], time: Nanos) -> EventMethods {
        let mut methods = EventMethods::default();
        let instances = self.instances.get(&process);
        let instances = instances.map_or(&[][..], Vec::as_slice);
        for &address in stack.iter().take(MAX_FRAMES) {
            let find = |process: &ProcessId| self.trace.event_code.frame(*process, address, time);
            let Some(frame) = instances.iter().find_map(find) else {
                continue;
            };
            for id in self.trace.functions_leaf_first(frame) {
                let function = &self.trace.functions[id.index()];
                let Some(name) = managed_name(function) else {
                    continue;
                };
                if methods.leaf.is_none() {
                    let is_core = &*function.module == CORE_LIBRARY;
                    if is_core && is_task_wait(name) {
                        methods.waits_for_task = true;
                    } else if !is_core || !PLUMBING.iter().any(|start| name.starts_with(start)) {
                        methods.leaf = Some(id);
                    }
                }
                if (self.is_own)(id) {
                    methods.own = Some(id);
                    methods.leaf = methods.leaf.or(Some(id));
                    return methods;
                }
            }
        }
        methods
    }
}

/// Returns whether a method of the runtime waits for a task.
fn is_task_wait(name: &str) -> bool {
    name.starts_with(TASK) && TASK_WAITS.iter().any(|method| name.contains(method))
}

/// Returns the name of a managed method.
fn managed_name(function: &Function) -> Option<&str> {
    let is_managed = matches!(function.kind, FunctionKind::Jit | FunctionKind::ReadyToRun);
    let name = function.name.as_deref().map(str::trim);
    // Names of stubs and of frames that stand for something else are in square brackets.
    name.filter(|name| is_managed && !name.is_empty() && !name.starts_with('['))
}
