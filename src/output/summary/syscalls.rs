//! System calls, by the kernel function at their start.

use crate::trace::{FunctionKind, StackId, Trace};

/// Starts of the names of the kernel functions at the start of a system call. Compilers inline some.
const CALLS: [&str; 5] = [
    "__x64_sys_",
    "__ia32_sys_",
    "__arm64_sys_",
    "__se_sys_",
    "ksys_",
];
/// Kernel functions before and after the one of the system call.
const ENTRIES: [&str; 4] = [
    "entry_SYSCALL_64_after_hwframe",
    "do_syscall_64",
    "el0t_64_sync",
    "el0_svc",
];
/// Name of the share of samples in the code before and after system calls alone.
pub const ENTRY_AND_EXIT: &str = "(entry and exit)";

/// No system call.
const NONE: u32 = u32::MAX;
/// Row of [`ENTRY_AND_EXIT`].
const ENTRY: u32 = 0;

/// The system call of each stack.
pub(super) struct Syscalls<'a> {
    names: Vec<&'a str>,
    by_stack: Vec<u32>,
}

impl<'a> Syscalls<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let mut names: Vec<&str> = vec![ENTRY_AND_EXIT];
        let mut row = |name: &'a str| {
            let at = names.iter().position(|known| *known == name);
            at.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }) as u32
        };
        let functions = trace.functions.iter().map(|function| {
            let name = function.name.as_deref().unwrap_or_default();
            let call = CALLS.iter().find_map(|entry| name.strip_prefix(entry));
            match call {
                _ if function.kind != FunctionKind::Kernel => NONE,
                Some(call) => row(call),
                None if ENTRIES.contains(&name) => ENTRY,
                None => NONE,
            }
        });
        let functions: Vec<u32> = functions.collect();
        let mut by_stack = vec![NONE; trace.stacks.len()];
        for (stack, parent, frame) in trace.stacks.nodes() {
            let inherited = match parent {
                StackId::EMPTY => NONE,
                parent => by_stack[parent.index()],
            };
            let own = trace.functions_leaf_first(frame).rev();
            let own = own.map(|function| functions[function.index()]);
            // The outermost call counts: it may use the functions of others.
            by_stack[stack.index()] = own.fold(inherited, |call, own| match (call, own) {
                (NONE | ENTRY, own) if own != NONE => own,
                (call, _) => call,
            });
        }
        Self { names, by_stack }
    }

    /// Returns the row of the system call that a stack is in.
    pub(super) fn row(&self, stack: StackId) -> Option<u32> {
        let row = self.by_stack.get(stack.index()).copied();
        row.filter(|row| *row != NONE)
    }

    /// Returns the name of a row, such as `read`.
    pub(super) fn name(&self, row: u32) -> &'a str {
        self.names.get(row as usize).copied().unwrap_or_default()
    }
}
