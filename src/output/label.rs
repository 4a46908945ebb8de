//! What a function is called wherever it is shown, before any escaping.

use std::borrow::Cow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::trace::{FrameId, Function, FunctionId, FunctionKind, Trace};

/// Name of the frame that stands for missing callers.
const TRUNCATED: &str = "[truncated]";

/// The name of a function, or the offset in its module for an address without one.
pub(super) fn name(trace: &Trace, frame: FrameId, function: FunctionId) -> Cow<'_, str> {
    let row = &trace.functions[function.index()];
    match known_name(row) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{:#x}", trace.frames[frame.index()].offset)),
    }
}

/// The name of a function, unless only its address is known.
pub(super) fn known_name(function: &Function) -> Option<&str> {
    let name = function
        .name
        .as_deref()
        .filter(|name| !name.trim().is_empty());
    name.or((function.kind == FunctionKind::Marker).then_some(TRUNCATED))
}

/// The module of a function, or its kind of code where there is none.
pub(super) fn module(function: &Function) -> &str {
    match function.module.trim() {
        "" => module_of_kind(function.kind),
        module => module,
    }
}

/// What stands for the module of code in none.
pub(super) fn module_of_kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "vmlinux",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "jit",
        FunctionKind::ReadyToRun => "r2r",
        FunctionKind::Unmapped => "unmapped",
        FunctionKind::Marker => "perfcollect",
    }
}

/// Gives functions that show alike one row, whatever tier or address they have.
pub(super) struct Interner<K> {
    /// The rows, in the order they were met.
    pub(super) rows: Vec<K>,
    ids: FxHashMap<K, usize>,
    /// Rows of the functions with a name; those without have one per address.
    of_function: Vec<Option<usize>>,
}

impl<K: Clone + Eq + Hash> Interner<K> {
    pub(super) fn new(trace: &Trace) -> Self {
        Self {
            rows: Vec::new(),
            ids: FxHashMap::default(),
            of_function: vec![None; trace.functions.len()],
        }
    }

    /// The row of `key`.
    pub(super) fn intern(&mut self, key: K) -> usize {
        *self.ids.entry(key).or_insert_with_key(|key| {
            self.rows.push(key.clone());
            self.rows.len() - 1
        })
    }

    /// The row of a function at an address; `key` makes its key and runs once per function with a name.
    pub(super) fn row(
        &mut self,
        trace: &Trace,
        function: FunctionId,
        key: impl FnOnce() -> K,
    ) -> usize {
        if let Some(row) = self.of_function[function.index()] {
            return row;
        }
        let row = self.intern(key());
        if known_name(&trace.functions[function.index()]).is_some() {
            self.of_function[function.index()] = Some(row);
        }
        row
    }
}
