//! Where .NET code calls native code of its runtime.

use rustc_hash::FxHashMap;

use crate::trace::{FunctionId, FunctionKind, StackId, Trace};

/// The function through which .NET code entered the native code of each stack: a part of the
/// runtime, such as the helper that throws. A function is the first stack that ends in it.
pub(super) struct Entries<'a> {
    trace: &'a Trace,
    by_stack: Vec<Entry>,
    first: FxHashMap<(StackId, FunctionId), StackId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    None,
    Managed,
    Native(StackId),
}

impl<'a> Entries<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            by_stack: vec![Entry::None; trace.stacks.len()],
            first: FxHashMap::default(),
        }
    }

    /// Returns the entry of a stack that ends in native code of the runtime.
    pub(super) fn of(&self, stack: StackId) -> Option<StackId> {
        match self.by_stack.get(stack.index()) {
            Some(Entry::Native(entry)) => Some(*entry),
            _ => None,
        }
    }

    /// Adds a stack, after its parent, with its innermost function and whether that is the user's.
    pub(super) fn add(
        &mut self,
        stack: StackId,
        parent: StackId,
        (function, is_own): (FunctionId, bool),
    ) {
        let above = match parent {
            StackId::EMPTY => Entry::None,
            parent => self.by_stack[parent.index()],
        };
        self.by_stack[stack.index()] = match self.trace.functions[function.index()].kind {
            FunctionKind::Jit | FunctionKind::ReadyToRun => Entry::Managed,
            _ if is_own => Entry::None,
            _ if above == Entry::Managed => {
                Entry::Native(*self.first.entry((parent, function)).or_insert(stack))
            }
            _ => above,
        };
    }
}
